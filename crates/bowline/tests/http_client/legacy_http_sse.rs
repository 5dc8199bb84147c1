//! HTTP+SSE, the transport of 2024-11-05: stalled POSTs, and calls dropped before or after their POST.

use std::time::Duration;

use bowline::client::Reconnect;
use bowline::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use crate::legacy_server::{HoldStage, LegacyServer, run_until_idle};

const CALL: &str = "POST tools/call";
const CANCEL: &str = "POST notifications/cancelled";

async fn connect() -> (LegacyServer, Client) {
    let server = LegacyServer::start();
    server.state().is_http_sse = true;
    let client = server.connect().await;
    run_until_idle().await;
    server.take_processed();
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_post_gets_a_connection_is_withdrawn() {
    let (server, client) = connect().await;
    server.hold(HoldStage::Connect, CALL);
    let first = client.call_tool("slow", ()).start();
    let second = client.call_tool("quick", ()).start();
    run_until_idle().await;

    drop((first, second));
    run_until_idle().await;
    server.release(HoldStage::Connect, CALL);
    let third = client.call_tool("quick", ()).await;

    assert!(third.is_ok(), "{third:?}");
    assert_eq!(server.processed(), [CALL]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_sent_100_ms_after_its_request_even_if_that_post_has_no_response() {
    let (server, client) = connect().await;
    server.hold(HoldStage::Head, CALL);
    let call = client.call_tool("slow", ()).start();
    run_until_idle().await;

    drop(call);
    run_until_idle().await;
    assert_eq!(server.processed(), [CALL]);
    sleep(Duration::from_millis(100)).await;

    assert_eq!(server.processed(), [CALL, CANCEL]);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_post_delays_later_posts_by_at_most_one_second() {
    let (server, client) = connect().await;
    server.hold(HoldStage::Head, CALL);
    let _stalled = client.call_tool("slow", ()).start();
    run_until_idle().await;

    let start = Instant::now();
    // The result arrives on the SSE stream, so the missing 202 of its POST does not matter.
    let quick = client.call_tool("quick", ()).await;

    assert!(quick.is_ok(), "{quick:?}");
    assert!(start.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_post_without_a_response_times_out_its_call() {
    let (server, client) = connect().await;
    server.hold(HoldStage::Transit, CALL);
    let idle_connections = server.connections();
    let call = client.call_tool("slow", ());
    let call = call.timeout(Duration::from_secs(3600));

    let failed = timeout(Duration::from_secs(60), call.into_future()).await;

    assert!(
        matches!(failed, Ok(Err(Error::Timeout { .. }))),
        "{failed:?}"
    );
    assert_eq!(server.connections(), idle_connections);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_opens_the_stream_again() {
    let server = LegacyServer::start();
    server.state().is_http_sse = true;
    let client = server
        .builder()
        .reconnect(Reconnect::default())
        .await
        .unwrap();
    run_until_idle().await;
    server.take_processed();
    let in_flight = client.call_tool("slow", ()).start();
    run_until_idle().await;

    server.restart();

    let error = in_flight.await.unwrap_err();
    assert!(error.is_disconnected(), "{error:?}");
    assert!(client.call_tool("quick", ()).await.is_ok());
    let processed = server.processed();
    let count = |label| processed.iter().filter(|it| *it == label).count();
    assert_eq!(
        (count("POST initialize"), count(CALL)),
        (1, 2),
        "{processed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stalled_cancel_is_abandoned() {
    let (server, client) = connect().await;
    let idle_connections = server.connections();
    server.hold(HoldStage::Head, CANCEL);
    let calls: Vec<_> = (0..50)
        .map(|_| client.call_tool("slow", ()).start())
        .collect();
    run_until_idle().await;

    drop(calls);
    sleep(Duration::from_millis(200)).await;
    let held = server.connections() - idle_connections;
    sleep(Duration::from_secs(10)).await;

    assert!(held <= 16, "{held}");
    assert_eq!(server.connections(), idle_connections);
    let processed = server.processed();
    assert_eq!(
        processed.iter().filter(|label| *label == CANCEL).count(),
        50
    );
}
