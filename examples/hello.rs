//! The smallest server: one tool without arguments, over standard input and output.
//!
//! `cargo run --example hello` waits for a client on standard input. A host starts the program by itself; its
//! configuration names `target/debug/examples/hello`. The model then sees a tool `hello`, which returns
//! `Hello, world!`.

use bowline::prelude::*;

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let hello = Tool::new("hello", async || "Hello, world!").description("Greets the world.");
    Server::new("hello", "1.0.0")
        .tool(hello)
        .serve_stdio()
        .await
}
