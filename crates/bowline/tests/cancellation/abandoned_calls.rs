//! Abandoned calls: the frames on the wire, and the errors of the caller.

use std::time::Duration;

use bowline::testing::{ScriptedPeer, summarize};
use bowline::{Client, Error};
use bowline_core::era::Dialect;
use serde_json::json;
use tokio::time::Instant;

use crate::scripted_peers::{next, scripted_server, send_cancel};
use crate::test_pair::{NO_FRAMES, TestPair, poll_once};

run!(
    everywhere,
    dropping_a_call_sends_one_cancel_with_the_reason_caller_cancelled
);
// In process the handler is part of the caller's future and is dropped with it; nothing is sent.
async fn dropping_a_call_sends_one_cancel_with_the_reason_caller_cancelled(pair: TestPair) {
    let call = pair.in_flight("slow").await;

    drop(call);

    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

run!(
    everywhere,
    a_call_that_times_out_is_cancelled_and_returns_at_its_deadline
);
// In process the handler is dropped before the caller sees the timeout; nothing is sent.
async fn a_call_that_times_out_is_cancelled_and_returns_at_its_deadline(pair: TestPair) {
    let limit = Duration::from_millis(200);
    let start = Instant::now();
    let call = pair.client.call_tool("slow", json!({"name": "mine"}));

    let error = call.idle_timeout(limit).await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    pair.handlers.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call slow"),
        pair.cancel(1, "timed out after 200ms"),
    ];
    pair.finish(&frames).await;
}

run!(
    with_scripted_server,
    a_call_times_out_at_its_deadline_even_if_the_peer_does_not_read
);
async fn a_call_times_out_at_its_deadline_even_if_the_peer_does_not_read(
    (client, peer): (Client, ScriptedPeer),
) {
    let fill: Vec<_> = (0..200)
        .map(|_| client.request_raw("x/fill", ()).start())
        .collect();
    let start = Instant::now();
    let timed = |millis| {
        client
            .request_raw("x/mine", ())
            .idle_timeout(Duration::from_millis(millis))
    };
    let at = |error: Error| match error {
        Error::Timeout { after } => (after, start.elapsed()),
        other => panic!("{other:?}"),
    };

    let (first, second, third) = tokio::join!(
        async { at(timed(200).await.unwrap_err()) },
        async { at(timed(300).await.unwrap_err()) },
        async { at(timed(300).await.unwrap_err()) },
    );

    let millis = Duration::from_millis;
    assert_eq!(first, (millis(200), millis(200)));
    assert_eq!(second, (millis(300), millis(300)));
    assert_eq!(third, (millis(300), millis(300)));
    drop(fill);
    drop(peer);
}

run!(
    with_scripted_server,
    an_abandoned_request_that_was_never_sent_is_withdrawn
);
async fn an_abandoned_request_that_was_never_sent_is_withdrawn(
    (client, mut peer): (Client, ScriptedPeer),
) {
    // Some requests fill the wire; the rest stays queued.
    let fill: Vec<_> = (0..100)
        .map(|_| client.request_raw("x/fill", ()).start())
        .collect();
    tokio::task::yield_now().await;
    let waiting = client.peer().unwrap().sizes().queued;
    assert!(waiting > 0, "the wire buffered every request");

    let mut mine = client.request_raw("x/mine", ()).start();
    assert!(poll_once(&mut mine).await.is_pending());
    drop(mine);
    let timed = client
        .request_raw("x/mine", ())
        .idle_timeout(Duration::from_millis(10));
    assert!(matches!(timed.await, Err(Error::Timeout { .. })));

    assert_eq!(client.peer().unwrap().sizes().queued, waiting);
    let sent = fill.len() - waiting;
    drop(fill);
    assert_eq!(client.peer().unwrap().sizes().pending, 0);
    drop(client);
    let received = peer.receive_to_end().await;
    let received: Vec<String> = received.iter().map(summarize).collect();
    // Only the requests that were sent are cancelled.
    let fills = received.iter().filter(|frame| frame.ends_with(" x/fill"));
    let cancels = received.iter().filter(|frame| frame.starts_with("cancel "));
    assert_eq!((fills.count(), cancels.count()), (sent, sent));
    assert_eq!(received.len(), 2 * sent);
}

run!(
    over_a_wire,
    a_wire_failure_is_not_a_timeout_and_no_cancel_follows
);
async fn a_wire_failure_is_not_a_timeout_and_no_cancel_follows(mut pair: TestPair) {
    let call = pair.in_flight("slow").await;
    let frames = [pair.request(1, "tools/call slow")];

    pair.break_wire();

    assert!(matches!(call.await, Err(Error::Transport { .. })));
    let next = pair.client.call_tool("quick", ()).await;
    assert!(matches!(next, Err(Error::Transport { .. })));
    assert!(matches!(
        pair.background_reply().await,
        Err(Error::Transport { .. })
    ));
    // The other one is the background call's handler.
    pair.handlers.wait_for_dropped(2).await;
    pair.finish_without_wire(&frames).await;
}

run!(with_scripted_server, calls_after_close_fail_with_closed);
async fn calls_after_close_fail_with_closed((client, mut peer): (Client, ScriptedPeer)) {
    let mut pending = client.request_raw("x/pending", ()).start();
    assert!(poll_once(&mut pending).await.is_pending());
    let other = client.clone();

    client.close().await.unwrap();

    assert!(matches!(pending.await, Err(Error::Closed)));
    assert!(matches!(
        other.call_tool("quick", ()).await,
        Err(Error::Closed)
    ));
    assert!(other.peer().unwrap().is_idle());
    let _ = peer.expect("x/pending").await.hold();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    with_scripted_server,
    closing_a_wire_whose_peer_does_not_read_takes_at_most_a_second
);
async fn closing_a_wire_whose_peer_does_not_read_takes_at_most_a_second(
    (client, peer): (Client, ScriptedPeer),
) {
    let fill: Vec<_> = (0..100)
        .map(|_| client.request_raw("x/fill", ()).start())
        .collect();
    let start = Instant::now();

    client.close().await.unwrap();

    assert_eq!(start.elapsed(), Duration::from_secs(1));
    for call in fill {
        assert!(matches!(call.await, Err(Error::Closed)));
    }
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn cancelled_timeout_and_closed_are_different_errors() {
    // A server may cancel subscriptions only, which are requests in the modern era only.
    let (client, mut peer) = scripted_server(Dialect::LATEST).await;
    let listen = |id: &str| {
        client
            .request_raw("subscriptions/listen", json!({"notifications": {}}))
            .id(id)
    };

    let timed_out = listen("a").idle_timeout(Duration::from_millis(5)).await;
    let (cancelled, ()) = tokio::join!(listen("b").into_future(), async {
        while peer.next_message().await["id"] != "b" {}
        send_cancel(&mut peer, "b", "over");
    });
    let (closed, ()) = tokio::join!(listen("c").into_future(), async {
        peer.next_message().await;
        drop(peer);
    });

    assert!(
        matches!(timed_out, Err(Error::Timeout { .. })),
        "{timed_out:?}"
    );
    assert!(
        matches!(cancelled, Err(Error::Cancelled { .. })),
        "{cancelled:?}"
    );
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}

run!(
    with_scripted_server,
    a_late_result_or_error_is_dropped_and_the_id_is_free_again
);
async fn a_late_result_or_error_is_dropped_and_the_id_is_free_again(
    (client, mut peer): (Client, ScriptedPeer),
) {
    for late in ["result", "error"] {
        let mut call = client.request_raw("x/mine", ()).id("mine").start();
        assert!(poll_once(&mut call).await.is_pending());
        let request = peer.expect("x/mine").await.hold();
        drop(call);
        assert_eq!(next(&mut peer).await, r#"cancel "mine": caller cancelled"#);

        peer.send_json(&json!({"jsonrpc": "2.0", "id": request, late: late_member(late)}));
        let (next, ()) = tokio::join!(client.request_raw("x/next", ()).into_future(), async {
            peer.expect("x/next").await.answer(complete());
        });

        assert!(next.is_ok());
        assert!(client.peer().unwrap().is_idle());
    }
}

run!(everywhere, a_request_id_is_free_again_on_every_path);
async fn a_request_id_is_free_again_on_every_path(pair: TestPair) {
    let named = |id: &str| {
        pair.client
            .call_tool("slow", json!({"name": "mine"}))
            .id(id)
    };
    let on_each_path = pair.client.call_tool("quick", ()).id("again");
    on_each_path.await.unwrap();
    let refused = pair.client.call_tool("no such tool", ()).id("again");
    assert!(matches!(refused.await, Err(Error::Rpc(_))));
    let timed = named("again").idle_timeout(Duration::from_millis(5));
    assert!(matches!(timed.await, Err(Error::Timeout { .. })));
    drop(pair.poll_until_handler_starts(named("again").start()).await);
    pair.poll_until_handler_starts(named("again").start())
        .await
        .cancel("enough");

    pair.client
        .call_tool("quick", ())
        .id("again")
        .await
        .unwrap();

    pair.handlers.wait_for_dropped(3).await;
    let frames = [
        "→ \"again\" tools/call quick".to_owned(),
        "← \"again\" result".to_owned(),
        "→ \"again\" tools/call no such tool".to_owned(),
        "← \"again\" error -32602".to_owned(),
        "→ \"again\" tools/call slow".to_owned(),
        "→ cancel \"again\": timed out after 5ms".to_owned(),
        "→ \"again\" tools/call slow".to_owned(),
        "→ cancel \"again\": caller cancelled".to_owned(),
        "→ \"again\" tools/call slow".to_owned(),
        "→ cancel \"again\": enough".to_owned(),
        "→ \"again\" tools/call quick".to_owned(),
        "← \"again\" result".to_owned(),
    ];
    pair.finish(&frames).await;
}

run!(
    everywhere_legacy,
    a_request_to_the_client_is_cancelled_when_its_handler_drops_it
);
// In the modern era a server sends no requests. In process nothing is sent.
async fn a_request_to_the_client_is_cancelled_when_its_handler_drops_it(pair: TestPair) {
    let mut call = pair.in_flight("drops request").await;
    pair.poll_until_host_starts(&mut call).await;

    pair.handlers.release("mine");

    assert_eq!(call.await.unwrap().text(), "mine");
    pair.host.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call drops request"),
        "← 1 roots/list".to_owned(),
        "← cancel 1: caller cancelled".to_owned(),
        pair.result(1),
    ];
    pair.finish(&frames).await;
}

run!(
    everywhere_legacy,
    a_request_to_the_client_is_cancelled_when_its_handler_is_dropped
);
// In the modern era a server sends no requests. In process nothing is sent.
async fn a_request_to_the_client_is_cancelled_when_its_handler_is_dropped(pair: TestPair) {
    let mut call = pair.in_flight("asks").await;
    pair.poll_until_host_starts(&mut call).await;

    drop(call);

    pair.handlers.wait_for_dropped(1).await;
    pair.host.wait_for_dropped(1).await;
    let frames = [
        pair.request(1, "tools/call asks"),
        "← 1 roots/list".to_owned(),
        pair.cancel(1, "caller cancelled"),
        "← cancel 1: caller cancelled".to_owned(),
    ];
    pair.finish(&frames).await;
}

fn complete() -> serde_json::Value {
    json!({"resultType": "complete"})
}

fn late_member(late: &str) -> serde_json::Value {
    match late {
        "result" => complete(),
        _ => json!({"code": -32603, "message": "too late"}),
    }
}
