//! `notifications/tasks`.

use bowline::client::{Change, ChangeFilter};
use bowline::{Client, Context, Server, Tool, ToolError};
use bowline_tasks::store::{NewTask, StoreLimits, TaskStore as _};
use bowline_tasks::{ReplicaId, TaskClient, TaskId, TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::support::{SECOND, TestClient, accept, pass, server, store, store_with};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

fn greet() -> Tool {
    let greet = async |cx: Context| -> Result<String, ToolError> {
        pass(SECOND).await;
        let name = cx.elicit::<Name>("name", "Who?").await?.name;
        Ok(format!("Hello, {name}!"))
    };
    Tool::new("greet", greet).with_settings(TaskSettings::new())
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_each_state_in_full() {
    let server = server(Tasks::new(store()), [greet()]);
    let mut client = TestClient::new(&server);
    let id = client.start("greet").await;

    assert_eq!(client.listen(&[&id, "unknown", &id]).await, json!([id]));

    let working = client.notification("notifications/tasks").await;
    assert_eq!(working["taskId"], *id);
    assert_eq!(working["status"], "working");
    assert!(working["_meta"]["io.modelcontextprotocol/subscriptionId"].is_i64());
    let asks = client.notification("notifications/tasks").await;
    assert_eq!(asks["status"], "input_required");
    assert_eq!(
        asks["inputRequests"]["name"]["method"],
        "elicitation/create"
    );
    let answers = json!({"name": accept(json!({"name": "Ada"}))});
    client.update(&id, answers).await.unwrap();
    let working = client.notification("notifications/tasks").await;
    assert_eq!(working["status"], "working");
    let done = client.notification("notifications/tasks").await;
    assert_eq!(done["status"], "completed");
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!");
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_at_another_process_gets_changes() {
    let store = store();
    let owner = server(Tasks::new(store.clone()), [greet()]);
    let other = server(Tasks::new(store), [greet()]);
    let id = TestClient::new(&owner).start("greet").await;
    let mut client = TestClient::new(&other);

    client.listen(&[&id]).await;

    assert_eq!(
        client.notification("notifications/tasks").await["status"],
        "working"
    );
    let asks = client.notification("notifications/tasks").await;
    assert_eq!(asks["status"], "input_required");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_tasks_of_a_subscription_is_limited() {
    let server = server(Tasks::new(store()), [greet()]);
    let mut client = TestClient::new(&server);

    for tasks in [json!(vec!["x"; 1025]), json!("x"), json!([1])] {
        let params = json!({"notifications": {"taskIds": tasks}});
        let error = client
            .request("subscriptions/listen", params)
            .await
            .unwrap_err();

        assert_eq!(error["code"], -32602);
        assert!(
            error["message"].as_str().unwrap().contains("`taskIds`"),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_to_many_tasks_gets_the_state_of_each() {
    let store = store_with(StoreLimits::new().max_unfinished_per_principal(2000));
    let owner = ReplicaId::random().unwrap();
    let mut ids = Vec::new();
    for _ in 0..1024 {
        let task = NewTask::new(TaskId::random().unwrap(), "x", owner, 3600 * SECOND);
        ids.push(store.create(task).await.unwrap().id.to_string());
    }
    let server = Server::new("s", "1").extension(Tasks::new(store));
    let client = Client::in_process(&server).extension(TaskClient::new());
    let client = client.await.unwrap();

    let filter = ChangeFilter::new().member("taskIds", json!(ids));
    let mut subscription = client.subscribe(filter).await.unwrap();

    for _ in &ids {
        let change = subscription.next().await.unwrap();
        assert!(matches!(change, Some(Change::Other(_))), "{change:?}");
    }
}
