//! At the receiving end: a cancel finds its request, stops it, and is never answered.

use std::time::Duration;

use bowline::types::SubscriptionFilter;
use bowline::{Error, wire};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::script::Script;
use crate::tools::Tools;
use crate::world::{NOTHING, World, call_frame, cancel_text, scripted_client};

everywhere!(signalled_a_handler_is_left_to_finish_and_nothing_it_says_later_is_written);
async fn signalled_a_handler_is_left_to_finish_and_nothing_it_says_later_is_written(world: World) {
    let call = world
        .client
        .call_tool("stubborn", json!({"name": "mine"}))
        .on_progress(|_| {});
    let call = world.run_into_handler(call.start()).await;
    world.catch_up().await;

    drop(call);

    world.tools.until(|tally| tally.finished == 1).await;
    assert_eq!(world.tools.tally().dropped, 0);
    let frames = [
        world.request(1, "tools/call stubborn"),
        "← progress 1".to_owned(),
        world.request(2, "tools/call quick"),
        world.result(2),
        world.cancel(1, "caller cancelled"),
    ];
    world.end(&frames).await;
}

in_every_era!(cancel_is_effective_the_handlers_future_is_dropped_and_no_answer_is_sent);
// In process there is no cancel to receive: see `when_a_call_is_abandoned`.
async fn cancel_is_effective_the_handlers_future_is_dropped_and_no_answer_is_sent(
    version: &'static str,
) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 7, "slow"));
    tools.started(1).await;

    script.say_text(&cancel_text("7", "enough"));

    tools.dropped(1).await;
    assert!(server_end.is_idle());
    // The id is free: a successor with the same id gets the only answer.
    script.say_text(&call_frame(version, 7, "quick"));
    assert_eq!(script.hear_in_short().await, "7 result");
    assert_eq!(script.rest().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_matched_within_one_connection_never_across_them() {
    for versions in [
        ["2026-07-28"; 2],
        ["2025-11-25"; 2],
        ["2026-07-28", "2025-11-25"],
    ] {
        let tools = Tools::new();
        let server = tools.server();
        let mut scripts = Vec::new();
        for version in versions {
            let (near, far) = wire::memory();
            tokio::spawn(server.clone().serve(far));
            let mut script = Script::new(near);
            script.open(version).await;
            script.say_text(&call_frame(version, 7, "slow"));
            scripts.push(script);
        }
        tools.started(2).await;

        scripts[0].say_text(&cancel_text("7", "mine only"));
        tools.dropped(1).await;
        tools.release("mine");

        assert_eq!(scripts[1].hear_in_short().await, "7 result");
        assert_eq!(tools.tally().dropped, 1);
    }
}

in_every_era!(a_cancel_right_behind_its_request_always_finds_it);
async fn a_cancel_right_behind_its_request_always_finds_it(version: &'static str) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;

    for id in 1..=20 {
        script.say_text(&call_frame(version, id, "slow"));
        script.say_text(&cancel_text(&id.to_string(), "at once"));
    }
    script.say_text(&call_frame(version, 99, "quick"));

    assert_eq!(script.hear_in_short().await, "99 result");
    assert!(server_end.is_idle());
    tools.until(|tally| tally.started == tally.dropped).await;
    assert_eq!(script.rest().await, NOTHING);
}

in_every_era!(two_requests_with_one_id_in_flight_the_first_still_gets_its_answer);
async fn two_requests_with_one_id_in_flight_the_first_still_gets_its_answer(version: &'static str) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 7, "slow"));
    tools.started(1).await;

    script.say_text(&call_frame(version, 7, "quick"));

    // An error with the id would settle the first.
    assert_eq!(script.hear_in_short().await, "- error -32600");
    tools.release("mine");
    assert_eq!(script.hear_in_short().await, "7 result");
    assert!(server_end.is_idle());
    assert_eq!(script.rest().await, NOTHING);
}

in_every_era!(at_most_one_answer_per_id_even_if_a_stubborn_handler_outlives_its_request);
async fn at_most_one_answer_per_id_even_if_a_stubborn_handler_outlives_its_request(
    version: &'static str,
) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 7, "stubborn"));
    assert_eq!(script.hear_in_short().await, "progress 1");

    script.say_text(&cancel_text("7", "enough"));
    script.say_text(&call_frame(version, 7, "slow"));
    tools.until(|tally| tally.finished == 1).await;
    script.say_text(&call_frame(version, 8, "quick"));
    assert_eq!(script.hear_in_short().await, "8 result");
    tools.release("mine");

    assert_eq!(script.hear_in_short().await, "7 result");
    assert!(server_end.is_idle());
    assert_eq!(script.rest().await, NOTHING);
}

in_every_era!(a_cancel_for_what_is_unknown_finished_or_malformed_is_ignored);
async fn a_cancel_for_what_is_unknown_finished_or_malformed_is_ignored(version: &'static str) {
    let tools = Tools::new();
    let (server_end, mut script) = scripted_client(version, &tools).await;
    script.say_text(&call_frame(version, 1, "quick"));
    assert_eq!(script.hear_in_short().await, "1 result");
    script.say_text(&call_frame(version, 2, "slow"));
    tools.started(1).await;

    for params in [
        json!({"requestId": 3}),
        json!({"requestId": 1}),
        json!({"requestId": "02"}),
        json!({"requestId": true}),
        json!({"requestId": 2.5}),
        json!({"requestId": null}),
        json!({"requestId": [2]}),
        json!({"request_id": 2}),
        json!({"requestId": 2, "reason": 7}),
        json!({}),
    ] {
        let method = "notifications/cancelled";
        script.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
    script.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}));
    tools.release("mine");

    assert_eq!(script.hear_in_short().await, "2 result");
    assert_eq!(tools.tally().dropped, 0);
    assert!(server_end.is_idle());
    assert_eq!(script.rest().await, NOTHING);
}

on_every_wire!(shutting_down_new_work_is_refused_and_running_handlers_get_a_grace_period);
async fn shutting_down_new_work_is_refused_and_running_handlers_get_a_grace_period(
    mut world: World,
) {
    let call = world.in_flight("slow").await;
    let mut frames = vec![world.request(1, "tools/call slow")];
    let (start, grace) = (Instant::now(), Duration::from_secs(1));

    world.server.shut_down(grace);
    tokio::task::yield_now().await; // the server's task has its turn
    let refused = world.client.call_tool("quick", ()).await;
    world.tools.release("mine");

    assert!(matches!(refused, Err(Error::Peer(error)) if error.message == "shutting down"));
    assert_eq!(call.await.unwrap().text(), "mine");
    // The bystander does not finish in time.
    assert!(matches!(world.bystander().await, Err(Error::Closed)));
    assert_eq!(start.elapsed(), grace);
    frames.extend([
        world.request(2, "tools/call quick"),
        format!("← {} error -32603", world.id(2)),
        world.result(1),
    ]);
    world.tools.dropped(1).await;
    world.end_without_wire(&frames).await;
}

in_process!(shutting_down_new_work_is_refused);
// In process a handler that runs already is its caller's, who may wait for it or not.
async fn shutting_down_new_work_is_refused(mut world: World) {
    let call = world.in_flight("slow").await;

    world.server.shut_down(Duration::from_secs(1));
    let refused = world.client.call_tool("quick", ()).await;
    world.tools.release("mine");
    world.tools.release("bystander");

    assert!(matches!(refused, Err(Error::Peer(error)) if error.message == "shutting down"));
    assert_eq!(call.await.unwrap().text(), "mine");
    assert_eq!(world.bystander().await.unwrap().text(), "bystander");
}

in_process!(shutting_down_subscriptions_end_with_a_graceful_result);
async fn shutting_down_subscriptions_end_with_a_graceful_result(world: World) {
    let mut changes = world.client.subscribe(tools_changes()).await.unwrap();

    world.server.shut_down(Duration::from_secs(1));

    let ended = timeout(Duration::from_secs(1), changes.next()).await;
    assert_eq!(ended.expect("it ends at once").unwrap(), None);
}

// A legacy wire knows no end of a subscription but its own.
#[tokio::test(start_paused = true)]
async fn shutting_down_subscriptions_end_with_a_result_then_a_cancel_over_a_wire() {
    let mut world = World::over_memory("2026-07-28").await;
    let mut changes = world.client.subscribe(tools_changes()).await.unwrap();

    world.server.shut_down(Duration::from_secs(1));

    assert_eq!(changes.next().await.unwrap(), None);
    world.tools.release("bystander");
    assert_eq!(world.bystander().await.unwrap().text(), "bystander");
    let ended = cancel_text(&world.id(1).to_string(), "the subscription ended");
    let frames = [
        world.request(1, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        world.result(1),
        format!("← {ended}"),
        format!("← {} result", world.id(0)),
    ];
    drop(changes);
    world.end_without_wire(&frames).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_on_unheard_counts_against_a_limit() {
    let (version, tools) = ("2026-07-28", Tools::new());
    let (server_end, mut script) = scripted_client(version, &tools).await;
    let limit = 4096;
    for id in 1..=limit {
        script.say_text(&call_frame(version, id, "deaf"));
    }
    tools.until(|tally| tally.started == limit).await;
    for id in 1..=limit {
        script.say_text(&cancel_text(&id.to_string(), "unheard"));
    }

    script.say_text(&call_frame(version, "one more", "quick"));
    assert_eq!(script.hear_in_short().await, "\"one more\" error -32603");
    tools.release("mine");
    tools.until(|tally| tally.finished == limit).await;
    script.say_text(&call_frame(version, "next", "quick"));

    assert_eq!(script.hear_in_short().await, "\"next\" result");
    assert!(server_end.is_idle());
    assert_eq!(script.rest().await, NOTHING);
}

fn tools_changes() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter
}
