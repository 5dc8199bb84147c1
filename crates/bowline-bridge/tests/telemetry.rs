//! One trace through a bridge: its spans are between those of the client and those of the server.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use bowline::telemetry::Telemetry;
use bowline::{Client, Server, Tool};
use bowline_bridge::{Bridge, Target};
use opentelemetry::metrics::noop::NoopMeterProvider;
use opentelemetry::trace::{SpanId, SpanKind};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

/// Calls a tool through a bridge, and returns the spans of the call.
async fn call_through_bridge(front: &str, upstream: &'static str) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let telemetry = Telemetry::with_providers(&tracers, &NoopMeterProvider::new())
        .propagator(TraceContextPropagator::new());
    let server = Server::new("clock", "1.0.0")
        .tool(Tool::new("now", async || "noon"))
        .telemetry(telemetry.clone());
    let target = Target::new("clock", move |_| {
        Ok(Client::in_process(&server).protocol_version(upstream))
    });
    let bridge = Bridge::new(target).telemetry(telemetry.clone());
    let client = Client::in_process(&bridge).protocol_version(front);
    let client = client.telemetry(telemetry).await.unwrap();

    let reply = client.call_tool("now", ()).await.unwrap();

    assert_eq!(reply.text(), "noon");
    let mut spans = exporter.get_finished_spans().unwrap();
    spans.retain(|span| span.name == "tools/call now");
    spans
}

#[tokio::test]
async fn the_spans_of_a_bridge_are_between_those_of_client_and_server() {
    let versions = ["2026-07-28", "2025-11-25"];
    for (front, upstream) in versions.iter().flat_map(|a| versions.map(|b| (*a, b))) {
        let spans = call_through_bridge(front, upstream).await;

        let mut parent = SpanId::INVALID;
        for kind in [
            SpanKind::Client,
            SpanKind::Server,
            SpanKind::Client,
            SpanKind::Server,
        ] {
            let child = spans.iter().find(|span| span.parent_span_id == parent);
            let child = child.unwrap_or_else(|| panic!("{front} to {upstream}: {spans:#?}"));
            assert_eq!(child.span_kind, kind, "{front} to {upstream}");
            parent = child.span_context.span_id();
        }
        assert_eq!(spans.len(), 4, "{front} to {upstream}");
    }
}
