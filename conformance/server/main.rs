//! The server that the official conformance suite is run against: every feature, under the names that the
//! suite knows. It serves both eras on one URL.
//!
//! ```text
//! everything-server --port 3000
//! ```

#![allow(
    clippy::print_stdout,
    reason = "over HTTP nothing else is said on stdout"
)]

mod asking;
mod changes;
mod content;
mod prompts;
mod resources;
mod speaking;

use std::time::Duration;

use bowline::Server;
use bowline::server::{Completer, LocalBus};
use bowline::types::CacheScope;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = port(std::env::args().skip(1))?;
    let bound = everything().http().bind(("127.0.0.1", port)).await?;
    println!("READY http://{}/mcp", bound.addr());
    Ok(bound.serve().await?)
}

/// The port after `--port`; 0, for any that is free, without.
fn port(mut arguments: impl Iterator<Item = String>) -> Result<u16, String> {
    let Some(flag) = arguments.next() else {
        return Ok(0);
    };
    let port = arguments.next().and_then(|port| port.parse().ok());
    match port {
        Some(port) if flag == "--port" => Ok(port),
        _ => Err("usage: everything-server [--port PORT]".to_owned()),
    }
}

fn everything() -> Server {
    let bus = LocalBus::default();
    let words = Completer::for_prompt("test_prompt_with_arguments", "arg1", async |typing, _cx| {
        Ok(typing.among(["test", "testing", "toast"]))
    });
    let server = Server::new("everything-server", "1.0.0")
        .title("Everything")
        .instructions("Offers one of each, for tests.")
        .bus(bus.clone())
        .state(bus)
        .logging()
        .resource_updates()
        .cache(Duration::from_secs(60), CacheScope::PUBLIC)
        .completion(words);
    let server = content::offer(server);
    let server = speaking::offer(server);
    let server = asking::offer(server);
    let server = changes::offer(server);
    let server = resources::offer(server);
    prompts::offer(server)
}
