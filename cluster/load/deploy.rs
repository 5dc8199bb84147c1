//! A rolling deploy of all replicas under load.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clients::{LEGACY, MODERN, connect_all, start_calls};
use crate::fleet::Fleet;
use crate::options::Options;
use crate::tally::Tally;

/// Replaces all replicas one after the other; returns whether no session was lost and no call failed.
pub(crate) async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let mut fleet = Fleet::start(options, REPLICAS).await?;
    let (url, tally) = (fleet.url(), Arc::new(Tally::default()));
    let mut load = JoinSet::new();
    let versions = [
        (LEGACY[0], 80),
        (LEGACY[1], 60),
        (LEGACY[2], 60),
        (MODERN, MODERN_CLIENTS),
    ];
    let clients = connect_all(&url, &versions).await?;
    let (opened, _) = fleet.sessions();
    start_calls(&mut load, clients, CALL_EVERY, &tally);
    sleep(CALM).await;
    let begun = Instant::now();
    for _ in 0..REPLICAS {
        fleet.redeploy().await?;
    }
    let took = begun.elapsed().as_secs();
    sleep(CALM).await;
    load.shutdown().await;
    let counts = tally.take();
    let (reopened, unknown) = fleet.sessions();
    let lost = (reopened - opened).max(unknown);
    println!(
        "| {} | {opened} | {lost} | {MODERN_CLIENTS} | {} | {} | {} | {took} s | {:.1} s |",
        options.engine.name(),
        counts.calls,
        counts.failed_calls,
        counts.crossed,
        counts.longest.as_secs_f64(),
    );
    counts.print_errors();
    Ok(counts.is_sound() && lost == 0 && counts.failed_calls == 0)
}

const REPLICAS: usize = 3;
const MODERN_CLIENTS: usize = 200;
const CALL_EVERY: Duration = Duration::from_secs(1);
const CALM: Duration = Duration::from_secs(3);
