//! The server under test, as users of Bowline write one.

use std::time::Duration;

use bench_fixture::Counters;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{Bus as _, Change, LocalBus};
use serde::Deserialize;

/// Offers everything that is measured, and that many tools besides.
pub fn server(tools: usize) -> Server {
    let bus = LocalBus::default();
    let mut server = Server::new("bench-server", "0.0.0")
        .state(Counters::default())
        .state(bus.clone())
        .bus(bus)
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
        let tool = Tool::new(format!("tool_{index}"), say);
        server = server.tool(tool.description("Says what it is told."));
    }
    server
}

#[derive(Deserialize, JsonSchema)]
struct Said {
    text: String,
}

async fn say(Args(said): Args<Said>) -> String {
    said.text
}

/// Says what it is told.
#[tool]
async fn echo(text: String) -> String {
    text
}

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Tells how long a text is.
#[tool]
async fn length(text: String) -> String {
    text.len().to_string()
}

/// Says that many KiB of text.
#[tool]
async fn text(kib: usize) -> String {
    bench_fixture::text_of(kib)
}

/// Reports its progress three times.
#[tool]
async fn progress(cx: Context) -> &'static str {
    for at in bench_fixture::STEPS {
        cx.progress(at);
    }
    "done"
}

/// Sleeps.
#[tool]
async fn slow(ms: u64, State(counters): State<Counters>) -> &'static str {
    let working = counters.begin();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    working.finish();
    "slept"
}

/// Says that it has begun, then sleeps.
#[tool]
async fn slow_progress(ms: u64, cx: Context, State(counters): State<Counters>) -> &'static str {
    cx.progress(1.0);
    let working = counters.begin();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    working.finish();
    "slept"
}

/// Tells what became of the slow calls.
#[tool]
async fn stats(State(counters): State<Counters>) -> String {
    counters.text()
}

/// Announces that the tools changed.
#[tool]
async fn notify(State(bus): State<LocalBus>) -> &'static str {
    bus.announce(Change::Tools);
    "ok"
}
