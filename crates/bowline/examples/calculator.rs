//! The smallest server: a function with a doc comment, over standard input and output.
//!
//! `cargo run --example calculator`, or from a client: `cargo run --example sum`

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
