//! The exporters of `--otlp`: protocol buffers over HTTP.

use std::sync::Arc;

use bowline::http::RedactedUrl;
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};

use super::http_sender::HttpSender;
use crate::failure::Failure;

pub(super) struct OtlpExporters {
    pub(super) spans: SpanExporter,
    pub(super) metrics: MetricExporter,
}

/// Creates exporters to an endpoint without a path of its own for each signal, as in `OTEL_EXPORTER_OTLP_ENDPOINT`. The
/// headers of the environment (`OTEL_EXPORTER_OTLP_HEADERS`) are sent.
pub(super) fn exporters(endpoint: &str) -> Result<OtlpExporters, Failure> {
    let failed = |error| {
        Failure::usage(format!("failed to send to {}", RedactedUrl::new(endpoint))).caused_by(error)
    };
    let sender = Arc::new(HttpSender::new(endpoint)?);
    let spans = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .with_shared_http_client(sender.clone())
        .build();
    let metrics = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{endpoint}/v1/metrics"))
        .with_shared_http_client(sender)
        .build();
    Ok(OtlpExporters {
        spans: spans.map_err(failed)?,
        metrics: metrics.map_err(failed)?,
    })
}
