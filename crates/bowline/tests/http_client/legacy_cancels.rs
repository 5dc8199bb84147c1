//! What dropped calls cost a legacy client: how long, and how many connections.

use std::time::Duration;

use bowline::{Call, Client};
use tokio::time::sleep;

use crate::legacy_server::{LegacyServer, Stage, idle};

const CALL: &str = "POST tools/call";
const CANCEL: &str = "POST notifications/cancelled";

async fn calls(client: &Client, count: usize) -> Vec<Call> {
    let calls = (0..count).map(|_| client.call_tool("slow", ()).start());
    let calls = calls.collect();
    idle().await;
    calls
}

fn count(server: &LegacyServer, what: &str) -> usize {
    let world = server.world();
    world.seen.iter().filter(|seen| seen.what == what).count()
}

#[tokio::test(start_paused = true)]
async fn everything_about_a_dropped_call_is_over_five_seconds_later_even_if_the_server_stalls() {
    for stalled in [Some(CANCEL), Some(CALL), None] {
        let server = LegacyServer::start();
        let client = server.connect().await;
        idle().await;
        let idle_connections = server.connections();
        if let Some(stalled) = stalled {
            server.hold(Stage::Head, stalled);
        }
        let call = calls(&client, 1).await;
        // The server does not end the response either.
        let kept = std::mem::take(&mut server.world().sessions.get_mut("s1").unwrap().running);

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
    server.hold(Stage::Head, CANCEL);
    let calls = calls(&client, CALLS).await;
    let kept = std::mem::take(&mut server.world().sessions.get_mut("s1").unwrap().running);
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
async fn a_cancel_that_gets_no_connection_is_tried_again_and_posted_once() {
    let server = LegacyServer::start();
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    server.world().is_down = true;

    drop(calls);
    sleep(Duration::from_secs(10)).await;
    server.world().is_down = false;
    sleep(Duration::from_secs(30)).await;

    assert_eq!(count(&server, CANCEL), 1);
    assert!(server.world().sessions["s1"].running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_whose_connection_ends_before_it_arrives_is_posted_again() {
    let server = LegacyServer::start();
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    server.hold(Stage::Transit, CANCEL);
    drop(calls);
    sleep(Duration::from_millis(150)).await;

    server.world().is_down = true;
    server.release(Stage::Transit, CANCEL);
    idle().await;
    server.world().is_down = false;
    sleep(Duration::from_secs(1)).await;

    assert_eq!(server.world().lost.len(), 1, "the first one");
    assert_eq!(count(&server, CANCEL), 1);
    assert!(server.world().sessions["s1"].running.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_id_is_not_used_again_while_a_server_may_keep_its_cancel_for_a_request_that_never_came()
{
    let server = LegacyServer::start();
    let client = server.connect().await;
    server.hold(Stage::Transit, CALL);
    let lost = client.call_tool("slow", ()).id("x").start();
    idle().await;
    drop(lost);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.world().sessions["s1"].early.len(), 1);
    let calls = |server: &LegacyServer| {
        let world = server.world();
        let handed = world.handed.iter();
        handed
            .filter(|(message, _)| message["method"] == "tools/call")
            .count()
    };

    let successor = client.call_tool("quick", ()).id("x").start();
    sleep(Duration::from_secs(13)).await;
    assert_eq!(
        calls(&server),
        1,
        "our server keeps an early cancel for 10 s"
    );
    sleep(Duration::from_secs(7)).await;

    assert_eq!(calls(&server), 2);
    drop(successor);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_the_response_is_closed_as_soon_as_its_call_is_dropped() {
    let server = LegacyServer::start();
    server.world().is_stateless = true;
    let client = server.connect().await;
    let calls = calls(&client, 1).await;
    let open = |server: &LegacyServer| {
        let world = server.world();
        world
            .stateless_running
            .values()
            .filter(|events| events.is_open())
            .count()
    };
    assert_eq!(open(&server), 1);

    drop(calls);
    idle().await;

    assert_eq!(open(&server), 0, "the server sees that nobody reads");
    assert_eq!(
        count(&server, CANCEL),
        1,
        "the cancel is posted all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_session_a_call_is_closed_before_its_head_and_the_cancel_does_not_overtake_it() {
    let server = LegacyServer::start();
    server.world().is_stateless = true;
    let client = server.connect().await;
    idle().await;
    let idle_connections = server.connections();
    server.hold(Stage::Transit, CALL);
    let calls = calls(&client, 1).await;

    drop(calls);
    sleep(Duration::from_millis(50)).await;

    assert_eq!(server.connections(), idle_connections);
    assert_eq!(count(&server, CANCEL), 0);
    sleep(Duration::from_millis(60)).await;
    assert_eq!(count(&server, CANCEL), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_dropped_before_it_was_redirected_goes_no_further() {
    let server = LegacyServer::start();
    server.world().redirects = true;
    let client = server.connect().await;
    server.hold(Stage::Head, CALL);
    let calls = calls(&client, 1).await;

    drop(calls);
    sleep(Duration::from_millis(150)).await;
    server.release(Stage::Head, CALL);
    sleep(Duration::from_secs(10)).await;

    assert_eq!(count(&server, CALL), 1);
}
