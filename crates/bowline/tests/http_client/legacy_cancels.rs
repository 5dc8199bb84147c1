//! Dropped calls of a legacy client: how long they hold connections, and how many.

use std::time::Duration;

use bowline::{Call, Client};
use tokio::time::sleep;

use crate::legacy_server::{HoldStage, LegacyServer, run_until_idle};

const CALL: &str = "POST tools/call";
const CANCEL: &str = "POST notifications/cancelled";

async fn calls(client: &Client, count: usize) -> Vec<Call> {
    let calls = (0..count).map(|_| client.call_tool("slow", ()).start());
    let calls = calls.collect();
    run_until_idle().await;
    calls
}

fn count(server: &LegacyServer, label: &str) -> usize {
    let state = server.state();
    state
        .processed
        .iter()
        .filter(|processed| processed.label == label)
        .count()
}

#[tokio::test(start_paused = true)]
async fn connections_of_a_dropped_call_are_closed_within_five_seconds_even_if_the_server_stalls() {
    for stalled in [Some(CANCEL), Some(CALL), None] {
        let server = LegacyServer::start();
        let client = server.connect().await;
        run_until_idle().await;
        let idle_connections = server.connections();
        if let Some(stalled) = stalled {
            server.hold(HoldStage::Head, stalled);
        }
        let call = calls(&client, 1).await;
        // The server keeps the response open.
        let kept = std::mem::take(&mut server.state().sessions.get_mut("s1").unwrap().running);

        drop(call);
        sleep(Duration::from_millis(5050)).await;

        assert_eq!(server.connections(), idle_connections, "{stalled:?}");
        assert_eq!(count(&server, CANCEL), 1);
        drop(kept);
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_hold_a_bounded_number_of_connections_and_every_one_is_cancelled() {
    const CALLS: usize = 200;
    let server = LegacyServer::start();
    let client = server.connect().await;
    server.hold(HoldStage::Head, CANCEL);
    let calls = calls(&client, CALLS).await;
    let kept = std::mem::take(&mut server.state().sessions.get_mut("s1").unwrap().running);
    assert_eq!(kept.len(), CALLS);

    drop(calls);
    sleep(Duration::from_millis(150)).await;

    let held = server.connections();
    assert!(held <= 40, "{held} connections are open");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(count(&server, CANCEL), CALLS);
    assert_eq!(server.connections(), 1, "the GET stream");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_without_a_connection_is_retried_and_posted_once() {
    let server = LegacyServer::start();
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    server.state().is_down = true;

    drop(calls);
    sleep(Duration::from_secs(10)).await;
    server.state().is_down = false;
    sleep(Duration::from_secs(30)).await;

    assert_eq!(count(&server, CANCEL), 1);
    assert!(server.state().sessions["s1"].running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_whose_connection_ends_before_it_arrives_is_posted_again() {
    let server = LegacyServer::start();
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    server.hold(HoldStage::Transit, CANCEL);
    drop(calls);
    sleep(Duration::from_millis(150)).await;

    server.state().is_down = true;
    server.release(HoldStage::Transit, CANCEL);
    run_until_idle().await;
    server.state().is_down = false;
    sleep(Duration::from_secs(1)).await;

    assert_eq!(server.state().lost.len(), 1, "the first cancel");
    assert_eq!(count(&server, CANCEL), 1);
    assert!(server.state().sessions["s1"].running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_id_is_not_reused_while_the_server_may_store_an_early_cancel_for_it() {
    let server = LegacyServer::start();
    let client = server.connect().await;
    server.hold(HoldStage::Transit, CALL);
    let lost = client.call_tool("slow", ()).id("x").start();
    run_until_idle().await;
    drop(lost);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.state().sessions["s1"].early_cancels.len(), 1);
    let calls = |server: &LegacyServer| {
        let state = server.state();
        let sent = state.sent.iter();
        sent.filter(|(message, _)| message["method"] == "tools/call")
            .count()
    };

    let successor = client.call_tool("quick", ()).id("x").start();
    sleep(Duration::from_secs(13)).await;
    assert_eq!(
        calls(&server),
        1,
        "Bowline's server stores an early cancel for 10 s"
    );
    sleep(Duration::from_secs(7)).await;

    assert_eq!(calls(&server), 2);
    drop(successor);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_a_dropped_call_closes_its_response() {
    let server = LegacyServer::start();
    server.state().is_stateless = true;
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    let open = |server: &LegacyServer| {
        let state = server.state();
        state
            .stateless_running
            .values()
            .filter(|events| events.is_open())
            .count()
    };
    assert_eq!(open(&server), 1);

    drop(calls);
    run_until_idle().await;

    assert_eq!(open(&server), 0, "the response is closed");
    assert_eq!(count(&server, CANCEL), 1, "the cancel is still posted");
}

#[tokio::test(start_paused = true)]
async fn without_a_session_a_call_dropped_before_its_response_head_closes_its_post_and_cancels_later()
 {
    let server = LegacyServer::start();
    server.state().is_stateless = true;
    let client = server.connect().await;
    run_until_idle().await;
    let idle_connections = server.connections();
    server.hold(HoldStage::Transit, CALL);
    let calls = calls(&client, 1).await;

    drop(calls);
    sleep(Duration::from_millis(50)).await;

    assert_eq!(server.connections(), idle_connections);
    assert_eq!(count(&server, CANCEL), 0);
    sleep(Duration::from_millis(60)).await;
    assert_eq!(count(&server, CANCEL), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_does_not_follow_a_redirect() {
    let server = LegacyServer::start();
    server.state().redirects_next_call = true;
    let client = server.connect().await;
    server.hold(HoldStage::Head, CALL);
    let calls = calls(&client, 1).await;

    drop(calls);
    sleep(Duration::from_millis(150)).await;
    server.release(HoldStage::Head, CALL);
    sleep(Duration::from_secs(10)).await;

    assert_eq!(count(&server, CALL), 1);
}

/// A server of each legacy transport, and a client of it.
async fn both() -> [(LegacyServer, Client); 2] {
    let (streamable, http_sse) = (LegacyServer::start(), LegacyServer::start());
    http_sse.state().is_http_sse = true;
    let clients = (streamable.connect().await, http_sse.connect().await);
    run_until_idle().await;
    [(streamable, clients.0), (http_sse, clients.1)]
}

#[tokio::test(start_paused = true)]
async fn closing_a_client_waits_until_the_cancels_of_dropped_calls_are_answered() {
    const CALLS: usize = 100;
    for (server, client) in both().await {
        let calls = calls(&client, CALLS).await;
        // All together take longer than a second.
        server.state().delays = Some(Box::new(|stage, label| match (stage, label) {
            (HoldStage::Connect, CANCEL) => 200,
            _ => 0,
        }));

        drop(calls);
        client.close().await.unwrap();

        assert_eq!(count(&server, CANCEL), CALLS);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_a_client_waits_four_seconds_for_cancels_that_cannot_be_sent() {
    for (server, client) in both().await {
        let calls = calls(&client, 1).await;
        server.hold(HoldStage::Connect, CANCEL);
        let began = tokio::time::Instant::now();

        drop(calls);
        client.close().await.unwrap();

        assert_eq!(began.elapsed().as_secs(), 4);
        assert_eq!(count(&server, CANCEL), 0);
    }
}
