//! The receiving end: a cancel stops its request, which is then not answered.

use std::time::Duration;

use bowline::Error;
use bowline::types::SubscriptionFilter;
use bowline_core::era::Dialect;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::handler_monitor::HandlerMonitor;
use crate::scripted_peers::ScriptedClient;
use crate::test_pair::TestPair;

run!(
    everywhere,
    a_signalled_handler_finishes_and_its_later_messages_are_not_sent
);
async fn a_signalled_handler_finishes_and_its_later_messages_are_not_sent(pair: TestPair) {
    let call = pair
        .client
        .call_tool("signalled", json!({"name": "mine"}))
        .on_progress(|_| {});
    let call = pair.poll_until_handler_starts(call.start()).await;
    pair.round_trip().await;

    drop(call);

    pair.handlers
        .wait_until(|counts| counts.finished == 1)
        .await;
    assert_eq!(pair.handlers.counts().dropped, 0);
    let frames = [
        pair.request(1, "tools/call signalled"),
        "← progress 1".to_owned(),
        pair.request(2, "tools/call quick"),
        pair.result(2),
        pair.cancel(1, "caller cancelled"),
    ];
    pair.finish(&frames).await;
}

run!(
    with_scripted_client,
    a_cancel_drops_the_handler_and_no_answer_is_sent
);
// In process there is no cancel to receive: see `abandoned_calls`.
async fn a_cancel_drops_the_handler_and_no_answer_is_sent(mut client: ScriptedClient) {
    client.call(7, "slow");
    client.handlers.wait_for_started(1).await;

    client.cancel(7, "enough");

    client.handlers.wait_for_dropped(1).await;
    assert!(client.is_server_idle());
    // The id is free: only a later request with the same id is answered.
    client.call(7, "quick");
    assert_eq!(client.next().await, "7 result");
    client.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_matches_requests_of_its_own_connection_only() {
    let (modern, legacy) = (Dialect::LATEST, Dialect::LATEST_LEGACY);
    for dialects in [[modern; 2], [legacy; 2], [modern, legacy]] {
        let handlers = HandlerMonitor::default();
        let server = handlers.server();
        let mut clients = Vec::new();
        for dialect in dialects {
            let mut client = ScriptedClient::connect_to(&server, handlers.clone(), dialect).await;
            client.call(7, "slow");
            clients.push(client);
        }
        handlers.wait_for_started(2).await;

        clients[0].cancel(7, "mine only");
        handlers.wait_for_dropped(1).await;
        handlers.release("mine");

        assert_eq!(clients[1].next().await, "7 result");
        assert_eq!(handlers.counts().dropped, 1);
    }
}

run!(
    with_scripted_client,
    a_cancel_right_after_its_request_always_matches
);
async fn a_cancel_right_after_its_request_always_matches(mut client: ScriptedClient) {
    for id in 1..=20 {
        client.call(id, "slow");
        client.cancel(id, "immediately");
    }
    client.call(99, "quick");

    assert_eq!(client.next().await, "99 result");
    assert!(client.is_server_idle());
    client
        .handlers
        .wait_until(|counts| counts.started == counts.dropped)
        .await;
    client.finish().await;
}

run!(
    with_scripted_client,
    a_duplicate_request_id_is_refused_and_the_first_request_gets_its_answer
);
async fn a_duplicate_request_id_is_refused_and_the_first_request_gets_its_answer(
    mut client: ScriptedClient,
) {
    client.call(7, "slow");
    client.handlers.wait_for_started(1).await;

    client.call(7, "quick");

    // The error has no id, because its id would settle the first request.
    assert_eq!(client.next().await, "- error -32600");
    client.handlers.release("mine");
    assert_eq!(client.next().await, "7 result");
    client.finish().await;
}

run!(
    with_scripted_client,
    a_signalled_handler_that_outlives_its_request_sends_no_second_answer
);
async fn a_signalled_handler_that_outlives_its_request_sends_no_second_answer(
    mut client: ScriptedClient,
) {
    client.call(7, "signalled");
    assert_eq!(client.next().await, "progress 1");

    client.cancel(7, "enough");
    client.call(7, "slow");
    client
        .handlers
        .wait_until(|counts| counts.finished == 1)
        .await;
    client.call(8, "quick");
    assert_eq!(client.next().await, "8 result");
    client.handlers.release("mine");

    assert_eq!(client.next().await, "7 result");
    client.finish().await;
}

run!(
    with_scripted_client,
    a_cancel_with_an_unknown_finished_or_malformed_id_is_ignored
);
async fn a_cancel_with_an_unknown_finished_or_malformed_id_is_ignored(mut client: ScriptedClient) {
    client.call(1, "quick");
    assert_eq!(client.next().await, "1 result");
    client.call(2, "slow");
    client.handlers.wait_for_started(1).await;

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
        client
            .peer
            .send_json(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
    client
        .peer
        .send_json(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}));
    client.handlers.release("mine");

    assert_eq!(client.next().await, "2 result");
    assert_eq!(client.handlers.counts().dropped, 0);
    client.finish().await;
}

run!(
    over_a_wire,
    shutdown_refuses_new_requests_and_gives_running_handlers_a_grace_period
);
async fn shutdown_refuses_new_requests_and_gives_running_handlers_a_grace_period(
    mut pair: TestPair,
) {
    let call = pair.in_flight("slow").await;
    let mut frames = vec![pair.request(1, "tools/call slow")];
    let (start, grace) = (Instant::now(), Duration::from_secs(1));

    pair.server.shut_down(grace);
    tokio::task::yield_now().await; // the server's task observes the shutdown
    let refused = pair.client.call_tool("quick", ()).await;
    pair.handlers.release("mine");

    assert!(matches!(refused, Err(Error::Rpc(error)) if error.message == "shutting down"));
    assert_eq!(call.await.unwrap().text(), "mine");
    // The background call's handler outlasts the grace period.
    assert!(matches!(pair.background_reply().await, Err(Error::Closed)));
    assert_eq!(start.elapsed(), grace);
    frames.extend([
        pair.request(2, "tools/call quick"),
        format!("← {} error -32603", pair.id(2)),
        pair.result(1),
    ]);
    pair.handlers.wait_for_dropped(1).await;
    pair.finish_without_wire(&frames).await;
}

run!(in_process, shutdown_refuses_new_requests_in_process);
// In process a running handler belongs to its caller and is not stopped.
async fn shutdown_refuses_new_requests_in_process(mut pair: TestPair) {
    let call = pair.in_flight("slow").await;

    pair.server.shut_down(Duration::from_secs(1));
    let refused = pair.client.call_tool("quick", ()).await;
    pair.handlers.release("mine");
    pair.handlers.release("background");

    assert!(matches!(refused, Err(Error::Rpc(error)) if error.message == "shutting down"));
    assert_eq!(call.await.unwrap().text(), "mine");
    assert_eq!(pair.background_reply().await.unwrap().text(), "background");
}

run!(
    in_process,
    shutdown_ends_in_process_subscriptions_with_a_result
);
async fn shutdown_ends_in_process_subscriptions_with_a_result(pair: TestPair) {
    let mut changes = pair.client.subscribe(tools_filter()).await.unwrap();

    pair.server.shut_down(Duration::from_secs(1));

    let ended = timeout(Duration::from_secs(1), changes.next()).await;
    assert_eq!(ended.expect("the subscription ends").unwrap(), None);
}

// A legacy subscription ends with its wire only.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_subscriptions_over_a_wire_with_a_result_and_a_cancel() {
    let mut pair = TestPair::over_memory(Dialect::LATEST).await;
    let mut changes = pair.client.subscribe(tools_filter()).await.unwrap();

    pair.server.shut_down(Duration::from_secs(1));

    assert_eq!(changes.next().await.unwrap(), None);
    pair.handlers.release("background");
    assert_eq!(pair.background_reply().await.unwrap().text(), "background");
    let frames = [
        pair.request(1, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        pair.result(1),
        format!("← cancel {}: subscription ended", pair.id(1)),
        format!("← {} result", pair.id(0)),
    ];
    drop(changes);
    pair.finish_without_wire(&frames).await;
}

#[tokio::test(start_paused = true)]
async fn handlers_that_outlive_their_cancelled_requests_count_against_a_limit() {
    let mut client = ScriptedClient::connect(Dialect::LATEST).await;
    let limit = 4096;
    for id in 1..=4096 {
        client.call(id, "ignores cancel");
    }
    client
        .handlers
        .wait_until(|counts| counts.started == limit)
        .await;
    for id in 1..=4096 {
        client.cancel(id, "ignored");
    }

    client.call("one more", "quick");
    assert_eq!(client.next().await, "\"one more\" error -32603");
    client.handlers.release("mine");
    client
        .handlers
        .wait_until(|counts| counts.finished == limit)
        .await;
    client.call("next", "quick");

    assert_eq!(client.next().await, "\"next\" result");
    client.finish().await;
}

fn tools_filter() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter
}
