//! Checks a server with rmcp, which supports both eras.
//!
//! ```text
//! client auto http://127.0.0.1:3000/mcp
//! client legacy interop-server --transport stdio
//! ```
//!
//! Each check is a line of output, and the last line counts them.

use std::error::Error;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{
    ClientLifecycleMode, NotificationContext, RequestContext, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientServiceExt, ErrorData};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
type Check = fn(Client) -> Pin<Box<dyn Future<Output = Result<()>>>>;

const CHECKS: [(&str, Check); 14] = [
    ("list", |client| Box::pin(list(client))),
    ("call", |client| Box::pin(call(client))),
    ("errors", |client| Box::pin(errors(client))),
    ("unknown", |client| Box::pin(unknown(client))),
    ("read", |client| Box::pin(read(client))),
    ("progress", |client| Box::pin(progress(client))),
    ("many", |client| Box::pin(many(client))),
    ("ask", |client| Box::pin(ask(client))),
    ("sample", |client| Box::pin(sample(client))),
    ("subscribe", |client| Box::pin(subscribe(client))),
    ("lists", |client| Box::pin(lists(client))),
    ("log", |client| Box::pin(log(client))),
    ("complete", |client| Box::pin(complete(client))),
    ("abandon", |client| Box::pin(abandon(client))),
];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, target @ ..] = &words[..] else {
        eprintln!("usage: client auto|2026|legacy URL | COMMAND…");
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
    let host = Host::default();
    match within(open(mode, target, host.clone())).await {
        Err(error) => report("open", Err(error)),
        Ok(running) => {
            report("open", Ok(()));
            let server = running.peer().peer_info();
            let version = server.map(|server| server.protocol_version.clone());
            let running = Arc::new(running);
            if let Some(version) = &version {
                println!("# {version}");
            }
            for (name, check) in CHECKS {
                let client = Client {
                    running: running.clone(),
                    host: host.clone(),
                    is_modern: version
                        .as_ref()
                        .is_some_and(|version| !version.has_initialize()),
                };
                report(name, within(check(client)).await);
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

async fn open(
    mode: &str,
    target: &[String],
    host: Host,
) -> Result<RunningService<RoleClient, Host>> {
    let preferred_versions = vec![ProtocolVersion::LATEST];
    let lifecycle = match mode {
        "2026" => ClientLifecycleMode::Discover { preferred_versions },
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: None,
        },
    };
    let [first, arguments @ ..] = target else {
        return Err("no server given".into());
    };
    if first.starts_with("http://") {
        let transport = StreamableHttpClientTransport::from_uri(first.clone());
        return Ok(host.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let mut command = tokio::process::Command::new(first);
    command.args(arguments);
    let transport = TokioChildProcess::new(command)?;
    Ok(host.serve_with_lifecycle(transport, lifecycle).await?)
}

/// The connection and the host, for the checks.
#[derive(Clone)]
struct Client {
    running: Arc<RunningService<RoleClient, Host>>,
    host: Host,
    is_modern: bool,
}

/// Answers elicitations and sampling requests, and records notifications.
#[derive(Clone, Default)]
struct Host {
    answer: Arc<Mutex<Option<Value>>>,
    steps: Arc<Mutex<Vec<Value>>>,
    log: Arc<Mutex<Vec<Value>>>,
    updates: Arc<Mutex<Option<mpsc::UnboundedSender<String>>>>,
    tool_changes: Arc<Mutex<Option<mpsc::UnboundedSender<()>>>>,
}

#[allow(deprecated, reason = "sampling and log messages are checked, too")]
impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation()
            .enable_sampling()
            .build();
        let mut config = ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1"));
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = self
            .answer
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        let answer = answer.unwrap_or_else(|| json!({"action": "cancel"}));
        serde_json::from_value(answer)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let params = serde_json::to_value(params)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let prompt = &params["messages"][0]["content"]["text"];
        let text = model_text(prompt.as_str().unwrap_or_default());
        let message =
            SamplingMessage::new(Role::Assistant, SamplingMessageContentBlock::text(text));
        Ok(CreateMessageResult::new(message, "scripted".to_owned()))
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let message = json!([params.level, params.logger, params.data]);
        self.log
            .lock()
            .expect("the lock is not poisoned")
            .push(message);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        if let Some(changes) = &*self.tool_changes.lock().expect("the lock is not poisoned") {
            let _ = changes.send(());
        }
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let ProgressNotificationParam {
            progress,
            total,
            message,
            ..
        } = params;
        let step = json!([progress, total, message]);
        self.steps
            .lock()
            .expect("the lock is not poisoned")
            .push(step);
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(updates) = &*self.updates.lock().expect("the lock is not poisoned") {
            let _ = updates.send(params.uri);
        }
    }
}

impl Client {
    async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        self.running.call_tool(params).await
    }

    /// Returns the log messages, sorted, because the SDK delivers each notification in a separate task.
    fn log(&self) -> Vec<Value> {
        let mut log = self
            .host
            .log
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        log.sort_by_key(Value::to_string);
        log
    }

    async fn text(&self, tool: &str, arguments: Value) -> Result<String> {
        let result = self.call(tool, arguments).await?;
        ensure(result.is_error != Some(true), || {
            format!("`{tool}` fails: {result:?}")
        })?;
        Ok(text_of(&result))
    }

    async fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.text("stats", json!({})).await?)?)
    }
}

async fn list(client: Client) -> Result<()> {
    let tools = client.running.list_all_tools().await?;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    for tool in ["echo", "add", "slow", "stats", "progress", "ask"] {
        ensure(names.contains(&tool), || {
            format!("no `{tool}` in {names:?}")
        })?;
    }
    Ok(())
}

async fn call(client: Client) -> Result<()> {
    let long = "x".repeat(100_000);
    for text in ["plain", "", "zwei\nZeilen", "日本語 🪢 \u{0}\u{7f}", &long] {
        let received = client.text("echo", json!({"text": text})).await?;
        ensure(received == text, || {
            format!("expected `{text:.40}`, got `{received:.40}`")
        })?;
    }
    let sum = client.text("add", json!({"a": -2, "b": 44})).await?;
    ensure(sum == "42", || format!("expected -2 + 44 = 42, got {sum}"))
}

async fn errors(client: Client) -> Result<()> {
    let failed = client.call("fail", json!({"message": "as asked"})).await?;
    let fails = failed.is_error == Some(true) && text_of(&failed).contains("as asked");
    ensure(fails, || format!("unexpected result of `fail`: {failed:?}"))?;
    let boom = peer_error(client.call("boom", json!({})).await)?;
    let is_boom = boom.code.0 == -32000 && boom.message.contains("boom");
    ensure(
        is_boom && boom.data == Some(json!({"why": "fixture"})),
        || format!("{boom:?}"),
    )?;
    let refused = client.call("add", json!({"a": "one", "b": 2})).await;
    ensure(is_rejected(refused, &[-32602]), || {
        "`add` accepts text for a number".to_owned()
    })
}

async fn unknown(client: Client) -> Result<()> {
    let tool = client.call("no-such-tool", json!({})).await;
    ensure(is_rejected(tool, &[-32602, -32601]), || {
        "an unknown tool was called".to_owned()
    })?;
    let request = CustomRequest::new("fixture/no-such-method", Some(json!({})));
    let method = peer_error(
        client
            .running
            .send_request(ClientRequest::CustomRequest(request))
            .await,
    )?;
    ensure(method.code.0 == -32601, || {
        format!("unexpected code of an unknown method: {}", method.code.0)
    })?;
    let uri = ReadResourceRequestParams::new("fixture://no-such-resource");
    let resource = peer_error(client.running.read_resource(uri).await)?;
    ensure([-32602, -32002].contains(&resource.code.0), || {
        format!(
            "unexpected code of an unknown resource: {}",
            resource.code.0
        )
    })
}

async fn read(client: Client) -> Result<()> {
    let uri = ReadResourceRequestParams::new("fixture://static");
    let content = serde_json::to_value(client.running.read_resource(uri).await?)?;
    ensure(content["contents"][0]["text"] == "static", || {
        content.to_string()
    })?;
    let mut params = GetPromptRequestParams::new("greet");
    params.arguments = json!({"name": "Ada"}).as_object().cloned();
    let prompt = serde_json::to_value(client.running.get_prompt(params).await?)?;
    ensure(
        prompt["messages"][0]["content"]["text"] == "Hello, Ada!",
        || prompt.to_string(),
    )
}

async fn progress(client: Client) -> Result<()> {
    let text = client.text("progress", json!({"n": 5})).await?;
    let steps: Vec<Value> = (1..=5)
        .map(|step| json!([f64::from(step), 5.0, format!("step {step}")]))
        .collect();
    // The SDK delivers each notification in a separate task: in any order, and possibly after the result.
    loop {
        let mut received = client
            .host
            .steps
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        received.sort_by_key(Value::to_string);
        if received.len() >= steps.len() {
            ensure(received == steps, || {
                format!("unexpected progress: {received:?}")
            })?;
            return ensure(text.contains('5'), || text);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn many(client: Client) -> Result<()> {
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let client = client.clone();
        calls.spawn(async move {
            let (tool, arguments, expected) = match number % 2 {
                0 => (
                    "echo",
                    json!({"text": format!("word {number}")}),
                    format!("word {number}"),
                ),
                _ => (
                    "add",
                    json!({"a": number, "b": 1000}),
                    (number + 1000).to_string(),
                ),
            };
            let got = client.text(tool, arguments).await?;
            ensure(got == expected, || {
                format!("expected `{expected}`, got `{got}`")
            })
        });
    }
    while let Some(call) = calls.join_next().await {
        call??;
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
        *client.host.answer.lock().expect("the lock is not poisoned") = Some(answer);
        let text = client
            .text("ask", json!({"prompt": "Who is there?"}))
            .await?;
        ensure(text == expected, || {
            format!("expected `{expected}`, got `{text}`")
        })?;
    }
    Ok(())
}

async fn sample(client: Client) -> Result<()> {
    for prompt in ["knots", "ropes"] {
        let text = client.text("sample", json!({"prompt": prompt})).await?;
        let expected = format!("sampled:{}", model_text(prompt));
        ensure(text == expected, || {
            format!("expected `{expected}`, got `{text}`")
        })?;
    }
    Ok(())
}

/// The text that the model answers. It contains the prompt, so that the answer to another prompt is noticed.
fn model_text(prompt: &str) -> String {
    format!("about {prompt}")
}

#[allow(deprecated, reason = "the legacy era is checked, too")]
async fn subscribe(client: Client) -> Result<()> {
    let touch = async || -> Result<()> {
        let before = client
            .text("touch", json!({"uri": "fixture://static"}))
            .await?;
        let after = client.text("touch", json!({})).await?;
        let counts = after.parse::<u64>()? == before.parse::<u64>()? + 1;
        ensure(counts, || format!("expected {before} + 1, got {after}"))
    };
    let received = if client.is_modern {
        let filter = SubscriptionFilter::builder()
            .resource_subscription(COUNTER)
            .build();
        let mut subscription = client.running.listen(filter).await?;
        touch().await?;
        match subscription.next().await? {
            Some(ServerNotification::ResourceUpdatedNotification(it)) => Some(it.params.uri),
            other => return Err(format!("unexpected change: {other:?}").into()),
        }
    } else {
        let (updates, mut updated) = mpsc::unbounded_channel();
        *client
            .host
            .updates
            .lock()
            .expect("the lock is not poisoned") = Some(updates);
        client
            .running
            .subscribe(SubscribeRequestParams::new(COUNTER))
            .await?;
        touch().await?;
        let received = updated.recv().await;
        client
            .running
            .unsubscribe(UnsubscribeRequestParams::new(COUNTER))
            .await?;
        received
    };
    ensure(received.as_deref() == Some(COUNTER), || {
        format!("unexpected change: {received:?}")
    })
}

async fn lists(client: Client) -> Result<()> {
    let mut subscription = None;
    let (changes, mut changed) = mpsc::unbounded_channel();
    if client.is_modern {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        subscription = Some(client.running.listen(filter).await?);
    } else {
        *client
            .host
            .tool_changes
            .lock()
            .expect("the lock is not poisoned") = Some(changes);
    }
    for present in [true, false] {
        client
            .text("set_extra", json!({"present": present}))
            .await?;
        match &mut subscription {
            Some(subscription) => match subscription.next().await? {
                Some(ServerNotification::ToolListChangedNotification(_)) => {}
                other => return Err(format!("unexpected change: {other:?}").into()),
            },
            None => changed.recv().await.ok_or("the connection is closed")?,
        }
        let tools = client.running.list_all_tools().await?;
        let is_listed = tools.iter().any(|tool| tool.name == "extra");
        ensure(is_listed == present, || {
            format!("expected `extra` to be listed: {present}, got {is_listed}")
        })?;
        if present {
            let text = client.text("extra", json!({})).await?;
            ensure(text == "extra", || text)?;
        }
    }
    Ok(())
}

#[allow(deprecated, reason = "log messages are checked, too")]
async fn log(client: Client) -> Result<()> {
    for (level, expected) in [
        (LoggingLevel::Info, &["error", "info", "warning"][..]),
        (LoggingLevel::Error, &["error"]),
    ] {
        let mut params = CallToolRequestParams::new("log");
        if client.is_modern {
            params.meta.get_or_insert_default().set_log_level(level);
        } else {
            let level = SetLevelRequestParams::new(level);
            client.running.set_level(level).await?;
        }
        client
            .host
            .log
            .lock()
            .expect("the lock is not poisoned")
            .clear();
        client.running.call_tool(params).await?;
        let expected = expected
            .iter()
            .map(|each| json!([each, "fixture", format!("at {each}")]));
        let expected: Vec<Value> = expected.collect();
        while client.log().len() < expected.len() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // Messages below the level are delivered by now, too, if there are any.
        client.text("echo", json!({"text": "later"})).await?;
        let received = client.log();
        ensure(received == expected, || {
            format!("unexpected log messages at {level:?}: {received:?}")
        })?;
    }
    Ok(())
}

async fn complete(client: Client) -> Result<()> {
    for (prefix, expected) in [("A", &["Ada", "Alan"][..]), ("Bar", &["Barbara"])] {
        let values = client
            .running
            .complete_prompt_simple("greet", "name", prefix)
            .await?;
        ensure(values == expected, || {
            format!("unexpected completion of `{prefix}`: {values:?}")
        })?;
    }
    Ok(())
}

async fn abandon(client: Client) -> Result<()> {
    let before = client.stats().await?;
    let count = |stats: &Value, name: &str| stats[name].as_u64().unwrap_or_default();
    let mut calls = JoinSet::new();
    for _ in 0..ABANDONED {
        let client = client.clone();
        calls.spawn(async move { drop(client.call("slow", json!({"seconds": 600})).await) });
    }
    while count(&client.stats().await?, "started") < count(&before, "started") + ABANDONED {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    drop(calls);
    loop {
        let now = client.stats().await?;
        ensure(now["finished"] == before["finished"], || {
            format!("a handler was not cancelled: {now}")
        })?;
        if count(&now, "cancelled") == count(&before, "cancelled") + ABANDONED {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let alive = client.text("echo", json!({"text": "still here"})).await?;
    ensure(alive == "still here", || alive)
}

fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect()
}

/// The JSON-RPC error with which the server rejected a request.
fn peer_error<T>(answer: Result<T, ServiceError>) -> Result<ErrorData> {
    match answer {
        Err(ServiceError::McpError(error)) => Ok(error),
        Err(error) => Err(error.into()),
        Ok(_) => Err("expected an error".into()),
    }
}

/// Whether the server rejected a call, by a JSON-RPC error or an error result.
fn is_rejected(answer: Result<CallToolResult, ServiceError>, codes: &[i32]) -> bool {
    match answer {
        Ok(result) => result.is_error == Some(true),
        Err(ServiceError::McpError(error)) => codes.contains(&error.code.0),
        Err(_) => false,
    }
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

const COUNTER: &str = "fixture://counter";
const ABANDONED: u64 = 20;
const TIME_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
