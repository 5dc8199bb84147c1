//! HTTP+SSE, the transport of 2024-11-05: POSTs that stall, and calls that are dropped before or after theirs.

use std::time::Duration;

use bowline::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use crate::legacy_server::{LegacyServer, Stage, idle};

const CALL: &str = "POST tools/call";
const CANCEL: &str = "POST notifications/cancelled";

async fn connect() -> (LegacyServer, Client) {
    let server = LegacyServer::start();
    server.world().has_two_endpoints = true;
    let client = server.connect().await;
    idle().await;
    server.take_seen();
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_post_has_a_connection_is_withdrawn() {
    let (server, client) = connect().await;
    server.hold(Stage::Connect, CALL);
    let first = client.call_tool("slow", ()).start();
    let second = client.call_tool("quick", ()).start();
    idle().await;

    drop((first, second));
    idle().await;
    server.release(Stage::Connect, CALL);
    let third = client.call_tool("quick", ()).await;

    assert!(third.is_ok(), "{third:?}");
    assert_eq!(server.seen(), [CALL]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_follows_its_request_after_100_ms_even_if_that_post_is_not_answered() {
    let (server, client) = connect().await;
    server.hold(Stage::Head, CALL);
    let call = client.call_tool("slow", ()).start();
    idle().await;

    drop(call);
    idle().await;
    assert_eq!(server.seen(), [CALL]);
    sleep(Duration::from_millis(100)).await;

    assert_eq!(server.seen(), [CALL, CANCEL]);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_stalls_holds_up_what_follows_for_a_second_at_most() {
    let (server, client) = connect().await;
    server.hold(Stage::Head, CALL);
    let _stalled = client.call_tool("slow", ()).start();
    idle().await;

    let start = Instant::now();
    // The answer comes over the stream; that its POST is never accepted does not matter.
    let quick = client.call_tool("quick", ()).await;

    assert!(quick.is_ok(), "{quick:?}");
    assert!(start.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_post_that_is_never_accepted_fails_its_call_in_the_end() {
    let (server, client) = connect().await;
    server.hold(Stage::Transit, CALL);
    let idle_connections = server.connections();
    let call = client.call_tool("slow", ());
    let call = call.total_timeout(Duration::from_secs(3600));

    let failed = timeout(Duration::from_secs(60), call.into_future()).await;

    assert!(
        matches!(failed, Ok(Err(Error::Timeout { .. }))),
        "{failed:?}"
    );
    assert_eq!(server.connections(), idle_connections);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_stalls_is_given_up() {
    let (server, client) = connect().await;
    let idle_connections = server.connections();
    server.hold(Stage::Head, CANCEL);
    let calls: Vec<_> = (0..50)
        .map(|_| client.call_tool("slow", ()).start())
        .collect();
    idle().await;

    drop(calls);
    sleep(Duration::from_millis(200)).await;
    let held = server.connections() - idle_connections;
    sleep(Duration::from_secs(10)).await;

    assert!(held <= 16, "{held}");
    assert_eq!(server.connections(), idle_connections);
    let seen = server.seen();
    assert_eq!(seen.iter().filter(|what| *what == CANCEL).count(), 50);
}
