//! Clients that make calls, at a pace of their own.

use std::sync::Arc;
use std::time::Duration;

use bowline::Client;
use bowline_tasks::TaskClient;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::tally::Tally;

/// Connects a client, within a limit.
pub(crate) async fn connect(url: &str, version: &str) -> bowline::Result<Client> {
    let connecting = Client::connect(url)
        .client_info("cluster-load", "1.0.0")
        .extension(TaskClient::new())
        .protocol_version(version);
    connecting.connect_timeout(LIMIT).await
}

/// Connects clients, as many in each version as `counts` says.
pub(crate) async fn connect_all(
    url: &str,
    counts: &[(&str, usize)],
) -> bowline::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for (version, count) in counts {
        for _ in 0..*count {
            clients.push(connect(url, version).await?);
        }
    }
    Ok(clients)
}

/// Makes calls again and again, until the set of tasks is dropped.
pub(crate) fn start_calls(
    tasks: &mut JoinSet<()>,
    clients: Vec<Client>,
    every: Duration,
    tally: &Arc<Tally>,
) {
    for (nth, client) in clients.into_iter().enumerate() {
        let tally = tally.clone();
        tasks.spawn(async move {
            // Spread over the interval, so that they do not all call at once.
            let first = Instant::now() + every.mul_f64(f64::from(nth as u32 % 64) / 64.0);
            let mut pace = tokio::time::interval_at(first, every);
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for number in 0_u64.. {
                pace.tick().await;
                let (tool, arguments, expected) = request(nth, number);
                let begun = Instant::now();
                let call = client.call_tool(tool, arguments).timeout(LIMIT);
                let result = call.await.map(|reply| reply.text());
                tally.call(begun.elapsed(), LIMIT, &expected, result);
            }
        });
    }
}

/// Returns a call whose answer belongs to no other: a short one, or for every fourth client one with progress, which
/// takes half a second, so that faults meet calls that run.
fn request(nth: usize, number: u64) -> (&'static str, Value, String) {
    if nth % 4 == 3 {
        let steps = 80 + nth;
        return ("progress", json!({"n": steps}), format!("{steps} steps"));
    }
    let nonce = format!("client {nth}, call {number}");
    ("echo", json!({"text": nonce}), nonce)
}

/// The deadline of each call.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
