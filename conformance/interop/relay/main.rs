//! A server between two others, for traces: its tool `relay` calls the tool of the same name of the server behind it, with
//! a client inside the handler.
//!
//! ```text
//! interop-relay OTLP_URL python3 server.py
//! ```
//!
//! Served over HTTP; the URL is printed once the server accepts connections. The server behind it is a command. Spans go to
//! the OTLP endpoint.

#![allow(clippy::print_stdout, reason = "over HTTP stdout carries no messages")]

use std::error::Error;

use bowline::Client;
use bowline::prelude::*;
use bowline::wire::Command;
use bowline_cli::telemetry::Exporters;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(endpoint), Some(program)) = (words.next(), words.next()) else {
        return Err("usage: interop-relay OTLP_URL COMMAND…".into());
    };
    let exporters = Exporters::otlp(&endpoint, "interop-relay").await;
    let exporters = exporters.map_err(|error| error.to_string())?;
    let behind = Client::spawn(Command::new(program).args(words).inherit_env())
        .telemetry(exporters.telemetry())
        .await?;
    let server = Server::new("interop-relay", env!("CARGO_PKG_VERSION"))
        .telemetry(exporters.telemetry())
        .state(behind.clone())
        .tool(relay);

    let service = server.http().drain_delay(std::time::Duration::ZERO);
    let bound = service.bind("127.0.0.1:0").await?;
    println!("READY http://{}/mcp", bound.local_addr());
    let served = bound.serve_until_signal().await;
    // Its process sends its spans when it ends.
    behind.close().await?;
    exporters.shut_down().await;
    Ok(served?)
}

/// Returns what the server behind this one returns.
#[tool(read_only)]
async fn relay(text: String, State(behind): State<Client>) -> Result<String, ToolError> {
    let reply = behind.call_tool("relay", json!({"text": text})).await?;
    Ok(reply.text())
}
