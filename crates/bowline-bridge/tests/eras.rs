//! Clients of each era reach servers of each era through a bridge, and notice nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::client::Host;
use bowline::prelude::*;
use bowline::types::ElicitResult;
use bowline_bridge::{Bridge, Target};
use serde_json::json;
use tokio::sync::Notify;

const VERSIONS: [&str; 5] = [
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// A server, and what it has seen.
#[derive(Clone)]
struct Fixture {
    server: Server,
    started: Arc<Notify>,
    stopped: Arc<Notify>,
    runs: Arc<AtomicUsize>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Fixture {
    fn new() -> Self {
        let (started, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let runs = Arc::new(AtomicUsize::new(0));
        let wait = {
            let (started, stopped) = (started.clone(), stopped.clone());
            move || {
                let (started, stopped) = (started.clone(), stopped.clone());
                async move {
                    let _guard = NotifyOnDrop(stopped);
                    started.notify_one();
                    std::future::pending::<String>().await
                }
            }
        };
        let greet = {
            let runs = runs.clone();
            move |cx: Context| {
                let runs = runs.clone();
                async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    let name: Name = cx.elicit("name", "What is your name?").await?;
                    Ok::<_, ToolError>(format!("hello {}", name.name))
                }
            }
        };
        let count = async |cx: Context| {
            for done in 1..=3 {
                cx.progress(f64::from(done));
            }
            "counted"
        };
        let server = Server::new("upstream", "7.0.0")
            .tool(Tool::new("echo", async |Args(text): Args<Text>| text.text))
            .tool(Tool::new("count", count))
            .tool(Tool::new("wait", wait))
            .tool(Tool::new("greet", greet));
        Self {
            server,
            started,
            stopped,
            runs,
        }
    }

    fn bridge(&self, version: &'static str) -> Bridge {
        let server = self.server.clone();
        let target = Target::new("upstream", move |_| {
            Ok(Client::in_process(&server).protocol_version(version))
        });
        Bridge::new(target)
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

#[tokio::test]
async fn a_call_is_answered_in_every_pair_of_versions() {
    for front in VERSIONS {
        for back in VERSIONS {
            let bridge = Fixture::new().bridge(back);
            let client = Client::in_process(&bridge)
                .protocol_version(front)
                .await
                .unwrap();

            let tools = client.list_tools().await.unwrap();
            let reply = client
                .call_tool("echo", json!({"text": "hi"}))
                .await
                .unwrap();

            assert_eq!(tools.len(), 4, "{front} → {back}");
            assert_eq!(reply.text(), "hi", "{front} → {back}");
            let introduction = client.request_raw("server/discover", ()).await.unwrap();
            assert!(
                introduction
                    .json()
                    .as_str()
                    .contains(r#""name":"upstream""#),
                "{front} → {back}"
            );
        }
    }
}

#[tokio::test]
async fn the_connection_that_shows_that_a_server_is_modern_is_used_from_then_on() {
    let server = Fixture::new().server;
    let target = Target::new("upstream", move |_| {
        Ok(Client::in_process(&server).protocol_version("2026-07-28"))
    });
    let bridge = Bridge::new(target.stateless());
    let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    let serving = tokio::spawn(bound.serve());
    let client = Client::connect(&url)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    for _ in 0..2 {
        let call = client.call_tool("echo", json!({"text": "hi"}));
        assert_eq!(call.await.unwrap().text(), "hi");
    }

    assert_eq!(bridge.usage().connections, 1);
    serving.abort();
}

#[tokio::test]
async fn progress_arrives_in_every_pair_of_versions() {
    for front in VERSIONS {
        for back in VERSIONS {
            let bridge = Fixture::new().bridge(back);
            let client = Client::in_process(&bridge)
                .protocol_version(front)
                .await
                .unwrap();
            let seen = Arc::new(AtomicUsize::new(0));
            let counted = seen.clone();

            let call = client.call_tool("count", ()).on_progress(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(call.await.unwrap().text(), "counted");

            assert_eq!(seen.load(Ordering::SeqCst), 3, "{front} → {back}");
        }
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server_in_every_pair_of_versions() {
    for front in VERSIONS {
        for back in VERSIONS {
            let fixture = Fixture::new();
            let bridge = fixture.bridge(back);
            let client = Client::in_process(&bridge)
                .protocol_version(front)
                .await
                .unwrap();

            let call = tokio::spawn(async move { client.call_tool("wait", ()).await.map(drop) });
            fixture.started.notified().await;
            call.abort();

            fixture.stopped.notified().await;
        }
    }
}

#[tokio::test]
async fn a_question_reaches_the_client_in_every_pair_of_versions_that_has_them() {
    for front in &VERSIONS[..3] {
        for back in &VERSIONS[..3] {
            let fixture = Fixture::new();
            let bridge = fixture.bridge(back);
            let host =
                Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})));
            let client = Client::in_process(&bridge)
                .protocol_version(front)
                .host(host)
                .await
                .unwrap();

            let reply = client.call_tool("greet", ()).await.unwrap();

            assert_eq!(reply.text(), "hello Ada", "{front} → {back}");
            // A modern server runs the handler again for the answer; a legacy one must not be called twice.
            let runs = if *back == VERSIONS[0] { 2 } else { 1 };
            assert_eq!(
                fixture.runs.load(Ordering::SeqCst),
                runs,
                "{front} → {back}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_at_a_url_is_reached() {
    let server = Server::new("clock", "1.0.0").tool(Tool::new("now", async || "noon"));
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());

    let bridge = Bridge::new(Target::http(url));
    let client = Client::in_process(&bridge).await.unwrap();

    assert_eq!(client.call_tool("now", ()).await.unwrap().text(), "noon");
}
