//! `Duration::MAX` as a time limit means no limit: nothing overflows, and nothing times out.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::layer::Timeout;
use bowline::server::RequestStateKeys;
use bowline::types::{CacheScope, CallToolResult, ElicitResult};
use bowline::{Client, Error, Server, Tool, wire};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A server with a tool that waits until `gate` is notified.
fn waiting_server(gate: &Arc<Notify>) -> Server {
    let gate = gate.clone();
    let wait = Tool::raw("wait", json!({"type": "object"}), move |_, _| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(CallToolResult::text("done"))
        }
    });
    Server::new("patient", "1.0.0").tool(wait)
}

fn over_a_wire(server: &Server) -> ClientBuilder {
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    Client::from_wire(near)
}

/// Calls the tool and notifies its gate after a day.
async fn call_for_a_day(client: &Client, gate: &Notify) -> Result<String, Error> {
    let call = client.call_tool("wait", ());
    let call = call.idle_timeout(Duration::MAX).timeout(Duration::MAX);
    let notifying = async {
        sleep(DAY).await;
        gate.notify_one();
    };
    let (reply, ()) = tokio::join!(call.into_future(), notifying);
    reply.map(|reply| reply.text())
}

#[tokio::test(start_paused = true)]
async fn a_call_without_time_limits_waits_for_its_answer() {
    let gate = Arc::default();
    let server = waiting_server(&gate);
    for version in [MODERN, LEGACY] {
        for connect in [Client::in_process(&server), over_a_wire(&server)] {
            let connect = connect
                .idle_timeout(Duration::MAX)
                .probe_timeout(Duration::MAX);
            let client = connect.protocol_version(version).await.unwrap();

            assert_eq!(call_for_a_day(&client, &gate).await.unwrap(), "done");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_time_limits_can_probe() {
    let server = waiting_server(&Arc::default());
    let connect = over_a_wire(&server)
        .idle_timeout(Duration::MAX)
        .probe_timeout(Duration::MAX);

    assert!(connect.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_time_limit_waits_for_the_handlers_of_a_wire() {
    for version in [MODERN, LEGACY] {
        let gate = Arc::default();
        let server = waiting_server(&gate);
        let client = over_a_wire(&server)
            .protocol_version(version)
            .await
            .unwrap();
        let shutting_down = async {
            sleep(Duration::from_secs(1)).await;
            server.shut_down(Duration::MAX);
        };

        let (reply, ()) = tokio::join!(call_for_a_day(&client, &gate), shutting_down);

        assert_eq!(reply.unwrap(), "done", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_layer_without_a_time_limit_drops_no_handler() {
    let gate = Arc::default();
    let layered = waiting_server(&gate).layer(Timeout::new(Duration::MAX));
    let client = Client::in_process(&layered)
        .protocol_version(MODERN)
        .await
        .unwrap();

    assert_eq!(call_for_a_day(&client, &gate).await.unwrap(), "done");
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_without_a_time_limit_waits_for_its_answer() {
    for elicitation_timeout in [None, Some(Duration::MAX)] {
        let ask = Tool::raw("ask", json!({"type": "object"}), move |_, cx| async move {
            let mut ask = cx.elicit::<Name>("name", "Who?");
            if let Some(limit) = elicitation_timeout {
                ask = ask.timeout(limit);
            }
            Ok(CallToolResult::text(ask.await?.name))
        });
        let keys = RequestStateKeys::random().lifetime(Duration::MAX);
        let server = Server::new("curious", "1.0.0")
            .tool(ask)
            .client_request_timeout(Duration::MAX)
            .request_state_keys(keys);
        for version in [MODERN, LEGACY] {
            for connect in [Client::in_process(&server), over_a_wire(&server)] {
                let host = Host::new().elicitation(async |_| {
                    sleep(DAY).await;
                    ElicitResult::accept(json!({"name": "Ada"}))
                });
                let client = connect.protocol_version(version).host(host).await.unwrap();
                let call = client.call_tool("ask", ());

                let reply = call.idle_timeout(Duration::MAX).await.unwrap();

                assert_eq!(reply.text(), "Ada", "{version}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_with_an_unlimited_ttl_is_requested_once() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let server = waiting_server(&Arc::default()).cache(Duration::MAX, CacheScope::PRIVATE);
    let counting = server.layer(
        move |request: bowline::exchange::Request, next: bowline::layer::Next| {
            if request.method == "tools/list" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            next.run(request)
        },
    );
    let client = Client::in_process(&counting)
        .protocol_version(MODERN)
        .await
        .unwrap();

    client.list_tools().await.unwrap();
    sleep(DAY).await;
    client.list_tools().await.unwrap();

    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
