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
use crate::model::{Measurement, Model};
use crate::options::Options;
use crate::replica_process::ReplicaProcess;

/// Prints the rows of an engine: of calls, and of changes.
pub(crate) async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    for version in [MODERN, LEGACY[0]] {
        calls(options, version).await?;
    }
    changes(options).await?;
    Ok(true)
}

/// Measures the three in turns, so that what happens to the machine meanwhile affects all of them.
async fn calls(options: &Options, version: &str) -> Result<(), Box<dyn Error>> {
    let alone = ReplicaProcess::start(&options.replica, None, &options.state).await?;
    let fleet = Fleet::start(options, 3).await?;
    fleet.stop_probing();
    let one = &fleet.replicas()[0];
    let direct = |replica: &ReplicaProcess| format!("http://{}/mcp", replica.address());
    let targets = [
        (vec![&alone], direct(&alone)),
        (vec![one], direct(one)),
        (fleet.replicas().iter().collect(), fleet.url()),
    ];
    let mut costs: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        for ((replicas, url), costs) in targets.iter().zip(&mut costs) {
            let cost = cpu_per_call(replicas, url, version).await?;
            // The first round warms up.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    let [without, with_engine, three] = costs.map(median);
    println!(
        "| {} | {version} | {without:.0} | {:.2} | {:.2} |",
        options.engine.name(),
        with_engine / without,
        three / without
    );
    Ok(())
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

/// The noise of a busy machine has outliers.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
    for replicas in REPLICAS {
        let fleet = Fleet::start(options, replicas).await?;
        fleet.stop_probing();
        for subscriptions in MEASURED_SUBSCRIPTIONS {
            measured.push(Measurement {
                replicas,
                subscriptions,
                cost: cpu_per_change(&fleet, subscriptions).await?,
            });
        }
    }
    let model = Model::fit(&measured);
    for replicas in REPLICAS {
        for subscriptions in SUBSCRIPTIONS {
            let at =
                |it: &&Measurement| (it.replicas, it.subscriptions) == (replicas, subscriptions);
            let found = measured.iter().find(at);
            let found = found.map_or("–".to_owned(), |it| format!("{:.2}", it.cost / 1e3));
            println!(
                "| {} | {replicas} | {subscriptions} | {found} | {:.2} | {} |",
                options.engine.name(),
                model.cost(replicas, subscriptions) / 1e3,
                replicas + 1,
            );
        }
    }
    println!(
        "| {} | {:.0} | {:.0} | {:.2} |",
        options.engine.name(),
        model.publish,
        model.per_replica,
        model.per_subscription
    );
    Ok(())
}

/// Returns the processor time of a change in microseconds, over all replicas.
async fn cpu_per_change(fleet: &Fleet, subscriptions: usize) -> Result<f64, Box<dyn Error>> {
    let (received, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let mut listening = JoinSet::new();
    let clients = subscriptions.div_ceil(PER_CLIENT);
    for nth in 0..clients {
        // Not through the proxy, whose one connection to each replica has too few streams.
        let replica = fleet.replicas()[nth % fleet.replicas().len()].address();
        let url = format!("http://{replica}/mcp");
        let client = Client::connect(&url)
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
    let mut costs = Vec::new();
    for round in 0..=ROUNDS {
        let before = cpu(&replicas)?;
        for _ in 0..CHANGES {
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
        // The first round warms up.
        if round > 0 {
            costs.push(used.as_secs_f64() * 1e6 / f64::from(CHANGES));
        }
    }
    Ok(median(costs))
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
const CHANGES: u32 = 20;
/// The median of these counts.
const ROUNDS: usize = 5;
/// Below the stream limit of a connection.
const PER_CLIENT: usize = 50;
const REPLICAS: [usize; 3] = [1, 3, 10];
const SUBSCRIPTIONS: [usize; 3] = [100, 1_000, 10_000];
const MEASURED_SUBSCRIPTIONS: [usize; 2] = [100, 1_000];
