//! The interop fixture: a server with one tool for each thing that a client may want to check.
//!
//! Its names and what they do are a contract with clients that others wrote, so they change only together
//! with them. Counters belong to the fixture and are shared by all its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::exchange::Elicited;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{Bus, Change, LocalBus};
use bowline::{CallToolResult, ErrorCode, Json, Progress, RpcError};
use serde::Deserialize;
use serde_json::json;

use crate::counters::{Counters, Tally};

/// A server to check clients with, and what it counts.
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
/// let client = Client::to(&fixture.server()).await?;
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
    bus: LocalBus,
}

impl Fixture {
    /// A fixture that has counted nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The server. All servers of one fixture count together and hear each other's changes.
    pub fn server(&self) -> Server {
        Server::new("bowline-fixture", env!("CARGO_PKG_VERSION"))
            .description("One tool for each thing that a client may want to check.")
            .state(self.clone())
            .bus(self.bus.clone())
            .resource_updates()
            .tool(echo)
            .tool(add().output_schema(sum_schema()))
            .tool(slow)
            .tool(stats)
            .tool(progress)
            .tool(ask)
            .tool(touch)
            .tool(fail)
            .tool(boom)
            .tool(reset)
            .resource(counter)
            .resource(unchanging)
            .resource_template(item)
            .prompt(greet)
    }

    /// What became of the calls of `slow`.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.slow
    }
}

/// Says what it is told.
#[tool(read_only)]
async fn echo(text: String) -> String {
    text
}

/// An object in every version, although a number would do in the latest.
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
    /// for how long
    seconds: f64,
    State(fixture): State<Fixture>,
) -> Result<&'static str, RpcError> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| RpcError::new(ErrorCode::INVALID_PARAMS, error.to_string()))?;
    let working = fixture.slow.begin();
    tokio::time::sleep(duration).await;
    working.finish();
    Ok("slept")
}

/// Tells how many calls of `slow` came how far.
#[tool(read_only)]
async fn stats(State(fixture): State<Fixture>) -> Structured<Tally> {
    Structured(fixture.slow.tally())
}

/// Reports its progress.
#[tool(read_only)]
async fn progress(
    /// in how many steps
    n: u32,
    cx: Context,
) -> String {
    for step in 1..=n {
        let at = Progress::at(step.into()).of(n.into());
        cx.progress(at.message(format!("step {step}")));
        // Slow enough to be watched.
        tokio::time::sleep(STEP).await;
    }
    format!("{n} steps")
}

/// What the user is asked by `ask`.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks the user for a name.
#[tool(asks(elicitation))]
async fn ask(prompt: Option<String>, cx: Context) -> Result<String, ToolError> {
    let prompt = prompt.unwrap_or_else(|| "What is your name?".to_owned());
    Ok(match cx.elicit("name", prompt).outcome().await? {
        Elicited::Accept(Name { name }) => format!("accepted:{name}"),
        Elicited::Decline => "declined".to_owned(),
        Elicited::Cancel => "cancelled".to_owned(),
    })
}

/// Counts on, and says that a resource was updated.
#[tool]
async fn touch(
    #[tool(default = COUNTER.to_owned())] uri: String,
    State(fixture): State<Fixture>,
) -> String {
    let count = fixture.touched.fetch_add(1, Ordering::Relaxed) + 1;
    fixture.bus.announce(Change::Resource(uri));
    count.to_string()
}

/// Fails, as tools do.
#[tool(read_only)]
async fn fail(message: String) -> Result<String, ToolError> {
    Err(ToolError::new(message))
}

/// Fails, as protocols do.
#[tool(read_only)]
async fn boom() -> Result<String, RpcError> {
    let error = RpcError::new(BOOM, "boom, as asked");
    Err(error.with_data(encode(&json!({"why": "fixture"}))))
}

/// Forgets the calls of `slow`.
#[tool]
async fn reset(State(fixture): State<Fixture>) -> &'static str {
    fixture.slow.reset();
    "ok"
}

/// How often `touch` was called.
#[resource(uri = "fixture://counter", mime_type = "text/plain")]
async fn counter(State(fixture): State<Fixture>) -> String {
    fixture.touched.load(Ordering::Relaxed).to_string()
}

/// Always the same.
#[resource(name = "static", uri = "fixture://static", mime_type = "text/plain")]
async fn unchanging() -> &'static str {
    "static"
}

/// One of many.
#[resource(uri = "fixture://item/{id}", mime_type = "text/plain")]
async fn item(id: String) -> String {
    format!("item {id}")
}

/// Says hello.
#[prompt]
async fn greet(
    /// to whom
    name: String,
) -> String {
    format!("Hello, {name}!")
}

fn encode(value: &serde_json::Value) -> Json {
    Json::encode(value).unwrap_or_else(|_| Json::empty_object())
}

const COUNTER: &str = "fixture://counter";
const STEP: Duration = Duration::from_millis(5);
/// The fixture's own code: the library never says it.
const BOOM: ErrorCode = ErrorCode(-32000);
