//! Calls that became tasks in the recording.

use bowline::exchange::{Answer, CallOptions, Channel as _, Request};
use bowline::types::ClientCapabilities;
use bowline::{Error, Json};
use serde_json::{Value, json};

use crate::recorded::{Era, Recorded, builder, call, connect, content};

fn modern_task(has_result: bool) -> Recorded {
    let mut recorded = Recorded::new(Era::Modern);
    let task = |status: &str| {
        json!({
            "taskId": "t1", "status": status, "createdAt": "2026-07-28T12:00:00Z",
            "lastUpdatedAt": "2026-07-28T12:00:00Z", "ttlMs": null,
        })
    };
    let mut created = task("working");
    created["resultType"] = json!("task");
    recorded.exchange("tools/call", call("long", json!({})), created);
    recorded.exchange("tasks/get", json!({"taskId": "t1"}), task("working"));
    if has_result {
        let mut completed = task("completed");
        completed["result"] = content("done");
        recorded.exchange("tasks/get", json!({"taskId": "t1"}), completed);
    }
    recorded
}

#[tokio::test]
async fn a_client_with_tasks_gets_the_recorded_task() {
    let extension = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let capabilities: ClientCapabilities = serde_json::from_value(extension).unwrap();
    let mock = modern_task(true).mock();

    let connection = builder(&mock, Era::Modern)
        .capabilities(capabilities)
        .connection();
    let connection = connection.await.unwrap();
    let send = async |method: &'static str, params: Value| {
        let request = Request::new(method, Json::from(params), connection.caller());
        connection
            .open(request, CallOptions::default())
            .answer()
            .await
            .unwrap()
    };
    let created = send("tools/call", call("long", json!({}))).await;
    let first = send("tasks/get", json!({"taskId": "t1"})).await;
    let second = send("tasks/get", json!({"taskId": "t1"})).await;

    assert!(matches!(created, Answer::Extension { result_type, .. } if result_type == "task"));
    let status = |answer: Answer| match answer {
        Answer::Complete(result) => result.decode::<Value>().unwrap()["status"].clone(),
        other => panic!("expected a complete result, got {other:?}"),
    };
    assert_eq!(
        (status(first), status(second)),
        (json!("working"), json!("completed"))
    );
}

#[tokio::test]
async fn a_client_without_tasks_gets_the_result_of_the_task() {
    for era in [Era::Modern, Era::Legacy] {
        let client = connect(&modern_task(true).mock(), era).await;

        let done = client.call_tool("long", ()).await.unwrap();

        assert_eq!(done.text(), "done", "{era:?}");
    }
}

#[tokio::test]
async fn a_legacy_task_is_served_as_its_result() {
    let mut recorded = Recorded::new(Era::Legacy);
    let task = json!({
        "taskId": "t1", "status": "working", "createdAt": "2026-07-28T12:00:00Z",
        "lastUpdatedAt": "2026-07-28T12:00:00Z", "ttl": null,
    });
    let mut params = call("long", json!({}));
    params["task"] = json!({"ttl": 60_000});
    recorded.exchange("tools/call", params, json!({"task": task}));
    recorded.exchange("tasks/result", json!({"taskId": "t1"}), content("done"));

    let mock = recorded.mock();
    for era in [Era::Modern, Era::Legacy] {
        let client = connect(&mock, era).await;
        assert_eq!(client.call_tool("long", ()).await.unwrap().text(), "done");
    }
}

#[tokio::test]
async fn a_task_without_a_recorded_result_is_an_error() {
    let client = connect(&modern_task(false).mock(), Era::Legacy).await;

    let Err(Error::Rpc(error)) = client.call_tool("long", ()).await else {
        panic!("expected a JSON-RPC error");
    };

    assert!(
        error.message.contains("does not have its result"),
        "{}",
        error.message
    );
}
