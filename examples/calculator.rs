//! A server whose tool is a function: its doc comments are what the model reads, its parameters become a schema.
//!
//! `cargo run --example calculator` waits for a client on standard input; `sum` is one. A call of `add` with
//! `{"a": 1, "b": 2}` returns `3`, as text and as structured output.

use bowline::prelude::*;

/// Adds two numbers.
#[tool]
async fn add(
    /// the first
    a: i64,
    /// the second
    b: i64,
) -> i64 {
    a + b
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    Server::new("calculator", "1.0.0")
        .tool(add)
        .serve_stdio()
        .await
}
