//! Servers that begin long messages and do not end them, and connections that share a `ReadBudget`.

use std::sync::{Arc, Mutex};

use bowline::client::ReadBudget;
use bowline::http::client::HyperClient;
use bowline::testing::eventually;
use bowline::{Client, Error};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::legacy::default_legacy_reply;
use crate::scripted_server::{SSE_HEAD, ScriptedReply, ScriptedServer, reply_with, text_result};

const JSON_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";

#[tokio::test]
async fn a_response_that_does_not_fit_fails_its_call_and_no_other() {
    for begin in [
        format!("{JSON_HEAD}{{\"x\":\""),
        format!("{SSE_HEAD}data: "),
    ] {
        for version in ["2026-07-28", "2025-11-25"] {
            let stalled: Arc<Mutex<Vec<UnboundedSender<String>>>> = Arc::default();
            let (begun, begin) = (stalled.clone(), begin.clone());
            let (server, connector) =
                ScriptedServer::in_memory(move |request| match &*request.label() {
                    "POST tools/call" if request.body["params"]["name"] == "stalled" => {
                        let (more, rest) = mpsc::unbounded_channel();
                        begun.lock().unwrap().push(more);
                        let first = format!("{begin}{}", "x".repeat(1000));
                        ScriptedReply::BytesThenMore(first, rest)
                    }
                    "POST tools/call" => reply_with(request, &text_result("done")),
                    _ => default_legacy_reply(request),
                });
            let budget = ReadBudget::new(3000);
            let client = Client::connect(&server.url)
                .http_client(HyperClient::with_connector(connector))
                .protocol_version(version)
                .read_budget(&budget)
                .await
                .unwrap();
            let continue_response = |number: usize| {
                let stalled = stalled.lock().unwrap();
                let more = stalled.get(number);
                more.is_some_and(|more| more.send("x".repeat(1000)).is_ok())
            };

            let first = tokio::spawn(client.call_tool("stalled", ()).start());
            assert!(eventually(|| continue_response(0)).await);
            assert!(eventually(|| budget.used() >= 2000).await, "{version}");
            let second = tokio::spawn(client.call_tool("stalled", ()).start());
            assert!(eventually(|| continue_response(1)).await);

            let error = second.await.unwrap().unwrap_err();
            assert!(matches!(error, Error::Transport { .. }), "{error:?}");
            assert!(error.to_string().contains("3000 bytes"), "{error}");
            assert!(!error.is_disconnected());
            assert_eq!(budget.refused(), 1);
            let next = client.call_tool("next", ()).await.unwrap();
            assert_eq!(next.text(), "done");
            assert!(!first.is_finished());
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            client.close().await.unwrap();
            assert!(eventually(|| budget.used() == 0).await, "{version}");
        }
    }
}
