//! One server process behind a gateway that shares it between all its clients, as supergateway 4.0.0 does by default: it
//! passes on the messages of each client as they are, with their ids, and sends what the server writes to all of them.

use std::sync::Arc;

use bowline::testing::{ScriptedPeer, scripted_client};
use bowline::types::LoggingLevel;
use bowline::{CallToolResult, Context, Resource, Server, Tool};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A server with tools that report their caller: at once, or once they are released.
fn server(release: &Arc<Notify>) -> Server {
    let object = || json!({"type": "object"});
    let whose = |cx: &Context| {
        let caller = cx.caller();
        let name = caller.implementation.as_ref().map(|own| own.name.clone());
        let can_sample = caller.capabilities.sampling.is_some();
        let version = caller.dialect.version;
        CallToolResult::text(format!(
            "{} {version} {can_sample}",
            name.unwrap_or_default()
        ))
    };
    let release = release.clone();
    let waits = move |_, cx: Context| {
        let release = release.clone();
        async move {
            release.notified().await;
            cx.log(LoggingLevel::Info, json!("released"));
            Ok(whose(&cx))
        }
    };
    Server::new("shared", "1")
        .logging()
        .resource_subscriptions()
        .resource(Resource::text("docs://a", "a", "text"))
        .tool(Tool::raw("whose", object(), move |_, cx: Context| {
            std::future::ready(Ok(whose(&cx)))
        }))
        .tool(Tool::raw("waits", object(), waits))
}

/// A client of the gateway, which numbers its requests from 0.
struct Client {
    name: &'static str,
    version: &'static str,
    next_id: u64,
}

impl Client {
    fn new(name: &'static str, version: &'static str) -> Self {
        Self {
            name,
            version,
            next_id: 0,
        }
    }

    async fn open(&mut self, child: &mut ScriptedPeer, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": self.version,
            "capabilities": capabilities,
            "clientInfo": {"name": self.name, "version": "1"},
        });
        let answer = self.request(child, "initialize", params).await;
        child.send_json(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    fn send(&mut self, child: &mut ScriptedPeer, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        child.send_json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request, and returns the next message of the server, which is its answer.
    async fn request(&mut self, child: &mut ScriptedPeer, method: &str, params: Value) -> Value {
        let id = self.send(child, method, &params);
        let answer = child.next_message().await;
        assert_eq!(answer["id"], id, "{} {method}: {answer}", self.name);
        answer
    }

    async fn whose(&mut self, child: &mut ScriptedPeer) -> Value {
        let call = json!({"name": "whose", "arguments": {}});
        let answer = self.request(child, "tools/call", call).await;
        answer["result"]["content"][0]["text"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn three_clients_one_after_the_other_are_served() {
    let mut child = scripted_client(&server(&Arc::default()));
    for (name, version) in [
        ("first", "2025-11-25"),
        ("second", "2024-11-05"),
        ("third", "2025-06-18"),
    ] {
        let mut client = Client::new(name, version);

        let opened = client.open(&mut child, json!({})).await;
        let listed = client.request(&mut child, "tools/list", json!({})).await;
        let whose = client.whose(&mut child).await;

        assert_eq!(opened["result"]["protocolVersion"], version);
        assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2));
        assert_eq!(whose, format!("{name} {version} false"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_client_leaves_the_calls_the_subscriptions_and_the_level_of_the_first() {
    let release = Arc::new(Notify::new());
    let server = server(&release);
    let mut child = scripted_client(&server);
    let mut first = Client::new("first", "2025-11-25");
    first.open(&mut child, json!({"sampling": {}})).await;
    let uri = json!({"uri": "docs://a"});
    let subscribed = first.request(&mut child, "resources/subscribe", uri).await;
    let level = json!({"level": "error"});
    first.request(&mut child, "logging/setLevel", level).await;
    let running = first.send(
        &mut child,
        "tools/call",
        &json!({"name": "waits", "arguments": {}}),
    );

    let mut second = Client::new("second", "2024-11-05");
    second.next_id = 100;
    second.open(&mut child, json!({})).await;
    let whose = second.whose(&mut child).await;
    server.changed().resource_updated("docs://a");
    let updated = child.next_message().await;
    release.notify_one();
    let answer = child.next_message().await;
    child.expect_nothing().await;

    assert_eq!(subscribed["result"], json!({}));
    assert_eq!(whose, "second 2024-11-05 false");
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(answer["id"], running, "no log message before: {answer}");
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, "first 2025-11-25 true");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_with_a_long_description_is_refused_and_the_first_client_goes_on() {
    let mut child = scripted_client(&server(&Arc::default()));
    let mut first = Client::new("first", "2025-11-25");
    first.open(&mut child, json!({})).await;

    let mut second = Client::new("second", "2025-11-25");
    let long = json!({"experimental": {"x": {"y": "z".repeat(65_536)}}});
    let refused = second.open(&mut child, long).await;
    let whose = first.whose(&mut child).await;

    assert_eq!(refused["error"]["code"], -32602);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.ends_with("exceeds the limit of 65536 bytes"), "{why}");
    assert_eq!(whose, "first 2025-11-25 false");
}
