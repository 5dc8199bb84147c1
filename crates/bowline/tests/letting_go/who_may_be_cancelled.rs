//! Who may be cancelled: every request but the first.

use std::future::IntoFuture;
use std::time::Duration;

use bowline::types::{CallToolRequest, CallToolRequestParams};
use bowline::{Call, Client, Error, Json, wire};
use serde_json::json;
use tokio::time::Instant;

use crate::script::Script;
use crate::world::{NOTHING, World, cancel_text, poll_once, scripted_server};

everywhere!(every_request_cancels_when_abandoned_by_default_typed_or_raw);
// In process nothing is sent: the handler is part of the caller's future, and goes with it.
async fn every_request_cancels_when_abandoned_by_default_typed_or_raw(world: World) {
    let arguments = json!({"name": "mine"});
    let params = CallToolRequestParams::new("slow").with_arguments(Json::from(arguments.clone()));
    let typed = || world.client.call_tool("slow", &arguments).start();
    let by_type = || world.client.request::<CallToolRequest>(&params).start();
    let raw = || world.client.raw("tools/call", &params).start();
    let acts: [&dyn Fn() -> Call; 3] = [&typed, &by_type, &raw];

    for (nth, act) in (1..).zip(acts) {
        drop(world.run_into_handler(act()).await);
        world.tools.dropped(nth).await;
    }

    let frames = [1, 2, 3].map(|nth| {
        let sent = world.request(nth, "tools/call slow");
        [sent, world.cancel(nth, "caller cancelled")]
    });
    world.end(frames.as_flattened()).await;
}

in_every_era!(a_request_of_any_method_cancels_when_abandoned);
async fn a_request_of_any_method_cancels_when_abandoned(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    let methods = ["tools/list", "prompts/get", "ping", "x/of-our-own"];

    for method in methods {
        let mut call = client.raw(method, json!({"name": "x"})).start();
        assert!(poll_once(&mut call).await.is_pending());
        let request = script.hear().await;
        drop(call);
        let cancel = cancel_text(&request["id"].to_string(), "caller cancelled");
        assert_eq!(script.hear_in_short().await, cancel);
    }

    assert!(client.peer().unwrap().is_idle());
}

in_every_era!(initialize_and_server_discover_never_are_not_even_through_the_generic_request_api);
async fn initialize_and_server_discover_never_are_not_even_through_the_generic_request_api(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    for method in ["initialize", "server/discover"] {
        let mut dropped = client.raw(method, ()).start();
        assert!(poll_once(&mut dropped).await.is_pending());
        let mut cancelled = client.raw(method, ()).start();
        assert!(poll_once(&mut cancelled).await.is_pending());
        let timed = client.raw(method, ()).timeout(Duration::from_millis(5));
        assert!(matches!(timed.await, Err(Error::Timeout { .. })));

        drop(dropped);
        cancelled.cancel("out of patience");
    }

    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    let heard = script.hear_all().await;
    assert_eq!(heard.len(), 6, "{heard:?}");
    assert!(heard.iter().all(|frame| !frame.contains("cancelled")));
}

in_every_legacy_era!(a_timed_out_initialize_puts_nothing_on_the_wire);
// The modern era has no opening that could time out.
async fn a_timed_out_initialize_puts_nothing_on_the_wire(version: &'static str) {
    let (near, far) = wire::memory();
    let (start, limit) = (Instant::now(), Duration::from_millis(200));

    let opened = Client::over(near).speaking(version).timeout(limit).await;

    assert!(matches!(opened, Err(Error::Timeout { after }) if after == limit));
    assert_eq!(start.elapsed(), limit);
    assert_eq!(Script::new(far).hear_all().await, ["1 initialize"]);
}

in_every_legacy_era!(a_dropped_initialize_puts_nothing_on_the_wire);
async fn a_dropped_initialize_puts_nothing_on_the_wire(version: &'static str) {
    let (near, far) = wire::memory();
    let mut script = Script::new(far);
    let mut opening = Client::over(near).speaking(version).into_future();

    assert!(poll_once(&mut opening).await.is_pending());
    assert_eq!(script.hear_in_short().await, "1 initialize");
    drop(opening);

    assert_eq!(script.hear_all().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_not_answered_is_not_cancelled_and_falling_back_is_on_time() {
    let (near, far) = wire::memory();
    let mut script = Script::new(far);
    let (start, limit) = (Instant::now(), Duration::from_millis(300));
    let connect = Client::over(near).probe_timeout(limit).into_future();

    let (client, ()) = tokio::join!(connect, async {
        assert_eq!(script.hear_in_short().await, "1 server/discover");
        script.shake_hands("2025-11-25").await;
        assert_eq!(start.elapsed(), limit);
    });

    client.unwrap().close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

on_every_wire!(cancel_on_abandon_false_opts_out_and_abandoning_is_purely_local);
// In process nobody can opt out: there is nothing else that could run the handler.
async fn cancel_on_abandon_false_opts_out_and_abandoning_is_purely_local(world: World) {
    let slow = |name| world.client.call_tool("slow", json!({"name": name}));
    let call = world.run_into_handler(slow("first").cancel_on_abandon(false).start());
    let timed = slow("second").cancel_on_abandon(false);

    drop(call.await);
    let timed = timed.timeout(Duration::from_millis(5)).await;

    assert!(matches!(timed, Err(Error::Timeout { .. })));
    let pending = world.client.peer().unwrap().sizes().pending;
    assert_eq!(pending, 1, "the bystander's");
    assert_eq!(world.tools.tally().dropped, 0);
    for (finished, name) in [(1, "first"), (2, "second")] {
        world.tools.release(name);
        world.tools.until(|tally| tally.finished == finished).await;
    }
    let mut frames = vec![
        world.request(1, "tools/call slow"),
        world.request(2, "tools/call slow"),
        world.result(1),
        world.result(2),
    ];
    world.catch_up().await;
    frames.extend([world.request(3, "tools/call quick"), world.result(3)]);
    world.end(&frames).await;
}

everywhere!(who_opted_out_can_still_cancel_with_a_reason);
async fn who_opted_out_can_still_cancel_with_a_reason(world: World) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));
    let call = world.run_into_handler(slow.cancel_on_abandon(false).start());

    call.await.cancel("the user closed the tab");

    world.tools.dropped(1).await;
    let frames = [
        world.request(1, "tools/call slow"),
        world.cancel(1, "the user closed the tab"),
    ];
    world.end(&frames).await;
}
