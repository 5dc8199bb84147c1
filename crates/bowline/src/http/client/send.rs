//! `HttpClient`, the trait of HTTP clients that send our requests, and the state of a request's body.
//!
//! ```text
//! UNSENT ──hand_over──▶ HANDED_OVER ──withdraw──▶ ABANDONED
//!    │ ▲                     │                        │
//!    │ └───reset_for_retry───┘                        │reset_for_retry
//!    └──withdraw──▶ WITHDRAWN ◀───────────────────────┘
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{self, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::body::ResponseBody;
use crate::Result;
use crate::exchange::BoxFuture;
use crate::sync::Mutex;

/// An HTTP client that sends the requests of a [`Client`](crate::Client).
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, must abort the request: on HTTP/1.1 by closing the
/// connection, on HTTP/2 by resetting the stream. That is how a dropped call is cancelled at the server.
///
/// # Examples
///
/// Counting the requests:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use bowline::exchange::BoxFuture;
/// use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
/// use http::{Request, Response};
///
/// struct Counting<S> {
///     inner: S,
///     sent: AtomicU64,
/// }
///
/// impl<S: HttpClient> HttpClient for Counting<S> {
///     fn send(
///         &self,
///         request: Request<RequestBody>,
///     ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
///         self.sent.fetch_add(1, Ordering::Relaxed);
///         self.inner.send(request)
///     }
/// }
/// ```
pub trait HttpClient: Send + Sync + 'static {
    /// Sends one request and waits for the head of its response.
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>>;
}

/// The body of a request, in one frame.
#[derive(Debug)]
pub struct RequestBody {
    pub(super) bytes: Option<Bytes>,
    pub(super) send_state: SendState,
}

/// Whether the body of a request was handed to a connection. Clones share the state.
///
/// A request whose body was not handed over can be withdrawn, and is then never sent. Withdrawing it later only marks
/// it as abandoned: if the server refuses it, it is neither authorized nor sent again.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendState(Arc<SendStateCell>);

#[derive(Debug, Default)]
struct SendStateCell {
    state: AtomicU8,
    /// When the body was handed to a connection.
    handed_over_at: Mutex<Option<Instant>>,
}

impl SendState {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Withdraws the body and returns `true`; if a connection has it, marks it as abandoned and returns `false`.
    pub(crate) fn withdraw(&self) -> bool {
        let is_withdrawn = self.settle(WITHDRAWN);
        let _ = self.change(HANDED_OVER, ABANDONED);
        is_withdrawn
    }

    /// Hands the body to a connection. Returns `false` if it was withdrawn.
    fn hand_over(&self) -> bool {
        let is_handed_over = self.settle(HANDED_OVER) || self.settle(ABANDONED);
        if is_handed_over {
            self.0
                .handed_over_at
                .lock()
                .get_or_insert_with(Instant::now);
        }
        is_handed_over
    }

    /// Returns when a connection got the body, or the current time if the time is not stored yet.
    pub(crate) fn handed_over_at(&self) -> Instant {
        self.0.handed_over_at.lock().unwrap_or_else(Instant::now)
    }

    /// Resets the state after a refusal, as if the body had not been handed over. Returns whether to send it again.
    pub(super) fn reset_for_retry(&self) -> bool {
        *self.0.handed_over_at.lock() = None;
        let _ = self.change(HANDED_OVER, UNSENT);
        // Refused and abandoned: it was not processed, and must not be sent again.
        let _ = self.change(ABANDONED, WITHDRAWN);
        self.0.state.load(Ordering::Acquire) == UNSENT
    }

    /// Returns whether a connection has the body.
    pub(crate) fn is_handed_over(&self) -> bool {
        matches!(
            self.0.state.load(Ordering::Acquire),
            HANDED_OVER | ABANDONED
        )
    }

    /// Returns whether the body was withdrawn: no connection got it, or the server refused it.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == WITHDRAWN
    }

    /// Moves the body from `UNSENT` to `state`. Returns whether it is there now.
    fn settle(&self, state: u8) -> bool {
        let decided = self.change(UNSENT, state);
        decided.is_ok() || decided == Err(state)
    }

    fn change(&self, from: u8, to: u8) -> std::result::Result<u8, u8> {
        self.0
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// The request was dropped before its body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn before it was sent")]
#[non_exhaustive]
pub struct Withdrawn;

/// The server provably did not process the request, so it is safe to send it again. An [`HttpClient`] reports this as
/// the `source` of [`Error::Transport`](crate::Error::Transport).
///
/// On HTTP/2: the stream was reset with `REFUSED_STREAM`, or its id is above the last one of a `GOAWAY`.
#[derive(Debug, thiserror::Error)]
#[error("the server did not process the request")]
#[non_exhaustive]
pub struct Unprocessed {
    /// The error by which the server reported it.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl Unprocessed {
    /// Wraps the error by which the server reported it.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { source }
    }
}

impl RequestBody {
    pub(crate) fn new(bytes: Bytes, send_state: SendState) -> Self {
        Self {
            bytes: Some(bytes),
            send_state,
        }
    }

    /// Returns the whole body; empty if the request was withdrawn.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        let bytes = self.bytes.take().filter(|_| self.send_state.hand_over());
        bytes.unwrap_or_default()
    }
}

impl RequestBody {
    /// Returns the whole body to a connection that sends it; `None` if the request was withdrawn.
    pub(super) fn hand_over(mut self) -> Option<Bytes> {
        let bytes = self.bytes.take().unwrap_or_default();
        self.send_state.hand_over().then_some(bytes)
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, SendState::new())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match self.send_state.hand_over() {
            true => Ok(Frame::data(bytes)),
            false => Err(Withdrawn),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

const UNSENT: u8 = 0;
const HANDED_OVER: u8 = 1;
const WITHDRAWN: u8 = 2;
const ABANDONED: u8 = 3;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn first_piece(body: RequestBody) -> Option<Result<Bytes, Withdrawn>> {
        let mut body = std::pin::pin!(body);
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn a_withdrawn_body_is_never_sent() {
        let state = SendState::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), state.clone());

        assert!(state.withdraw());

        assert!(matches!(first_piece(body()).await, Some(Err(Withdrawn))));
        assert_eq!(body().into_bytes(), "");
        assert!(state.withdraw(), "it still is");
    }

    #[tokio::test]
    async fn a_body_that_a_connection_has_cannot_be_withdrawn() {
        let state = SendState::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), state.clone());

        assert!(matches!(first_piece(body()).await, Some(Ok(bytes)) if bytes == "{}"));

        assert!(!state.withdraw());
        assert_eq!(body().into_bytes(), "{}", "as when a request is sent again");
    }

    #[tokio::test]
    async fn a_refused_request_is_sent_again_unless_it_was_abandoned() {
        let refused = || {
            let state = SendState::new();
            let body = RequestBody::new(Bytes::from_static(b"{}"), state.clone());
            let _ = body.into_bytes();
            state
        };
        let (wanted, abandoned) = (refused(), refused());
        assert!(!abandoned.withdraw());

        assert!(wanted.reset_for_retry());
        assert!(!abandoned.reset_for_retry());

        assert!(wanted.withdraw(), "it is unsent again");
    }
}
