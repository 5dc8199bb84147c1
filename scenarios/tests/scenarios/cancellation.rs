//! Abandoned calls: dropping a call cancels its request, and affects no other.

use bowline::types::RequestId;
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;

use crate::support::{hanging_server, start_hang, wait_for_handlers};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            dropping_a_call_drops_its_handler_and_keeps_the_connection_open,
            "protocol:cancel:abort-signal",
            "protocol:cancel:server-survives",
        ),
        scenario!(
            dropping_one_call_does_not_affect_the_others,
            "protocol:cancel:abort-scoped"
        ),
        scenario!(
            a_cancelled_request_drops_its_handler_and_gets_no_response,
            "protocol:cancel:handler-abort-propagates",
            "protocol:cancel:in-flight",
        )
        .in_memory(),
        scenario!(
            an_abandoned_request_is_cancelled_by_one_notification,
            "protocol:cancel:stream-frame",
            "protocol:cancel:late-response-ignored",
            "protocol:cancel:sender-targeting",
        )
        .in_memory(),
        scenario!(
            the_cancel_of_an_unknown_request_is_ignored,
            "protocol:cancel:unknown-id-ignored",
        )
        .in_memory(),
    ]
}

async fn dropping_a_call_drops_its_handler_and_keeps_the_connection_open(env: ScenarioEnv) {
    let client = env.connect(&hanging_server()).await;
    let call = start_hang(&client).await;

    call.abort();

    wait_for_handlers(&client, 1, 1).await;
    let next = client
        .call_tool("echo", json!({"still": "here"}))
        .await
        .unwrap();
    assert_eq!(next.text(), r#"{"still":"here"}"#);
}

async fn dropping_one_call_does_not_affect_the_others(env: ScenarioEnv) {
    let client = env.connect(&hanging_server()).await;
    let (one, other) = (start_hang(&client).await, start_hang(&client).await);

    one.abort();
    wait_for_handlers(&client, 2, 1).await;

    assert!(!other.is_finished());
    other.abort();
    wait_for_handlers(&client, 2, 2).await;
}

async fn a_cancelled_request_drops_its_handler_and_gets_no_response(env: ScenarioEnv) {
    let mut client = env.scripted_client(&hanging_server(), json!({})).await;
    let dialect = env.dialect();
    let params = json!({"name": "hang", "_meta": {"progressToken": "t"}});
    client.request(dialect, "slow", "tools/call", params);
    client.expect_notification("notifications/progress").await;

    client.notify(
        "notifications/cancelled",
        json!({"requestId": "slow", "reason": "not needed"}),
    );
    client.request(
        dialect,
        "handler_counts",
        "tools/call",
        json!({"name": "handler_counts"}),
    );

    let message = client.next_message().await;
    assert_eq!(message["id"], "handler_counts");
    assert_eq!(
        message["result"]["content"][0]["text"], "1 1",
        "started and dropped handlers"
    );
    client.expect_nothing().await;
}

async fn an_abandoned_request_is_cancelled_by_one_notification(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let slow = tokio::spawn(client.call_tool("slow", ()).into_future());
    let id = server.expect("tools/call").await.hold();

    slow.abort();
    server.expect_cancel(&id).await;
    server.answer(id, json!({"content": [], "resultType": "complete"}));
    let answered = tokio::spawn(client.call_tool("quick", ()).into_future());
    server
        .expect("tools/call")
        .await
        .answer(json!({"content": [], "resultType": "complete"}));

    assert!(answered.await.unwrap().is_ok());
    server.expect_nothing().await;
}

async fn the_cancel_of_an_unknown_request_is_ignored(env: ScenarioEnv) {
    let mut client = env.scripted_client(&hanging_server(), json!({})).await;
    let dialect = env.dialect();
    client.request(dialect, "over", "tools/call", json!({"name": "echo"}));
    assert_eq!(client.next_message().await["id"], "over");

    for id in [RequestId::from("over"), RequestId::from("never")] {
        client.notify("notifications/cancelled", json!({"requestId": id}));
    }
    client.request(dialect, "next", "tools/call", json!({"name": "echo"}));

    assert_eq!(client.next_message().await["id"], "next");
    client.expect_nothing().await;
}
