//! Layers wrap every request, in order, on every transport.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::exchange::{Outcome, Request, TraceContext};
use bowline::layer::{ConcurrencyLimit, FromTower, Next, Timeout};
use bowline::types::Meta;
use bowline::{
    CallToolResult, Client, Context, Error, ErrorCode, RpcError, Server, State, Tool, wire,
};
use serde_json::json;

fn server() -> Server {
    let stuck = Tool::raw("stuck", json!({"type": "object"}), async |_, _| {
        std::future::pending().await
    });
    let quick = Tool::raw("quick", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("done"))
    });
    Server::new("layers", "1.0.0").tool(stuck).tool(quick)
}

fn code(error: &Error) -> ErrorCode {
    match error {
        Error::Rpc(error) => error.code,
        other => panic!("expected an error of the peer, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_layer_is_the_outermost() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = order.clone();
        move |request: Request, next: Next| {
            let order = order.clone();
            async move {
                order.lock().unwrap().push(name);
                next.run(request).await
            }
        }
    };
    let layered = server().layer(note("outer")).layer(note("inner"));
    let client = Client::in_process(&layered)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    client.call_tool("quick", ()).await.unwrap();

    assert_eq!(*order.lock().unwrap(), ["outer", "inner"]);
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_answer_without_calling_the_handler() {
    async fn no(_: Request, _: Next) -> Outcome {
        Err(RpcError::new(ErrorCode(-7), "closed today"))
    }
    let client = Client::in_process(&server().layer(no))
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    let error = client.call_tool("quick", ()).await.unwrap_err();

    assert_eq!(code(&error), ErrorCode(-7));
}

/// A layer without an effect.
async fn pass_on(request: Request, next: Next) -> Outcome {
    next.run(request).await
}

#[tokio::test(start_paused = true)]
async fn the_timeout_layer_drops_only_slow_handlers() {
    let layered = server()
        .layer(pass_on)
        .layer(Timeout::new(Duration::from_secs(1)));
    let client = Client::in_process(&layered)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    let (stuck, quick) = tokio::join!(
        client.call_tool("stuck", ()).into_future(),
        client.call_tool("quick", ()).into_future()
    );

    assert_eq!(code(&stuck.unwrap_err()), ErrorCode::INTERNAL_ERROR);
    assert_eq!(quick.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_are_rejected_and_an_abandoned_one_frees_its_slot() {
    let client = Client::in_process(&server().layer(ConcurrencyLimit::new(1)))
        .protocol_version("2026-07-28")
        .await
        .unwrap();
    let mut first = client.call_tool("stuck", ()).start();
    assert!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut first).poll(cx)))
            .await
            .is_pending()
    );

    let shed = client.call_tool("quick", ()).await.unwrap_err();
    drop(first);
    let taken = client.call_tool("quick", ()).await;

    assert!(shed.to_string().contains("overloaded"));
    assert_eq!(taken.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_tower_layer_can_be_used_as_a_layer() {
    #[derive(Clone)]
    struct Count(Arc<AtomicUsize>);
    impl<S> tower_layer::Layer<S> for Count {
        type Service = S;
        fn layer(&self, inner: S) -> S {
            self.0.fetch_add(1, Ordering::Relaxed);
            inner
        }
    }
    let count = Count(Arc::default());
    let layered = server().layer(FromTower::new(count.clone()));
    let client = Client::in_process(&layered)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    client.call_tool("quick", ()).await.unwrap();

    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_and_a_tool_have_layers_of_their_own() {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = |count: Arc<AtomicUsize>| {
        move |request: Request, next: Next| {
            count.fetch_add(1, Ordering::Relaxed);
            next.run(request)
        }
    };
    let tool_count = Arc::new(AtomicUsize::new(0));
    let watched = Tool::raw("watched", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("done"))
    })
    .layer(counting(tool_count.clone()));
    let server = server().tool(watched).layer(counting(count.clone()));
    let client = Client::in_process(&server)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    client.call_tool("quick", ()).await.unwrap();
    client.call_tool("watched", ()).await.unwrap();

    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(tool_count.load(Ordering::Relaxed), 1);
}

/// A server with a tool that returns its trace context.
fn tracing_server() -> Server {
    let traced = Tool::new("traced", async |cx: Context| {
        let trace = cx.trace();
        trace.map_or_else(String::new, |trace| {
            let state = trace.tracestate().unwrap_or("stateless");
            format!("{} {state}", trace.traceparent())
        })
    });
    Server::new("traced", "1").tool(traced)
}

fn trace() -> TraceContext {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = TraceContext::new(parent).unwrap();
    trace.with_state("congo=t61").unwrap()
}

#[tokio::test]
async fn a_handler_propagates_the_trace_of_its_caller() {
    for version in ["2026-07-28", "2025-11-25"] {
        let (near, far) = wire::memory();
        tokio::spawn(tracing_server().serve(far));
        let other = Client::from_wire(near)
            .protocol_version(version)
            .await
            .unwrap();
        let forwards = Tool::new(
            "forwards",
            async |State(other): State<Client>, cx: Context| {
                let reply = other.call_tool("traced", ()).trace(cx.trace()).await;
                reply.unwrap().text()
            },
        );
        let server = Server::new("forwards", "1").state(other).tool(forwards);
        let client = Client::in_process(&server)
            .protocol_version(version)
            .await
            .unwrap();

        let traced = client
            .call_tool("forwards", ())
            .trace(trace())
            .await
            .unwrap();
        let untraced = client.call_tool("forwards", ()).await.unwrap();

        let expected = format!("{} congo=t61", trace().traceparent());
        assert_eq!((traced.text(), untraced.text()), (expected, String::new()));
    }
}

#[tokio::test]
async fn the_trace_of_a_client_applies_to_requests_without_their_own() {
    let client = Client::in_process(&tracing_server())
        .trace(|| Some(trace()))
        .await
        .unwrap();
    let mut own_meta = Meta::default();
    own_meta.set_traceparent(&trace().traceparent().replace("0af", "bbb"));
    let own = TraceContext::new(trace().traceparent().replace("0af", "aaa")).unwrap();

    let replies = [
        client.call_tool("traced", ()).await,
        client.call_tool("traced", ()).trace(own).await,
        client.call_tool("traced", ()).meta(own_meta).await,
    ]
    .map(|reply| reply.unwrap().text());

    let parent = |id| trace().traceparent().replace("0af", id);
    assert_eq!(
        replies,
        [
            format!("{} congo=t61", parent("0af")),
            format!("{} stateless", parent("aaa")),
            format!("{} stateless", parent("bbb")),
        ]
    );
}

#[tokio::test]
async fn a_malformed_traceparent_is_ignored() {
    let client = Client::in_process(&tracing_server()).await.unwrap();
    let mut meta = Meta::default();
    meta.set_traceparent("00-a-b-01");

    let reply = client.call_tool("traced", ()).meta(meta).await.unwrap();

    assert_eq!(reply.text(), "");
}

#[tokio::test(start_paused = true)]
async fn roots_changed_reaches_a_layered_server() {
    let notifications = Arc::new(AtomicUsize::new(0));
    let count = notifications.clone();
    let layered = server().layer(pass_on).on_roots_changed(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let host = bowline::client::Host::new().roots(async || vec![]);
    let connect = Client::in_process(&layered).protocol_version("2025-11-25");
    let client = connect.host(host.roots_list_changed()).await.unwrap();

    client.roots_changed().unwrap();

    assert_eq!(notifications.load(Ordering::Relaxed), 1);
}
