//! The processes that are killed.

use std::time::Duration;

use bowline::prelude::*;
use bowline::seal::Sealer;
use bowline::wire;
use bowline_bridge::{Bridge, Target};
use serde::Deserialize;

use crate::pause::pause;

/// The last line that a server writes to stderr.
pub(crate) const LAST_WORDS: &str = "the storm server is ready";

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
    millis: u64,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Answer {
    text: String,
}

/// Serves a bridge over HTTP until it is killed, and prints its URL. The marker is an argument of the servers that it
/// starts.
pub(crate) async fn bridge(upstream: &str, marker: &str) {
    let program = std::env::current_exe().unwrap();
    let (upstream, marker) = (upstream.to_owned(), marker.to_owned());
    let target = Target::new("storm", move |_| {
        let command = wire::Command::new(&program).args(["--serve", &marker]);
        Ok(Client::spawn(command).protocol_version(&upstream))
    });
    // The key is the same for every process.
    let bridge = Bridge::builder(target).sealer(Sealer::new([7; 32])).build();
    let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/mcp", bound.local_addr());
    bound.serve().await.unwrap();
}

/// Serves over stdio, until stdin ends.
pub(crate) async fn serve() {
    eprintln!("{LAST_WORDS}");
    let echo = Tool::new("echo", async |Args(echo): Args<Echo>| {
        pause(Duration::from_millis(echo.millis)).await;
        echo.text
    });
    let wait = Tool::new("wait", async || std::future::pending::<String>().await);
    let ask = Tool::new("ask", async |cx: Context| {
        let answer: Answer = cx.elicit("answer", "What is the answer?").await?;
        Ok::<_, ToolError>(answer.text)
    });
    let server = Server::new("storm", "1.0.0");
    let server = server.tool(echo).tool(wait).tool(ask);
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
