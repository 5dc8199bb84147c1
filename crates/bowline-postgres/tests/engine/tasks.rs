//! The laws of task stores, and tasks of two replicas.

use std::sync::Arc;
use std::time::Duration;

use bowline::{Client, Context, Server, Tool, ToolError};
use bowline_postgres::Postgres;
use bowline_tasks::store::{ChangeHint, StoreLimits, TaskStatus, TaskStore};
use bowline_tasks::testing::{Stores, StoresFuture, TestClock};
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle, TaskSettings, Tasks};

use crate::fixture;

mod laws {
    bowline_tasks::task_store_laws!(super::two_processes);
}

/// Two stores in a database of their own.
fn two_processes(limits: StoreLimits) -> StoresFuture {
    Box::pin(async move {
        let url = fixture::new_database().await;
        let clock = TestClock::default();
        let mut stores: Vec<Arc<dyn TaskStore>> = Vec::new();
        for _ in 0..2 {
            let postgres = Postgres::connect(&url, [7; 32]).await.unwrap();
            let store = postgres.tasks().limits(limits).clock(clock.clone());
            // The first hint means that the store listens.
            let mut changes = store.changes();
            assert_eq!(changes.next().await, Some(ChangeHint::TooMany));
            stores.push(Arc::new(store));
        }
        Stores {
            first: stores.remove(0),
            second: stores.remove(0),
            clock,
            files: Box::new(()),
        }
    })
}

/// A replica whose tool waits for an answer.
async fn replica(url: &str) -> (Server, Client) {
    let postgres = Postgres::connect(url, [7; 32]).await.unwrap();
    let tasks = Tasks::new(postgres.tasks())
        .lease(Duration::from_secs(2))
        .renew_every(Duration::from_millis(500));
    let greet = Tool::new("greet", |cx: Context| async move {
        let name: Name = cx.elicit("name", "Your name?").await?;
        Ok::<_, ToolError>(format!("hello {}", name.name))
    });
    let greet = greet.with_settings(TaskSettings::new().resumable());
    let server = Server::new("greeter", "1.0.0").tool(greet);
    let server = server.extension(tasks).cluster(postgres);
    let host = bowline::client::Host::new().elicitation(async |_| {
        bowline::types::ElicitResult::new(bowline::types::ElicitAction::Cancel)
    });
    let client = Client::in_process(&server).host(host);
    let client = client.extension(TaskClient::new()).await.unwrap();
    (server, client)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// Waits until the task asks its question.
async fn asks(task: &TaskHandle) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while task.status().await.unwrap().status != TaskStatus::InputRequired {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the task does not ask"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_read_and_answered_at_another_replica() {
    let url = fixture::new_database().await;
    let (_first_server, first) = replica(&url).await;
    let (_second_server, second) = replica(&url).await;
    let task = first.call_tool("greet", ()).as_task().await.unwrap();
    let id = task.id().unwrap().to_owned();

    let elsewhere = TaskHandle::attach(&second, &id);
    asks(&elsewhere).await;
    let answer = serde_json::json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    elsewhere.update(answer).await.unwrap();

    assert_eq!(elsewhere.wait().await.unwrap().text(), "hello Ada");
    assert_eq!(task.wait().await.unwrap().text(), "hello Ada");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_goes_on_at_another_replica_when_its_own_has_ended() {
    let url = fixture::new_database().await;
    let (first_server, first) = replica(&url).await;
    let (_second_server, second) = replica(&url).await;
    let task = first.call_tool("greet", ()).as_task().await.unwrap();
    let elsewhere = TaskHandle::attach(&second, task.id().unwrap());
    asks(&elsewhere).await;

    drop((task, first, first_server));
    let answer = serde_json::json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    elsewhere.update(answer).await.unwrap();

    let result = tokio::time::timeout(Duration::from_secs(30), elsewhere.wait()).await;
    assert_eq!(result.unwrap().unwrap().text(), "hello Ada");
}
