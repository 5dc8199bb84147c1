//! When a call is abandoned: what goes over the wire, and what the caller sees.

use std::future::IntoFuture;
use std::time::Duration;

use bowline::Error;
use serde_json::json;
use tokio::time::Instant;

use crate::world::{NOTHING, World, cancel_frame, cancel_text, poll_once, scripted_server};

everywhere!(dropped_by_its_caller_one_frame_says_caller_cancelled);
// In process nothing is sent: the handler is part of the caller's future, and goes with it.
async fn dropped_by_its_caller_one_frame_says_caller_cancelled(world: World) {
    let call = world.in_flight("slow").await;

    drop(call);

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

everywhere!(timed_out_the_frame_is_queued_and_the_caller_sees_it_at_the_deadline);
// In process nothing is sent: the handler is dropped before the caller sees the timeout.
async fn timed_out_the_frame_is_queued_and_the_caller_sees_it_at_the_deadline(world: World) {
    let limit = Duration::from_millis(200);
    let start = Instant::now();
    let call = world.client.call_tool("slow", json!({"name": "mine"}));

    let error = call.timeout(limit).await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "timed out after 200ms"),
    ];
    world.end(&frames).await;
}

in_every_era!(the_caller_sees_its_timeout_at_the_deadline_even_if_the_peer_has_stopped_reading);
async fn the_caller_sees_its_timeout_at_the_deadline_even_if_the_peer_has_stopped_reading(
    version: &'static str,
) {
    let (client, script) = scripted_server(version).await;
    let fill: Vec<_> = (0..200).map(|_| client.raw("x/fill", ()).start()).collect();
    let start = Instant::now();
    let timed = |millis| {
        client
            .raw("x/mine", ())
            .timeout(Duration::from_millis(millis))
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
    drop(script);
}

in_every_era!(never_sent_the_request_is_withdrawn_and_nothing_is_sent);
async fn never_sent_the_request_is_withdrawn_and_nothing_is_sent(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    // The wire takes some and is full; the rest waits.
    let fill: Vec<_> = (0..100).map(|_| client.raw("x/fill", ()).start()).collect();
    tokio::task::yield_now().await;
    let waiting = client.peer().unwrap().sizes().queued;
    assert!(waiting > 0, "the wire took everything");

    let mut mine = client.raw("x/mine", ()).start();
    assert!(poll_once(&mut mine).await.is_pending());
    drop(mine);
    let timed = client.raw("x/mine", ()).timeout(Duration::from_millis(10));
    assert!(matches!(timed.await, Err(Error::Timeout { .. })));

    assert_eq!(client.peer().unwrap().sizes().queued, waiting);
    let sent = fill.len() - waiting;
    drop(fill);
    assert_eq!(client.peer().unwrap().sizes().pending, 0);
    drop(client);
    let heard = script.hear_all().await;
    // Only what left is cancelled.
    let fills = heard.iter().filter(|frame| frame.ends_with(" x/fill"));
    let cancels = heard.iter().filter(|frame| frame.contains("cancelled"));
    assert_eq!((fills.count(), cancels.count()), (sent, sent));
    assert_eq!(heard.len(), 2 * sent);
}

on_every_wire!(the_wires_own_failure_is_not_a_timeout_and_no_cancel_follows);
async fn the_wires_own_failure_is_not_a_timeout_and_no_cancel_follows(mut world: World) {
    let call = world.in_flight("slow").await;
    let frames = [world.request(1, "tools/call slow")];

    world.break_wire();

    assert!(matches!(call.await, Err(Error::Transport { .. })));
    let next = world.client.call_tool("quick", ()).await;
    assert!(matches!(next, Err(Error::Transport { .. })));
    assert!(matches!(
        world.bystander().await,
        Err(Error::Transport { .. })
    ));
    world.end_without_wire(&frames).await;
}

in_every_era!(after_close_a_call_is_closed);
async fn after_close_a_call_is_closed(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    let mut pending = client.raw("x/pending", ()).start();
    assert!(poll_once(&mut pending).await.is_pending());
    let other = client.clone();

    client.close().await.unwrap();

    assert!(matches!(pending.await, Err(Error::Closed)));
    assert!(matches!(
        other.call_tool("quick", ()).await,
        Err(Error::Closed)
    ));
    assert!(other.peer().unwrap().is_idle());
    assert_eq!(
        script.hear_in_short().await.split(' ').nth(1),
        Some("x/pending")
    );
    assert_eq!(script.hear_all().await, NOTHING);
}

in_every_era!(closing_a_wire_that_nobody_reads_takes_a_second_at_most);
async fn closing_a_wire_that_nobody_reads_takes_a_second_at_most(version: &'static str) {
    let (client, script) = scripted_server(version).await;
    let fill: Vec<_> = (0..100).map(|_| client.raw("x/fill", ()).start()).collect();
    let start = Instant::now();

    client.close().await.unwrap();

    assert_eq!(start.elapsed(), Duration::from_secs(1));
    for call in fill {
        assert!(matches!(call.await, Err(Error::Closed)));
    }
    drop(script);
}

#[tokio::test(start_paused = true)]
async fn cancelled_timeout_and_closed_are_different_errors() {
    // What a peer may cancel of ours are subscriptions, which only the modern wire has.
    let (client, mut script) = scripted_server("2026-07-28").await;
    let listen = |id: &str| {
        client
            .raw("subscriptions/listen", json!({"notifications": {}}))
            .id(id)
    };

    let timed_out = listen("a").timeout(Duration::from_millis(5)).await;
    let (cancelled, ()) = tokio::join!(listen("b").into_future(), async {
        while script.hear().await["id"] != "b" {}
        script.say_text(&cancel_text("\"b\"", "over"));
    });
    let (closed, ()) = tokio::join!(listen("c").into_future(), async {
        script.hear().await;
        drop(script);
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

in_every_era!(a_late_result_or_error_is_dropped_and_the_id_is_free_again);
async fn a_late_result_or_error_is_dropped_and_the_id_is_free_again(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    for late in ["result", "error"] {
        let mut call = client.raw("x/mine", ()).id("mine").start();
        assert!(poll_once(&mut call).await.is_pending());
        let request = script.hear().await;
        drop(call);
        assert_eq!(
            script.hear_in_short().await,
            cancel_text("\"mine\"", "caller cancelled")
        );

        let said = json!({"jsonrpc": "2.0", "id": request["id"], late: late_member(late)});
        script.say(&said);
        let (next, ()) = tokio::join!(client.raw("x/next", ()).into_future(), async {
            let next = script.hear().await;
            script.answer(&next, &complete());
        });

        assert!(next.is_ok());
        assert!(client.peer().unwrap().is_idle());
    }
}

everywhere!(the_entry_is_removed_on_every_path);
async fn the_entry_is_removed_on_every_path(world: World) {
    let named = |id: &str| {
        world
            .client
            .call_tool("slow", json!({"name": "mine"}))
            .id(id)
    };
    let on_each_path = world.client.call_tool("quick", ()).id("again");
    on_each_path.await.unwrap();
    let refused = world.client.call_tool("no such tool", ()).id("again");
    assert!(matches!(refused.await, Err(Error::Peer(_))));
    let timed = named("again").timeout(Duration::from_millis(5));
    assert!(matches!(timed.await, Err(Error::Timeout { .. })));
    drop(world.run_into_handler(named("again").start()).await);
    world
        .run_into_handler(named("again").start())
        .await
        .cancel("enough");

    world
        .client
        .call_tool("quick", ())
        .id("again")
        .await
        .unwrap();

    world.tools.dropped(3).await;
    let frames = [
        "→ \"again\" tools/call quick".to_owned(),
        "← \"again\" result".to_owned(),
        "→ \"again\" tools/call no such tool".to_owned(),
        "← \"again\" error -32602".to_owned(),
        "→ \"again\" tools/call slow".to_owned(),
        format!("→ {}", cancel_text("\"again\"", "timed out after 5ms")),
        "→ \"again\" tools/call slow".to_owned(),
        format!("→ {}", cancel_text("\"again\"", "caller cancelled")),
        "→ \"again\" tools/call slow".to_owned(),
        format!("→ {}", cancel_text("\"again\"", "enough")),
        "→ \"again\" tools/call quick".to_owned(),
        "← \"again\" result".to_owned(),
    ];
    world.end(&frames).await;
}

everywhere_legacy!(a_request_that_a_handler_sent_is_cancelled_when_the_handler_lets_go_of_it);
// The modern era has no requests from a server. In process nothing is sent.
async fn a_request_that_a_handler_sent_is_cancelled_when_the_handler_lets_go_of_it(world: World) {
    let mut call = world.in_flight("gives up").await;
    world.run_into_host(&mut call).await;

    world.tools.release("mine");

    assert_eq!(call.await.unwrap().text(), "mine");
    world.host.dropped(1).await;
    let frames = [
        world.request(1, "tools/call gives up"),
        "← 1 roots/list".to_owned(),
        cancel_frame('←', "1", "caller cancelled"),
        world.result(1),
    ];
    world.end(&frames).await;
}

everywhere_legacy!(a_request_that_a_handler_sent_is_cancelled_with_the_handler);
// The modern era has no requests from a server. In process nothing is sent.
async fn a_request_that_a_handler_sent_is_cancelled_with_the_handler(world: World) {
    let mut call = world.in_flight("asks").await;
    world.run_into_host(&mut call).await;

    drop(call);

    world.tools.dropped(1).await;
    world.host.dropped(1).await;
    let frames = [
        world.request(1, "tools/call asks"),
        "← 1 roots/list".to_owned(),
        world.cancel(1, "caller cancelled"),
        cancel_frame('←', "1", "caller cancelled"),
    ];
    world.end(&frames).await;
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
