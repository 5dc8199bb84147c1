//! Which requests are cancelled when abandoned: all but `initialize` and `server/discover`.

use std::time::Duration;

use bowline::testing::{ScriptedPeer, scripted_peer};
use bowline::types::{CallToolRequest, CallToolRequestParams};
use bowline::{Call, Client, Error, Json};
use bowline_core::era::Dialect;
use serde_json::json;
use tokio::time::Instant;

use crate::scripted_peers::next;
use crate::test_pair::{NO_FRAMES, TestPair, poll_once};

run!(
    everywhere,
    every_request_cancels_when_abandoned_by_default_typed_or_raw
);
// In process the handler is part of the caller's future and is dropped with it; nothing is sent.
async fn every_request_cancels_when_abandoned_by_default_typed_or_raw(pair: TestPair) {
    let arguments = json!({"name": "mine"});
    let params = CallToolRequestParams::new("slow").with_arguments(Json::from(arguments.clone()));
    let typed = || pair.client.call_tool("slow", &arguments).start();
    let by_type = || pair.client.request::<CallToolRequest>(&params).start();
    let raw = || pair.client.request_raw("tools/call", &params).start();
    let starts: [&dyn Fn() -> Call; 3] = [&typed, &by_type, &raw];

    for (nth, start) in (1..).zip(starts) {
        drop(pair.poll_until_handler_starts(start()).await);
        pair.handlers.wait_for_dropped(nth).await;
    }

    let frames = [1, 2, 3].map(|nth| {
        let sent = pair.request(nth, "tools/call slow");
        [sent, pair.cancel(nth, "caller cancelled")]
    });
    pair.finish(frames.as_flattened()).await;
}

run!(
    with_scripted_server,
    a_request_of_any_method_cancels_when_abandoned
);
async fn a_request_of_any_method_cancels_when_abandoned(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let methods = ["tools/list", "prompts/get", "ping", "x/of-our-own"];

    for method in methods {
        let mut call = client.request_raw(method, json!({"name": "x"})).start();
        assert!(poll_once(&mut call).await.is_pending());
        let id = peer.expect(method).await.hold();
        drop(call);
        assert_eq!(peer.expect_cancel(&id).await, "caller cancelled");
    }

    assert!(client.peer().unwrap().is_idle());
}

run!(
    with_scripted_server,
    initialize_and_server_discover_are_never_cancelled_even_as_raw_requests
);
async fn initialize_and_server_discover_are_never_cancelled_even_as_raw_requests(
    (client, mut peer): (Client, ScriptedPeer),
) {
    // A legacy connection answers `server/discover` itself.
    let methods = match client.dialect().is_modern() {
        true => &["initialize", "server/discover"][..],
        false => &["initialize"],
    };
    for method in methods.iter().copied() {
        let mut dropped = client.request_raw(method, ()).start();
        assert!(poll_once(&mut dropped).await.is_pending());
        let mut cancelled = client.request_raw(method, ()).start();
        assert!(poll_once(&mut cancelled).await.is_pending());
        let timed = client
            .request_raw(method, ())
            .idle_timeout(Duration::from_millis(5));
        assert!(matches!(timed.await, Err(Error::Timeout { .. })));

        drop(dropped);
        cancelled.cancel("no longer needed");
    }

    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    let received = peer.receive_to_end().await;
    assert_eq!(received.len(), 3 * methods.len(), "{received:?}");
    assert!(received.iter().all(|frame| frame.get("id").is_some()));
}

run!(
    in_every_legacy_version,
    a_timed_out_initialize_puts_nothing_on_the_wire
);
// The modern era has no handshake.
async fn a_timed_out_initialize_puts_nothing_on_the_wire(dialect: &'static Dialect) {
    let (wire, mut peer) = scripted_peer();
    let (start, limit) = (Instant::now(), Duration::from_millis(200));

    let opened = Client::from_wire(wire)
        .protocol_version(dialect.version)
        .idle_timeout(limit)
        .await;

    assert!(matches!(opened, Err(Error::Timeout { after }) if after == limit));
    assert_eq!(start.elapsed(), limit);
    assert_eq!(next(&mut peer).await, "1 initialize");
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    in_every_legacy_version,
    a_dropped_initialize_puts_nothing_on_the_wire
);
async fn a_dropped_initialize_puts_nothing_on_the_wire(dialect: &'static Dialect) {
    let (wire, mut peer) = scripted_peer();
    let mut opening = Client::from_wire(wire)
        .protocol_version(dialect.version)
        .into_future();

    assert!(poll_once(&mut opening).await.is_pending());
    assert_eq!(next(&mut peer).await, "1 initialize");
    drop(opening);

    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_probe_is_not_cancelled_and_the_fallback_starts_at_its_timeout() {
    let (wire, mut peer) = scripted_peer();
    let (start, limit) = (Instant::now(), Duration::from_millis(300));
    let connect = Client::from_wire(wire).probe_timeout(limit).into_future();

    let (client, ()) = tokio::join!(connect, async {
        assert_eq!(next(&mut peer).await, "1 server/discover");
        peer.accept_handshake("2025-11-25", json!({})).await;
        assert_eq!(start.elapsed(), limit);
    });

    client.unwrap().close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    over_a_wire,
    cancel_on_drop_false_opts_out_and_abandoning_is_purely_local
);
// In process a call cannot opt out: nothing else polls its handler.
async fn cancel_on_drop_false_opts_out_and_abandoning_is_purely_local(pair: TestPair) {
    let slow = |name| pair.client.call_tool("slow", json!({"name": name}));
    let call = pair.poll_until_handler_starts(slow("first").cancel_on_drop(false).start());
    let timed = slow("second").cancel_on_drop(false);

    drop(call.await);
    let timed = timed.idle_timeout(Duration::from_millis(5)).await;

    assert!(matches!(timed, Err(Error::Timeout { .. })));
    let pending = pair.client.peer().unwrap().sizes().pending;
    assert_eq!(pending, 1, "the background's");
    assert_eq!(pair.handlers.counts().dropped, 0);
    for (finished, name) in [(1, "first"), (2, "second")] {
        pair.handlers.release(name);
        pair.handlers
            .wait_until(|counts| counts.finished == finished)
            .await;
    }
    let mut frames = vec![
        pair.request(1, "tools/call slow"),
        pair.request(2, "tools/call slow"),
        pair.result(1),
        pair.result(2),
    ];
    pair.round_trip().await;
    frames.extend([pair.request(3, "tools/call quick"), pair.result(3)]);
    pair.finish(&frames).await;
}

run!(
    everywhere,
    a_call_that_opted_out_can_still_be_cancelled_with_a_reason
);
async fn a_call_that_opted_out_can_still_be_cancelled_with_a_reason(pair: TestPair) {
    let slow = pair.client.call_tool("slow", json!({"name": "mine"}));
    let call = pair.poll_until_handler_starts(slow.cancel_on_drop(false).start());

    call.await.cancel("the user closed the tab");

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "the user closed the tab"),
    ];
    pair.finish(&frames).await;
}
