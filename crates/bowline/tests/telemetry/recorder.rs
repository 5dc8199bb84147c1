//! [`Recorder`], which keeps spans and metrics in memory.

use std::collections::BTreeMap;

use bowline::telemetry::Telemetry;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

/// Keeps the spans and metrics of one test.
#[derive(Clone)]
pub(crate) struct Recorder {
    spans: InMemorySpanExporter,
    pub(crate) tracers: SdkTracerProvider,
    metrics: InMemoryMetricExporter,
    meters: SdkMeterProvider,
    telemetry: Telemetry,
}

/// The attributes of a point of a metric, and its number or sum.
pub(crate) type Point = (BTreeMap<String, String>, f64);

impl Recorder {
    pub(crate) fn new() -> Self {
        let spans = InMemorySpanExporter::default();
        let metrics = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(metrics.clone()).build();
        let tracers = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let meters = SdkMeterProvider::builder().with_reader(reader).build();
        let propagator = TextMapCompositePropagator::new(vec![
            Box::new(TraceContextPropagator::new()),
            Box::new(BaggagePropagator::new()),
        ]);
        let telemetry = Telemetry::with_providers(&tracers, &meters).propagator(propagator);
        Self {
            spans,
            tracers,
            metrics,
            meters,
            telemetry,
        }
    }

    pub(crate) fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    pub(crate) fn spans(&self) -> Vec<SpanData> {
        self.spans.get_finished_spans().unwrap()
    }

    /// Waits for the only span of this kind and name, and returns it.
    pub(crate) async fn span(&self, kind: SpanKind, name: &str) -> SpanData {
        for _ in 0..MAX_YIELDS {
            let spans = self.spans();
            let mut found = spans
                .into_iter()
                .filter(|span| span.span_kind == kind && span.name == name);
            if let Some(span) = found.next() {
                assert!(found.next().is_none(), "two spans `{name}`");
                return span;
            }
            tokio::task::yield_now().await;
        }
        let spans = self.spans();
        let names = spans.iter().map(|span| (&span.span_kind, &span.name));
        panic!(
            "no span {kind:?} `{name}` in {:?}",
            names.collect::<Vec<_>>()
        );
    }

    /// Collects the points of a metric: the count of a histogram, or the value of a sum.
    pub(crate) fn points(&self, name: &str) -> Vec<Point> {
        self.metrics.reset();
        self.meters.force_flush().unwrap();
        let exported = self.metrics.get_finished_metrics().unwrap();
        let metrics = exported.iter().flat_map(|it| it.scope_metrics());
        let metrics = metrics.flat_map(|scope| scope.metrics());
        let found = metrics.filter(|metric| metric.name() == name);
        found.flat_map(points_of).collect()
    }

    /// Waits until a metric has a point, and returns its points.
    pub(crate) async fn recorded(&self, name: &str) -> Vec<Point> {
        for _ in 0..MAX_YIELDS {
            let points = self.points(name);
            if !points.is_empty() {
                return points;
            }
            tokio::task::yield_now().await;
        }
        panic!("no point of `{name}`");
    }
}

/// How often other tasks get a turn before a span or a metric counts as missing.
const MAX_YIELDS: usize = 10_000;

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn points_of(metric: &Metric) -> Vec<Point> {
    match metric.data() {
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|point| (texts(point.attributes()), point.count() as f64))
            .collect(),
        AggregatedMetrics::U64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|point| (texts(point.attributes()), point.sum() as f64))
            .collect(),
        AggregatedMetrics::I64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (texts(point.attributes()), point.value() as f64))
            .collect(),
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (texts(point.attributes()), point.value() as f64))
            .collect(),
        other => panic!("unexpected data of `{}`: {other:?}", metric.name()),
    }
}

fn texts<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
    let texts = attributes.map(|it| (it.key.to_string(), it.value.to_string()));
    texts.collect()
}

/// Returns the attributes of a span.
pub(crate) fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    texts(span.attributes.iter())
}

/// Returns an attribute of a span, or an empty text.
pub(crate) fn attribute(span: &SpanData, name: &str) -> String {
    attributes(span).remove(name).unwrap_or_default()
}
