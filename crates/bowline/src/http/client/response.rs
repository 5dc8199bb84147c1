//! What kind of response came back, and the messages in it.

use bowline_core::{Malformed, Message, sse};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};

use super::authorize::challenges;
use super::body::ResponseBody;
use super::silence::Silence;
use super::{Endpoint, ResponseLimits};
use crate::{Error, Result};

/// A response, sorted by what it carries.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and boxing would cost each stream"
)]
pub(crate) enum Reply {
    /// One JSON text, at any status.
    Json(StatusCode, Bytes),
    /// Messages as they come.
    Events(Events),
    /// Neither.
    Bare(StatusCode),
}

/// Reads the head, and the body if it is short work.
pub(crate) async fn read(endpoint: &Endpoint, response: Response<ResponseBody>) -> Result<Reply> {
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
    if is_of(&head.headers, "text/event-stream") && head.status.is_success() {
        Ok(Reply::Events(Events::new(body, endpoint.limits)))
    } else if is_of(&head.headers, "application/json") {
        let body = body.collect(endpoint.limits.body).await?;
        Ok(Reply::Json(head.status, body))
    } else {
        Ok(Reply::Bare(head.status))
    }
}

/// Whether a response says that its body is of this media type, whatever its parameters.
fn is_of(headers: &HeaderMap, media: &str) -> bool {
    let says = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next());
    says.is_some_and(|says| says.trim().eq_ignore_ascii_case(media))
}

/// The error for a response that carries no answer.
pub(crate) fn no_answer(status: StatusCode) -> Error {
    match status {
        StatusCode::UNAUTHORIZED => Error::Unauthorized {
            challenges: Vec::new(),
            source: None,
        },
        StatusCode::ACCEPTED => {
            Error::protocol("the server accepted a request without answering it")
        }
        status if status.is_success() => Error::protocol("the response carries no JSON-RPC answer"),
        status => Error::Transport {
            what: format!("the server answered with HTTP status {status}"),
            source: Some(Box::new(UnexpectedStatus(status))),
        },
    }
}

/// The HTTP status of a response that carries no answer: the `source` of the transport error it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HTTP status {0}")]
#[non_exhaustive]
pub struct UnexpectedStatus(pub StatusCode);

impl UnexpectedStatus {
    /// Returns the status if it is the source of the error.
    pub(crate) fn of(error: &Error) -> Option<StatusCode> {
        let Error::Transport { source, .. } = error else {
            return None;
        };
        let status = source.as_ref()?.downcast_ref::<Self>()?;
        Some(status.0)
    }
}

/// A stream of messages.
pub(crate) struct Events {
    body: ResponseBody,
    decoder: sse::Decoder,
    silence: Silence,
}

impl Events {
    pub(crate) fn new(body: ResponseBody, limits: ResponseLimits) -> Self {
        Self {
            body,
            decoder: limits.decoder(),
            silence: Silence::new(limits.missed_keep_alives),
        }
    }

    /// What is left of the response.
    pub(super) fn into_body(self) -> ResponseBody {
        self.body
    }

    /// The next event; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// If the stream breaks off, exceeds a limit, or is silent for longer than its keep-alives promise.
    pub(crate) async fn next(&mut self) -> Result<Option<sse::Event>> {
        loop {
            match self.decoder.next() {
                Some(Ok(event)) => {
                    self.silence.heard_event();
                    return Ok(Some(event));
                }
                Some(Err(too_large)) => return Err(Error::protocol(too_large.to_string())),
                None => self.silence.heard_comments(self.decoder.comments()),
            }
            match self.silence.limit(self.body.chunk()).await? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The data of the next event that carries a message; `None` at the end of the stream.
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

    pub(crate) fn retry(&self) -> Option<u64> {
        self.decoder.retry()
    }
}

/// Reads one message out of JSON or an event's data.
pub(crate) fn message(frame: &Bytes) -> Result<Message> {
    Message::decode(frame).map_err(|malformed| match malformed {
        Malformed::Request { error, .. } => {
            Error::protocol(format!("no message: {}", error.message))
        }
        Malformed::Response { why, .. } => Error::protocol(why),
    })
}
