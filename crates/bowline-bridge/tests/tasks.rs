//! Tasks of `bowline-tasks` across eras: its client and its server with a bridge between them, on a paused clock.
#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{
    Caller, Channel, ConnectionState, Dialect, Notification, NotificationSink, Outcome, Principal,
    Request, Responder as _,
};
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, MatrixCase, TestTransport, matrix};
use bowline::types::{CapabilitySettings, ElicitResult};
use bowline::{Error, ErrorCode, Json};
use bowline_bridge::{Bridge, Target};
use bowline_tasks::store::{MemoryStore, TaskStatus, Timestamp};
use bowline_tasks::{TaskCall as _, TaskClient, TaskSettings, Tasks};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// A server with a tool that takes 3 seconds, one that asks, one that fails, one that hangs, and one without tasks.
fn server(handlers: &HandlerCounter) -> Server {
    let start = Instant::now();
    let clock = move || Timestamp::from_millis(1_785_240_000_000).after(start.elapsed());
    let store = Arc::new(MemoryStore::new().clock(clock));
    let task = |tool: Tool| tool.with_settings(TaskSettings::new());
    let slow = Tool::new("slow", async || {
        sleep(3 * SECOND).await;
        "done"
    });
    let greet = Tool::new("greet", async |cx: Context| {
        let first = cx.elicit::<Name>("first", "Who?").await?;
        let second = cx.elicit::<Name>("second", "Who else?").await?;
        Ok::<_, ToolError>(format!("Hello, {} and {}!", first.name, second.name))
    });
    let fail = Tool::new("fail", async || {
        Err::<String, _>(ToolError::new("it is broken"))
    });
    let handlers = handlers.clone();
    let hang = Tool::new("hang", move || {
        let handlers = handlers.clone();
        async move { handlers.run(pending::<String>()).await }
    });
    Server::new("upstream", "1")
        .extension(Tasks::new(store))
        .tool(task(slow))
        .tool(task(greet))
        .tool(task(fail))
        .tool(task(hang))
        .tool(Tool::new("plain", async || "at once"))
}

/// The transports on which servers speak a version.
fn transports(version: &'static str) -> impl Iterator<Item = MatrixCase> {
    matrix().filter(move |case| case.dialect.version == version)
}

/// A bridge to a server that is reached in this way.
fn bridge_over(case: MatrixCase, handlers: &HandlerCounter) -> Bridge {
    let server = server(handlers);
    let target = Target::new("upstream", move |_| Ok(case.serve(&server).connect));
    Bridge::new(target)
}

/// A bridge to a server in process that speaks this version only.
fn bridge(version: &'static str, handlers: &HandlerCounter) -> Bridge {
    let dialect = Dialect::of(version).unwrap();
    bridge_over(MatrixCase::new(TestTransport::InProcess, dialect), handlers)
}

/// A bridge to a server whose tasks exist in one connection only, like those of a process.
fn bridge_to_processes(version: &'static str) -> Bridge {
    let target = Target::new("upstream", move |_| {
        let server = server(&HandlerCounter::default());
        Ok(Client::in_process(&server).protocol_version(version))
    });
    Bridge::new(target)
}

/// A host whose user answers with the names Ada, Bo and so on.
fn host() -> (Host, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let host = Host::new().elicitation(move |_| {
        let name = ["Ada", "Bo", "Cy"][counted.fetch_add(1, Ordering::SeqCst)];
        async move { ElicitResult::accept(json!({"name": name})) }
    });
    (host, asked)
}

async fn modern_client(bridge: &Bridge) -> Client {
    let client = Client::in_process(bridge).protocol_version(MODERN);
    client.extension(TaskClient::new()).await.unwrap()
}

async fn legacy_client(bridge: &Bridge) -> Client {
    let client = Client::in_process(bridge).protocol_version(LEGACY);
    client.await.unwrap()
}

async fn request(client: &Client, method: &str, params: Value) -> Result<Value, Error> {
    let reply = client.request_raw(method, params).await?;
    Ok(reply.json().decode().unwrap())
}

/// Calls a tool as a task of 2025-11-25; returns the task.
async fn start(client: &Client, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 3_600_000}});
    let mut created = request(client, "tools/call", params).await.unwrap();
    created["task"].take()
}

fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::Rpc(error) => Some(error.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_waits_for_a_task_of_a_legacy_server() {
    for case in transports(LEGACY) {
        println!("{case}");
        let bridge = bridge_over(case, &HandlerCounter::default());
        let client = modern_client(&bridge).await;

        let task = client.call_tool("slow", ()).as_task().await.unwrap();
        assert!(task.id().is_some(), "it is a task");
        assert_eq!(task.status().await.unwrap().status, TaskStatus::Working);
        let reply = task.wait().await.unwrap();

        assert_eq!(reply.text(), "done");
        let status = task.status().await.unwrap().status;
        assert_eq!(status, TaskStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_tasks_is_called_as_before() {
    for version in [MODERN, LEGACY] {
        let bridge = bridge(version, &HandlerCounter::default());
        let client = modern_client(&bridge).await;

        let called = client.call_tool("plain", ()).as_task().await.unwrap();

        assert_eq!(called.id(), None, "{version}");
        assert_eq!(called.wait().await.unwrap().text(), "at once", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_legacy_task_are_put_to_a_modern_client() {
    for case in transports(LEGACY) {
        println!("{case}");
        let bridge = bridge_over(case, &HandlerCounter::default());
        let (host, asked) = host();
        let client = Client::in_process(&bridge).protocol_version(MODERN);
        let client = client.extension(TaskClient::new()).host(host);
        let client = client.await.unwrap();

        let reply = client.call_tool("greet", ()).await.unwrap();

        assert_eq!(reply.text(), "Hello, Ada and Bo!");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_completes_its_task_for_a_modern_client() {
    let bridge = bridge(LEGACY, &HandlerCounter::default());
    let client = modern_client(&bridge).await;

    let task = client.call_tool("fail", ()).as_task().await.unwrap();
    let id = task.id().unwrap().to_owned();
    sleep(SECOND).await;

    let found = request(&client, "tasks/get", json!({"taskId": id})).await;
    let found = found.unwrap();
    assert_eq!(found["status"], "completed");
    assert_eq!(found["result"]["isError"], true);
    assert_eq!(found["result"].get("_meta"), None);
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_cancels_a_task_of_a_legacy_server() {
    for case in transports(LEGACY) {
        println!("{case}");
        let handlers = HandlerCounter::default();
        let bridge = bridge_over(case, &handlers);
        let client = modern_client(&bridge).await;
        let task = client.call_tool("hang", ()).as_task().await.unwrap();
        sleep(SECOND).await;
        assert_eq!(handlers.counts().dropped, 0);

        task.cancel().await.unwrap();
        // A task that has finished may be cancelled in the extension.
        task.cancel().await.unwrap();

        let status = task.status().await.unwrap().status;
        assert_eq!(status, TaskStatus::Cancelled);
        sleep(SECOND).await;
        assert_eq!(handlers.counts().dropped, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_that_did_not_declare_the_extension_gets_no_task() {
    let bridge = bridge(LEGACY, &HandlerCounter::default());
    let client = Client::in_process(&bridge).protocol_version(MODERN);
    let client = client.await.unwrap();

    let params = json!({"name": "slow", "arguments": {}, "task": {}});
    let called = request(&client, "tools/call", params).await.unwrap();
    let refused = request(&client, "tasks/get", json!({"taskId": "x"})).await;

    assert_eq!(called["content"][0]["text"], "done");
    assert_eq!(
        code(&refused.unwrap_err()),
        Some(ErrorCode::MISSING_CLIENT_CAPABILITY)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_is_refused_in_both_directions() {
    for (front, back) in [(MODERN, LEGACY), (LEGACY, MODERN)] {
        let bridge = bridge(back, &HandlerCounter::default());
        let client = match front {
            MODERN => modern_client(&bridge).await,
            _ => legacy_client(&bridge).await,
        };

        for method in ["tasks/get", "tasks/cancel"] {
            let refused = request(&client, method, json!({"taskId": "none"})).await;
            let error = refused.unwrap_err();
            assert_eq!(code(&error), Some(ErrorCode::INVALID_PARAMS), "{front}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_waits_for_a_task_of_a_modern_server() {
    for case in transports(MODERN) {
        println!("{case}");
        let bridge = bridge_over(case, &HandlerCounter::default());
        let client = legacy_client(&bridge).await;

        let task = start(&client, "slow").await;
        assert_eq!(task["status"], "working");
        assert!(task.get("ttl").is_some() && task.get("ttlMs").is_none());
        let id = &task["taskId"];
        let result = request(&client, "tasks/result", json!({"taskId": id}));
        let result = result.await.unwrap();

        assert_eq!(result["content"][0]["text"], "done");
        let related = &result["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(related["taskId"], *id);
        let found = request(&client, "tasks/get", json!({"taskId": id})).await;
        let found = found.unwrap();
        assert_eq!(found["status"], "completed");
        assert_eq!(found.get("result"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_modern_task_are_put_to_a_legacy_client_that_waits() {
    for case in transports(MODERN) {
        println!("{case}");
        let bridge = bridge_over(case, &HandlerCounter::default());
        let (host, asked) = host();
        let client = Client::in_process(&bridge).protocol_version(LEGACY);
        let client = client.host(host).await.unwrap();

        let task = start(&client, "greet").await;
        sleep(SECOND).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0, "it does not wait yet");
        let id = &task["taskId"];
        let result = request(&client, "tasks/result", json!({"taskId": id}));
        let result = result.await.unwrap();

        assert_eq!(result["content"][0]["text"], "Hello, Ada and Bo!");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_fails_its_task_for_a_legacy_client() {
    let bridge = bridge(MODERN, &HandlerCounter::default());
    let client = legacy_client(&bridge).await;

    let task = start(&client, "fail").await;
    let params = json!({"taskId": task["taskId"]});
    let result = request(&client, "tasks/result", params.clone()).await;
    let found = request(&client, "tasks/get", params).await;

    assert_eq!(result.unwrap()["isError"], true);
    assert_eq!(found.unwrap()["status"], "failed");
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_cancels_a_task_of_a_modern_server_once() {
    for case in transports(MODERN) {
        println!("{case}");
        let handlers = HandlerCounter::default();
        let bridge = bridge_over(case, &handlers);
        let client = legacy_client(&bridge).await;
        let task = start(&client, "hang").await;
        let params = json!({"taskId": task["taskId"]});
        sleep(SECOND).await;

        let cancelled = request(&client, "tasks/cancel", params.clone()).await;
        let again = request(&client, "tasks/cancel", params.clone()).await;
        let result = request(&client, "tasks/result", params).await;

        assert_eq!(cancelled.unwrap()["status"], "cancelled");
        assert_eq!(code(&again.unwrap_err()), Some(ErrorCode::INVALID_PARAMS));
        assert!(result.is_err());
        sleep(SECOND).await;
        assert_eq!(handlers.counts().dropped, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_modern_server_answers_at_once_is_a_finished_task_for_a_legacy_client() {
    let bridge = bridge(MODERN, &HandlerCounter::default());
    let client = legacy_client(&bridge).await;

    let task = start(&client, "plain").await;
    let params = json!({"taskId": task["taskId"]});
    let found = request(&client, "tasks/get", params.clone()).await;
    let result = request(&client, "tasks/result", params.clone()).await;
    let other = legacy_client(&bridge).await;
    let unreachable = request(&other, "tasks/result", params.clone()).await;
    sleep(2 * 3600 * SECOND).await;
    start(&client, "plain").await;
    let expired = request(&client, "tasks/get", params).await;

    assert_eq!(
        (&task["status"], &task["ttl"]),
        (&json!("completed"), &json!(3_600_000))
    );
    assert_eq!(found.unwrap(), task);
    assert_eq!(result.unwrap()["content"][0]["text"], "at once");
    assert!(unreachable.is_err(), "another connection has other tasks");
    assert!(expired.is_err());
}

#[tokio::test(start_paused = true)]
async fn tools_and_capabilities_are_listed_in_the_form_of_the_client() {
    let bridge = bridge(MODERN, &HandlerCounter::default());
    let client = legacy_client(&bridge).await;

    let discovered = request(&client, "server/discover", json!({}))
        .await
        .unwrap();
    let tools = request(&client, "tools/list", json!({})).await.unwrap();
    let list = request(&client, "tasks/list", json!({})).await;

    let offered = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(discovered["capabilities"]["tasks"], offered);
    assert_eq!(discovered["capabilities"].get("extensions"), None);
    for tool in tools["tools"].as_array().unwrap() {
        assert_eq!(tool["execution"], json!({"taskSupport": "optional"}));
    }
    assert_eq!(code(&list.unwrap_err()), Some(ErrorCode::METHOD_NOT_FOUND));
}

#[tokio::test(start_paused = true)]
async fn a_task_is_asked_for_on_the_connection_that_created_it() {
    let bridge = bridge_to_processes(LEGACY);
    // A client that can be asked has a connection to itself for each call.
    let client = Client::in_process(&bridge).protocol_version(MODERN);
    let client = client.extension(TaskClient::new()).host(host().0);
    let client = client.await.unwrap();

    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(client.call_tool("slow", ()).as_task().await.unwrap());
    }
    for task in &tasks {
        assert_eq!(task.status().await.unwrap().status, TaskStatus::Working);
    }
    for task in &tasks {
        assert_eq!(task.wait().await.unwrap().text(), "done");
    }
}

/// Where a request without a connection sends its notifications, like one over modern HTTP.
struct NoConnection;

impl NotificationSink for NoConnection {
    fn notify(&self, _: Notification) {}

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

async fn request_of(name: &str, bridge: &Bridge, method: &'static str, params: Value) -> Outcome {
    let mut caller = Caller::new(Dialect::of(MODERN).unwrap());
    let extensions = caller.capabilities.extensions.get_or_insert_default();
    extensions.insert(
        "io.modelcontextprotocol/tasks".to_owned(),
        CapabilitySettings::default(),
    );
    let request = Request::new(method, Json::from(params), Arc::new(caller));
    let cx = Context::new(1.into(), &request, Arc::new(NoConnection));
    bridge
        .respond(request, cx.with_principal(Principal::named(name)))
        .await
}

#[tokio::test(start_paused = true)]
async fn a_principal_cannot_reach_the_tasks_of_another() {
    let bridge = bridge_to_processes(LEGACY);
    let call = json!({"name": "slow", "arguments": {}});
    let task = request_of("ada", &bridge, "tools/call", call)
        .await
        .unwrap();
    let task: Value = task.decode().unwrap();
    let params = json!({"taskId": task["taskId"], "inputResponses": {}});

    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = request_of("eve", &bridge, method, params.clone()).await;
        assert_eq!(
            refused.unwrap_err().code,
            ErrorCode::INVALID_PARAMS,
            "{method}"
        );
        let found = request_of("ada", &bridge, "tasks/get", params.clone()).await;
        let found: Value = found.unwrap().decode().unwrap();
        assert_eq!(found["status"], "working", "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_that_stops_waiting_for_a_task_does_not_cancel_it() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(MODERN, &handlers);
    let client = legacy_client(&bridge).await;
    let task = start(&client, "slow").await;
    let params = json!({"taskId": task["taskId"]});

    let wait = request(&client, "tasks/result", params.clone());
    let stopped = tokio::time::timeout(SECOND, wait).await;

    assert!(stopped.is_err(), "it works for 3 seconds");
    let result = request(&client, "tasks/result", params).await.unwrap();
    assert_eq!(result["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_must_be_a_task_is_refused_in_the_words_of_the_clients_version() {
    for (front, back, expected) in [
        (MODERN, LEGACY, ErrorCode::MISSING_CLIENT_CAPABILITY),
        (LEGACY, MODERN, ErrorCode::METHOD_NOT_FOUND),
    ] {
        let job = Tool::new("job", async || "done");
        let job = job.with_settings(TaskSettings::new().required());
        let tasks = Tasks::new(Arc::new(MemoryStore::new()));
        let server = Server::new("upstream", "1").extension(tasks).tool(job);
        let target = Target::new("upstream", move |_| {
            Ok(Client::in_process(&server).protocol_version(back))
        });
        let bridge = Bridge::new(target);
        let client = Client::in_process(&bridge).protocol_version(front);
        let client = client.await.unwrap();

        let params = json!({"name": "job", "arguments": {}});
        let refused = request(&client, "tools/call", params).await.unwrap_err();

        assert_eq!(code(&refused), Some(expected), "{front}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_closes_does_not_wait_for_tasks() {
    let bridge = bridge_to_processes(LEGACY);
    let call = json!({"name": "slow", "arguments": {}});
    let task = request_of("ada", &bridge, "tools/call", call).await;
    assert!(task.unwrap().as_str().contains("taskId"));
    let began = Instant::now();

    bridge.close().await;

    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}
