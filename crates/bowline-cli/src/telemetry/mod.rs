//! `--otlp` and `--metrics`: where the spans and metrics of a server or a bridge go.
//!
//! ```text
//!                          ┌── spans ────▶ batches ──┐
//! Telemetry ── providers ──┤                         ├──▶ otlp ──▶ http_sender ──▶ --otlp
//!                          └── metrics ──▶ interval ─┘
//!                                      └─▶ on request ──▶ prometheus ──▶ scrape ──▶ --metrics
//! ```
//!
//! Without these options nothing of it is created.

mod http_sender;

mod otlp;

mod prometheus;

mod scrape;

use std::time::Duration;

use bowline::http::RedactedUrl;
use bowline::telemetry::Telemetry;
use clap::Args;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SdkTracerProvider};

use crate::failure::Failure;
use crate::values::parse_address;
use scrape::{ScrapeReader, ScrapeServer};

// Where spans and metrics go.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Telemetry")]
pub(crate) struct TelemetryOptions {
    /// Send spans and metrics to this OTLP endpoint over HTTP, such as http://localhost:4318.
    #[arg(long, value_name = "URL", value_parser = parse_endpoint)]
    otlp: Option<String>,
    /// Serve metrics to Prometheus at http://ADDR/metrics; port 0 selects a free one.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    metrics: Option<String>,
}

/// The exporters of a process. They must be [shut down](Self::shut_down), or the last spans and metrics are lost.
#[derive(Debug)]
pub struct Exporters {
    telemetry: Telemetry,
    tracers: Option<SdkTracerProvider>,
    meters: SdkMeterProvider,
    /// Serves metrics until it is dropped.
    _scrapes: Option<ScrapeServer>,
}

impl TelemetryOptions {
    /// Starts the exporters, and prints where they export to; `None` if there are none. `service` is the name that
    /// `OTEL_SERVICE_NAME` replaces.
    ///
    /// # Errors
    ///
    /// The address of `--metrics` is in use, or the URL of `--otlp` is invalid.
    pub(crate) async fn start(&self, service: &'static str) -> Result<Option<Exporters>, Failure> {
        if *self == Self::default() {
            return Ok(None);
        }
        let resource = resource(service);
        let mut meters = SdkMeterProvider::builder().with_resource(resource.clone());
        let mut tracers = None;
        if let Some(endpoint) = &self.otlp {
            let exporters = otlp::exporters(endpoint)?;
            meters = meters.with_periodic_exporter(exporters.metrics);
            let builder = SdkTracerProvider::builder().with_resource(resource);
            tracers = Some(builder.with_batch_exporter(exporters.spans).build());
            let endpoint = RedactedUrl::new(endpoint);
            eprintln!("bowline: sending spans and metrics to {endpoint}");
        }
        let mut scrapes = None;
        if let Some(address) = &self.metrics {
            let reader = ScrapeReader::default();
            meters = meters.with_reader(reader.clone());
            let server = ScrapeServer::bind(address, reader).await?;
            eprintln!("bowline: metrics at http://{}/metrics", server.local_addr());
            scrapes = Some(server);
        }
        let meters = meters.build();
        let telemetry = match &tracers {
            Some(tracers) => Telemetry::with_providers(tracers, &meters),
            // The trace context of a client still reaches the server.
            None => Telemetry::with_providers(&NoopTracerProvider::new(), &meters),
        };
        Ok(Some(Exporters {
            telemetry: telemetry.propagator(TextMapCompositePropagator::new(vec![
                Box::new(TraceContextPropagator::new()),
                Box::new(BaggagePropagator::new()),
            ])),
            tracers,
            meters,
            _scrapes: scrapes,
        }))
    }
}

impl Exporters {
    /// Sends the spans and metrics of this process to an OTLP endpoint over HTTP, as `--otlp` does. `service` is the
    /// name of the service, which `OTEL_SERVICE_NAME` replaces.
    ///
    /// # Errors
    ///
    /// The URL is invalid, or the system's certificates cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping it starts nothing.
    pub async fn otlp(
        endpoint: &str,
        service: &'static str,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let options = TelemetryOptions {
            otlp: Some(parse_endpoint(endpoint)?),
            metrics: None,
        };
        let exporters = options.start(service).await?;
        Ok(exporters.ok_or("no exporter")?) // cannot happen: there is an endpoint
    }

    /// Returns the telemetry for servers and clients of this process.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    /// Sends what is left, for at most five seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses what is not sent yet.
    pub async fn shut_down(self) {
        // The SDK waits for its threads, which send with this runtime.
        let flushed = tokio::task::spawn_blocking(move || {
            if let Some(tracers) = &self.tracers {
                // The sender has reported the error.
                let _ = tracers.shutdown_with_timeout(FLUSH_TIME);
            }
            let _ = self.meters.shutdown_with_timeout(FLUSH_TIME);
        });
        if tokio::time::timeout(FLUSH_TIME, flushed).await.is_err() {
            eprintln!("bowline: the last spans and metrics were not sent in time");
        }
    }
}

/// Describes this process: what the environment says (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`), and what it
/// does not.
fn resource(service: &'static str) -> Resource {
    let given = Resource::builder().build();
    let has = |name: &str| {
        let value = given.iter().find(|(key, _)| key.as_str() == name);
        // The SDK fills in `unknown_service`.
        value.is_some_and(|(_, value)| !value.as_str().starts_with("unknown_service"))
    };
    let defaults = [
        ("service.name", service.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        // Without it the metrics of two replicas would overwrite each other.
        ("service.instance.id", random_uuid()),
    ];
    let missing = defaults.into_iter().filter(|(name, _)| !has(name));
    let missing = missing.map(|(name, value)| KeyValue::new(name, value));
    Resource::builder().with_attributes(missing).build()
}

/// Returns a UUID of version 4.
fn random_uuid() -> String {
    let mut bytes = RandomIdGenerator::default().new_trace_id().to_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    match url::Url::parse(text) {
        Ok(_) if is_url => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("expected an http:// or https:// URL, such as http://localhost:4318".to_owned()),
    }
}

/// How long the last spans and metrics may take.
const FLUSH_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let uuid = random_uuid();

        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        assert_ne!(uuid, random_uuid());
    }

    #[test]
    fn an_endpoint_is_a_url() {
        assert_eq!(
            parse_endpoint("http://localhost:4318/").as_deref(),
            Ok("http://localhost:4318")
        );
        for wrong in ["localhost:4318", "grpc://localhost", "http://", ""] {
            assert!(parse_endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn nothing_is_started_without_options() {
        let exporters = TelemetryOptions::default().start("test").await.unwrap();

        assert!(exporters.is_none());
    }
}
