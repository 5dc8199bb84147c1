//! Letting go of calls: dropping is cancelling, and nobody else notices.

use bowline::types::RequestId;
use scenarios::{Scenario, World, scenario};
use serde_json::json;

use crate::support::{hang, hanging, tally};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            dropping_a_call_drops_its_handler_and_the_server_goes_on,
            "protocol:cancel:abort-signal",
            "protocol:cancel:server-survives",
        ),
        scenario!(
            dropping_one_call_leaves_the_others_alone,
            "protocol:cancel:abort-scoped"
        ),
        scenario!(
            a_cancelled_request_is_stopped_and_not_answered,
            "protocol:cancel:handler-abort-propagates",
            "protocol:cancel:in-flight",
        )
        .in_memory(),
        scenario!(
            an_abandoned_request_is_cancelled_by_one_message,
            "protocol:cancel:stream-frame",
            "protocol:cancel:late-response-ignored",
            "protocol:cancel:sender-targeting",
        )
        .in_memory(),
        scenario!(
            the_cancel_of_a_request_that_nobody_knows_is_ignored,
            "protocol:cancel:unknown-id-ignored",
        )
        .in_memory(),
    ]
}

async fn dropping_a_call_drops_its_handler_and_the_server_goes_on(world: World) {
    let client = world.connect(&hanging()).await;
    let call = hang(&client).await;

    call.abort();

    tally(&client, 1, 1).await;
    let next = client
        .call_tool("echo", json!({"still": "here"}))
        .await
        .unwrap();
    assert_eq!(next.text(), r#"{"still":"here"}"#);
}

async fn dropping_one_call_leaves_the_others_alone(world: World) {
    let client = world.connect(&hanging()).await;
    let (one, other) = (hang(&client).await, hang(&client).await);

    one.abort();
    tally(&client, 2, 1).await;

    assert!(!other.is_finished());
    other.abort();
    tally(&client, 2, 2).await;
}

async fn a_cancelled_request_is_stopped_and_not_answered(world: World) {
    let mut client = world.scripted_client(&hanging(), json!({})).await;
    let dialect = world.dialect();
    let params = json!({"name": "hang", "_meta": {"progressToken": "t"}});
    client.request(dialect, "slow", "tools/call", params);
    client.expect_notification("notifications/progress").await;

    client.notify(
        "notifications/cancelled",
        json!({"requestId": "slow", "reason": "bored"}),
    );
    client.request(dialect, "tally", "tools/call", json!({"name": "tally"}));

    let heard = client.hear().await;
    assert_eq!(heard["id"], "tally");
    assert_eq!(
        heard["result"]["content"][0]["text"], "1 1",
        "begun and dropped"
    );
    client.expect_nothing().await;
}

async fn an_abandoned_request_is_cancelled_by_one_message(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| connect)
        .await;
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

async fn the_cancel_of_a_request_that_nobody_knows_is_ignored(world: World) {
    let mut client = world.scripted_client(&hanging(), json!({})).await;
    let dialect = world.dialect();
    client.request(dialect, "over", "tools/call", json!({"name": "echo"}));
    assert_eq!(client.hear().await["id"], "over");

    for id in [RequestId::from("over"), RequestId::from("never")] {
        client.notify("notifications/cancelled", json!({"requestId": id}));
    }
    client.request(dialect, "next", "tools/call", json!({"name": "echo"}));

    assert_eq!(client.hear().await["id"], "next");
    client.expect_nothing().await;
}
