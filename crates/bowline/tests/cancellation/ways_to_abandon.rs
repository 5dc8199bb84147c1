//! The ways to abandon a call, all of which cancel its request in the same way.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::Error;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::handler_monitor::HandlerMonitor;
use crate::test_pair::{
    NO_FRAMES, TestPair, cancel_json, poll_once, scripted_server, scripted_server_for,
};

everywhere!(a_request_builder_that_is_dropped_sends_nothing);
async fn a_request_builder_that_is_dropped_sends_nothing(pair: TestPair) {
    drop(pair.client.call_tool("slow", json!({"name": "mine"})));
    drop(pair.client.list_tools());
    drop(pair.client.raw("tools/list", ()));

    pair.round_trip().await;

    let frames = [pair.request(1, "tools/call quick"), pair.result(1)];
    pair.finish(&frames).await;
}

everywhere!(a_call_dropped_before_it_is_sent_sends_nothing);
async fn a_call_dropped_before_it_is_sent_sends_nothing(pair: TestPair) {
    drop(pair.start("slow"));

    pair.round_trip().await;

    assert_eq!(pair.handlers.counts().started, 0);
    // The id of the withdrawn call is not used again.
    let frames = [pair.request(2, "tools/call quick"), pair.result(2)];
    pair.finish(&frames).await;
}

over_a_wire!(a_call_dropped_unpolled_after_it_was_sent_is_cancelled);
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

everywhere!(a_call_dropped_after_notifications_is_cancelled);
async fn a_call_dropped_after_notifications_is_cancelled(pair: TestPair) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let received = reports.clone();
    let mut call = pair
        .client
        .call_tool("reports", json!({"name": "mine"}))
        .on_progress(move |report| received.lock().unwrap().push(report.progress))
        .start();

    let streaming = timeout(Duration::from_millis(1), &mut call).await;
    assert!(streaming.is_err());
    assert_eq!(*reports.lock().unwrap(), [1.0, 2.0]);
    drop(call);

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call reports"),
        "← progress 1".to_owned(),
        "← progress 2".to_owned(),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

everywhere!(a_call_that_lost_a_select_is_cancelled);
async fn a_call_that_lost_a_select_is_cancelled(pair: TestPair) {
    let slow = pair.client.call_tool("slow", json!({"name": "mine"}));

    tokio::select! {
        reply = slow => panic!("{reply:?}"),
        () = pair.handlers.wait_for_started(1) => {}
    }

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

everywhere!(a_call_inside_an_elapsed_tokio_timeout_is_cancelled);
async fn a_call_inside_an_elapsed_tokio_timeout_is_cancelled(pair: TestPair) {
    let slow = pair.client.call_tool("slow", json!({"name": "mine"}));

    let elapsed = timeout(Duration::from_millis(30), slow.into_future()).await;

    assert!(elapsed.is_err());
    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

everywhere!(a_call_is_cancelled_when_its_idle_timeout_elapses);
async fn a_call_is_cancelled_when_its_idle_timeout_elapses(pair: TestPair) {
    let start = Instant::now();
    let limit = Duration::from_millis(40);
    let talks = pair
        .client
        .call_tool("reports", json!({"name": "mine"}))
        .on_progress(|_| {})
        .timeout(limit);

    let error = talks.await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call reports"),
        "← progress 1".to_owned(),
        "← progress 2".to_owned(),
        pair.cancel(1, "timed out after 40ms"),
    ];
    pair.finish(&frames).await;
}

everywhere!(a_call_is_cancelled_when_its_total_timeout_elapses);
async fn a_call_is_cancelled_when_its_total_timeout_elapses(pair: TestPair) {
    let start = Instant::now();
    let limit = Duration::from_millis(40);
    let slow = pair.client.call_tool("slow", json!({"name": "mine"}));

    let error = slow.total_timeout(limit).await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "timed out after 40ms"),
    ];
    pair.finish(&frames).await;
}

everywhere!(an_explicit_cancel_sends_its_reason);
async fn an_explicit_cancel_sends_its_reason(pair: TestPair) {
    let call = pair.in_flight("slow").await;

    call.cancel("the user closed the tab");

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "the user closed the tab"),
    ];
    pair.finish(&frames).await;
}

in_every_version!(dropping_a_client_and_its_calls_cancels_them_and_closes_the_wire);
async fn dropping_a_client_and_its_calls_cancels_them_and_closes_the_wire(version: &'static str) {
    let (client, mut peer) = scripted_server(version).await;
    let mut calls = ["a", "b"].map(|id| client.raw("x/y", ()).id(id).start());
    for call in &mut calls {
        assert!(poll_once(call).await.is_pending());
        peer.receive().await;
    }

    drop(client);
    // A pending call keeps the connection open.
    assert!(poll_once(&mut calls[0]).await.is_pending());
    drop(calls);

    let cancels = ["\"a\"", "\"b\""].map(|id| cancel_json(id, "caller cancelled"));
    assert_eq!(peer.receive_all().await, cancels);
}

over_a_wire!(a_broken_wire_drops_every_handler);
async fn a_broken_wire_drops_every_handler(mut pair: TestPair) {
    let call = pair.in_flight("slow").await;
    let frames = [pair.request(1, "tools/call slow")];

    pair.break_wire();

    // The other one is the background call's handler.
    pair.handlers.wait_for_dropped(2).await;
    assert!(call.await.is_err());
    assert!(pair.background_reply().await.is_err());
    pair.finish_without_wire(&frames).await;
}

over_a_wire!(a_killed_server_ends_every_call_and_drops_every_handler);
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
async fn dropping_a_multi_round_trip_call_cancels_its_current_request_only() {
    let (client, mut peer) = scripted_server("2026-07-28").await;
    let mut call = client.call_tool("asks", ()).start();
    assert!(poll_once(&mut call).await.is_pending());
    let first = peer.receive().await;
    peer.answer(
        &first,
        &json!({"resultType": "input_required", "requestState": "s"}),
    );

    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        second = peer.receive() => {
            assert_eq!(second["params"]["requestState"], "s");
            assert_ne!(second["id"], first["id"]);
        }
    }
    assert_eq!(call.id(), Some(&2.into()));
    drop(call);

    assert_eq!(
        peer.receive_summary().await,
        cancel_json("2", "caller cancelled")
    );
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_call_while_its_host_decides_drops_the_host_and_sends_nothing() {
    let host = HandlerMonitor::new();
    let (client, mut peer) = scripted_server_for("2026-07-28", &host).await;
    let mut call = client.call_tool("asks", ()).start();
    assert!(poll_once(&mut call).await.is_pending());
    let first = peer.receive().await;
    let asks = json!({"roots": {"method": "roots/list"}});
    peer.answer(
        &first,
        &json!({"resultType": "input_required", "inputRequests": asks}),
    );

    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        () = host.wait_for_started(1) => {}
    }
    call.cancel("never mind");

    assert_eq!(host.counts().dropped, 1);
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}
