//! Telemetry: the spans and metrics of every transport and every outcome, on both sides.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod cancels;
mod metrics;
mod outcomes;
mod recorder;
mod traces;

use bowline::{Args, Server, Tool, ToolError};
use serde::Deserialize;

/// A server with a tool for each outcome.
fn server() -> Server {
    let add = Tool::new("add", async |Args(Add { a, b }): Args<Add>| a + b);
    let fail = Tool::new("fail", async || {
        Err::<(), _>(ToolError::new("out of paper"))
    });
    let panic = Tool::new("panic", async || -> () { panic!("a bug") });
    let wait = Tool::new("wait", async || std::future::pending::<()>().await);
    Server::new("calculator", "1.0.0")
        .tool(add)
        .tool(fail)
        .tool(panic)
        .tool(wait)
}

/// A form.
#[derive(Debug, Deserialize, bowline::schemars::JsonSchema)]
struct Name {
    #[allow(dead_code, reason = "the tests decline")]
    name: String,
}

#[derive(Deserialize, bowline::schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}
