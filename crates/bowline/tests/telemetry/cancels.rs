//! Cancelled calls: who, after how long, and what became of the handler.

use std::time::Duration;

use bowline::exchange::CancelMode;
use bowline::telemetry::names::{attribute as names, bowline as ours};
use bowline::testing::{TestTransport, matrix};
use bowline::{Client, Context, Server, Tool};
use opentelemetry::trace::SpanKind;

use super::recorder::{Recorder, attribute};
use super::server;

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_on_both_sides_of_every_transport() {
    for case in matrix() {
        let recorder = Recorder::new();
        let server = server().telemetry(recorder.telemetry());
        let connect = case.serve(&server).connect;
        let client = connect.telemetry(recorder.telemetry()).await.unwrap();
        let mut call = client.call_tool("wait", ()).start();
        while recorder.points(ours::SERVER_ACTIVE_REQUESTS) != [(Default::default(), 1.0)] {
            // Polled, because over HTTP the request is sent while it is.
            let polled = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(std::pin::Pin::new(&mut call).poll(cx))
            });
            let polled = polled.await;
            assert!(polled.is_pending(), "{case}: {polled:?}");
            tokio::task::yield_now().await;
        }

        drop(call);

        let sent = recorder.span(SpanKind::Client, "tools/call wait").await;
        assert_eq!(attribute(&sent, ours::CANCELLED_BY), "caller", "{case}");
        assert_eq!(attribute(&sent, names::ERROR_TYPE), "cancelled", "{case}");
        let handled = recorder.span(SpanKind::Server, "tools/call wait").await;
        let is_modern_http = case.dialect.is_modern()
            && matches!(case.transport, TestTransport::Http | TestTransport::Http2);
        let by = if is_modern_http { "disconnect" } else { "peer" };
        assert_eq!(attribute(&handled, ours::CANCELLED_BY), by, "{case}");
        assert_eq!(
            attribute(&handled, ours::CANCELLED_HANDLER),
            "dropped",
            "{case}"
        );
        assert_eq!(attribute(&handled, names::ERROR_TYPE), "", "{case}");
        for name in [
            ours::SERVER_CANCELLED_DURATION,
            ours::CLIENT_CANCELLED_DURATION,
        ] {
            let points = recorder.recorded(name).await;
            assert_eq!(points.len(), 1, "{case}: {points:?}");
            assert_eq!(points[0].0[names::GEN_AI_TOOL_NAME], "wait", "{case}");
        }
        let active = recorder.points(ours::SERVER_ACTIVE_REQUESTS);
        assert_eq!(active, [(Default::default(), 0.0)], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_has_that_as_its_error() {
    let recorder = Recorder::new();
    let client = Client::in_process(&server())
        .telemetry(recorder.telemetry())
        .await
        .unwrap();

    let call = client.call_tool("wait", ()).timeout(Duration::from_secs(5));
    call.await.unwrap_err();

    let sent = recorder.span(SpanKind::Client, "tools/call wait").await;
    assert_eq!(attribute(&sent, names::ERROR_TYPE), "timeout");
    assert_eq!(attribute(&sent, ours::CANCELLED_BY), "timeout");
}

#[tokio::test]
async fn a_handler_that_runs_on_after_the_cancel_is_reported_when_it_returns() {
    let recorder = Recorder::new();
    let tool = Tool::new("finish", async |cx: Context| cx.cancelled().await);
    let server = Server::new("s", "1.0.0").tool(tool.cancel_mode(CancelMode::Signal));
    let (near, far) = bowline::wire::memory();
    tokio::spawn(server.telemetry(recorder.telemetry()).serve(far));
    let client = Client::from_wire(near).await.unwrap();
    let call = client.call_tool("finish", ()).start();
    while recorder.points(ours::SERVER_ACTIVE_REQUESTS) != [(Default::default(), 1.0)] {
        tokio::task::yield_now().await;
    }

    call.cancel("enough");

    let handled = recorder.span(SpanKind::Server, "tools/call finish").await;
    assert_eq!(attribute(&handled, ours::CANCELLED_HANDLER), "returned");
    assert_eq!(attribute(&handled, ours::CANCELLED_BY), "peer");
}

#[tokio::test]
async fn a_handler_whose_connection_ends_is_cancelled_by_the_disconnect() {
    let recorder = Recorder::new();
    let (near, far) = bowline::wire::memory();
    let serving = tokio::spawn(server().telemetry(recorder.telemetry()).serve(far));
    let client = Client::from_wire(near).await.unwrap();
    let call = client.call_tool("wait", ()).start();
    while recorder.points(ours::SERVER_ACTIVE_REQUESTS) != [(Default::default(), 1.0)] {
        tokio::task::yield_now().await;
    }

    serving.abort();

    let handled = recorder.span(SpanKind::Server, "tools/call wait").await;
    assert_eq!(attribute(&handled, ours::CANCELLED_BY), "disconnect");
    drop(call);
}
