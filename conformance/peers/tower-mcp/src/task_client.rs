//! Checks the tasks of a server with tower-mcp, which subscribes to their changes. Its client for HTTP has many
//! dependencies; only stdio is checked.
//!
//! ```text
//! task-client auto interop-server --transport stdio
//! ```
//!
//! Each check is a line of output, and the last line counts them.

use std::error::Error as StdError;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower_mcp::client::{
    ClientHandler, McpClient, ServerNotification, StdioClientTransport, TaskAwareCallToolOutcome,
};
use tower_mcp::protocol::{ElicitRequestParams, ElicitResult, SubscriptionFilter};
use tower_mcp::{CallToolResult, Error, JsonRpcError, ProtocolSupport};

type Result<T, E = Box<dyn StdError + Send + Sync>> = std::result::Result<T, E>;
type Check = fn(Client) -> Pin<Box<dyn Future<Output = Result<()>>>>;

const CHECKS: [(&str, Check); 6] = [
    ("call", |client| Box::pin(call(client))),
    ("attach", |client| Box::pin(attach(client))),
    ("ask", |client| Box::pin(ask(client))),
    ("errors", |client| Box::pin(errors(client))),
    ("cancel", |client| Box::pin(cancel(client))),
    ("unknown", |client| Box::pin(unknown(client))),
];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [_, program, arguments @ ..] = &words[..] else {
        eprintln!("usage: task-client auto COMMAND…");
        return ExitCode::from(2);
    };
    let mut counts = [0, 0];
    let mut report = |name: &str, outcome: Result<()>| match outcome {
        Ok(()) => {
            counts[0] += 1;
            println!("ok {name}");
        }
        Err(error) => {
            counts[1] += 1;
            println!("FAILED {name}: {}", error.to_string().replace('\n', " "));
        }
    };
    match within(Client::open(program, arguments)).await {
        Err(error) => report("open", Err(error)),
        Ok(client) => {
            report("open", Ok(()));
            if let Some(version) = client.peer.selected_protocol_version().await {
                println!("# {version}");
            }
            for (name, check) in CHECKS {
                report(name, within(check(client.clone())).await);
            }
            let closed = async {
                let peer = Arc::into_inner(client.peer).ok_or("a call is still in flight")?;
                Ok(peer.shutdown().await?)
            };
            report("close", within(closed).await);
        }
    }
    println!("{} passed, {} failed", counts[0], counts[1]);
    ExitCode::from(u8::from(counts[1] > 0))
}

#[derive(Clone)]
struct Client {
    peer: Arc<McpClient>,
    answer: Arc<Mutex<Value>>,
    notified: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>>,
}

/// Answers elicitations, and passes on the tasks in notifications.
struct Host {
    answer: Arc<Mutex<Value>>,
    notify: mpsc::UnboundedSender<Value>,
}

#[async_trait::async_trait]
impl ClientHandler for Host {
    async fn handle_elicit(&self, _: ElicitRequestParams) -> Result<ElicitResult, JsonRpcError> {
        let answer = self
            .answer
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        serde_json::from_value(answer)
            .map_err(|error| JsonRpcError::internal_error(error.to_string()))
    }

    async fn on_notification(&self, notification: ServerNotification) {
        let notification = match notification {
            ServerNotification::Subscription { notification, .. } => *notification,
            other => other,
        };
        if let ServerNotification::FinalTaskStatusChanged(params) = notification {
            let task = serde_json::to_value(params).unwrap_or_default();
            let _ = self.notify.send(task);
        }
    }
}

impl Client {
    async fn open(program: &str, arguments: &[String]) -> Result<Self> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let transport = StdioClientTransport::spawn(program, &arguments).await?;
        let answer = Arc::new(Mutex::new(json!({"action": "cancel"})));
        let (notify, notified) = mpsc::unbounded_channel();
        let host = Host {
            answer: answer.clone(),
            notify,
        };
        let peer = McpClient::builder()
            .protocol_support(ProtocolSupport::try_new(["2026-07-28"])?)
            .with_elicitation()
            .with_tasks()
            .connect(transport, host)
            .await?;
        peer.discover("tower-mcp-client", "1").await?;
        Ok(Self {
            peer: Arc::new(peer),
            answer,
            notified: Arc::new(tokio::sync::Mutex::new(notified)),
        })
    }

    /// Makes a call that must become a task, and returns its id.
    async fn start(&self, tool: &str, arguments: Value) -> Result<String> {
        let outcome = self
            .peer
            .call_tool_once_task_aware(tool, arguments, None, None);
        match outcome.await? {
            TaskAwareCallToolOutcome::Task(created) => Ok(created.task.metadata.task_id),
            other => Err(format!("`{tool}` did not become a task: {other:?}").into()),
        }
    }

    /// Returns the state of a task, as JSON.
    async fn get(&self, id: &str) -> Result<Value, Error> {
        let task = self.peer.task_get_detailed(id).await?;
        Ok(serde_json::to_value(task)?)
    }

    /// Waits for the end of a task, and returns its state.
    async fn ended(&self, id: &str) -> Result<Value> {
        self.peer.task_wait(id).await?;
        Ok(self.get(id).await?)
    }

    async fn stats(&self) -> Result<Value> {
        let stats = self
            .peer
            .call_tool_once_task_aware("task_stats", json!({}), None, None);
        match stats.await? {
            TaskAwareCallToolOutcome::Complete(result) => {
                Ok(serde_json::from_str(&text_of(&result))?)
            }
            other => Err(format!("expected a direct answer, got {other:?}").into()),
        }
    }
}

/// Calls wait for their tasks; a subscription is notified of the result of one.
async fn call(client: Client) -> Result<()> {
    for text in ["plain", "", "日本語 🪢"] {
        let result = client
            .peer
            .call_tool("task_echo", json!({"text": text}))
            .await?;
        ensure(text_of(&result) == text, || format!("{result:?}"))?;
    }
    client.stats().await?;

    let id = client.start("task_ask", json!({})).await?;
    let filter = SubscriptionFilter {
        task_ids: Some(vec![id.clone()]),
        ..SubscriptionFilter::default()
    };
    let mut subscription = client.peer.listen_subscriptions(filter).await?;
    subscription.acknowledged().await?;
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let key = loop {
        let task = client.get(&id).await?;
        if let Some(requests) = task["inputRequests"].as_object() {
            break requests.keys().next().cloned().unwrap_or_default();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let answers = serde_json::from_value(json!({key: answer}))?;
    client.peer.task_update(&id, answers).await?;
    let mut notified = client.notified.lock().await;
    loop {
        let task = notified.recv().await.ok_or("the connection has ended")?;
        // The calls above were notified, too.
        if task["taskId"] == *id && task["status"] == "completed" {
            let text = &task["result"]["content"][0]["text"];
            return ensure(text == "accepted:Ada", || {
                format!("unexpected task: {task}")
            });
        }
    }
}

/// The requests name the task only by its id, so nothing else of it is used here.
async fn attach(client: Client) -> Result<()> {
    let id = client
        .start("task_echo", json!({"text": "taken up"}))
        .await?;
    for _ in 0..2 {
        let task = client.ended(&id).await?;
        let text = &task["result"]["content"][0]["text"];
        ensure(task["status"] == "completed" && text == "taken up", || {
            format!("unexpected task: {task}")
        })?;
    }
    Ok(())
}

async fn ask(client: Client) -> Result<()> {
    let answers = [
        (
            json!({"action": "accept", "content": {"name": "Ada"}}),
            "accepted:Ada",
        ),
        (json!({"action": "decline"}), "declined"),
        (json!({"action": "cancel"}), "cancelled"),
    ];
    for (answer, expected) in answers {
        *client.answer.lock().expect("the lock is not poisoned") = answer;
        let result = client.peer.call_tool("task_ask", json!({})).await?;
        ensure(text_of(&result) == expected, || format!("{result:?}"))?;
    }
    Ok(())
}

async fn errors(client: Client) -> Result<()> {
    let id = client
        .start("task_fail", json!({"message": "as asked"}))
        .await?;
    let task = client.ended(&id).await?;
    let result = &task["result"];
    let fails = task["status"] == "completed" && result["isError"] == true;
    ensure(fails && result.to_string().contains("as asked"), || {
        format!("unexpected task: {task}")
    })?;
    let id = client.start("task_boom", json!({})).await?;
    let task = client.ended(&id).await?;
    let (code, message) = (&task["error"]["code"], &task["error"]["message"]);
    let fails = task["status"] == "failed" && *code == -32000;
    ensure(fails && message.to_string().contains("boom"), || {
        format!("unexpected task: {task}")
    })
}

async fn cancel(client: Client) -> Result<()> {
    let before = client.stats().await?;
    let id = client.start("task_slow", json!({"seconds": 600})).await?;
    while client.stats().await?["started"] == before["started"] {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    client.peer.task_cancel(&id, None).await?;
    let task = client.ended(&id).await?;
    ensure(task["status"] == "cancelled", || {
        format!("unexpected task: {task}")
    })?;
    loop {
        let now = client.stats().await?;
        ensure(now["finished"] == before["finished"], || {
            format!("not cancelled: {now}")
        })?;
        if now["cancelled"] != before["cancelled"] {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // A task that has ended acknowledges it too.
    client.peer.task_cancel(&id, None).await?;
    let task = client.ended(&id).await?;
    ensure(task["status"] == "cancelled", || {
        format!("unexpected task: {task}")
    })
}

async fn unknown(client: Client) -> Result<()> {
    match client.get("no-such-task").await {
        Err(Error::JsonRpc(error)) => ensure(error.code == -32602, || format!("{error:?}")),
        other => Err(format!("expected an error, got {other:?}").into()),
    }
}

fn text_of(result: &CallToolResult) -> String {
    result.all_text()
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}

async fn within<T>(check: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(TIME_LIMIT, check).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("timed out after {} s", TIME_LIMIT.as_secs()).into()),
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
