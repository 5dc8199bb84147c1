//! The interop fixture: a server with one tool for each feature that a client can check.
//!
//! Its names and their behaviour are a contract with clients written with other SDKs, and change only together with
//! them. All connections of a fixture share its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline::exchange::ElicitationOutcome;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{ChangeBus, Completer, CompletionInput, LocalChangeBus, ServerChange};
use bowline::types::{
    Completion, CreateMessageRequestParams, CreateMessageResult, LoggingLevel, PromptReference,
    Role, SamplingMessage, SamplingMessageContentBlock, TextContent,
};
use bowline::{CallToolResult, ErrorCode, Json, Progress, RpcError};
use serde::Deserialize;
use serde_json::json;

use crate::counters::{Counters, SlowCallCounts};

/// A server to check clients with, and its counters.
///
/// # Examples
///
/// ```
/// use bowline::Client;
/// use bowline_cli::fixture::Fixture;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let fixture = Fixture::new();
/// let client = Client::in_process(&fixture.server()).await?;
///
/// let reply = client.call_tool("add", json!({"a": 1, "b": 2})).await?;
///
/// assert_eq!(reply.text(), "3");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    slow: Counters,
    touched: Arc<AtomicU64>,
    /// Whether the tool `extra` is listed.
    has_extra: Arc<AtomicBool>,
    bus: LocalChangeBus,
}

impl Fixture {
    /// Creates a fixture with all counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a server. All servers of one fixture share its counters and its change notifications.
    pub fn server(&self) -> Server {
        let has_extra = self.has_extra.clone();
        let extra = Tool::of(extra).visible_to(move |_| has_extra.load(Ordering::Relaxed));
        Server::new("bowline-fixture", env!("CARGO_PKG_VERSION"))
            .description("One tool for each feature that a client can check.")
            .state(self.clone())
            .change_bus(self.bus.clone())
            .resource_subscriptions()
            .logging()
            .tool(echo)
            .tool(Tool::of(add).output_schema(sum_schema()))
            .tool(slow)
            .tool(stats)
            .tool(progress)
            .tool(ask)
            .tool(sample)
            .tool(touch)
            .tool(set_extra)
            .tool(extra)
            .tool(log)
            .tool(fail)
            .tool(boom)
            .tool(reset)
            .resource(counter)
            .resource(unchanging)
            .resource_template(item)
            .prompt(greet)
            .completer(Completer::new(PromptReference::new("greet"), "name", names))
    }

    /// Returns the counters of `slow`.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.slow
    }
}

/// Returns its argument.
#[tool(read_only)]
async fn echo(text: String) -> String {
    text
}

/// Returns an object schema for every version, although the latest would allow a plain number.
fn sum_schema() -> serde_json::Value {
    json!({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]})
}

/// Adds two numbers.
#[tool(read_only)]
async fn add(a: i64, b: i64) -> Result<CallToolResult, ToolError> {
    let sum = a.checked_add(b);
    let sum = sum.ok_or_else(|| ToolError::new("the sum is too large"))?;
    let mut result = CallToolResult::text(sum.to_string());
    result.structured_content = Some(encode(&json!({"result": sum})));
    Ok(result)
}

/// Sleeps.
#[tool(read_only)]
async fn slow(
    /// how long to sleep
    seconds: f64,
    State(fixture): State<Fixture>,
) -> Result<&'static str, RpcError> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| RpcError::new(ErrorCode::INVALID_PARAMS, error.to_string()))?;
    let guard = fixture.slow.begin();
    tokio::time::sleep(duration).await;
    guard.finish();
    Ok("slept")
}

/// Returns the counters of `slow`.
#[tool(read_only)]
async fn stats(State(fixture): State<Fixture>) -> Structured<SlowCallCounts> {
    Structured(fixture.slow.counts())
}

/// Reports progress.
#[tool(read_only)]
async fn progress(
    /// the number of steps
    n: u32,
    cx: Context,
) -> String {
    for step in 1..=n {
        let at = Progress::new(step).total(n);
        cx.progress(at.message(format!("step {step}")));
        // Slow enough for the progress to be visible.
        tokio::time::sleep(STEP).await;
    }
    format!("{n} steps")
}

/// The form of `ask`.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks the user for a name.
#[tool(requires(elicitation))]
async fn ask(prompt: Option<String>, cx: Context) -> Result<String, ToolError> {
    let prompt = prompt.unwrap_or_else(|| "What is your name?".to_owned());
    Ok(match cx.elicit("name", prompt).outcome().await? {
        ElicitationOutcome::Accept(Name { name }) => format!("accepted:{name}"),
        ElicitationOutcome::Decline => "declined".to_owned(),
        ElicitationOutcome::Cancel => "cancelled".to_owned(),
    })
}

/// Requests one message from the client's model.
#[tool(requires(sampling))]
async fn sample(prompt: String, cx: Context) -> Result<String, ToolError> {
    let message = SamplingMessage::new(Role::User, TextContent::new(prompt));
    let params = CreateMessageRequestParams::new(vec![message], 100);
    let sampled = cx.sample("model", &params).await?;
    Ok(format!("sampled:{}", text_of(&sampled)))
}

/// The text of a sampled message.
fn text_of(sampled: &CreateMessageResult) -> String {
    let texts = sampled.content.blocks().iter().map(|block| match block {
        SamplingMessageContentBlock::Text(text) => text.text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// Sends a log message at each of four levels, the least severe first.
#[tool(read_only)]
async fn log(cx: Context) -> &'static str {
    for (level, text) in LOGGED {
        cx.log_as("fixture", level, json!(text));
    }
    "logged"
}

/// Adds or removes the tool `extra`, and announces the change of the list.
#[tool]
async fn set_extra(
    /// whether `extra` is listed
    present: bool,
    State(fixture): State<Fixture>,
) -> &'static str {
    fixture.has_extra.store(present, Ordering::Relaxed);
    fixture.bus.publish(ServerChange::Tools);
    "ok"
}

/// A tool that `set_extra` adds and removes.
#[tool(read_only)]
async fn extra() -> &'static str {
    "extra"
}

/// Increments the counter, and announces that a resource was updated.
#[tool]
async fn touch(
    #[tool(default = COUNTER.to_owned())] uri: String,
    State(fixture): State<Fixture>,
) -> String {
    let count = fixture.touched.fetch_add(1, Ordering::Relaxed) + 1;
    fixture.bus.publish(ServerChange::Resource(uri));
    count.to_string()
}

/// Fails with a tool error (`isError`).
#[tool(read_only)]
async fn fail(message: String) -> Result<String, ToolError> {
    Err(ToolError::new(message))
}

/// Fails with a JSON-RPC error.
#[tool(read_only)]
async fn boom() -> Result<String, RpcError> {
    let error = RpcError::new(BOOM, "boom, as asked");
    Err(error.with_data(encode(&json!({"why": "fixture"}))))
}

/// Resets the counters of `slow`.
#[tool]
async fn reset(State(fixture): State<Fixture>) -> &'static str {
    fixture.slow.reset();
    "ok"
}

/// The number of calls of `touch`.
#[resource(uri = "fixture://counter", mime_type = "text/plain")]
async fn counter(State(fixture): State<Fixture>) -> String {
    fixture.touched.load(Ordering::Relaxed).to_string()
}

/// A constant text.
#[resource(name = "static", uri = "fixture://static", mime_type = "text/plain")]
async fn unchanging() -> &'static str {
    "static"
}

/// One item of a template.
#[resource(uri = "fixture://item/{id}", mime_type = "text/plain")]
async fn item(id: String) -> String {
    format!("item {id}")
}

/// Greets a person.
#[prompt]
async fn greet(
    /// the name of the person
    name: String,
) -> String {
    format!("Hello, {name}!")
}

/// Completes the argument of `greet`.
async fn names(input: CompletionInput) -> Completion {
    input.matching(["Ada", "Alan", "Barbara"])
}

fn encode(value: &serde_json::Value) -> Json {
    Json::encode(value).unwrap_or_else(|_| Json::empty_object())
}

/// What `log` sends.
const LOGGED: [(LoggingLevel, &str); 4] = [
    (LoggingLevel::Debug, "at debug"),
    (LoggingLevel::Info, "at info"),
    (LoggingLevel::Warning, "at warning"),
    (LoggingLevel::Error, "at error"),
];
const COUNTER: &str = "fixture://counter";
const STEP: Duration = Duration::from_millis(5);
/// The fixture's own error code, which the library never sends.
const BOOM: ErrorCode = ErrorCode(-32000);
