//! Questions of servers about calls, with several servers behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::ErrorCode;
use bowline::client::Host;
use bowline::prelude::*;
use bowline::types::{ElicitResult, Root};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc::UnboundedSender;

use crate::world::{ERAS, LEGACY, MODERN, TWO, World, ask, rpc_error};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

fn greeter(greeting: &'static str, runs: &Arc<AtomicUsize>) -> Server {
    let runs = runs.clone();
    let greet = move |cx: Context| {
        let runs = runs.clone();
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let name: Name = cx.elicit("name", "What is your name?").await?;
            Ok::<_, ToolError>(format!("{greeting} {}", name.name))
        }
    };
    Server::new("greeter", "1.0.0").tool(Tool::new("greet", greet))
}

#[tokio::test]
async fn a_question_reaches_the_client_in_every_pair_of_eras() {
    for front in ERAS {
        for back in ERAS {
            let runs = Arc::default();
            let world = World::default();
            world.serve("a", &greeter("hello", &runs), back);
            world.serve("b", &greeter("bye", &runs), back);
            let host =
                Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})));
            let client = Client::in_process(&world.bridge(TWO)).protocol_version(front);
            let client = client.host(host).await.unwrap();

            for (tool, expected) in [("a__greet", "hello Ada"), ("b__greet", "bye Ada")] {
                let reply = client.call_tool(tool, ()).await.unwrap();
                assert_eq!(reply.text(), expected, "{front} → {back}");
            }
            let expected = if back == LEGACY { 2 } else { 4 };
            assert_eq!(runs.load(Ordering::SeqCst), expected, "{front} → {back}");
        }
    }
}

/// A legacy server that asks for the roots when it is initialized, and passes on the answer.
async fn ask_for_roots(pipe: DuplexStream, answers: UnboundedSender<Value>) {
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let reply = match message["method"].as_str() {
            Some("initialize") => json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                "protocolVersion": "2025-06-18",
                "serverInfo": {"name": "roots", "version": "1"},
                "capabilities": {"tools": {}},
            }}),
            Some("notifications/initialized") => {
                json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"})
            }
            Some(_) if message.get("id").is_some() => {
                json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
            }
            Some(_) => continue,
            None => {
                answers.send(message["result"]["roots"].clone()).unwrap();
                continue;
            }
        };
        write
            .write_all(format!("{reply}\n").as_bytes())
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_asked_by_each_server_outside_of_its_calls() {
    let (answers, mut received) = tokio::sync::mpsc::unbounded_channel();
    let world = World::default();
    for name in ["a", "b"] {
        let answers = answers.clone();
        world.serve_pipe(name, move |pipe| ask_for_roots(pipe, answers.clone()));
    }
    let (near, far) = bowline::wire::memory();
    tokio::spawn(world.bridge(TWO).wire().serve(far));
    let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    let client = Client::from_wire(near).protocol_version(LEGACY).host(host);
    let _client = client.await.unwrap();

    for _ in ["a", "b"] {
        let roots = received.recv().await.unwrap();
        assert_eq!(roots[0]["uri"], "file:///project");
    }
}

#[tokio::test]
async fn the_state_of_a_call_continues_it_at_its_own_server_only() {
    for back in ERAS {
        let runs = Arc::default();
        let world = World::default();
        world.serve("a", &greeter("hello", &runs), back);
        world.serve("b", &greeter("bye", &runs), back);
        let mut capabilities = bowline::types::ClientCapabilities::default();
        capabilities.elicitation = Some(Default::default());
        let client = Client::in_process(&world.bridge(TWO)).protocol_version(MODERN);
        let connection = client
            .capabilities(capabilities)
            .connection()
            .await
            .unwrap();
        let call = async |params| ask(&connection, "tools/call", params).await;
        let asked = call(json!({"name": "a__greet", "arguments": {}}))
            .await
            .unwrap();
        let key = asked["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap()
            .clone();
        let retry = |tool: &str| {
            json!({"name": tool, "arguments": {}, "requestState": asked["requestState"],
                "inputResponses": {key.clone(): {"action": "accept", "content": {"name": "Ada"}}}})
        };

        let other = call(retry("b__greet")).await;
        let own = call(retry("a__greet")).await;

        assert_eq!(rpc_error(other).code, ErrorCode::INVALID_PARAMS, "{back}");
        assert_eq!(own.unwrap()["content"][0]["text"], "hello Ada", "{back}");
    }
}
