//! Legacy clients whose timers only progress restarts wait for a silent server behind a bridge.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::Error;
use bowline::prelude::*;
use bowline_bridge::{Bridge, BridgeBuilder, Target};
use tokio::time::{Instant, sleep};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// The second of arrival, and the value, of each report.
type Reports = Vec<(u64, f64)>;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn server() -> Server {
    let silent = Tool::new("silent", async || {
        sleep(seconds(150)).await;
        "done"
    });
    let hours = Tool::new("hours", async || {
        sleep(seconds(2 * 3600)).await;
        "done"
    });
    let slow = Tool::new("slow", async |cx: Context| {
        for done in [0, 1, 2] {
            sleep(seconds(30)).await;
            cx.progress(done);
        }
        "done"
    });
    Server::new("upstream", "1.0.0")
        .tool(silent)
        .tool(hours)
        .tool(slow)
}

/// Returns the builder of a bridge to a server that speaks this version.
fn builder(version: &'static str) -> BridgeBuilder {
    let server = server();
    Bridge::builder(Target::new("upstream", move |_| {
        Ok(Client::in_process(&server).protocol_version(version))
    }))
}

/// Calls a tool through a bridge, with an idle timeout of 60 s.
async fn call(bridge: &Bridge, version: &str, tool: &str) -> (Result<String, Error>, Reports) {
    let client = Client::in_process(bridge).protocol_version(version);
    let client = client.idle_timeout(seconds(60)).await.unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (seen, started) = (reports.clone(), Instant::now());
    let call = client.call_tool(tool, ()).on_progress(move |report| {
        let second = started.elapsed().as_secs();
        seen.lock().unwrap().push((second, report.progress));
    });

    let reply = call.await.map(|reply| reply.text());

    let reports = std::mem::take(&mut *reports.lock().unwrap());
    (reply, reports)
}

fn at(reports: &Reports) -> Vec<u64> {
    reports.iter().map(|(second, _)| *second).collect()
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_waits_for_a_silent_server_of_every_era() {
    for back in [LEGACY, MODERN] {
        let (reply, reports) = call(&builder(back).build(), LEGACY, "silent").await;

        assert_eq!(reply.unwrap(), "done", "behind: {back}");
        assert_eq!(at(&reports), [20, 40, 60, 80, 100, 120, 140]);
        let increases = reports.is_sorted_by(|(_, one), (_, next)| one < next);
        assert!(increases, "{reports:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_of_the_server_restarts_the_silence_and_must_be_above_the_last_heartbeat() {
    for back in [LEGACY, MODERN] {
        let (reply, reports) = call(&builder(back).build(), LEGACY, "slow").await;

        assert_eq!(reply.unwrap(), "done", "behind: {back}");
        // The 0 after 30 s is not above the heartbeat after 20 s.
        assert_eq!(at(&reports), [20, 40, 60, 80, 90], "behind: {back}");
        let real = [reports[2], reports[4]];
        assert_eq!(real, [(60, 1.0), (90, 2.0)], "behind: {back}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_heartbeats_a_client_gives_up() {
    let (reply, reports) = call(&builder(MODERN).heartbeat(None).build(), LEGACY, "silent").await;

    assert!(matches!(reply, Err(Error::Timeout { .. })), "{reply:?}");
    assert!(reports.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_the_limit_a_client_gives_up() {
    let bridge = builder(LEGACY)
        .heartbeat(Some(seconds(10)))
        .heartbeat_limit(Some(seconds(25)))
        .build();

    let (reply, reports) = call(&bridge, LEGACY, "silent").await;

    assert!(matches!(reply, Err(Error::Timeout { .. })), "{reply:?}");
    assert_eq!(at(&reports), [10, 20]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_an_hour_unless_it_is_removed() {
    let patient = || builder(LEGACY).call_idle_timeout(seconds(3 * 3600));

    let (limited, _) = call(&patient().build(), LEGACY, "hours").await;
    let (unlimited, _) = call(&patient().heartbeat_limit(None).build(), LEGACY, "hours").await;

    assert!(matches!(limited, Err(Error::Timeout { .. })), "{limited:?}");
    assert_eq!(unlimited.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_gets_none() {
    let (reply, reports) = call(&builder(LEGACY).build(), MODERN, "silent").await;

    assert!(matches!(reply, Err(Error::Timeout { .. })), "{reply:?}");
    assert!(reports.is_empty());
}
