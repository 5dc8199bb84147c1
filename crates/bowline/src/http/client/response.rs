//! Classifies the HTTP response to a message, and reads the JSON-RPC messages in it.

use std::time::Duration;

use bowline_core::{Malformed, Message, shortened, sse};
use bowline_types::ErrorCode;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode, Uri};

use super::Endpoint;
use super::authorize::challenges;
use super::body::ResponseBody;
use super::keep_alive_monitor::KeepAliveMonitor;
use crate::http::RedactedUrl;
use crate::limits::{BudgetExceeded, ReadCharge};
use crate::{Error, Result};

/// An HTTP response, classified by content type and status.
#[allow(
    clippy::large_enum_variant,
    reason = "short-lived; boxing would cost an allocation per stream"
)]
pub(crate) enum ResponseContent {
    /// A JSON body, with any status.
    Json(StatusCode, Bytes),
    /// An SSE stream, with a success status.
    Sse(SseStream),
    /// Any other response; with the beginning of its body if the status is an error.
    Other(StatusCode, Bytes),
}

/// Classifies a response, and reads its body if it is JSON.
///
/// # Errors
///
/// [`Error::Unauthorized`] for status 401 or 403 with a `WWW-Authenticate` header. Otherwise if reading a JSON body
/// fails, or it exceeds the limit.
pub(crate) async fn read(
    endpoint: &Endpoint,
    response: Response<ResponseBody>,
) -> Result<ResponseContent> {
    let (head, body) = response.into_parts();
    if matches!(
        head.status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) && head.headers.contains_key(WWW_AUTHENTICATE)
    {
        return Err(Error::Unauthorized {
            challenges: challenges(&head.headers),
            source: None,
        });
    }
    let media_type = media_type(&head.headers);
    let is = |expected: &str| media_type.is_some_and(|it| it.eq_ignore_ascii_case(expected));
    if is("text/event-stream") && head.status.is_success() {
        Ok(ResponseContent::Sse(SseStream::new(body, endpoint)))
    } else if is("application/json") {
        let charge = ReadCharge::new(endpoint.read_budget.clone());
        let body = body.collect_charged(endpoint.limits.body, charge).await?;
        Ok(ResponseContent::Json(head.status, body))
    } else {
        let mut body = body;
        let start = match head.status.is_client_error() || head.status.is_server_error() {
            true => start_of(&mut body).await,
            false => Bytes::new(),
        };
        endpoint.drain.finish(body);
        Ok(ResponseContent::Other(head.status, start))
    }
}

/// Returns the beginning of the body of an error, which says more than its status. It is empty if the body does not
/// follow at once: the status is enough.
async fn start_of(body: &mut ResponseBody) -> Bytes {
    match tokio::time::timeout(ERROR_BODY_TIMEOUT, body.chunk()).await {
        // Copied, so that the rest of a large chunk is not kept.
        Ok(Ok(Some(chunk))) => Bytes::copy_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY)]),
        _ => Bytes::new(),
    }
}

/// Returns the media type of the `Content-Type`, without its parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    content_type.split(';').next().map(str::trim)
}

impl Endpoint {
    /// Returns the error for an HTTP response without a JSON-RPC response. `body` is the beginning of its body.
    pub(crate) fn missing_response(&self, status: StatusCode, body: &Bytes) -> Error {
        match status {
            StatusCode::UNAUTHORIZED => Error::Unauthorized {
                challenges: Vec::new(),
                source: None,
            },
            StatusCode::ACCEPTED => {
                Error::protocol("expected a JSON-RPC response, got HTTP status 202 Accepted")
            }
            status if status.is_success() => {
                Error::protocol("the HTTP response contains no JSON-RPC response")
            }
            status => {
                let text = match message(body) {
                    Ok(Message::Response(response)) => response.outcome.err(),
                    _ => None,
                };
                let text = text.map_or_else(|| printable(body), |error| error.message);
                let text = match &*without_secrets(&self.uri, text) {
                    "" => String::new(),
                    text => format!(": {}", shortened(text)),
                };
                let url = RedactedUrl::new(&self.uri);
                Error::Transport {
                    what: format!("unexpected HTTP status {status} from {url}{text}"),
                    source: Some(Box::new(UnexpectedStatus(status))),
                }
            }
        }
    }

    /// Returns the error for a JSON response that reports that there is no MCP endpoint at this URL: status 404 with an
    /// error that answers no request. The JSON-RPC error alone would not name the URL.
    pub(crate) fn not_found(&self, status: StatusCode, body: &Bytes) -> Option<Error> {
        if status != StatusCode::NOT_FOUND {
            return None;
        }
        let Ok(Message::Response(response)) = message(body) else {
            return None;
        };
        let error = response.outcome.err()?;
        if response.id.is_some() || error.code == ErrorCode::METHOD_NOT_FOUND {
            return None;
        }
        let text = without_secrets(&self.uri, error.message);
        let (url, why) = (RedactedUrl::new(&self.uri), shortened(&text));
        Some(Error::Transport {
            what: format!("unexpected HTTP status {status} from {url}: {why}"),
            source: Some(Box::new(UnexpectedStatus(status))),
        })
    }
}

/// Hides the secrets of the URL in a text of the server, which may repeat the request.
fn without_secrets(uri: &Uri, text: String) -> String {
    let authority = uri.authority().map_or("", |it| it.as_str());
    let user_info = authority.rsplit_once('@').map(|(user, _)| user);
    let user_info = user_info.into_iter().flat_map(|user| user.split(':'));
    let pairs = uri.query().unwrap_or_default().split('&');
    let values = pairs.filter_map(|pair| Some(pair.split_once('=')?.1));
    user_info
        .chain(values)
        .filter(|secret| secret.len() >= MIN_SECRET)
        .fold(text, |text, secret| text.replace(secret, "…"))
}

/// Returns the beginning of a body as one line of text, without control characters.
fn printable(body: &[u8]) -> String {
    let body = &body[..body.len().min(MAX_ERROR_BODY)];
    let text = String::from_utf8_lossy(body);
    let text = text.split(|it: char| it.is_whitespace() || it.is_control());
    let words: Vec<&str> = text.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The error status of an HTTP response without a JSON-RPC response: the `source` of [`Error::Transport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HTTP status {0}")]
#[non_exhaustive]
pub struct UnexpectedStatus(pub StatusCode);

/// How much of the body of an error is read, in bytes.
const MAX_ERROR_BODY: usize = 512;
/// Shorter values, such as `page=1`, are no secrets, and part of many words.
const MIN_SECRET: usize = 4;
/// How long the body of an error is waited for. It usually follows its head immediately.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

impl UnexpectedStatus {
    /// Returns the status if the source of `error` is an `UnexpectedStatus`.
    pub(crate) fn of(error: &Error) -> Option<StatusCode> {
        let Error::Transport { source, .. } = error else {
            return None;
        };
        let status = source.as_ref()?.downcast_ref::<Self>()?;
        Some(status.0)
    }
}

/// A response that is an SSE stream.
pub(crate) struct SseStream {
    body: ResponseBody,
    decoder: sse::Decoder,
    keep_alive: KeepAliveMonitor,
    charge: ReadCharge,
}

impl SseStream {
    pub(crate) fn new(body: ResponseBody, endpoint: &Endpoint) -> Self {
        let limits = endpoint.limits;
        Self {
            body,
            decoder: limits.decoder(),
            keep_alive: KeepAliveMonitor::new(limits.missed_keep_alives),
            charge: ReadCharge::new(endpoint.read_budget.clone()),
        }
    }

    /// Returns the unread rest of the response. Bytes already in the decoder are dropped.
    pub(super) fn into_body(self) -> ResponseBody {
        self.body
    }

    /// Returns the next event; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// If reading fails, an event exceeds the limit or the budget, or too many keep-alives are missed.
    pub(crate) async fn next(&mut self) -> Result<Option<sse::SseEvent>> {
        loop {
            match self.decoder.next() {
                Some(Ok(event)) => {
                    self.keep_alive.on_event();
                    return Ok(Some(event));
                }
                Some(Err(too_large)) => return Err(Error::protocol(too_large.to_string())),
                None => self.keep_alive.on_comments(self.decoder.comments()),
            }
            let Some(chunk) = self.keep_alive.limit(self.body.chunk()).await? else {
                return Ok(None);
            };
            // Most events arrive in one chunk, and need no charge.
            match self.decoder.unfinished_bytes() {
                0 => self.charge.clear(),
                held => self.charge.set(held + chunk.len()).map_err(over_budget)?,
            }
            self.decoder.push(chunk);
        }
    }

    /// Returns the data of the next event that contains a message; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub(crate) async fn next_message(&mut self) -> Result<Option<Bytes>> {
        while let Some(event) = self.next().await? {
            if event.is_message() && !event.data.is_empty() {
                return Ok(Some(event.data));
            }
        }
        Ok(None)
    }

    pub(crate) fn last_event_id(&self) -> Option<&str> {
        self.decoder.last_event_id()
    }

    /// Returns the delay before reconnecting, in milliseconds, if the stream contained one.
    pub(crate) fn retry(&self) -> Option<u64> {
        self.decoder.retry()
    }
}

/// Returns the error of a response that does not fit into its budget.
pub(super) fn over_budget(exceeded: BudgetExceeded) -> Error {
    Error::Transport {
        what: format!("failed to read the response: {exceeded}"),
        source: Some(Box::new(exceeded)),
    }
}

/// Decodes one JSON-RPC message.
pub(crate) fn message(frame: &Bytes) -> Result<Message> {
    Message::decode(frame).map_err(|malformed| match malformed {
        Malformed::Request { error, .. } => {
            Error::protocol(format!("malformed message: {}", error.message))
        }
        Malformed::Response { why, .. } => Error::protocol(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_repeats_the_url_loses_its_secrets() {
        let uri = Uri::from_static("http://ada:pass1@search.example/mcp?apiKey=s3cret&page=&x");
        let text = "no route for ada:pass1@search.example/mcp?apiKey=s3cret".to_owned();

        let shown = without_secrets(&uri, text);

        assert_eq!(shown, "no route for ada:…@search.example/mcp?apiKey=…");
        let plain = Uri::from_static("http://search.example/mcp");
        assert_eq!(without_secrets(&plain, "kept".into()), "kept");
    }
}
