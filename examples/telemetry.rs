//! Records traces and metrics of a server and a client, and prints them. `cargo run --example telemetry`
//!
//! An application would use the exporter of `opentelemetry-otlp` in place of those that keep everything in memory.

use bowline::prelude::*;
use bowline::telemetry::Telemetry;
use opentelemetry::global;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use serde_json::json;

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (spans, metrics) = (
        InMemorySpanExporter::default(),
        InMemoryMetricExporter::default(),
    );
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(spans.clone())
        .build();
    let meters = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(metrics.clone()).build())
        .build();
    global::set_tracer_provider(tracers.clone());
    global::set_meter_provider(meters.clone());
    global::set_text_map_propagator(TraceContextPropagator::new());

    let telemetry = Telemetry::new();
    let server = Server::new("calculator", "1.0.0")
        .tool(add)
        .telemetry(telemetry.clone());
    let (near, far) = bowline::wire::memory();
    tokio::spawn(server.serve(far));
    let client = Client::from_wire(near).telemetry(telemetry).await?;
    client.call_tool("add", json!({"a": 1, "b": 2})).await?;

    tracers.force_flush()?;
    for span in spans.get_finished_spans()? {
        let parent = span.parent_span_id;
        println!("{:?} {} (parent {parent})", span.span_kind, span.name);
    }
    meters.force_flush()?;
    for exported in metrics.get_finished_metrics()? {
        for scope in exported.scope_metrics() {
            for metric in scope.metrics() {
                println!("{} [{}]", metric.name(), metric.unit());
            }
        }
    }
    Ok(())
}
