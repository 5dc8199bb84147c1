//! The metrics of tasks.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::sync::Arc;

use bowline::telemetry::Telemetry;
use bowline::telemetry::names::{attribute, bowline as ours};
use bowline::{Client, Server, Tool};
use bowline_tasks::store::MemoryStore;
use bowline_tasks::{TaskClient, TaskSettings, Tasks};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;

#[tokio::test]
async fn a_task_is_recorded_with_its_tool_and_its_status() {
    let exporter = InMemoryMetricExporter::default();
    let meters = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(exporter.clone()).build())
        .build();
    let tracers = SdkTracerProvider::builder().build();
    let work = Tool::new("work", async || "done").with_settings(TaskSettings::new());
    let server = Server::new("s", "1")
        .extension(Tasks::new(Arc::new(MemoryStore::new())))
        .tool(work)
        .telemetry(Telemetry::with_providers(&tracers, &meters));
    let client = Client::in_process(&server).extension(TaskClient::new());
    let client = client.await.unwrap();

    let reply = client.call_tool("work", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    // The result is stored before the run is over.
    while durations(&exporter, &meters).is_empty() {
        tokio::task::yield_now().await;
    }
    let recorded = durations(&exporter, &meters);
    let expected = [
        (ours::TASK_STATUS.to_owned(), "completed".to_owned()),
        (attribute::GEN_AI_TOOL_NAME.to_owned(), "work".to_owned()),
    ];
    assert_eq!(recorded, [expected.to_vec()]);
}

/// Returns the attributes of each point of the durations.
fn durations(
    exporter: &InMemoryMetricExporter,
    meters: &SdkMeterProvider,
) -> Vec<Vec<(String, String)>> {
    exporter.reset();
    meters.force_flush().unwrap();
    let exported = exporter.get_finished_metrics().unwrap();
    let metrics = exported.iter().flat_map(|it| it.scope_metrics());
    let mut metrics = metrics.flat_map(|scope| scope.metrics());
    let Some(found) = metrics.find(|it| it.name() == ours::SERVER_TASK_DURATION) else {
        return Vec::new();
    };
    let AggregatedMetrics::F64(MetricData::Histogram(histogram)) = found.data() else {
        panic!("expected a histogram, got {:?}", found.data());
    };
    let points = histogram.data_points().map(|point| {
        let texts = point
            .attributes()
            .map(|it| (it.key.to_string(), it.value.to_string()));
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        texts
    });
    points.collect()
}
