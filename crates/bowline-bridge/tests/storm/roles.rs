//! The processes that are killed.

use std::time::Duration;

use bowline::prelude::*;
use serde::Deserialize;

use crate::pause::pause;

/// The last line that a server writes to stderr.
pub(crate) const LAST_WORDS: &str = "the storm server is ready";

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
    millis: u64,
}

/// Serves over stdio, until stdin ends.
pub(crate) async fn serve() {
    eprintln!("{LAST_WORDS}");
    let echo = Tool::new("echo", async |Args(echo): Args<Echo>| {
        pause(Duration::from_millis(echo.millis)).await;
        echo.text
    });
    let wait = Tool::new("wait", async || std::future::pending::<String>().await);
    let server = Server::new("storm", "1.0.0").tool(echo).tool(wait);
    server.serve_stdio().await.unwrap();
}

/// Keeps calls in flight, until it is killed.
pub(crate) async fn call_for_ever(url: &str) {
    let connect = Client::connect(url).protocol_version("2026-07-28");
    let client = connect.await.unwrap();
    loop {
        let calls: Vec<_> = (0..4)
            .map(|_| tokio::spawn(client.call_tool("wait", ()).start()))
            .collect();
        for call in calls {
            // Fails when the server is killed.
            let _ = call.await;
        }
        pause(Duration::from_millis(50)).await;
    }
}
