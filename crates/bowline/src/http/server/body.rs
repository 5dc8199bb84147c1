//! Reads request bodies within limits, and builds responses and their bodies.

use std::array::IntoIter;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use ::http::{Response, StatusCode, Version};
use bowline_core::http::admission::HttpRejection;
use bowline_core::{self as core, Message, Outcome};
use bowline_types::RequestId;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body_buffer::BodyBuffer;
use super::connections::RunningGuard;
use super::overloaded;
use crate::exchange::InsufficientScope;
use crate::limits::{Account, Charge, ChargeKind, Limit, LimitReached};

/// The body of a response: empty, one JSON object, or an SSE stream.
#[must_use = "dropping the body cancels the request in the modern era"]
pub struct HttpBody {
    kind: BodyKind,
    /// Keeps the connection busy.
    running: Option<RunningGuard>,
    /// Over HTTP/2: the charge for what its client leaves unread.
    unread: Option<Charge>,
}

enum BodyKind {
    Whole(Bytes),
    /// One JSON object in parts, to avoid copying a long result.
    Pieces(Box<IntoIter<Bytes, 3>>),
    Events(Box<dyn EventSource>),
    Done,
}

impl HttpBody {
    fn new(kind: BodyKind) -> Self {
        Self {
            kind,
            running: None,
            unread: None,
        }
    }

    /// Ends an SSE stream at `ends_at`.
    pub(crate) fn with_expiry(mut self, ends_at: Instant) -> Self {
        self.kind = match self.kind {
            BodyKind::Events(events) => BodyKind::Events(Box::new(ExpiringEvents {
                events,
                end: Box::pin(tokio::time::sleep_until(ends_at)),
            })),
            other => other,
        };
        self
    }

    /// Moves the charge to bytes that are about to be sent. HTTP/2 takes them out of the body as soon as the client has
    /// admitted one of them, and keeps the rest.
    fn charge_sent(&mut self, bytes: Bytes) -> Bytes {
        let Some(charge) = &self.unread else {
            return bytes;
        };
        let is_last = match &self.kind {
            BodyKind::Whole(_) | BodyKind::Done => true,
            BodyKind::Pieces(pieces) => pieces.len() == 0,
            BodyKind::Events(_) => {
                // They exist already. What they take beyond the limit is refused to the next request.
                let mut sent = charge.account().empty_charge(ChargeKind::Unread);
                sent.set(PER_STREAM + bytes.len());
                return with_charge(bytes, Some(sent));
            }
        };
        let charge = if is_last { self.unread.take() } else { None };
        with_charge(bytes, charge)
    }
}

/// A stream that ends when the listener's credential expires.
struct ExpiringEvents {
    events: Box<dyn EventSource>,
    end: Pin<Box<Sleep>>,
}

impl EventSource for ExpiringEvents {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        self.events.poll_next(cx)
    }
}

/// A stream of encoded SSE events.
pub(crate) trait EventSource: Send {
    /// Returns the next bytes; `None` at the end.
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>>;
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.kind {
            BodyKind::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            BodyKind::Pieces(pieces) => pieces.next(),
            BodyKind::Events(events) => task::ready!(events.poll_next(cx)),
            BodyKind::Done => None,
        };
        if next.is_none() || matches!(self.kind, BodyKind::Whole(_)) {
            self.kind = BodyKind::Done;
        }
        let next = next.map(|bytes| self.charge_sent(bytes));
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Whole(bytes) => bytes.is_empty(),
            BodyKind::Pieces(pieces) => pieces.len() == 0,
            BodyKind::Events(_) => false,
            BodyKind::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Pieces(pieces) => {
                let lengths = pieces.as_slice().iter().map(Bytes::len);
                SizeHint::with_exact(lengths.sum::<usize>() as u64)
            }
            BodyKind::Events(_) => SizeHint::default(),
            BodyKind::Done => SizeHint::with_exact(0),
        }
    }
}

/// For a layer that responds instead of the service.
impl From<Bytes> for HttpBody {
    fn from(bytes: Bytes) -> Self {
        Self::new(BodyKind::Whole(bytes))
    }
}

impl std::fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.kind {
            BodyKind::Whole(_) | BodyKind::Pieces(_) => "HttpBody(whole)",
            BodyKind::Events(_) => "HttpBody(events)",
            BodyKind::Done => "HttpBody(done)",
        })
    }
}

/// Returns a response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<HttpBody> {
    response(status, HttpBody::new(BodyKind::Done))
}

/// Charges a long result until the client has read it, so that a client that does not read cannot fill the memory.
pub(crate) fn charge_output(account: &Arc<Account>, outcome: Outcome) -> (Outcome, Option<Charge>) {
    let length = outcome.as_ref().map_or(0, |result| result.as_bytes().len());
    if length < MIN_CHARGED {
        return (outcome, None);
    }
    match account.charge(ChargeKind::Output, length) {
        Ok(charge) => (outcome, Some(charge)),
        Err(reached) => (Err(reached.into()), None),
    }
}

/// Returns bytes that hold their charge until the last clone is dropped, by hyper for example.
pub(crate) fn with_charge(bytes: Bytes, charge: Option<Charge>) -> Bytes {
    struct ChargedBytes(Bytes, #[allow(dead_code, reason = "it is held")] Charge);

    impl AsRef<[u8]> for ChargedBytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    match charge {
        Some(charge) => Bytes::from_owner(ChargedBytes(bytes, charge)),
        None => bytes,
    }
}

/// Charges a response over HTTP/2 before its request runs: its client may leave it unread, while it sends others.
pub(super) fn charge_unread(account: &Arc<Account>) -> Result<Charge, LimitReached> {
    account.charge(ChargeKind::Unread, PER_STREAM)
}

/// Returns a response that keeps its connection busy, and over HTTP/2 has the charge of [`charge_unread`] until its
/// client has read it.
pub(super) fn on_connection(
    mut response: Response<HttpBody>,
    running: Option<RunningGuard>,
    unread: Option<Charge>,
) -> Response<HttpBody> {
    let body = response.body_mut();
    body.running = running;
    let Some(mut charge) = unread else {
        return response;
    };
    // An unread answer does not keep a connection of HTTP/2 busy, or a client that reads nothing could stay.
    if !matches!(body.kind, BodyKind::Events(_)) {
        body.running = None;
    }
    let length = match &body.kind {
        BodyKind::Whole(bytes) => bytes.len(),
        _ => 0,
    };
    if let Err(reached) = charge.grow(length) {
        tracing::debug!(%reached, "sending a response without its body");
        response = without_body(response);
        if response.status().is_success() {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
    }
    response.body_mut().unread = Some(charge);
    response
}

/// Removes the body of a response. An HTTP/2 client cannot keep the server from sending the rest.
pub(super) fn without_body(mut response: Response<HttpBody>) -> Response<HttpBody> {
    *response.body_mut() = HttpBody::new(BodyKind::Done);
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// Returns the response to a request; the outcome and its charge are those of [`charge_output`].
pub(crate) fn answer(
    status: StatusCode,
    id: RequestId,
    (outcome, charge): (Outcome, Option<Charge>),
) -> Response<HttpBody> {
    match outcome {
        Ok(result) if charge.is_some() => {
            let [head, result, tail] = core::Response::encode_vectored(&id, result);
            let pieces = [head, with_charge(result, charge), tail];
            json_response(status, BodyKind::Pieces(Box::new(pieces.into_iter())))
        }
        outcome => {
            let id = Some(id);
            json(status, &core::Response { id, outcome }.into())
        }
    }
}

/// Returns a response with one message.
pub(crate) fn json(status: StatusCode, message: &Message) -> Response<HttpBody> {
    whole(status, message.to_frame())
}

/// Returns a response with encoded JSON.
pub(crate) fn whole(status: StatusCode, json: Bytes) -> Response<HttpBody> {
    json_response(status, BodyKind::Whole(json))
}

fn json_response(status: StatusCode, body: BodyKind) -> Response<HttpBody> {
    let mut response = response(status, HttpBody::new(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Returns a response with an SSE stream.
pub(crate) fn stream(events: impl EventSource + 'static) -> Response<HttpBody> {
    let events = BodyKind::Events(Box::new(events));
    let mut response = response(StatusCode::OK, HttpBody::new(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would otherwise buffer the events.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Returns the response to a rejected request.
pub(crate) fn rejection(rejection: HttpRejection) -> Response<HttpBody> {
    let header = rejection.header();
    let status = rejection.status();
    let mut response = json(status, &rejection.into_response().into());
    response.headers_mut().extend(header);
    response
}

/// Returns a 403 response for missing scopes. Its extensions contain the [`InsufficientScope`], from which an
/// authorization layer builds the challenge.
pub(crate) fn insufficient_scope(id: RequestId, missing: InsufficientScope) -> Response<HttpBody> {
    let answer = core::Response {
        id: Some(id),
        outcome: Err(missing.clone().into()),
    };
    let mut response = json(StatusCode::FORBIDDEN, &answer.into());
    response.extensions_mut().insert(missing);
    response
}

fn response(status: StatusCode, body: HttpBody) -> Response<HttpBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Reads a whole body and charges it as it arrives. Stops reading while the account is full, so that HTTP flow control
/// holds back the sender.
///
/// The future is part of every request, so the timer is boxed: most bodies have arrived already and need none.
pub(super) async fn read<B: Body>(
    version: Version,
    body: Pin<&mut B>,
    charge: &mut Charge,
) -> Result<Bytes, HttpRejection> {
    let limits = charge.account().limits();
    let limit = limits.message_bytes;
    let ahead = match version {
        // Bounded by the connection window.
        Version::HTTP_2 => 0,
        // One full buffer, and one that is being filled.
        _ => limits.head_bytes.saturating_mul(2),
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(charge));
    }
    let mut collected = pin!(collect(body, ahead, charge));
    let mut deadline = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(read) = collected.as_mut().poll(cx) {
            return Poll::Ready(read);
        }
        let deadline = deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(READ_TIMEOUT)));
        task::ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(HttpRejection::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the request body did not arrive within {READ_TIMEOUT:?}"),
        )))
    })
    .await
}

/// Reads a body. hyper reads up to `ahead` bytes in advance; these are charged until the body is complete, unless it is
/// one chunk.
async fn collect<B: Body>(
    mut body: Pin<&mut B>,
    ahead: usize,
    charge: &mut Charge,
) -> Result<Bytes, HttpRejection> {
    let limit = charge.account().limits().message_bytes;
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
    let mut whole = BodyBuffer::default();
    let mut charged_ahead = None;
    while let Some(data) = std::future::poll_fn(|cx| poll_data(body.as_mut(), cx)).await? {
        if whole.len() + data.remaining() > limit {
            return Err(too_large(charge));
        }
        make_room(charge, data.remaining()).await?;
        whole.push(data, expected);
        if charged_ahead.is_none() && !body.is_end_stream() {
            let rest = match body.size_hint().upper() {
                Some(rest) => usize::try_from(rest).unwrap_or(ahead).min(ahead),
                None => ahead,
            };
            make_room(charge, rest).await?;
            charged_ahead = Some(rest);
        }
    }
    charge.shrink(charged_ahead.unwrap_or(0));
    Ok(whole.into_bytes())
}

/// Copies a short body. Over HTTP/2 it is a slice of a buffer shared by all requests of the connection, which would
/// stay allocated as long as the handler runs.
pub(super) fn copy_if_short(body: Bytes) -> Bytes {
    match body.len() {
        0..=MAX_COPIED => Bytes::copy_from_slice(&body),
        _ => body,
    }
}

/// Returns the next chunk of a body; `None` at its end.
fn poll_data<B: Body>(
    mut body: Pin<&mut B>,
    cx: &mut task::Context<'_>,
) -> Poll<Result<Option<B::Data>, HttpRejection>> {
    loop {
        match task::ready!(body.as_mut().poll_frame(cx)) {
            None => return Poll::Ready(Ok(None)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Poll::Ready(Ok(Some(data))),
                Err(_trailers) => {}
            },
            Some(Err(_)) => {
                let why = "failed to read the request body";
                return Poll::Ready(Err(HttpRejection::new(StatusCode::BAD_REQUEST, why)));
            }
        }
    }
}

/// Charges one more chunk of a body; waits while the account is full.
async fn make_room(charge: &mut Charge, bytes: usize) -> Result<(), HttpRejection> {
    if charge.try_grow(bytes) {
        return Ok(());
    }
    let growing = tokio::time::timeout(ROOM_TIMEOUT, charge.wait_and_grow(bytes));
    match Box::pin(growing).await {
        Ok(grown) => grown.map_err(overloaded),
        Err(_) => charge.grow(bytes).map_err(overloaded),
    }
}

fn too_large(charge: &Charge) -> HttpRejection {
    let account = charge.account();
    let reached = account
        .counters()
        .refuse(Limit::MessageBytes, account.limits().message_bytes);
    let why = format!(
        "the request body exceeds the limit of {} bytes (`{}`)",
        reached.max,
        reached.limit.name()
    );
    HttpRejection::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

/// Bodies up to this size are copied; smaller than the read buffer of a connection.
const MAX_COPIED: usize = 8 * 1024;
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Results of at least this size are charged, and sent without a copy.
const MIN_CHARGED: usize = 16 * 1024;
/// Estimated memory of an unread response besides its body: its stream, its head and its future.
const PER_STREAM: usize = 4096;
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long reading waits for room in the account before the request is refused.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
