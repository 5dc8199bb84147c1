//! An SDK whose exporters discard what they get.

use std::time::Duration;

use bowline::telemetry::Telemetry;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

/// Spans are exported in batches by a thread, as applications do it.
pub(crate) fn telemetry() -> Telemetry {
    let tracers = SdkTracerProvider::builder()
        .with_batch_exporter(Discard)
        .build();
    let meters = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(Discard).build())
        .build();
    let telemetry = Telemetry::with_providers(&tracers, &meters);
    // The providers live as long as the program; dropping them would shut them down.
    std::mem::forget((tracers, meters));
    telemetry.propagator(TraceContextPropagator::new())
}

#[derive(Debug)]
struct Discard;

impl SpanExporter for Discard {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        drop(spans);
        Ok(())
    }
}

impl PushMetricExporter for Discard {
    async fn export(&self, _: &ResourceMetrics) -> OTelSdkResult {
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
