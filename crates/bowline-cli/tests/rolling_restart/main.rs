//! A rolling restart of two replicas behind a load balancer, under load, loses no call.
//!
//! The replicas are processes that get SIGTERM, one after the other, and are replaced. Every call is counted.

#![cfg(unix)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod proxy;

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use proxy::Proxy;

/// A replica: `bowline serve-demo` over HTTP.
struct Replica {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

/// What a replica did in its drain.
#[derive(Debug, Default, PartialEq)]
struct Drained {
    refused: usize,
    cancelled: usize,
}

impl Replica {
    async fn start(drain_delay: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bowline"))
            .args(["serve-demo", "--transport", "http", "--grace", "30s"])
            .args(["--drain-delay", drain_delay])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = stdout.next_line().await.unwrap().unwrap();
        let url = ready.strip_prefix("READY http://").unwrap();
        let addr = url.strip_suffix("/mcp").unwrap().parse().unwrap();
        Self {
            child,
            stdout,
            addr,
        }
    }

    /// Sends SIGTERM, and waits until the process has ended.
    async fn drain(mut self) -> Drained {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let report = self.stdout.next_line().await.unwrap().unwrap();
        assert!(self.child.wait().await.unwrap().success());
        let number = |name: &str| {
            let text = report.split_once(name).unwrap().1;
            let digits = text.split_whitespace().next().unwrap();
            digits.parse().unwrap()
        };
        Drained {
            refused: number("refused="),
            cancelled: number("cancelled="),
        }
    }
}

/// The calls of all clients.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicUsize,
    answered: AtomicUsize,
    lost: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// Calls tools one after the other until the restart is over. Each answer is checked.
async fn call_without_pause(client: Client, counts: Arc<Counts>) {
    while !counts.is_over.load(Ordering::SeqCst) {
        let number = counts.sent.fetch_add(1, Ordering::SeqCst);
        let (tool, arguments, expected) = match number % 4 {
            0 => ("slow", json!({"seconds": 0.1}), "slept".to_owned()),
            1 => ("slow", json!({"seconds": 0.01}), "slept".to_owned()),
            _ => (
                "add",
                json!({"a": number, "b": 1}),
                (number + 1).to_string(),
            ),
        };
        match client.call_tool(tool, arguments).await {
            Ok(reply) if reply.text() == expected => {
                counts.answered.fetch_add(1, Ordering::SeqCst);
            }
            Ok(other) => counts.lost.lock().unwrap().push(other.text()),
            Err(error) => counts.lost.lock().unwrap().push(format!("{error:?}")),
        }
    }
}

/// Restarts both replicas twice under load. Returns the counts, and what the drains did together.
async fn rolling_restart(drain_delay: &str, probe_interval: Duration) -> (Arc<Counts>, Drained) {
    let proxy = Proxy::start(probe_interval).await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let replica = Replica::start(drain_delay).await;
        let probed = proxy.add(replica.addr).await;
        replicas.push((replica, probed));
    }
    let (counts, mut clients) = (Arc::new(Counts::default()), JoinSet::new());
    for number in 0..CLIENTS {
        let connect = Client::connect(&format!("http://{}/mcp", proxy.addr));
        let connect = connect.protocol_version("2026-07-28");
        let connect = match number % 2 {
            0 => connect,
            _ => connect.http2(),
        };
        clients.spawn(call_without_pause(connect.await.unwrap(), counts.clone()));
    }

    let mut drained = Drained::default();
    for _ in 0..4 {
        let (old, probed) = replicas.remove(0);
        // Calls reach it, so that there is something to lose.
        let before = counts.answered.load(Ordering::SeqCst);
        while counts.answered.load(Ordering::SeqCst) < before + CALLS_BETWEEN {
            tokio::task::yield_now().await;
        }
        assert!(probed.connections.load(Ordering::SeqCst) > 0);
        let one = old.drain().await;
        proxy.remove(&probed);
        drained.refused += one.refused;
        drained.cancelled += one.cancelled;
        let replica = Replica::start(drain_delay).await;
        let probed = proxy.add(replica.addr).await;
        replicas.push((replica, probed));
    }
    counts.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    (counts, drained)
}

fn check(counts: &Counts, drained: &Drained) {
    let (sent, answered) = (&counts.sent, &counts.answered);
    let (sent, answered) = (sent.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
    let lost = counts.lost.lock().unwrap();
    eprintln!(
        "4 restarts: {sent} calls sent, {answered} answered, {} refused and sent again, {} lost",
        drained.refused,
        lost.len()
    );
    assert!(lost.is_empty(), "{:?}", &lost[..lost.len().min(3)]);
    assert_eq!(answered, sent);
    assert!(sent >= 4 * CALLS_BETWEEN);
    assert_eq!(drained.cancelled, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_call() {
    let (counts, drained) = rolling_restart("500ms", Duration::from_millis(50)).await;

    check(&counts, &drained);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_reach_a_replica_too_late_are_refused_and_sent_again() {
    // The load balancer notices after the delay, so that new connections reach a replica that refuses.
    let (counts, drained) = rolling_restart("0s", Duration::from_millis(50)).await;

    check(&counts, &drained);
    assert!(drained.refused > 0);
}

const CLIENTS: usize = 8;
/// How many calls are answered before each restart.
const CALLS_BETWEEN: usize = 200;
