//! Parked calls as tasks: a modern client that declared tasks, and a legacy server that asks and has none.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::time::Duration;

use bowline::client::Host;
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, eventually};
use bowline::types::ElicitResult;
use bowline::{Error, ErrorCode};
use bowline_bridge::config::ParkedCallForm;
use bowline_bridge::{Bridge, BridgeConfig, Target};
use bowline_tasks::TaskClient;
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// A legacy server without tasks, whose tool asks.
fn server(handlers: &HandlerCounter) -> Server {
    let handlers = handlers.clone();
    let greet = Tool::new("greet", move |cx: Context| {
        let handlers = handlers.clone();
        let greeting = async move {
            let first = cx.elicit::<Name>("first", "Who?").await?;
            let second = cx.elicit::<Name>("second", "Who else?").await?;
            Ok::<_, ToolError>(format!("Hello, {} and {}!", first.name, second.name))
        };
        async move { handlers.run(greeting).await }
    });
    let plain = Tool::new("plain", async || "at once");
    Server::new("upstream", "1").tool(greet).tool(plain)
}

fn target(name: &str, handlers: &HandlerCounter) -> Target {
    let server = server(handlers);
    Target::new(name, move |_| {
        Ok(Client::in_process(&server).protocol_version("2025-11-25"))
    })
}

fn bridge(form: ParkedCallForm, handlers: &HandlerCounter) -> Bridge {
    let builder = Bridge::builder(target("upstream", handlers)).parked_calls(form);
    builder.park_timeout(PARK_TIMEOUT).build()
}

/// A client that declares tasks, and whose user answers Ada and Bo in turn.
async fn client(bridge: &Bridge) -> Client {
    let names = std::sync::Mutex::new(["Ada", "Bo"].into_iter().cycle());
    let host = Host::new().elicitation(move |_| {
        let name = names.lock().unwrap().next().unwrap();
        async move { ElicitResult::accept(json!({"name": name})) }
    });
    let client = Client::in_process(bridge).protocol_version("2026-07-28");
    let client = client.extension(TaskClient::new()).host(host);
    client.await.unwrap()
}

async fn request(client: &Client, method: &str, params: Value) -> Result<Value, Error> {
    let request = client.request_raw(method, params);
    let reply = request.manual_extension().manual_input().await?;
    Ok(reply.json().decode().unwrap())
}

/// Calls a tool that asks; returns the id of the task.
async fn start(client: &Client, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {}});
    let created = request(client, "tools/call", params).await.unwrap();
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!(created["status"], "input_required");
    created["taskId"].as_str().unwrap().to_owned()
}

async fn get(client: &Client, id: &str) -> Result<Value, Error> {
    request(client, "tasks/get", json!({"taskId": id})).await
}

/// Answers the question of a task; returns its key.
async fn answer(client: &Client, id: &str, name: &str) -> String {
    let found = get(client, id).await.unwrap();
    assert_eq!(found["status"], "input_required", "{found}");
    let questions = found["inputRequests"].as_object().unwrap();
    let key = questions.keys().next().unwrap();
    assert_eq!(questions[key]["method"], "elicitation/create");
    let answer = json!({"action": "accept", "content": {"name": name}});
    let params = json!({"taskId": id, "inputResponses": {key: answer}});
    request(client, "tasks/update", params).await.unwrap();
    key.clone()
}

/// Waits until a task has a status.
async fn wait_for(client: &Client, id: &str, status: &str) -> Value {
    for _ in 0..1000 {
        let found = get(client, id).await.unwrap();
        if found["status"] == status {
            return found;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    panic!("the task is never {status}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_asked_about_is_a_task_that_is_answered_with_updates() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(ParkedCallForm::Task, &handlers);
    let client = client(&bridge).await;

    let id = start(&client, "greet").await;
    let first = answer(&client, &id, "Ada").await;
    wait_for(&client, &id, "input_required").await;
    let second = answer(&client, &id, "Bo").await;
    let found = wait_for(&client, &id, "completed").await;

    assert_ne!(first, second, "a key is used once");
    let text = &found["result"]["content"][0]["text"];
    assert_eq!(text, "Hello, Ada and Bo!");
    assert_eq!(handlers.counts().started, 1, "it was sent once");
    assert_eq!(handlers.counts().finished, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_host_gets_the_result_of_the_call() {
    let bridge = bridge(ParkedCallForm::Task, &HandlerCounter::default());
    let client = client(&bridge).await;

    assert_eq!(
        client.call_tool("plain", ()).await.unwrap().text(),
        "at once"
    );
    let reply = client.call_tool("greet", ()).await.unwrap();

    assert_eq!(reply.text(), "Hello, Ada and Bo!");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_cancelled_is_cancelled_at_the_server() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(ParkedCallForm::Task, &handlers);
    let client = client(&bridge).await;
    let id = start(&client, "greet").await;

    for _ in 0..2 {
        let cancelled = request(&client, "tasks/cancel", json!({"taskId": id})).await;
        assert!(cancelled.is_ok(), "{cancelled:?}");
    }

    assert!(eventually(|| handlers.counts().dropped == 1).await);
    assert_eq!(get(&client, &id).await.unwrap()["status"], "cancelled");
    assert_eq!(bridge.usage().waiting_calls, 0);
    let late = json!({"taskId": id, "inputResponses": {"q1": {"action": "decline"}}});
    assert!(request(&client, "tasks/update", late).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_client_does_not_answer_fails_and_is_cancelled_at_the_server() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(ParkedCallForm::Task, &handlers);
    let client = client(&bridge).await;
    let id = start(&client, "greet").await;

    tokio::time::advance(PARK_TIMEOUT).await;

    let found = wait_for(&client, &id, "failed").await;
    assert_eq!(found["error"]["data"]["reason"], "inputExpired");
    assert!(eventually(|| handlers.counts().dropped == 1).await);
    assert_eq!(bridge.usage().waiting_calls, 0, "a drain does not wait");
    tokio::time::advance(Duration::from_secs(60 * 60)).await;
    // The runner notices the end of its time to live a moment later.
    let mut found = get(&client, &id).await;
    for _ in 0..100 {
        if found.is_err() {
            break;
        }
        tokio::task::yield_now().await;
        found = get(&client, &id).await;
    }
    let Err(Error::Rpc(gone)) = found else {
        panic!("the task is still known");
    };
    assert_eq!(gone.code, ErrorCode::INVALID_PARAMS);
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_or_the_extension_the_client_calls_again() {
    for (form, declares) in [(ParkedCallForm::Retry, true), (ParkedCallForm::Task, false)] {
        let bridge = bridge(form, &HandlerCounter::default());
        let client = match declares {
            true => client(&bridge).await,
            false => {
                let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({})));
                let client = Client::in_process(&bridge).protocol_version("2026-07-28");
                client.host(host).await.unwrap()
            }
        };

        let params = json!({"name": "greet", "arguments": {}});
        let asked = request(&client, "tools/call", params).await.unwrap();

        assert_eq!(asked["resultType"], "input_required", "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_extension_is_offered_if_parked_calls_are_tasks() {
    for (form, offered) in [(ParkedCallForm::Retry, false), (ParkedCallForm::Task, true)] {
        let bridge = bridge(form, &HandlerCounter::default());
        let client = client(&bridge).await;

        let discovered = request(&client, "server/discover", json!({}))
            .await
            .unwrap();

        let extensions = &discovered["capabilities"]["extensions"];
        let extension = extensions.get("io.modelcontextprotocol/tasks");
        assert_eq!(extension.is_some(), offered, "{discovered}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_ids_of_such_tasks_name_their_server_where_there_are_many() {
    let config = r#"{
        "bridge": {"parkedCalls": "task"},
        "mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}
    }"#;
    let config = BridgeConfig::from_json(config).unwrap();
    let handlers = HandlerCounter::default();
    let counted = handlers.clone();
    let bridge = Bridge::from_config_with(&config, move |it| Ok(target(it.name(), &counted)));
    let client = client(&bridge.unwrap()).await;

    let id = start(&client, "b__greet").await;

    assert!(id.starts_with("b__"), "{id}");
    answer(&client, &id, "Ada").await;
    wait_for(&client, &id, "input_required").await;
    let cancelled = request(&client, "tasks/cancel", json!({"taskId": id})).await;
    assert!(cancelled.is_ok(), "{cancelled:?}");
    assert!(eventually(|| handlers.counts().dropped == 1).await);
}

const PARK_TIMEOUT: Duration = Duration::from_secs(30);
