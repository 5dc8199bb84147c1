//! What replicas cost: processor time of a call and of a change, beside one process without an engine, in one run.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::Client;
use bowline::client::ChangeFilter;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clients::{LEGACY, LIMIT, MODERN, connect};
use crate::fleet::Fleet;
use crate::options::Options;
use crate::replica_process::ReplicaProcess;

/// Prints the rows of an engine: of calls, and of changes.
pub(crate) async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let name = options.engine.name();
    for version in [MODERN, LEGACY[0]] {
        let alone = ReplicaProcess::start(&options.replica, None, &options.state).await?;
        let url = format!("http://{}/mcp", alone.address());
        let without = cpu_per_call(&[&alone], &url, version).await?;
        let fleet = Fleet::start(options, 3).await?;
        let one = &fleet.replicas()[0];
        let url = format!("http://{}/mcp", one.address());
        let with_engine = cpu_per_call(&[one], &url, version).await?;
        let all: Vec<_> = fleet.replicas().iter().collect();
        let replicas = cpu_per_call(&all, &fleet.url(), version).await?;
        println!(
            "| {name} | {version} | {:.2} | {:.2} |",
            with_engine / without,
            replicas / without
        );
    }
    changes(options).await?;
    Ok(true)
}

/// Returns the processor time of a call in microseconds, over all processes that serve it.
async fn cpu_per_call(
    replicas: &[&ReplicaProcess],
    url: &str,
    version: &str,
) -> Result<f64, Box<dyn Error>> {
    let mut clients = Vec::new();
    for _ in 0..CONCURRENT {
        clients.push(connect(url, version).await?);
    }
    call_all(&clients, WARM_UP).await?;
    let before = cpu(replicas)?;
    call_all(&clients, CALLS).await?;
    let used = cpu(replicas)? - before;
    Ok(used.as_secs_f64() * 1e6 / (CALLS * CONCURRENT) as f64)
}

async fn call_all(clients: &[Client], calls: usize) -> Result<(), Box<dyn Error>> {
    let mut running: JoinSet<bowline::Result<()>> = JoinSet::new();
    for client in clients {
        let client = client.clone();
        running.spawn(async move {
            for number in 0..calls {
                let text = number.to_string();
                let call = client.call_tool("echo", json!({"text": text}));
                call.timeout(LIMIT).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// Measures what this machine can hold, and derives the rest from the model in `docs/replicas.md`.
async fn changes(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::new();
    for replicas in MEASURED_REPLICAS {
        let fleet = Fleet::start(options, replicas).await?;
        for subscriptions in MEASURED_SUBSCRIPTIONS {
            let cost = cpu_per_change(&fleet, subscriptions).await?;
            measured.push((replicas, subscriptions, cost));
        }
    }
    let at = |replicas, subscriptions| {
        let found = measured
            .iter()
            .find(|(r, s, _)| (*r, *s) == (replicas, subscriptions));
        found.map(|(_, _, cost)| *cost)
    };
    let [few, many] = MEASURED_SUBSCRIPTIONS;
    let [one, three] = MEASURED_REPLICAS;
    let (Some(base), Some(wide), Some(spread)) = (at(one, few), at(one, many), at(three, few))
    else {
        return Err("a measurement is missing".into());
    };
    let per_subscription = (wide - base) / (many - few) as f64;
    let per_replica = (spread - base) / (three - one) as f64;
    let publish = base - per_replica - few as f64 * per_subscription;
    for replicas in [1, 3, 10] {
        for subscriptions in [100, 1_000, 10_000] {
            let model =
                publish + replicas as f64 * per_replica + subscriptions as f64 * per_subscription;
            let measured = at(replicas, subscriptions);
            let measured = measured.map_or("–".to_owned(), |cost| format!("{:.1}", cost / 1e3));
            println!(
                "| {} | {replicas} | {subscriptions} | {measured} | {:.1} | {} |",
                options.engine.name(),
                model / 1e3,
                replicas + 1,
            );
        }
    }
    println!(
        "model: {publish:.0} µs + {per_replica:.0} µs × replicas + {per_subscription:.1} µs × subscriptions"
    );
    Ok(())
}

/// Returns the processor time of a change in microseconds, over all replicas.
async fn cpu_per_change(fleet: &Fleet, subscriptions: usize) -> Result<f64, Box<dyn Error>> {
    let (received, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let mut listening = JoinSet::new();
    let clients = subscriptions.div_ceil(PER_CLIENT);
    for nth in 0..clients {
        let client = Client::connect(&fleet.url())
            .http2()
            .protocol_version(MODERN)
            .await?;
        for _ in 0..PER_CLIENT.min(subscriptions - nth * PER_CLIENT) {
            let filter = ChangeFilter::new().resource(URI);
            let mut changes = client.subscribe(filter).await?;
            let (received, arrived) = (received.clone(), arrived.clone());
            listening.spawn(async move {
                while let Ok(Some(_)) = changes.next().await {
                    received.fetch_add(1, Ordering::Relaxed);
                    arrived.notify_one();
                }
            });
        }
    }
    let caller = connect(&fleet.url(), MODERN).await?;
    let replicas: Vec<_> = fleet.replicas().iter().collect();
    let mut before = cpu(&replicas)?;
    for change in 0..WARM_UP_CHANGES + CHANGES {
        if change == WARM_UP_CHANGES {
            before = cpu(&replicas)?;
        }
        received.store(0, Ordering::Relaxed);
        let touch = caller.call_tool("touch", json!({"uri": URI}));
        touch.timeout(LIMIT).await?;
        timeout(LIMIT, async {
            while received.load(Ordering::Relaxed) < subscriptions as u64 {
                arrived.notified().await;
            }
        })
        .await?;
    }
    let used = cpu(&replicas)? - before;
    Ok(used.as_secs_f64() * 1e6 / CHANGES as f64)
}

/// Returns the processor time that the processes have used.
fn cpu(replicas: &[&ReplicaProcess]) -> Result<Duration, Box<dyn Error>> {
    let mut used = Duration::ZERO;
    for replica in replicas {
        let id = replica.id().ok_or("a replica has exited")?;
        for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
            // A thread of the blocking pool may end meanwhile.
            if let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) {
                let nanoseconds = text.split(' ').next().unwrap_or_default().trim().parse()?;
                used += Duration::from_nanos(nanoseconds);
            }
        }
    }
    Ok(used)
}

const URI: &str = "fixture://counter";
const CONCURRENT: usize = 8;
const WARM_UP: usize = 50;
const CALLS: usize = 500;
const WARM_UP_CHANGES: usize = 5;
const CHANGES: usize = 50;
/// Below the stream limit of a connection.
const PER_CLIENT: usize = 50;
const MEASURED_REPLICAS: [usize; 2] = [1, 3];
const MEASURED_SUBSCRIPTIONS: [usize; 2] = [100, 1_000];
