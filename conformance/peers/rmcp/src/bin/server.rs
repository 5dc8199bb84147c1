//! The interop fixture on rmcp, which supports both eras.
//!
//! ```text
//! server --transport stdio
//! server --transport http --port 3000
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{Peer, RequestContext, RoleServer, SubscriptionContext};
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
        move || Ok(fixture.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("READY http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

/// The state that all connections share.
#[derive(Clone)]
struct Fixture {
    counters: Arc<Mutex<Counters>>,
    /// The subscriptions of legacy clients.
    subscribers: Arc<Mutex<Vec<(String, Peer<RoleServer>)>>>,
    /// Notifies modern subscriptions.
    updated: broadcast::Sender<String>,
    /// Modern subscriptions that were acknowledged and whose `listen` was not called yet.
    listening: Arc<Mutex<VecDeque<broadcast::Receiver<String>>>>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    started: u64,
    finished: u64,
    cancelled: u64,
    touched: u64,
}

impl Fixture {
    fn new() -> Self {
        Self {
            counters: Arc::default(),
            subscribers: Arc::default(),
            updated: broadcast::channel(1024).0,
            listening: Arc::default(),
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
        let version = context.protocol_version();
        let answer = if version.is_some_and(|version| !version.has_initialize()) {
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

    async fn touch(&self, uri: String) -> CallToolResult {
        let counters = self.count(|counters| counters.touched += 1);
        let _ = self.updated.send(uri.clone());
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
            .enable_tools()
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
        let tools = [
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
            ("touch", json!({"uri": string}), json!([])),
            ("fail", json!({"message": string}), json!(["message"])),
            ("boom", json!({}), json!([])),
            ("reset", json!({}), json!([])),
        ];
        let listed = tools.map(|(name, properties, required)| {
            let schema = json!({"type": "object", "properties": properties, "required": required});
            json!({"name": name, "description": name, "inputSchema": schema})
        });
        decode(json!({"tools": listed}))
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
        listening.push_back(self.updated.subscribe());
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let listening = self
            .listening
            .lock()
            .expect("the lock is not poisoned")
            .pop_front();
        let mut updated = listening.unwrap_or_else(|| self.updated.subscribe());
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                uri = updated.recv() => {
                    let Ok(uri) = uri else { return Ok(()) };
                    // The SDK filters by the subscribed URIs.
                    let _ = context.sink().notify_resource_updated(uri).await;
                }
            }
        }
    }
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}

const COUNTER: &str = "fixture://counter";
