//! Ways to abandon a call that are not rows of the matrix in `scenarios/tests/matrix/abandonment.rs`.

use std::time::Duration;

use bowline::testing::{ScriptedPeer, summarize};
use bowline::{Client, Error};
use bowline_core::era::Dialect;
use serde_json::json;
use tokio::time::Instant;

use crate::handler_monitor::HandlerMonitor;
use crate::scripted_peers::scripted_server_for;
use crate::test_pair::{NO_FRAMES, TestPair, poll_once};

run!(everywhere, a_request_builder_that_is_dropped_sends_nothing);
async fn a_request_builder_that_is_dropped_sends_nothing(pair: TestPair) {
    drop(pair.client.call_tool("slow", json!({"name": "mine"})));
    drop(pair.client.list_tools());
    drop(pair.client.request_raw("tools/list", ()));

    pair.round_trip().await;

    let frames = [pair.request(1, "tools/call quick"), pair.result(1)];
    pair.finish(&frames).await;
}

run!(
    everywhere,
    the_id_of_a_call_dropped_before_it_is_sent_is_not_used_again
);
async fn the_id_of_a_call_dropped_before_it_is_sent_is_not_used_again(pair: TestPair) {
    drop(pair.start("slow"));

    pair.round_trip().await;

    let frames = [pair.request(2, "tools/call quick"), pair.result(2)];
    pair.finish(&frames).await;
}

run!(
    everywhere,
    a_call_with_a_timeout_ends_exactly_at_its_deadline
);
async fn a_call_with_a_timeout_ends_exactly_at_its_deadline(pair: TestPair) {
    let (start, limit) = (Instant::now(), Duration::from_millis(40));
    let slow = pair.client.call_tool("slow", json!({"name": "mine"}));

    let error = slow.timeout(limit).await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "timed out after 40ms"),
    ];
    pair.finish(&frames).await;
}

run!(
    over_a_wire,
    a_call_dropped_unpolled_after_it_was_sent_is_cancelled
);
// In process a call that was not polled has not started.
async fn a_call_dropped_unpolled_after_it_was_sent_is_cancelled(pair: TestPair) {
    let call = pair.start("slow");
    pair.handlers.wait_for_started(1).await;

    drop(call);

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

run!(
    with_scripted_server,
    dropping_a_client_and_its_calls_cancels_them_and_closes_the_wire
);
async fn dropping_a_client_and_its_calls_cancels_them_and_closes_the_wire(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let mut calls = ["a", "b"].map(|id| client.request_raw("x/y", ()).id(id).start());
    for call in &mut calls {
        assert!(poll_once(call).await.is_pending());
        peer.next_message().await;
    }

    drop(client);
    // A pending call keeps the connection open.
    assert!(poll_once(&mut calls[0]).await.is_pending());
    drop(calls);

    let received = peer.receive_to_end().await;
    let received: Vec<String> = received.iter().map(summarize).collect();
    let cancels = ["a", "b"].map(|id| format!("cancel \"{id}\": caller cancelled"));
    assert_eq!(received, cancels);
}

run!(
    over_a_wire,
    a_killed_server_ends_every_call_and_drops_every_handler
);
async fn a_killed_server_ends_every_call_and_drops_every_handler(mut pair: TestPair) {
    let call = pair.in_flight("slow").await;
    let frames = [pair.request(1, "tools/call slow")];

    pair.kill_server().await;

    assert!(matches!(call.await, Err(Error::Closed)));
    assert!(matches!(pair.background_reply().await, Err(Error::Closed)));
    assert!(matches!(pair.client.list_tools().await, Err(Error::Closed)));
    pair.handlers.wait_for_dropped(2).await;
    pair.finish_without_wire(&frames).await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_call_while_its_host_decides_drops_the_host_and_sends_nothing() {
    let host = HandlerMonitor::default();
    let (client, mut peer) = scripted_server_for(Dialect::LATEST, &host).await;
    let mut call = client.call_tool("asks", ()).start();
    assert!(poll_once(&mut call).await.is_pending());
    let asks = json!({"roots": {"method": "roots/list"}});
    let input_required = json!({"resultType": "input_required", "inputRequests": asks});
    peer.expect("tools/call").await.answer(input_required);

    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        () = host.wait_for_started(1) => {}
    }
    call.cancel("never mind");

    assert_eq!(host.counts().dropped, 1);
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}
