//! Reaching a server over HTTP.
//!
//! ```text
//! HttpChannel ── one POST per request ──▶ the response is the exchange       (2026-07-28)
//! Peer over HttpWire ── POSTs and a GET stream, made into one duplex wire     (until 2025-11-25)
//! ```

mod authorize;
pub(crate) use authorize::WhenRefused;
pub use authorize::{Authorizer, Reason, Refusal};
/// What a server asks for when it refuses a request.
pub use bowline_core::http::challenge::Challenge;

mod body;
pub use body::ResponseBody;

mod channel;
pub use channel::HttpChannel;

mod closable;

mod connection;
pub use connection::Connector;
pub(crate) use connection::Versions;

mod drain;
pub(crate) use drain::Drain;

mod http2;

mod hyper_send;
pub use hyper_send::HyperSend;
pub(crate) use hyper_send::{Reaching, sender};

mod liveness;

mod mirrored_tools;

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
#[path = "tls_off.rs"]
mod tls;

mod silence;

mod watched;

mod send;
pub use send::{HttpSend, RequestBody, Unprocessed, Withdrawn};

#[cfg_attr(bowline_no_legacy, path = "legacy_stub.rs")]
pub(crate) mod legacy;

use std::sync::Arc;

use bowline_core::sse;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};

use crate::{Error, Result};
use authorize::Refusals;
use send::Handed;

/// Where a server is, and how it is spoken to.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) uri: Uri,
    pub(crate) send: Arc<dyn HttpSend>,
    /// Sent with every request.
    pub(crate) headers: HeaderMap,
    /// Says who is asking, where a server wants to know.
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) limits: ResponseLimits,
    /// Reads responses to their end after their answer.
    pub(crate) drain: Arc<Drain>,
}

/// One request that is to be sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    /// Writes the headers, each time it is sent: it is rarely sent again, and then has no copy to keep.
    pub(crate) headers: &'a (dyn Fn() -> Result<HeaderMap> + Sync),
    pub(crate) frame: Bytes,
    pub(crate) handed: &'a Handed,
    pub(crate) when_refused: WhenRefused<'a>,
}

impl Endpoint {
    /// Sends a request, following redirects that keep the method and stay within the origin. One that is
    /// refused for want of authorization is sent again, if that can be helped; so is one that the server provably did
    /// not process.
    pub(crate) async fn request(&self, outgoing: &Outgoing<'_>) -> Result<Response<ResponseBody>> {
        let mut refusals = Refusals::new(self.authorizer.as_deref(), outgoing.when_refused);
        let mut uri = self.uri.clone();
        let (mut redirects, mut retries) = (0, 0);
        while redirects < MOST_REDIRECTS {
            let (head, sent) = self.head(&uri, outgoing, &refusals).await?;
            let body = RequestBody::new(outgoing.frame.clone(), outgoing.handed.clone());
            let response = match self.send.send(Request::from_parts(head, body)).await {
                Err(error)
                    if is_unprocessed(&error)
                        && retries < MAX_RETRIES
                        && outgoing.handed.take_back() =>
                {
                    retries += 1;
                    continue;
                }
                sent => sent?,
            };
            match refusals.meet(&uri, sent, response) {
                Err(refusal) => {
                    if !outgoing.handed.take_back() {
                        return Err(refusal.to_error()); // nobody waits for it any more
                    }
                    refusals.answer(&refusal).await?;
                }
                Ok(response) => match redirect(&uri, &response) {
                    Some(next) => {
                        // Its cancel may be on its way already, so it must not be sent after that.
                        if !outgoing.handed.take_back() {
                            let source = Some(Withdrawn.into());
                            let what = "the request was redirected after it was dropped".into();
                            return Err(Error::Transport { what, source });
                        }
                        uri = next?;
                        redirects += 1;
                    }
                    None => return Ok(response),
                },
            }
        }
        Err(Error::protocol("the server redirects without end"))
    }

    /// The head of a request, and what it says about the caller.
    async fn head(
        &self,
        uri: &Uri,
        outgoing: &Outgoing<'_>,
        refusals: &Refusals<'_>,
    ) -> Result<(http::request::Parts, Option<HeaderValue>)> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = outgoing.method.clone();
        head.uri = uri.clone();
        head.headers = (outgoing.headers)()?;
        head.headers.extend(self.headers.clone());
        let sent = refusals.sign(&mut head).await?;
        Ok((head, sent))
    }
}

/// Whether a request failed because the server did not process it.
fn is_unprocessed(error: &Error) -> bool {
    let Error::Transport { source, .. } = error else {
        return false;
    };
    source
        .as_ref()
        .is_some_and(|source| source.is::<Unprocessed>())
}

/// Where a response sends us, if it does, and if we go there.
fn redirect(from: &Uri, response: &Response<ResponseBody>) -> Option<Result<Uri>> {
    if !matches!(
        response.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    ) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let target: Uri = location.parse().ok()?;
    Some(within_origin(from, target))
}

/// Resolves an address that a server names, if it stays where the server is.
pub(crate) fn within_origin(from: &Uri, target: Uri) -> Result<Uri> {
    let same_origin = target.authority().is_none()
        || (target.authority() == from.authority() && target.scheme() == from.scheme());
    if !same_origin {
        let what = format!("the server sends us to another origin, {target}, where we do not go");
        return Err(Error::protocol(what));
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = target.into_parts().path_and_query;
    Uri::from_parts(parts).map_err(|error| Error::protocol(error.to_string()))
}

/// The headers that every POST of a message has.
pub(crate) fn message_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

/// The headers that every GET of a stream has.
pub(crate) fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers
}

const MOST_REDIRECTS: usize = 5;

/// How often a request that the server did not process is sent again.
const MAX_RETRIES: usize = 3;

/// How much a server may send, and for how long it may be silent where it promised not to be.
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
    reason = "users name what they choose and leave the rest"
)]
pub struct ResponseLimits {
    /// The longest JSON response, in bytes.
    pub body: usize,
    /// The longest event of a stream, in bytes.
    pub event: usize,
    /// How many keep-alives of a stream may be missed in a row. 3 by default; `None` for any number.
    ///
    /// A stream on which the server has sent SSE comments at an interval, as servers do to keep it alive, fails with
    /// [`Error::Transport`] once it has been silent for so many of these intervals: the path is dead, and a
    /// [subscription](crate::Client::subscribe) on it would wait for ever. A stream without such comments is never ended by this.
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
        sse::Decoder::new(sse::Limits {
            line: self.event,
            event: self.event,
        })
    }
}

/// Reads the address of a server.
pub(crate) fn parse_url(url: &str) -> Result<Uri> {
    let uri: Uri = url
        .parse()
        .map_err(|error| Error::misuse(format!("`{url}` is not a URL: {error}")))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some() => Ok(uri),
        _ => Err(Error::misuse(format!(
            "`{url}` is not an http:// or https:// URL"
        ))),
    }
}
