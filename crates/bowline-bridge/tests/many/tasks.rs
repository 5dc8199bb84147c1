//! The ids of tasks name their server.

use std::sync::{Arc, Mutex};

use bowline::Json;
use bowline::exchange::{CallOptions, Channel, Request};
use bowline::prelude::*;
use serde_json::{Value, json};

use crate::world::{MODERN, TWO, World, ask, responder};

type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// A server whose calls are tasks with the id 7, and that records requests about tasks.
fn tasks(seen: &Seen) -> impl Fn(Request, Context) -> Reply + Clone + Send + Sync + 'static {
    let seen = seen.clone();
    responder(move |request: Request, cx: Context| {
        let seen = seen.clone();
        let reply: Reply = Box::pin(async move {
            let params: Value = request.params.decode().unwrap();
            let seen_id = |id: &Value| {
                let id = id.as_str().unwrap_or_default().to_owned();
                seen.lock().unwrap().push((request.method.to_string(), id));
            };
            let result = match &*request.method {
                "server/discover" => json!({
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
                }),
                "tools/call" => json!({"resultType": "task", "taskId": "7", "status": "working"}),
                "subscriptions/listen" => {
                    let filter = &params["notifications"];
                    seen_id(&filter["taskIds"][0]);
                    let acknowledged = json!({"notifications": {"taskIds": filter["taskIds"]}});
                    cx.send(bowline::exchange::Notification::new(
                        "notifications/subscriptions/acknowledged",
                        Some(acknowledged.into()),
                    ));
                    let changed = json!({"taskId": filter["taskIds"][0], "status": "completed"});
                    cx.send(bowline::exchange::Notification::new(
                        "notifications/tasks",
                        Some(changed.into()),
                    ));
                    std::future::pending().await
                }
                _ => {
                    seen_id(&params["taskId"]);
                    json!({"taskId": params["taskId"], "status": "working"})
                }
            };
            Ok(result.into())
        });
        reply
    })
}

type Reply = bowline::exchange::BoxFuture<'static, bowline::exchange::Outcome>;

#[tokio::test]
async fn requests_about_a_task_reach_its_server_under_its_own_id() {
    let (first, second) = (Seen::default(), Seen::default());
    let world = World::default();
    world.serve_raw("a", &tasks(&first));
    world.serve_raw("b", &tasks(&second));
    let client = Client::in_process(&world.bridge(TWO)).protocol_version(MODERN);
    let connection = client.connection().await.unwrap();
    let ask = async |method, params| ask(&connection, method, params).await;

    let created = ask("tools/call", json!({"name": "b__job"})).await.unwrap();
    assert_eq!(created["taskId"], "b__7");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let task = ask(method, json!({"taskId": created["taskId"], "x": 1}))
            .await
            .unwrap();
        assert_eq!(task["taskId"], "b__7", "{method}");
    }
    let unknown = ask("tasks/get", json!({"taskId": "7"})).await.unwrap_err();

    assert_eq!(unknown.to_string(), "task not found (-32602)");
    let seen = second.lock().unwrap().clone();
    let expected = ["tasks/get", "tasks/update", "tasks/cancel"];
    assert_eq!(
        seen,
        expected.map(|method| (method.to_owned(), "7".to_owned()))
    );
    assert!(first.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_subscription_to_tasks_is_split_and_its_notifications_have_the_outer_ids() {
    let (first, second) = (Seen::default(), Seen::default());
    let world = World::default();
    world.serve_raw("a", &tasks(&first));
    world.serve_raw("b", &tasks(&second));
    let client = Client::in_process(&world.bridge(TWO)).protocol_version(MODERN);
    let connection = client.connection().await.unwrap();
    let params = json!({"notifications": {"taskIds": ["b__7", "a__8"]}});
    let request = Request::new(
        "subscriptions/listen",
        Json::from(params),
        connection.caller(),
    );
    let mut exchange = connection.open(request, CallOptions::default());

    let mut received = Vec::new();
    while received.len() < 3 {
        let bowline::exchange::ExchangeEvent::Notification(it) = exchange.next_event().await else {
            panic!("expected a notification");
        };
        received.push((
            it.method.to_string(),
            it.params.unwrap().decode::<Value>().unwrap(),
        ));
    }

    assert_eq!(received[0].0, "notifications/subscriptions/acknowledged");
    let mut ids: Vec<String> =
        serde_json::from_value(received[0].1["notifications"]["taskIds"].clone()).unwrap();
    ids.sort();
    assert_eq!(ids, ["a__8", "b__7"]);
    let mut changed: Vec<_> = received[1..]
        .iter()
        .map(|(_, it)| it["taskId"].as_str().unwrap())
        .collect();
    changed.sort_unstable();
    assert_eq!(changed, ["a__8", "b__7"]);
    assert_eq!(first.lock().unwrap()[0].1, "8");
    assert_eq!(second.lock().unwrap()[0].1, "7");
}
