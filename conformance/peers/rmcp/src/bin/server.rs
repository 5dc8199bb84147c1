//! The interop fixture on rmcp, which supports both eras.
//!
//! ```text
//! server --transport stdio
//! server --transport http --port 3000
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(String::as_str)
    };
    let fixture = Fixture::new();
    if after("--transport") == Some("http") {
        let port: u16 = after("--port").unwrap_or("0").parse()?;
        return serve_http(fixture, port).await;
    }
    fixture
        .serve(rmcp::transport::stdio())
        .await?
        .waiting()
        .await?;
    Ok(())
}

async fn serve_http(fixture: Fixture, port: u16) -> Result<(), Box<dyn Error>> {
    let service = StreamableHttpService::new(
        move || Ok(fixture.for_session()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("READY http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

/// The state that all connections share, and the log level of one of them.
#[derive(Clone)]
#[allow(deprecated, reason = "log messages are checked, too")]
struct Fixture {
    counters: Arc<Mutex<Counters>>,
    /// Whether the tool `extra` is listed.
    has_extra: Arc<AtomicBool>,
    /// The subscriptions of legacy clients.
    subscribers: Arc<Mutex<Vec<(String, Peer<RoleServer>)>>>,
    /// Legacy clients.
    clients: Arc<Mutex<Vec<Peer<RoleServer>>>>,
    /// Notifies modern subscriptions.
    changes: broadcast::Sender<Change>,
    /// Modern subscriptions that were acknowledged and whose `listen` was not called yet.
    listening: Arc<Mutex<VecDeque<broadcast::Receiver<Change>>>>,
    /// The level of a legacy client.
    log_level: Arc<Mutex<LoggingLevel>>,
}

/// A change that modern subscriptions are notified of.
#[derive(Clone)]
enum Change {
    Resource(String),
    Tools,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    started: u64,
    finished: u64,
    cancelled: u64,
    touched: u64,
}

#[allow(deprecated, reason = "sampling and log messages are checked, too")]
impl Fixture {
    fn new() -> Self {
        Self {
            counters: Arc::default(),
            has_extra: Arc::default(),
            subscribers: Arc::default(),
            clients: Arc::default(),
            changes: broadcast::channel(1024).0,
            listening: Arc::default(),
            log_level: Arc::new(Mutex::new(LoggingLevel::Debug)),
        }
    }

    fn for_session(&self) -> Self {
        Self {
            log_level: Arc::new(Mutex::new(LoggingLevel::Debug)),
            ..self.clone()
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) -> Counters {
        let mut counters = self.counters.lock().expect("the lock is not poisoned");
        change(&mut counters);
        *counters
    }

    async fn slow(&self, seconds: f64, context: RequestContext<RoleServer>) -> CallToolResult {
        self.count(|counters| counters.started += 1);
        tokio::select! {
            () = context.ct.cancelled() => self.count(|counters| counters.cancelled += 1),
            () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {
                self.count(|counters| counters.finished += 1)
            }
        };
        text("slept")
    }

    async fn progress(&self, n: u32, context: RequestContext<RoleServer>) -> CallToolResult {
        if let Some(token) = context.meta.get_progress_token() {
            for step in 1..=n {
                let mut progress = ProgressNotificationParam::new(token.clone(), step.into());
                progress.total = Some(n.into());
                progress.message = Some(format!("step {step}"));
                let _ = context.peer.notify_progress(progress).await;
            }
        }
        text(format!("{n} steps"))
    }

    /// Elicits in the way of the caller's era, which the SDK leaves to its users.
    async fn ask(
        &self,
        prompt: Option<String>,
        answers: Option<InputResponses>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let question: ElicitRequestParams = decode(json!({
            "mode": "form",
            "message": prompt.unwrap_or_else(|| "What is your name?".to_owned()),
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        }))?;
        let answer = if is_modern(&context) {
            match answers.and_then(|mut answers| answers.remove("name")) {
                Some(answer) => decode(answer)?,
                None => {
                    let question = InputRequest::Elicitation(ElicitRequest::new(question));
                    let questions = InputRequests::from([("name".to_owned(), question)]);
                    return Ok(InputRequiredResult::from_input_requests(questions).into());
                }
            }
        } else {
            let asked = context.peer.create_elicitation(question).await;
            asked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?
        };
        let ElicitResult {
            action, content, ..
        } = answer;
        Ok(match action {
            ElicitationAction::Accept => {
                let name = content
                    .as_ref()
                    .and_then(|content| content["name"].as_str());
                text(format!("accepted:{}", name.unwrap_or_default()))
            }
            ElicitationAction::Decline => text("declined"),
            _ => text("cancelled"),
        }
        .into())
    }

    /// Requests a message from the model, in the way of the caller's era.
    async fn sample(
        &self,
        prompt: String,
        answers: Option<InputResponses>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let content = json!({"type": "text", "text": prompt});
        let question: CreateMessageRequestParams = decode(json!({
            "messages": [{"role": "user", "content": content}],
            "maxTokens": 100,
        }))?;
        let answer = if is_modern(&context) {
            match answers.and_then(|mut answers| answers.remove("model")) {
                Some(answer) => answer,
                None => {
                    let question = InputRequest::CreateMessage(CreateMessageRequest::new(question));
                    let questions = InputRequests::from([("model".to_owned(), question)]);
                    return Ok(InputRequiredResult::from_input_requests(questions).into());
                }
            }
        } else {
            let sampled = context.peer.create_message(question).await;
            let sampled =
                sampled.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            json!(sampled)
        };
        let sampled = answer["content"]["text"].as_str().unwrap_or_default();
        Ok(text(format!("sampled:{sampled}")).into())
    }

    /// Sends the log messages at or above the level of the caller, by which the SDK does not filter.
    async fn log(&self, context: RequestContext<RoleServer>) -> CallToolResult {
        let least = match is_modern(&context) {
            true => context.meta.log_level(),
            false => Some(*self.log_level.lock().expect("the lock is not poisoned")),
        };
        for (level, name) in [
            (LoggingLevel::Debug, "debug"),
            (LoggingLevel::Info, "info"),
            (LoggingLevel::Warning, "warning"),
            (LoggingLevel::Error, "error"),
        ] {
            if least.is_some_and(|least| level as u8 >= least as u8) {
                let data = json!(format!("at {name}"));
                let mut message = LoggingMessageNotificationParam::new(level, data);
                message.logger = Some("fixture".to_owned());
                let _ = context.peer.notify_logging_message(message).await;
            }
        }
        text("logged")
    }

    async fn set_extra(&self, present: bool) -> CallToolResult {
        self.has_extra.store(present, Ordering::Relaxed);
        let _ = self.changes.send(Change::Tools);
        let clients = self
            .clients
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        for client in clients {
            let _ = client.notify_tool_list_changed().await;
        }
        text("ok")
    }

    async fn touch(&self, uri: String) -> CallToolResult {
        let counters = self.count(|counters| counters.touched += 1);
        let _ = self.changes.send(Change::Resource(uri.clone()));
        let subscribers = self
            .subscribers
            .lock()
            .expect("the lock is not poisoned")
            .clone();
        for (own, peer) in subscribers {
            if own == uri {
                let updated = ResourceUpdatedNotificationParam::new(&uri);
                let _ = peer.notify_resource_updated(updated).await;
            }
        }
        text(counters.touched.to_string())
    }

    fn stats(&self) -> CallToolResult {
        let Counters {
            started,
            finished,
            cancelled,
            ..
        } = self.count(|_| ());
        let active = started - finished - cancelled;
        let stats = json!({"started": started, "finished": finished, "cancelled": cancelled, "active": active});
        CallToolResult::structured(stats)
    }
}

#[allow(deprecated, reason = "the legacy era is checked, too")]
impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("rmcp-fixture", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let string = json!({"type": "string"});
        let integer = json!({"type": "integer"});
        let mut tools = vec![
            ("echo", json!({"text": string}), json!(["text"])),
            (
                "add",
                json!({"a": integer, "b": integer}),
                json!(["a", "b"]),
            ),
            (
                "slow",
                json!({"seconds": {"type": "number"}}),
                json!(["seconds"]),
            ),
            ("stats", json!({}), json!([])),
            ("progress", json!({"n": integer}), json!(["n"])),
            ("ask", json!({"prompt": string}), json!([])),
            ("sample", json!({"prompt": string}), json!(["prompt"])),
            ("log", json!({}), json!([])),
            (
                "set_extra",
                json!({"present": {"type": "boolean"}}),
                json!(["present"]),
            ),
            ("touch", json!({"uri": string}), json!([])),
            ("fail", json!({"message": string}), json!(["message"])),
            ("boom", json!({}), json!([])),
            ("reset", json!({}), json!([])),
        ];
        if self.has_extra.load(Ordering::Relaxed) {
            tools.push(("extra", json!({}), json!([])));
        }
        let listed = tools.into_iter().map(|(name, properties, required)| {
            let schema = json!({"type": "object", "properties": properties, "required": required});
            json!({"name": name, "description": name, "inputSchema": schema})
        });
        decode(json!({"tools": listed.collect::<Vec<_>>()}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let argument = |name: &str| arguments.get(name).cloned().unwrap_or_default();
        let result = match request.name.as_ref() {
            "echo" => text(decode::<String>(argument("text"))?),
            "add" => {
                let sum = decode::<i64>(argument("a"))? + decode::<i64>(argument("b"))?;
                let mut result = text(sum.to_string());
                result.structured_content = Some(json!({"result": sum}));
                result
            }
            "slow" => self.slow(decode(argument("seconds"))?, context).await,
            "stats" => self.stats(),
            "progress" => self.progress(decode(argument("n"))?, context).await,
            "ask" => {
                let prompt = decode(argument("prompt"))?;
                return self.ask(prompt, request.input_responses, context).await;
            }
            "sample" => {
                let prompt = decode(argument("prompt"))?;
                return self.sample(prompt, request.input_responses, context).await;
            }
            "log" => self.log(context).await,
            "set_extra" => self.set_extra(decode(argument("present"))?).await,
            "extra" if self.has_extra.load(Ordering::Relaxed) => text("extra"),
            "touch" => {
                let uri: Option<String> = decode(argument("uri"))?;
                self.touch(uri.unwrap_or_else(|| COUNTER.to_owned())).await
            }
            "fail" => {
                let message: String = decode(argument("message"))?;
                CallToolResult::error(vec![ContentBlock::text(message)])
            }
            "boom" => {
                let why = Some(json!({"why": "fixture"}));
                return Err(ErrorData::new(ErrorCode(-32000), "boom, as asked", why));
            }
            "reset" => {
                self.count(|counters| {
                    let touched = counters.touched;
                    *counters = Counters {
                        touched,
                        ..Counters::default()
                    };
                });
                text("ok")
            }
            other => {
                return Err(ErrorData::invalid_params(
                    format!("no tool `{other}`"),
                    None,
                ));
            }
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        decode(json!({"resources": [
            {"uri": COUNTER, "name": "counter", "mimeType": "text/plain"},
            {"uri": "fixture://static", "name": "static", "mimeType": "text/plain"},
        ]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match (&*request.uri, request.uri.strip_prefix("fixture://item/")) {
            (COUNTER, _) => self.count(|_| ()).touched.to_string(),
            ("fixture://static", _) => "static".to_owned(),
            (_, Some(id)) => format!("item {id}"),
            _ => return Err(ErrorData::resource_not_found("no such resource", None)),
        };
        let contents = ResourceContents::text(text, request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let arguments = json!([{"name": "name", "required": true}]);
        decode(json!({"prompts": [{"name": "greet", "arguments": arguments}]}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let name = arguments
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let content = json!({"type": "text", "text": format!("Hello, {name}!")});
        let result: GetPromptResult =
            decode(json!({"messages": [{"role": "user", "content": content}]}))?;
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let prefix = request.argument.value;
        let names = ["Ada", "Alan", "Barbara"].into_iter();
        let names = names.filter(|name| name.starts_with(&prefix));
        let values = names.map(str::to_owned).collect();
        let completion =
            CompletionInfo::new(values).map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.log_level.lock().expect("the lock is not poisoned") = request.level;
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut clients = self.clients.lock().expect("the lock is not poisoned");
        clients.push(context.peer);
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut subscribers = self.subscribers.lock().expect("the lock is not poisoned");
        subscribers.push((request.uri, context.peer));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut subscribers = self.subscribers.lock().expect("the lock is not poisoned");
        subscribers.retain(|(uri, _)| *uri != request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        // Subscribes before the acknowledgement is sent, because `listen` is called only after it: updates in between
        // would be lost.
        let mut listening = self.listening.lock().expect("the lock is not poisoned");
        listening.push_back(self.changes.subscribe());
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let listening = self
            .listening
            .lock()
            .expect("the lock is not poisoned")
            .pop_front();
        let mut changes = listening.unwrap_or_else(|| self.changes.subscribe());
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    // The SDK filters by what is subscribed to.
                    let _ = match change {
                        Ok(Change::Resource(uri)) => context.sink().notify_resource_updated(uri).await,
                        Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                        Err(_) => return Ok(()),
                    };
                }
            }
        }
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| !version.has_initialize())
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}

const COUNTER: &str = "fixture://counter";
