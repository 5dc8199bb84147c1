//! The server that the official conformance suite tests: every feature, under the names that the suite expects. It
//! serves both eras on one URL, unless it is told to be a server of one of them.
//!
//! ```text
//! everything-server --port 3000
//! everything-server --only legacy --stdio
//! ```

#![allow(clippy::print_stdout, reason = "over HTTP stdout carries no messages")]

mod changes;
mod content;
mod input;
mod notifications;
mod prompts;
mod resources;
mod tasks;

use std::time::Duration;

use bowline::Server;
use bowline::exchange::Dialects;
use bowline::server::{Completer, LocalChangeBus};
use bowline::types::CacheScope;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (server, words) = match &words[..] {
        [option, era, rest @ ..] if option == "--only" => (of_era(everything(), era)?, rest),
        words => (everything(), words),
    };
    let port = match words {
        [option] if option == "--stdio" => return Ok(server.serve_stdio().await?),
        words => port(words)?,
    };
    let bound = server.http().bind(("127.0.0.1", port)).await?;
    println!("READY http://{}/mcp", bound.local_addr());
    Ok(bound.serve().await?)
}

/// Restricts a server to the versions of an era.
fn of_era(server: Server, era: &str) -> Result<Server, String> {
    let is_modern = match era {
        "modern" => true,
        "legacy" => false,
        _ => return Err(USAGE.to_owned()),
    };
    Ok(server.versions(Dialects::only(|dialect| dialect.is_modern() == is_modern)))
}

/// The port after `--port`; 0, which selects a free port, without it.
fn port(words: &[String]) -> Result<u16, String> {
    let port = match words {
        [] => Some(0),
        [option, port] if option == "--port" => port.parse().ok(),
        _ => None,
    };
    port.ok_or_else(|| USAGE.to_owned())
}

const USAGE: &str = "usage: everything-server [--only modern|legacy] [--port PORT | --stdio]";

fn everything() -> Server {
    let bus = LocalChangeBus::default();
    let words = Completer::for_prompt("test_prompt_with_arguments", "arg1", async |input, _cx| {
        Ok(input.matching(["test", "testing", "toast"]))
    });
    let server = Server::new("everything-server", "1.0.0")
        .title("Everything")
        .instructions("Provides every feature for tests.")
        .change_bus(bus.clone())
        .state(bus)
        .logging()
        .resource_subscriptions()
        .cache(Duration::from_secs(60), CacheScope::PUBLIC)
        .completer(words);
    let server = content::register(server);
    let server = notifications::register(server);
    let server = input::register(server);
    let server = changes::register(server);
    let server = resources::register(server);
    let server = tasks::register(server);
    prompts::register(server)
}
