//! How one HTTP request leaves this process, and where its body is meanwhile.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::body::ResponseBody;
use crate::Result;
use crate::exchange::BoxFuture;

/// Sends HTTP requests.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, must abandon the request: on HTTP/1.1 by closing the
/// connection, on HTTP/2 by resetting the stream. That is how a server learns that a call was dropped.
///
/// # Examples
///
/// Counting what is sent:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use bowline::exchange::BoxFuture;
/// use bowline::http::client::{HttpSend, RequestBody, ResponseBody};
/// use http::{Request, Response};
///
/// struct Counting<S> {
///     inner: S,
///     sent: AtomicU64,
/// }
///
/// impl<S: HttpSend> HttpSend for Counting<S> {
///     fn send(
///         &self,
///         request: Request<RequestBody>,
///     ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
///         self.sent.fetch_add(1, Ordering::Relaxed);
///         self.inner.send(request)
///     }
/// }
/// ```
pub trait HttpSend: Send + Sync + 'static {
    /// Sends one request and waits for the head of its response.
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>>;
}

/// The body of a request: one frame of bytes.
#[derive(Debug)]
pub struct RequestBody {
    pub(super) bytes: Option<Bytes>,
    pub(super) handed_over: Handed,
}

/// Where the body of a request is: with us, with a connection, or taken back before a connection had it. What is with
/// a connection cannot be taken back, but it can be unwanted: then nobody is asked about it if it is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handed(Arc<Place>);

#[derive(Debug, Default)]
struct Place {
    place: AtomicU8,
    /// When a connection got the body.
    since: Mutex<Option<Instant>>,
}

impl Handed {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes the body back; it never leaves then. Whether that was still possible.
    pub(crate) fn withdraw(&self) -> bool {
        let is_withdrawn = self.settle(WITHDRAWN);
        let _ = self.change(HANDED_OVER, UNWANTED);
        is_withdrawn
    }

    /// Gives the body to a connection. Whether it was not taken back before.
    fn hand_over(&self) -> bool {
        let is_over = self.settle(HANDED_OVER) || self.settle(UNWANTED);
        if is_over {
            self.lock().get_or_insert_with(Instant::now);
        }
        is_over
    }

    /// When a connection got the body; now, if it is just getting it.
    pub(crate) fn since(&self) -> Instant {
        self.lock().unwrap_or_else(Instant::now)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code that could panic runs under this lock.
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request was refused, so that it is as if it had not been handed over. Whether it is still wanted.
    pub(super) fn take_back(&self) -> bool {
        *self.lock() = None;
        let _ = self.change(HANDED_OVER, WITH_US);
        // Refused and unwanted: it was not processed, and must not leave again.
        let _ = self.change(UNWANTED, WITHDRAWN);
        self.0.place.load(Ordering::Acquire) == WITH_US
    }

    /// Whether a connection has the body.
    pub(super) fn is_handed_over(&self) -> bool {
        matches!(self.0.place.load(Ordering::Acquire), HANDED_OVER | UNWANTED)
    }

    /// Whether the body was taken back for good: no connection has it, or the server refused it.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.place.load(Ordering::Acquire) == WITHDRAWN
    }

    /// Decides where the body is, unless that is decided. Whether it is there.
    fn settle(&self, place: u8) -> bool {
        let decided = self.change(WITH_US, place);
        decided.is_ok() || decided == Err(place)
    }

    fn change(&self, from: u8, to: u8) -> std::result::Result<u8, u8> {
        self.0
            .place
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// The request was given up before its body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn before it was sent")]
#[non_exhaustive]
pub struct Withdrawn;

/// The server provably did not process the request: it may be sent again, whatever it is. The `source` of the transport
/// error that an [`HttpSend`] returns then.
///
/// On HTTP/2 that is a stream which the server has refused (`REFUSED_STREAM`), or one above the last stream that its `GOAWAY` names.
#[derive(Debug, thiserror::Error)]
#[error("the server did not process the request")]
#[non_exhaustive]
pub struct Unprocessed {
    /// How it said so.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl Unprocessed {
    /// The server said so by `source`.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { source }
    }
}

impl RequestBody {
    pub(crate) fn new(bytes: Bytes, handed_over: Handed) -> Self {
        Self {
            bytes: Some(bytes),
            handed_over,
        }
    }

    /// All of the body, for senders that want it in one piece; nothing, if the request was withdrawn.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        let bytes = self.bytes.take().filter(|_| self.handed_over.hand_over());
        bytes.unwrap_or_default()
    }
}

impl RequestBody {
    /// All of the body, for a connection that sends it; `None` if the request was withdrawn.
    pub(super) fn hand_over(mut self) -> Option<Bytes> {
        let bytes = self.bytes.take().unwrap_or_default();
        self.handed_over.hand_over().then_some(bytes)
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, Handed::new())
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
        Poll::Ready(Some(match self.handed_over.hand_over() {
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

const WITH_US: u8 = 0;
const HANDED_OVER: u8 = 1;
const WITHDRAWN: u8 = 2;
const UNWANTED: u8 = 3;

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
    async fn a_body_that_was_withdrawn_never_leaves() {
        let handed = Handed::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), handed.clone());

        assert!(handed.withdraw());

        assert!(matches!(first_piece(body()).await, Some(Err(Withdrawn))));
        assert_eq!(body().into_bytes(), "");
        assert!(handed.withdraw(), "it still is");
    }

    #[tokio::test]
    async fn a_body_that_a_connection_has_cannot_be_withdrawn() {
        let handed = Handed::new();
        let body = || RequestBody::new(Bytes::from_static(b"{}"), handed.clone());

        assert!(matches!(first_piece(body()).await, Some(Ok(bytes)) if bytes == "{}"));

        assert!(!handed.withdraw());
        assert_eq!(body().into_bytes(), "{}", "as when a request is sent again");
    }

    #[tokio::test]
    async fn a_request_that_is_refused_was_not_sent_unless_it_is_unwanted() {
        let refused = || {
            let handed = Handed::new();
            let body = RequestBody::new(Bytes::from_static(b"{}"), handed.clone());
            let _ = body.into_bytes();
            handed
        };
        let (wanted, unwanted) = (refused(), refused());
        assert!(!unwanted.withdraw());

        assert!(wanted.take_back());
        assert!(!unwanted.take_back());

        assert!(wanted.withdraw(), "it is with us again");
    }
}
