//! Lets go of a slow call over a wire, and shows what the server makes of it.
//!
//! `cargo run --example let_go`

#![allow(clippy::print_stdout, reason = "this example talks to a person")]

use std::time::{Duration, Instant};

use bowline::{CallToolResult, Client, Server, Tool, wire};
use serde_json::json;
use tokio::sync::mpsc;

/// Tells when it is dropped.
struct Guard(mpsc::UnboundedSender<Instant>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(Instant::now());
    }
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let (dropped, mut handler_stopped) = mpsc::unbounded_channel();
    let slow = Tool::raw("slow", json!({"type": "object"}), move |_, cx| {
        let guard = Guard(dropped.clone());
        async move {
            cx.progress(0.0);
            tokio::time::sleep(Duration::from_secs(3600)).await;
            drop(guard);
            Ok(CallToolResult::text("an hour later"))
        }
    });
    let server = Server::new("sloth", "1.0.0").tool(slow);

    for version in ["2026-07-28", "2025-11-25"] {
        let (near, far) = wire::memory();
        let serving = tokio::spawn(server.clone().serve(far));
        let client = Client::from_wire(near).protocol_version(version).await?;

        let (started, mut has_started) = mpsc::unbounded_channel();
        let call = client
            .call_tool("slow", ())
            .on_progress(move |_| {
                let _ = started.send(());
            })
            .start();
        let let_go = tokio::select! {
            _ = call => unreachable!("it takes an hour"),
            _ = has_started.recv() => Instant::now(),
        };

        let stopped = handler_stopped.recv().await.unwrap_or_else(Instant::now);
        println!(
            "{version}: let go, and the handler was dropped {:?} later",
            stopped - let_go
        );
        client.close().await?;
        let _ = serving.await;
    }
    Ok(())
}
