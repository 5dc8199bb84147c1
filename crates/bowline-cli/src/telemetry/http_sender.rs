//! [`HttpSender`], the HTTP client of the OTLP exporters: the one that the command has anyway.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::http::RedactedUrl;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use crate::failure::Failure;
use crate::https;

/// Sends with the runtime in which it was created, because the SDK exports on threads of its own, which have none.
pub(super) struct HttpSender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    endpoint: RedactedUrl,
    /// Whether the last request failed: a collector that is down is reported once, and not every few seconds.
    is_failing: AtomicBool,
}

impl HttpSender {
    /// Creates a sender for the current runtime.
    pub(super) fn new(endpoint: &str) -> Result<Self, Failure> {
        Ok(Self {
            client: https::client(endpoint.starts_with("https:"))?,
            runtime: Handle::current(),
            endpoint: RedactedUrl::new(endpoint),
            is_failing: AtomicBool::new(false),
        })
    }

    fn report(&self, response: &Result<Response<Bytes>, HttpError>) {
        let endpoint = &self.endpoint;
        let failure = match response {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status())),
            Err(error) => Some(Failure::of(&**error).to_string()),
        };
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(why) if !was_failing => {
                eprintln!("bowline: failed to send telemetry to {endpoint}: {why}");
            }
            None if was_failing => eprintln!("bowline: sending telemetry to {endpoint} again"),
            _ => {}
        }
    }
}

// What `#[async_trait]`, with which the trait is declared, makes of an `async fn`.
impl HttpClient for HttpSender {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sending = async move {
            let response = client.request(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let sending = async { tokio::time::timeout(TIMEOUT, sending).await? };
        let sending = self.runtime.spawn(sending);
        Box::pin(async move {
            let response = match sending.await {
                Ok(response) => response,
                Err(error) => Err(HttpError::from(error)), // the runtime has ended
            };
            self.report(&response);
            response
        })
    }
}

impl fmt::Debug for HttpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSender")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The timeout of OTLP exporters by their specification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Collectors answer with a few bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
