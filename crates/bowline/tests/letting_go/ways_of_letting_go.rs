//! All the ways of letting go: whatever the caller does, the other end learns of it the same way.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::Error;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::tools::Tools;
use crate::world::{NOTHING, World, cancel_text, poll_once, scripted_server, scripted_server_for};

everywhere!(a_request_that_was_never_started_does_not_exist);
async fn a_request_that_was_never_started_does_not_exist(world: World) {
    drop(world.client.call_tool("slow", json!({"name": "mine"})));
    drop(world.client.list_tools());
    drop(world.client.raw("tools/list", ()));

    world.catch_up().await;

    let frames = [world.request(1, "tools/call quick"), world.result(1)];
    world.end(&frames).await;
}

everywhere!(dropped_before_its_first_poll_and_before_it_left_a_call_is_withdrawn);
async fn dropped_before_its_first_poll_and_before_it_left_a_call_is_withdrawn(world: World) {
    drop(world.start("slow"));

    world.catch_up().await;

    assert_eq!(world.tools.tally().started, 0);
    // The withdrawn call's id was minted, and is not used again.
    let frames = [world.request(2, "tools/call quick"), world.result(2)];
    world.end(&frames).await;
}

on_every_wire!(dropped_before_its_first_poll_but_after_it_left_a_call_is_cancelled);
// In process a call that was not polled has not begun.
async fn dropped_before_its_first_poll_but_after_it_left_a_call_is_cancelled(world: World) {
    let call = world.start("slow");
    world.tools.started(1).await;

    drop(call);

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

everywhere!(dropped_while_notifications_stream_a_call_is_cancelled);
async fn dropped_while_notifications_stream_a_call_is_cancelled(world: World) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = reports.clone();
    let mut call = world
        .client
        .call_tool("talks", json!({"name": "mine"}))
        .on_progress(move |report| heard.lock().unwrap().push(report.progress))
        .start();

    let streaming = timeout(Duration::from_millis(1), &mut call).await;
    assert!(streaming.is_err());
    assert_eq!(*reports.lock().unwrap(), [1.0, 2.0]);
    drop(call);

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call talks"),
        "← progress 1".to_owned(),
        "← progress 2".to_owned(),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

everywhere!(a_call_that_lost_a_select_is_cancelled);
async fn a_call_that_lost_a_select_is_cancelled(world: World) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));

    tokio::select! {
        reply = slow => panic!("{reply:?}"),
        () = world.tools.started(1) => {}
    }

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

everywhere!(a_call_inside_a_timeout_of_the_callers_is_cancelled_when_that_rings);
async fn a_call_inside_a_timeout_of_the_callers_is_cancelled_when_that_rings(world: World) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));

    let elapsed = timeout(Duration::from_millis(30), slow.into_future()).await;

    assert!(elapsed.is_err());
    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

everywhere!(a_call_that_is_silent_for_too_long_is_cancelled_by_its_own_timeout);
async fn a_call_that_is_silent_for_too_long_is_cancelled_by_its_own_timeout(world: World) {
    let start = Instant::now();
    let limit = Duration::from_millis(40);
    let talks = world
        .client
        .call_tool("talks", json!({"name": "mine"}))
        .on_progress(|_| {})
        .timeout(limit);

    let error = talks.await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call talks"),
        "← progress 1".to_owned(),
        "← progress 2".to_owned(),
        world.cancel(1, "timed out after 40ms"),
    ];
    world.end(&frames).await;
}

everywhere!(a_call_that_takes_too_long_in_all_is_cancelled_by_its_own_timeout);
async fn a_call_that_takes_too_long_in_all_is_cancelled_by_its_own_timeout(world: World) {
    let start = Instant::now();
    let limit = Duration::from_millis(40);
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));

    let error = slow.total_timeout(limit).await.unwrap_err();

    assert!(matches!(error, Error::Timeout { after } if after == limit));
    assert_eq!(start.elapsed(), limit);
    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "timed out after 40ms"),
    ];
    world.end(&frames).await;
}

everywhere!(a_call_that_is_cancelled_outright_gives_its_reason);
async fn a_call_that_is_cancelled_outright_gives_its_reason(world: World) {
    let call = world.in_flight("slow").await;

    call.cancel("the user closed the tab");

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "the user closed the tab"),
    ];
    world.end(&frames).await;
}

in_every_era!(a_client_that_is_dropped_with_its_calls_cancels_them_and_closes_the_wire);
async fn a_client_that_is_dropped_with_its_calls_cancels_them_and_closes_the_wire(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    let mut calls = ["a", "b"].map(|id| client.raw("x/y", ()).id(id).start());
    for call in &mut calls {
        assert!(poll_once(call).await.is_pending());
        script.hear().await;
    }

    drop(client);
    // The connection lives as long as somebody waits on it.
    assert!(poll_once(&mut calls[0]).await.is_pending());
    drop(calls);

    let cancels = ["\"a\"", "\"b\""].map(|id| cancel_text(id, "caller cancelled"));
    assert_eq!(script.hear_all().await, cancels);
}

on_every_wire!(when_the_client_goes_away_every_handler_is_dropped);
async fn when_the_client_goes_away_every_handler_is_dropped(mut world: World) {
    let call = world.in_flight("slow").await;
    let frames = [world.request(1, "tools/call slow")];

    world.break_wire();

    // The bystander's handler is the other one.
    world.tools.dropped(2).await;
    assert!(call.await.is_err());
    assert!(world.bystander().await.is_err());
    world.end_without_wire(&frames).await;
}

on_every_wire!(when_the_server_goes_away_every_call_ends_and_every_handler_is_dropped);
async fn when_the_server_goes_away_every_call_ends_and_every_handler_is_dropped(mut world: World) {
    let call = world.in_flight("slow").await;
    let frames = [world.request(1, "tools/call slow")];

    world.kill_server().await;

    assert!(matches!(call.await, Err(Error::Closed)));
    assert!(matches!(world.bystander().await, Err(Error::Closed)));
    assert!(matches!(
        world.client.list_tools().await,
        Err(Error::Closed)
    ));
    world.tools.dropped(2).await;
    world.end_without_wire(&frames).await;
}

#[tokio::test(start_paused = true)]
async fn letting_go_of_one_leg_of_a_multi_round_trip_request_cancels_that_leg_only() {
    let (client, mut script) = scripted_server("2026-07-28").await;
    let mut call = client.call_tool("asks", ()).start();
    assert!(poll_once(&mut call).await.is_pending());
    let first = script.hear().await;
    script.answer(
        &first,
        &json!({"resultType": "input_required", "requestState": "s"}),
    );

    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        second = script.hear() => {
            assert_eq!(second["params"]["requestState"], "s");
            assert_ne!(second["id"], first["id"]);
        }
    }
    assert_eq!(call.id(), Some(&2.into()));
    drop(call);

    assert_eq!(
        script.hear_in_short().await,
        cancel_text("2", "caller cancelled")
    );
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn letting_go_while_the_host_decides_stops_the_host_and_sends_nothing() {
    let host = Tools::new();
    let (client, mut script) = scripted_server_for("2026-07-28", &host).await;
    let mut call = client.call_tool("asks", ()).start();
    assert!(poll_once(&mut call).await.is_pending());
    let first = script.hear().await;
    let asks = json!({"roots": {"method": "roots/list"}});
    script.answer(
        &first,
        &json!({"resultType": "input_required", "inputRequests": asks}),
    );

    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        () = host.started(1) => {}
    }
    call.cancel("never mind");

    assert_eq!(host.tally().dropped, 1);
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}
