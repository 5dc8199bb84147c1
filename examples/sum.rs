//! The smallest client: starts a server, calls a tool, and ends the server.
//!
//! `cargo build --examples && cargo run --example sum target/debug/examples/calculator` prints `3`.

use bowline::prelude::*;

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let server = std::env::args_os().nth(1).unwrap_or("calculator".into());
    let client = Client::spawn(server).await?;
    let sum: i64 = client
        .call_tool("add", json!({"a": 1, "b": 2}))
        .await?
        .structured()?;
    println!("{sum}");
    client.close().await
}
