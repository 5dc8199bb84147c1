//! [`ScrapeServer`], which answers `GET /metrics`, and the reader that collects the metrics for each answer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, Temporality};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::prometheus;
use crate::failure::Failure;

/// A [`ManualReader`] that the provider and the server share.
#[derive(Clone, Debug, Default)]
pub(super) struct ScrapeReader(Arc<ManualReader>);

impl MetricReader for ScrapeReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

/// An HTTP server for Prometheus. Dropping it closes its port.
#[derive(Debug)]
pub(super) struct ScrapeServer {
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
}

impl ScrapeServer {
    pub(super) async fn bind(address: &str, reader: ScrapeReader) -> Result<Self, Failure> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            io::Result::Ok((listener.local_addr()?, listener))
        };
        let (local_addr, listener) = bind.await.map_err(|error| {
            let message = format!("failed to listen on {address}");
            let failure = Failure::other(message).caused_by(error);
            failure.hint("choose another address with --metrics")
        })?;
        Ok(Self {
            local_addr,
            accepting: tokio::spawn(accept(listener, reader)),
        })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

impl Drop for ScrapeServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, reader: ScrapeReader) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Fails if the semaphore is closed, which it is not.
    while let Ok(permit) = free.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let reader = reader.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    // A connection without a request holds a place only for so long.
                    let _ = tokio::time::timeout(CONNECTION_TIME, serve(stream, reader)).await;
                });
            }
            // The process has too many open files: without the pause this would be a busy loop.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, reader: ScrapeReader) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &reader);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Fails if the peer is gone.
    let _ = connection.await;
}

fn respond(method: &Method, path: &str, reader: &ScrapeReader) -> Response<String> {
    let (status, text) = match (path, method) {
        ("/metrics", &Method::GET | &Method::HEAD) => {
            let mut metrics = ResourceMetrics::default();
            match reader.collect(&mut metrics) {
                Ok(()) => (StatusCode::OK, prometheus::text_of(&metrics)),
                // The process is about to end.
                Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
            }
        }
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (
            StatusCode::NOT_FOUND,
            "metrics are at /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static(prometheus::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allow = http::HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

const MAX_CONNECTIONS: usize = 16;
const CONNECTION_TIME: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(addr: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_at_their_path_and_nothing_else_is() {
        let reader = ScrapeReader::default();
        let provider = SdkMeterProvider::builder();
        let provider = provider.with_reader(reader.clone()).build();
        provider
            .meter("test")
            .u64_counter("calls")
            .build()
            .add(1, &[]);
        let server = ScrapeServer::bind("127.0.0.1:0", reader).await.unwrap();
        let addr = server.local_addr();

        let metrics = get(addr, "GET /metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
        assert!(metrics.contains("version=0.0.4"), "{metrics}");
        assert!(metrics.contains("\ncalls_total 1\n"), "{metrics}");
        assert!(get(addr, "GET /").await.starts_with("HTTP/1.1 404 "));
        let refused = get(addr, "POST /metrics").await;
        assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");

        provider.shutdown().unwrap();
        let ended = get(addr, "GET /metrics").await;
        assert!(ended.starts_with("HTTP/1.1 503 "), "{ended}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = ScrapeServer::bind("127.0.0.1:0", ScrapeReader::default());
        let first = first.await.unwrap();
        let address = first.local_addr().to_string();

        let second = ScrapeServer::bind(&address, ScrapeReader::default()).await;

        let failure = second.unwrap_err().with_hint();
        assert!(failure.contains(&address), "{failure}");
        assert!(failure.contains("--metrics"), "{failure}");
    }
}
