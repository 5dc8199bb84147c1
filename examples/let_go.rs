//! Drops a slow call over a wire, and measures how long it takes until the server has dropped the handler.
//!
//! `cargo run --example let_go` prints a line for each era, such as
//! `2026-07-28: the handler was dropped 26.1µs after the call`.

use std::time::{Duration, Instant};

use bowline::{CallToolResult, Client, Server, Tool, wire};
use serde_json::json;
use tokio::sync::mpsc;

/// Sends the time at which it is dropped.
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
        let call_dropped = tokio::select! {
            _ = call => unreachable!("it takes an hour"),
            _ = has_started.recv() => Instant::now(),
        };

        let stopped = handler_stopped.recv().await.unwrap_or_else(Instant::now);
        println!(
            "{version}: the handler was dropped {:?} after the call",
            stopped - call_dropped
        );
        client.close().await?;
        let _ = serving.await;
    }
    Ok(())
}
