//! The drain of duplex wires: what continues work is taken until it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{
    BoxFuture, Notification, NotifiedContext, Outcome, Params, Request, Responder,
};
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{DrainPhase, WireService};
use bowline::telemetry::Telemetry;
use bowline::types::{ElicitResult, Implementation};
use bowline::wire::Lines;
use bowline::{Json, wire};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::all_lists;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const SECONDS: Duration = Duration::from_secs(10);

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// A tool that waits for `go`, and then asks the client.
fn ask_later(started: &Arc<Notify>, go: &Arc<Notify>) -> Tool {
    let (started, go) = (started.clone(), go.clone());
    Tool::new("ask", move |cx: Context| {
        let (started, go) = (started.clone(), go.clone());
        async move {
            started.notify_one();
            go.notified().await;
            let Name { name } = cx.elicit("name", "Who are you?").await?;
            Ok::<_, ToolError>(format!("hello {name}"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_of_the_server_is_taken_while_new_requests_are_refused() {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = Server::new("s", "1").tool(ask_later(&started, &go));
    let (near, far) = wire::memory();
    let serving = tokio::spawn(server.clone().serve(far));
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})));
    let client = Client::from_wire(near).host(host);
    let client = client.protocol_version("2025-11-25").await.unwrap();
    let asking = client.call_tool("ask", ()).start();
    started.notified().await;

    server.shut_down(MINUTE);
    let refused = client.list_tools().await.unwrap_err();
    client.ping().await.unwrap();
    go.notify_one();

    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(asking.await.unwrap().text(), "hello Ada");
    serving.await.unwrap().unwrap();
    let report = server.drain_report();
    assert_eq!((report.refused, report.cancelled), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_when_new_requests_are_refused_and_not_before() {
    let server = Server::new("s", "1").tool(Tool::new("now", async || "noon"));
    let (near, far) = wire::memory();
    let serving = tokio::spawn(server.clone().serve(far));
    let client = Client::from_wire(near).await.unwrap();
    let mut changes = client.subscribe(all_lists()).await.unwrap();
    let begun = Instant::now();

    server.drain();
    assert_eq!(client.call_tool("now", ()).await.unwrap().text(), "noon");

    assert!(changes.next().await.unwrap().is_none());
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    serving.await.unwrap().unwrap();
    assert_eq!(
        begun.elapsed(),
        Duration::from_secs(5),
        "nothing was running"
    );
    assert_eq!(server.drain_report().phase, DrainPhase::Refusing);
}

/// Has a number of calls that wait for a retry, which ends one of them.
struct Waiting(Arc<AtomicUsize>);

impl Responder for Waiting {
    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        self.0.fetch_sub(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(Json::empty_object())))
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> bowline::Result<()> {
        Ok(())
    }

    fn notified(&self, _: &Notification, _: &NotifiedContext) {}

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn a_wire_stays_open_for_calls_that_wait_for_a_retry() {
    let waiting = Arc::new(AtomicUsize::new(2));
    let service = WireService::new(Waiting(waiting.clone()), &Implementation::new("w", "1"));
    let (near, far) = wire::memory();
    let serving = tokio::spawn(service.clone().serve(far));
    let client = Client::from_wire(near).protocol_version("2026-07-28");
    let client = client.await.unwrap();
    service.shut_down(MINUTE);
    let begun = Instant::now();
    let retry = json!({"name": "book", "requestState": "sealed"});

    for _ in 0..2 {
        assert!(
            client
                .request_raw("tools/call", json!({"name": "new"}))
                .await
                .is_err()
        );
        assert!(!serving.is_finished());
        client
            .request_raw("tools/call", retry.clone())
            .await
            .unwrap();
    }

    serving.await.unwrap().unwrap();
    assert!(begun.elapsed() < MINUTE);
    assert_eq!(
        (
            service.drain_report().refused,
            service.drain_report().cancelled
        ),
        (2, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_wire_that_do_not_finish_are_counted() {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = Server::new("s", "1").tool(ask_later(&started, &go));
    let (near, far) = wire::memory();
    let serving = tokio::spawn(server.clone().serve(far));
    let client = Client::from_wire(near).protocol_version("2025-11-25");
    let client = client.await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(client.call_tool("ask", ()).start());
        started.notified().await;
    }
    let begun = Instant::now();

    server.shut_down(SECONDS); // less than the idle timeout of the calls
    serving.await.unwrap().unwrap();

    assert_eq!(begun.elapsed(), SECONDS);
    assert_eq!(server.drain_report().cancelled, 3);
}

/// The end of the input of a wire whose only call never ends, and a drain with a minute of grace, in either order.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_a_drain_within_two_seconds() {
    for drains_first in [true, false] {
        let (server, serving, client) = serve_endless_call().await;
        let begun = Instant::now();

        if drains_first {
            server.shut_down(MINUTE);
            pass_a_second().await; // the driver has begun to drain
            drop(client);
        } else {
            drop(client);
            pass_a_second().await;
            server.shut_down(MINUTE);
        }
        serving.await.unwrap().unwrap();

        let since_the_end = begun.elapsed() - SECOND * u32::from(drains_first);
        assert_eq!(since_the_end, 2 * SECOND, "{drains_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_does_not_prolong_a_drain() {
    let (server, serving, client) = serve_endless_call().await;
    let begun = Instant::now();

    server.shut_down(2 * SECOND);
    pass_a_second().await;
    drop(client);
    serving.await.unwrap().unwrap();

    assert_eq!(begun.elapsed(), 2 * SECOND);
}

/// Serves a byte stream, at whose other end a call has been written that never ends. Dropping the stream ends the input.
async fn serve_endless_call() -> (Server, JoinHandle<bowline::Result<()>>, DuplexStream) {
    let started = Arc::new(Notify::new());
    let endless = Tool::new("endless", {
        let started = started.clone();
        move || {
            started.notify_one();
            std::future::pending::<&str>()
        }
    });
    let server = Server::new("s", "1").tool(endless);
    let (mut near, far) = tokio::io::duplex(4096);
    let (read, write) = tokio::io::split(far);
    let serving = tokio::spawn(server.clone().serve(Lines::new(read, write)));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "endless", "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    near.write_all(format!("{call}\n").as_bytes())
        .await
        .unwrap();
    started.notified().await;
    (server, serving, near)
}

/// Advances the clock, after the tasks have done what they can do now.
async fn pass_a_second() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(SECOND).await;
}
