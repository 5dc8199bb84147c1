//! The HTTP client transport: the modern channel, the legacy wire, and the HTTP client below both.
//!
//! ```text
//! HttpChannel ── one POST per request ──▶ the response is the exchange       (2026-07-28)
//! Peer over HttpWire ── POSTs and a GET stream, made into one duplex wire     (until 2025-11-25)
//! ```

mod authorize;
pub(crate) use authorize::RefusalPolicy;
pub use authorize::{Authorizer, Refusal, RefusalReason};
/// A challenge of a `WWW-Authenticate` header.
pub use bowline_core::http::challenge::Challenge;

mod body;
pub use body::ResponseBody;

mod channel;
pub(crate) use channel::{HttpChannel, ProbeResponse};

mod closable;

mod connection;
pub(crate) use connection::HttpVersionPolicy;
pub use connection::{Connector, HttpStream};

mod drain;
pub(crate) use drain::Drain;

mod http2;

mod hyper_client;
pub use hyper_client::HyperClient;
pub(crate) use hyper_client::{ConnectionOptions, default_client};

mod keep_alive_monitor;

mod liveness;

mod liveness_io;

mod pool;

mod proxy;
pub use proxy::Proxies;

#[cfg(feature = "reqwest")]
mod reqwest;

mod response;
pub use response::UnexpectedStatus;

#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_disabled.rs"]
mod tls;

mod send;
pub(crate) use send::SendState;
pub use send::{HttpClient, RequestBody, Unprocessed, Withdrawn};

mod unavailable;
pub(crate) use unavailable::DEFAULT_RETRY_UNAVAILABLE;

#[cfg_attr(not(feature = "legacy"), path = "legacy_disabled.rs")]
pub(crate) mod legacy;

use std::sync::Arc;
use std::time::Duration;

use bowline_core::sse;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};

use crate::http::RedactedUrl;
use crate::limits::ReadBudget;
use crate::{Error, Result};
use authorize::Refusals;
use unavailable::UnavailableRetries;

/// The URL of a server, and everything needed to send requests to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) uri: Uri,
    pub(crate) client: Arc<dyn HttpClient>,
    /// Sent with every request.
    pub(crate) headers: HeaderMap,
    /// Signs requests and handles 401 and 403.
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) limits: ResponseLimits,
    /// Limits the unfinished messages of this and other connections.
    pub(crate) read_budget: Option<ReadBudget>,
    /// How long a request is sent again that the server refused because it is unavailable.
    pub(crate) retry_unavailable: Duration,
    /// Reads responses to their end once nothing else in them is needed.
    pub(crate) drain: Arc<Drain>,
}

/// One HTTP request to send.
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: Method,
    /// Builds the headers for each attempt: retries are rare, so building beats keeping a copy for every request.
    pub(crate) headers: &'a (dyn Fn() -> Result<HeaderMap> + Sync),
    pub(crate) frame: Bytes,
    pub(crate) send_state: &'a SendState,
    pub(crate) refusal_policy: RefusalPolicy<'a>,
}

impl Endpoint {
    /// Sends a request and follows 307 and 308 redirects within the origin. Sends it again after a 401 or 403 that the
    /// authorizer answered, after a 503 with `Retry-After`, and if the server provably did not process it.
    pub(crate) async fn request(
        &self,
        outgoing: &OutgoingRequest<'_>,
    ) -> Result<Response<ResponseBody>> {
        let mut refusals = Refusals::new(self.authorizer.as_deref(), outgoing.refusal_policy);
        let mut uri = self.uri.clone();
        let (mut redirects, mut retries) = (0, 0);
        // Not for messages that must not delay others, such as cancels; they are not refused by a server that drains.
        let mut unavailable = UnavailableRetries::new(match outgoing.refusal_policy {
            RefusalPolicy::AuthorizePausing(_) => self.retry_unavailable,
            RefusalPolicy::Authorize | RefusalPolicy::Fail => Duration::ZERO,
        });
        while redirects < MAX_REDIRECTS {
            let (head, sent) = self.head(&uri, outgoing, &refusals).await?;
            let body = RequestBody::new(outgoing.frame.clone(), outgoing.send_state.clone());
            let response = match self.client.send(Request::from_parts(head, body)).await {
                Err(error)
                    if is_unprocessed(&error)
                        && retries < MAX_RETRIES
                        && outgoing.send_state.reset_for_retry() =>
                {
                    retries += 1;
                    continue;
                }
                Err(error) => {
                    let is_unsent = !outgoing.send_state.is_handed_over();
                    let delay = unavailable.after_failed_connection();
                    match delay.filter(|_| is_unsent) {
                        Some(delay) => tokio::time::sleep(delay).await,
                        None => return Err(error),
                    }
                    continue;
                }
                Ok(response) => response,
            };
            if let Some(delay) = unavailable.after_response(response.status(), response.headers())
                && outgoing.send_state.reset_for_retry()
            {
                tracing::debug!(
                    ?delay,
                    "the server is unavailable; the request is sent again"
                );
                self.drain_response(response);
                tokio::time::sleep(delay).await;
                continue;
            }
            match refusals.check_response(&uri, sent, response) {
                Err(refusal) => {
                    if !outgoing.send_state.reset_for_retry() {
                        return Err(refusal.to_error()); // the caller dropped the request
                    }
                    refusals.answer(&refusal).await?;
                }
                Ok(response) => match redirect(&uri, &response) {
                    Some(next) => {
                        // A dropped request must not be sent again: its cancel may have been posted already.
                        if !outgoing.send_state.reset_for_retry() {
                            let source = Some(Withdrawn.into());
                            let what =
                                "the request was dropped before its redirect was followed".into();
                            return Err(Error::Transport { what, source });
                        }
                        uri = next?;
                        redirects += 1;
                    }
                    None => return Ok(response),
                },
            }
        }
        Err(Error::protocol("too many redirects"))
    }

    /// Reads the rest of a response in the background, because only its status matters, and returns the status.
    pub(crate) fn drain_response(&self, response: Response<ResponseBody>) -> StatusCode {
        let status = response.status();
        self.drain.finish(response.into_body());
        status
    }

    /// Builds the head of a request; also returns its `Authorization` header.
    async fn head(
        &self,
        uri: &Uri,
        outgoing: &OutgoingRequest<'_>,
        refusals: &Refusals<'_>,
    ) -> Result<(http::request::Parts, Option<HeaderValue>)> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = outgoing.method.clone();
        head.uri = uri.clone();
        head.headers = (outgoing.headers)()?;
        if !self.headers.is_empty() {
            head.headers.extend(self.headers.clone());
        }
        let sent = refusals.sign(&mut head).await?;
        Ok((head, sent))
    }
}

/// Returns whether the server provably did not process the request that failed with `error`.
fn is_unprocessed(error: &Error) -> bool {
    let Error::Transport { source, .. } = error else {
        return false;
    };
    source
        .as_ref()
        .is_some_and(|source| source.is::<Unprocessed>())
}

/// Returns the target of a redirect, or an error if it leaves the origin; `None` if `response` is not a redirect.
fn redirect(from: &Uri, response: &Response<ResponseBody>) -> Option<Result<Uri>> {
    if !matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    ) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let target: Uri = location.parse().ok()?;
    Some(resolve_in_origin(from, target))
}

/// Resolves a URL sent by the server against `from`, and refuses one of another origin.
pub(crate) fn resolve_in_origin(from: &Uri, target: Uri) -> Result<Uri> {
    let same_origin = target.authority().is_none()
        || (target.authority() == from.authority() && target.scheme() == from.scheme());
    if !same_origin {
        let target = RedactedUrl::new(target);
        let what = format!("refused to follow a URL to another origin: {target}");
        return Err(Error::protocol(what));
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = target.into_parts().path_and_query;
    Uri::from_parts(parts).map_err(|error| Error::protocol(error.to_string()))
}

/// Returns the headers common to every POST of a message.
pub(crate) fn message_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

/// Returns the headers common to every GET of an SSE stream.
pub(crate) fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers
}

const MAX_REDIRECTS: usize = 5;

/// How often a request that the server provably did not process is sent again.
const MAX_RETRIES: usize = 3;

/// Limits on the responses of a server: sizes, and missed keep-alives.
///
/// # Examples
///
/// ```
/// use bowline::http::client::ResponseLimits;
///
/// let limits = ResponseLimits { body: 1024 * 1024, ..ResponseLimits::default() };
/// let connect = bowline::Client::connect("https://tools.example/mcp").response_limits(limits);
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "users build it with struct update syntax"
)]
pub struct ResponseLimits {
    /// Maximum size of a JSON response, in bytes.
    pub body: usize,
    /// Maximum size of one SSE event, in bytes.
    pub event: usize,
    /// How many keep-alives of an SSE stream may be missed in a row. Defaults to 3; `None` disables the check.
    ///
    /// The interval is learned from the SSE comments that the server sends as keep-alives. A stream without any bytes
    /// for this many intervals fails with [`Error::Transport`]: the connection is dead, and a
    /// [subscription](crate::Client::subscribe) on it would wait forever. Without such comments there is no limit.
    pub missed_keep_alives: Option<u32>,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            body: 64 * 1024 * 1024,
            event: 16 * 1024 * 1024,
            missed_keep_alives: Some(3),
        }
    }
}

impl ResponseLimits {
    pub(crate) fn decoder(self) -> sse::Decoder {
        sse::Decoder::new(sse::DecoderLimits {
            line: self.event,
            event: self.event,
        })
    }
}

/// Parses the URL of a server.
pub(crate) fn parse_url(url: &str) -> Result<Uri> {
    let shown = || RedactedUrl::new(url);
    let uri: Uri = url
        .parse()
        .map_err(|error| Error::misuse(format!("invalid URL `{}`: {error}", shown())))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some() => Ok(uri),
        _ => Err(Error::misuse(format!(
            "expected an http:// or https:// URL, got `{}`",
            shown()
        ))),
    }
}
