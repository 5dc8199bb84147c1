//! One trace through client and server, on every transport.

use bowline::client::Host;
use bowline::exchange::Dialect;
use bowline::telemetry::names::attribute as names;
use bowline::testing::{TestTransport, matrix};
use bowline::types::{ElicitAction, ElicitResult};
use bowline::{Client, Context, Server, State, Tool, ToolError};
use http_body_util::{BodyExt as _, Full};
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{
    FutureExt as _, SpanId, SpanKind, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context as OtelContext, KeyValue};
use serde_json::json;
use tower_service::Service as _;

use super::recorder::{Recorder, attribute, attributes};
use super::{Name, server};

#[tokio::test]
async fn on_every_transport_the_span_of_the_client_is_the_parent_of_that_of_the_server() {
    for case in matrix() {
        let recorder = Recorder::new();
        let server = server().telemetry(recorder.telemetry());
        let connect = case.serve(&server).connect;
        let client = connect.telemetry(recorder.telemetry()).await.unwrap();

        client
            .call_tool("add", json!({"a": 1, "b": 2}))
            .await
            .unwrap();

        let sent = recorder.span(SpanKind::Client, "tools/call add").await;
        let handled = recorder.span(SpanKind::Server, "tools/call add").await;
        assert_eq!(
            handled.parent_span_id,
            sent.span_context.span_id(),
            "{case}"
        );
        assert_eq!(
            handled.span_context.trace_id(),
            sent.span_context.trace_id(),
            "{case}"
        );
        for span in [&sent, &handled] {
            let expected = expected(case.transport, case.dialect);
            let all = attributes(span);
            let standard = expected
                .iter()
                .map(|(name, _)| (*name, all[*name].as_str()));
            assert_eq!(standard.collect::<Vec<_>>(), expected, "{case}");
            assert!(
                all.contains_key(names::JSONRPC_REQUEST_ID),
                "{case}: {all:?}"
            );
            assert!(!all.contains_key(names::ERROR_TYPE), "{case}: {all:?}");
        }
        let session = attributes(&handled).contains_key(names::MCP_SESSION_ID);
        let is_http = attributes(&handled).contains_key(names::NETWORK_PROTOCOL_NAME);
        assert_eq!(session, is_http && !case.dialect.is_modern(), "{case}");
    }
}

fn expected(transport: TestTransport, dialect: &Dialect) -> Vec<(&'static str, &'static str)> {
    let version = Dialect::of(dialect.version).unwrap().version;
    let mut expected = vec![
        (names::MCP_METHOD_NAME, "tools/call"),
        (names::GEN_AI_TOOL_NAME, "add"),
        (names::GEN_AI_OPERATION_NAME, "execute_tool"),
        (names::MCP_PROTOCOL_VERSION, version),
    ];
    match transport {
        TestTransport::InProcess | TestTransport::Memory => {
            expected.push((names::NETWORK_TRANSPORT, "inproc"));
        }
        _ => expected.extend([
            (names::NETWORK_TRANSPORT, "tcp"),
            (names::NETWORK_PROTOCOL_NAME, "http"),
        ]),
    }
    expected
}

#[tokio::test]
async fn a_tool_that_calls_another_server_continues_the_trace() {
    let recorder = Recorder::new();
    let inner = server().telemetry(recorder.telemetry());
    let inner = Client::in_process(&inner)
        .telemetry(recorder.telemetry())
        .await
        .unwrap();
    async fn relay(State(inner): State<Client>) -> Result<String, ToolError> {
        let reply = inner.call_tool("add", json!({"a": 1, "b": 2})).await?;
        Ok(reply.text())
    }
    let outer = Server::new("outer", "1.0.0")
        .state(inner)
        .tool(Tool::new("relay", relay))
        .telemetry(recorder.telemetry());
    let client = Client::in_process(&outer).await.unwrap();

    client.call_tool("relay", ()).await.unwrap();

    let outer = recorder.span(SpanKind::Server, "tools/call relay").await;
    let sent = recorder.span(SpanKind::Client, "tools/call add").await;
    assert_eq!(sent.parent_span_id, outer.span_context.span_id());
}

#[tokio::test]
async fn the_trace_of_a_context_is_the_span_of_its_request() {
    let recorder = Recorder::new();
    async fn trace(cx: Context) -> String {
        cx.trace()
            .map_or_else(String::new, |it| it.traceparent().to_owned())
    }
    let server = Server::new("s", "1.0.0").tool(Tool::new("trace", trace));
    let server = server.telemetry(recorder.telemetry());
    let client = Client::in_process(&server).await.unwrap();

    let reply = client.call_tool("trace", ()).await.unwrap();

    let span = recorder.span(SpanKind::Server, "tools/call trace").await;
    let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
    assert_eq!(reply.text(), format!("00-{trace}-{id}-01"));
}

#[tokio::test]
async fn baggage_travels_with_the_request() {
    let recorder = Recorder::new();
    async fn read() -> String {
        OtelContext::current()
            .baggage()
            .get("tenant")
            .map_or_else(String::new, ToString::to_string)
    }
    let server = Server::new("s", "1.0.0").tool(Tool::new("read", read));
    let server = server.telemetry(recorder.telemetry());
    let client = Client::in_process(&server)
        .telemetry(recorder.telemetry())
        .await
        .unwrap();
    let cx = OtelContext::current_with_baggage([KeyValue::new("tenant", "blue")]);

    let reply = client.call_tool("read", ()).with_context(cx).await.unwrap();

    assert_eq!(reply.text(), "blue");
}

#[tokio::test]
async fn the_span_of_the_http_request_becomes_a_link() {
    let recorder = Recorder::new();
    let mut service = server().telemetry(recorder.telemetry()).http();
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let request = http::Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "add")
        .body(Full::new(bytes::Bytes::from(body.to_string())))
        .unwrap();
    let http_span = recorder.tracers.tracer("http").start("POST /mcp");
    let cx = OtelContext::new().with_span(http_span);
    let http_span = cx.span().span_context().clone();

    let response = async { service.call(request).await }.with_context(cx).await;
    response.unwrap().into_body().collect().await.unwrap();

    let handled = recorder.span(SpanKind::Server, "tools/call add").await;
    let remote = SpanId::from_hex("b7ad6b7169203331").unwrap();
    assert_eq!(handled.parent_span_id, remote);
    let links: Vec<_> = handled
        .links
        .iter()
        .map(|link| &link.span_context)
        .collect();
    assert_eq!(links, [&http_span]);
    assert_eq!(attribute(&handled, names::NETWORK_PROTOCOL_VERSION), "1.1");
    assert_eq!(attribute(&handled, names::JSONRPC_REQUEST_ID), "7");
}

#[tokio::test]
async fn a_request_of_a_server_to_its_client_is_inside_the_span_of_the_call() {
    let recorder = Recorder::new();
    async fn ask(cx: Context) -> Result<String, ToolError> {
        let answer: Name = cx.elicit("name", "Who are you?").await?;
        Ok(format!("{answer:?}"))
    }
    let server = Server::new("s", "1.0.0").tool(Tool::new("ask", ask));
    let server = server.telemetry(recorder.telemetry());
    let (near, far) = bowline::wire::memory();
    tokio::spawn(server.serve(far));
    let host = Host::new().elicitation(async |_| ElicitResult::new(ElicitAction::Decline));
    let client = Client::from_wire(near)
        .host(host)
        .protocol_version("2025-11-25");
    let client = client.telemetry(recorder.telemetry()).await.unwrap();

    let _ = client.call_tool("ask", ()).await.unwrap();

    let call = recorder.span(SpanKind::Server, "tools/call ask").await;
    let asked = recorder.span(SpanKind::Client, "elicitation/create").await;
    let answered = recorder.span(SpanKind::Server, "elicitation/create").await;
    assert_eq!(asked.parent_span_id, call.span_context.span_id());
    assert_eq!(answered.parent_span_id, asked.span_context.span_id());
}

#[tokio::test]
async fn a_notification_has_a_span_on_both_sides() {
    let recorder = Recorder::new();
    let (near, far) = bowline::wire::memory();
    tokio::spawn(server().telemetry(recorder.telemetry()).serve(far));
    let host = Host::new().roots(async || Vec::new()).roots_list_changed();
    let client = Client::from_wire(near)
        .host(host)
        .protocol_version("2025-11-25");
    let client = client.telemetry(recorder.telemetry()).await.unwrap();

    client.roots_changed().unwrap();

    let name = "notifications/roots/list_changed";
    let sent = recorder.span(SpanKind::Client, name).await;
    let received = recorder.span(SpanKind::Server, name).await;
    assert_eq!(received.parent_span_id, sent.span_context.span_id());
    assert!(!attributes(&sent).contains_key(names::JSONRPC_REQUEST_ID));
}
