//! Checks the tasks of a server with rmcp, which has the requests but leaves polling to its users.
//!
//! ```text
//! task-client auto http://127.0.0.1:3000/mcp
//! task-client auto interop-server --transport stdio
//! ```
//!
//! Each check is a line of output, and the last line counts them.

use std::error::Error;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{ClientLifecycleMode, RoleClient, RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientServiceExt};
use serde_json::{Value, json};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
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
    let [_, target @ ..] = &words[..] else {
        eprintln!("usage: task-client auto URL | COMMAND…");
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
    match within(open(target)).await {
        Err(error) => report("open", Err(error)),
        Ok(running) => {
            report("open", Ok(()));
            if let Some(server) = running.peer().peer_info() {
                println!("# {}", server.protocol_version);
            }
            let running = Arc::new(running);
            for (name, check) in CHECKS {
                report(name, within(check(Client(running.clone()))).await);
            }
            let closed = async {
                let running = Arc::into_inner(running).ok_or("a call is still in flight")?;
                Ok(running.cancel().await.map(drop)?)
            };
            report("close", within(closed).await);
        }
    }
    println!("{} passed, {} failed", counts[0], counts[1]);
    ExitCode::from(u8::from(counts[1] > 0))
}

async fn open(target: &[String]) -> Result<RunningService<RoleClient, Host>> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: None,
    };
    let [first, arguments @ ..] = target else {
        return Err("no server given".into());
    };
    if first.starts_with("http://") {
        let transport = StreamableHttpClientTransport::from_uri(first.clone());
        return Ok(Host.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let mut command = tokio::process::Command::new(first);
    command.args(arguments);
    let transport = TokioChildProcess::new(command)?;
    Ok(Host.serve_with_lifecycle(transport, lifecycle).await?)
}

struct Host;

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation()
            .enable_tasks()
            .build();
        ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1"))
    }
}

#[derive(Clone)]
struct Client(Arc<RunningService<RoleClient, Host>>);

impl Client {
    /// Makes a call that must become a task, and returns its id.
    async fn start(&self, tool: &str, arguments: Value) -> Result<String> {
        match self.send(tool, arguments).await? {
            CallToolResponse::Task(created) => Ok(created.task.task_id),
            other => Err(format!("`{tool}` did not become a task: {other:?}").into()),
        }
    }

    async fn send(&self, tool: &str, arguments: Value) -> Result<CallToolResponse, ServiceError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        self.0.call_tool_once(params).await
    }

    async fn get(&self, id: &str) -> Result<DetailedTask, ServiceError> {
        Ok(self.0.get_task(GetTaskParams::new(id)).await?.task)
    }

    /// Polls until the task has ended or requires input.
    async fn settled(&self, id: &str) -> Result<TaskPayload> {
        loop {
            match self.get(id).await?.payload {
                TaskPayload::Working => tokio::time::sleep(POLL_INTERVAL).await,
                payload => return Ok(payload),
            }
        }
    }

    /// Polls until the task has completed, and returns its result.
    async fn result(&self, id: &str) -> Result<CallToolResult> {
        match self.settled(id).await? {
            TaskPayload::Completed { result } => Ok(serde_json::from_value(Value::Object(result))?),
            other => Err(format!("expected a completed task, got {other:?}").into()),
        }
    }

    /// Answers the questions of a task.
    async fn answer(&self, id: &str, answer: &Value) -> Result<()> {
        let TaskPayload::InputRequired { input_requests } = self.settled(id).await? else {
            return Err("the task does not require input".into());
        };
        let answers = input_requests.into_keys().map(|key| (key, answer.clone()));
        let params = UpdateTaskParams::new(id, answers.collect());
        acknowledged(self.0.update_task(params).await)
    }

    async fn cancel(&self, id: &str) -> Result<()> {
        acknowledged(self.0.cancel_task(CancelTaskParams::new(id)).await)
    }

    async fn stats(&self) -> Result<Value> {
        match self.send("task_stats", json!({})).await? {
            CallToolResponse::Complete(result) => Ok(serde_json::from_str(&text_of(&result))?),
            other => Err(format!("expected a direct answer, got {other:?}").into()),
        }
    }
}

async fn call(client: Client) -> Result<()> {
    for text in ["plain", "", "日本語 🪢"] {
        let id = client.start("task_echo", json!({"text": text})).await?;
        let result = client.result(&id).await?;
        ensure(text_of(&result) == text, || format!("{result:?}"))?;
    }
    client.stats().await.map(drop)
}

/// The requests name the task only by its id, so nothing else of it is used here.
async fn attach(client: Client) -> Result<()> {
    let id = client
        .start("task_echo", json!({"text": "taken up"}))
        .await?;
    ensure(!id.is_empty(), || "a task without an id".to_owned())?;
    for _ in 0..2 {
        let result = client.result(&id).await?;
        ensure(text_of(&result) == "taken up", || format!("{result:?}"))?;
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
        let id = client.start("task_ask", json!({})).await?;
        client.answer(&id, &answer).await?;
        let result = client.result(&id).await?;
        ensure(text_of(&result) == expected, || format!("{result:?}"))?;
    }
    Ok(())
}

async fn errors(client: Client) -> Result<()> {
    let id = client
        .start("task_fail", json!({"message": "as asked"}))
        .await?;
    let failed = client.result(&id).await?;
    let fails = failed.is_error == Some(true) && text_of(&failed).contains("as asked");
    ensure(fails, || {
        format!("unexpected result of `task_fail`: {failed:?}")
    })?;
    let id = client.start("task_boom", json!({})).await?;
    match client.settled(&id).await? {
        TaskPayload::Failed { error } => {
            let message = error["message"].as_str().unwrap_or_default();
            ensure(error["code"] == -32000 && message.contains("boom"), || {
                format!("unexpected error of `task_boom`: {error:?}")
            })
        }
        other => Err(format!("expected a failed task, got {other:?}").into()),
    }
}

async fn cancel(client: Client) -> Result<()> {
    let before = client.stats().await?;
    let id = client.start("task_slow", json!({"seconds": 600})).await?;
    while client.stats().await?["started"] == before["started"] {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    client.cancel(&id).await?;
    let ended = client.settled(&id).await?;
    ensure(ended == TaskPayload::Cancelled, || format!("{ended:?}"))?;
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
    client.cancel(&id).await?;
    let ended = client.settled(&id).await?;
    ensure(ended == TaskPayload::Cancelled, || format!("{ended:?}"))
}

async fn unknown(client: Client) -> Result<()> {
    match client.get("no-such-task").await {
        Err(ServiceError::McpError(error)) => {
            ensure(error.code.0 == -32602, || format!("{error:?}"))
        }
        other => Err(format!("expected an error, got {other:?}").into()),
    }
}

/// Accepts an acknowledgement with `_meta`, such as the identity of the server. The SDK decodes it as another result.
fn acknowledged(answer: Result<(), ServiceError>) -> Result<()> {
    match answer {
        Ok(()) | Err(ServiceError::UnexpectedResponse) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect()
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
