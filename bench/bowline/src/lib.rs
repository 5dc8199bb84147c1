//! The server under test: a typical Bowline server.

use std::time::Duration;

use bench_fixture::Counters;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{ChangeBus as _, LocalChangeBus, ServerChange};
use serde::Deserialize;

/// Builds a server with all measured tools and this many additional ones.
pub fn server(tools: usize) -> Server {
    let bus = LocalChangeBus::default();
    let mut server = Server::new("bench-server", "0.0.0")
        .state(Counters::default())
        .state(bus.clone())
        .change_bus(bus)
        .tool(echo)
        .tool(add)
        .tool(length)
        .tool(text)
        .tool(progress)
        .tool(slow)
        .tool(slow_progress)
        .tool(stats)
        .tool(notify);
    for index in 0..tools {
        let tool = Tool::new(format!("tool_{index}"), echo_arguments);
        server = server.tool(tool.description("Returns the argument."));
    }
    server
}

#[derive(Deserialize, JsonSchema)]
struct EchoArguments {
    text: String,
}

async fn echo_arguments(Args(arguments): Args<EchoArguments>) -> String {
    arguments.text
}

/// Returns the argument.
#[tool]
async fn echo(text: String) -> String {
    text
}

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Returns the length of a text.
#[tool]
async fn length(text: String) -> String {
    text.len().to_string()
}

/// Returns this many KiB of text.
#[tool]
async fn text(kib: usize) -> String {
    bench_fixture::text_of(kib)
}

/// Reports its progress three times.
#[tool]
async fn progress(cx: Context) -> &'static str {
    for at in bench_fixture::PROGRESS_STEPS {
        cx.progress(at);
    }
    "done"
}

/// Sleeps.
#[tool]
async fn slow(ms: u64, State(counters): State<Counters>) -> &'static str {
    let running = counters.begin();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    running.finish();
    "slept"
}

/// Reports progress, then sleeps.
#[tool]
async fn slow_progress(ms: u64, cx: Context, State(counters): State<Counters>) -> &'static str {
    cx.progress(1.0);
    let running = counters.begin();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    running.finish();
    "slept"
}

/// Returns the counters of slow calls.
#[tool]
async fn stats(State(counters): State<Counters>) -> String {
    counters.text()
}

/// Announces that the tools changed.
#[tool]
async fn notify(State(bus): State<LocalChangeBus>) -> &'static str {
    bus.publish(ServerChange::Tools);
    "ok"
}
