//! Bodies: reading one within a limit, and the few kinds there are to answer with.

use std::array::IntoIter;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use ::http::{Response, StatusCode, Version};
use bowline_core::http::admission::Rejection;
use bowline_core::{self as core, Message, Outcome};
use bowline_types::RequestId;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::{PeerAccount, overloaded};
use crate::exchange::InsufficientScope;
use crate::limits::{Account, Charge, Held, Limit};

/// The body of a response: nothing, one JSON object, or a stream of events.
#[must_use = "dropping the body of a response cancels the request in the modern era"]
pub struct HttpBody(Kind);

enum Kind {
    Whole(Bytes),
    /// One JSON object, too long to be copied into one piece.
    Pieces(Box<IntoIter<Bytes, 3>>),
    Events(Box<dyn Events>),
    Done,
}

impl HttpBody {
    /// Ends a stream of events at this time, if it has not ended before; and until its end its connection is in use.
    pub(crate) fn ending_at(
        self,
        ends_at: Option<Instant>,
        connection: Option<PeerAccount>,
    ) -> Self {
        match self.0 {
            Kind::Events(events) => Self(Kind::Events(Box::new(Ending {
                events,
                end: ends_at.map(|ends_at| Box::pin(tokio::time::sleep_until(ends_at))),
                _connection: connection,
            }))),
            other => Self(other),
        }
    }
}

/// A stream that ends with the credential of whoever listens, and that its connection waits for.
struct Ending {
    events: Box<dyn Events>,
    end: Option<Pin<Box<Sleep>>>,
    _connection: Option<PeerAccount>,
}

impl Events for Ending {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        let end = self.end.as_mut();
        if end.is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        self.events.poll_next(cx)
    }
}

/// A stream of events, already encoded.
pub(crate) trait Events: Send {
    /// The next bytes; `None` at the end.
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>>;
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.0 {
            Kind::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Kind::Pieces(pieces) => pieces.next(),
            Kind::Events(events) => task::ready!(events.poll_next(cx)),
            Kind::Done => None,
        };
        if next.is_none() || matches!(self.0, Kind::Whole(_)) {
            self.0 = Kind::Done;
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Pieces(pieces) => pieces.len() == 0,
            Kind::Events(_) => false,
            Kind::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces(pieces) => {
                let lengths = pieces.as_slice().iter().map(Bytes::len);
                SizeHint::with_exact(lengths.sum::<usize>() as u64)
            }
            Kind::Events(_) => SizeHint::default(),
            Kind::Done => SizeHint::with_exact(0),
        }
    }
}

/// A whole body: for a layer that answers in the place of the service.
impl From<Bytes> for HttpBody {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }
}

impl std::fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::Whole(_) | Kind::Pieces(_) => "HttpBody(whole)",
            Kind::Events(_) => "HttpBody(events)",
            Kind::Done => "HttpBody(done)",
        })
    }
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<HttpBody> {
    response(status, HttpBody(Kind::Done))
}

/// A long result is charged until the client has read it: a client that does not read can have only so many.
pub(crate) fn charge_output(account: &Arc<Account>, outcome: Outcome) -> (Outcome, Option<Charge>) {
    let length = outcome.as_ref().map_or(0, |result| result.as_bytes().len());
    if length < LONG {
        return (outcome, None);
    }
    match account.hold(Held::Output, length) {
        Ok(charge) => (outcome, Some(charge)),
        Err(reached) => (Err(reached.into()), None),
    }
}

/// Bytes that are charged for as long as any part of them is held, by hyper for example.
pub(crate) fn charged(bytes: Bytes, charge: Option<Charge>) -> Bytes {
    struct Charged(Bytes, #[allow(dead_code, reason = "it is held")] Charge);

    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    match charge {
        Some(charge) => Bytes::from_owner(Charged(bytes, charge)),
        None => bytes,
    }
}

/// A response that answers a request, within what [`charge_output`] found room for.
pub(crate) fn answer(
    status: StatusCode,
    id: RequestId,
    (outcome, charge): (Outcome, Option<Charge>),
) -> Response<HttpBody> {
    match outcome {
        Ok(result) if charge.is_some() => {
            let [head, result, tail] = core::Response::in_pieces(&id, result);
            let pieces = [head, charged(result, charge), tail];
            of_json(status, Kind::Pieces(Box::new(pieces.into_iter())))
        }
        outcome => {
            let id = Some(id);
            json(status, &core::Response { id, outcome }.into())
        }
    }
}

/// A response that is one message.
pub(crate) fn json(status: StatusCode, message: &Message) -> Response<HttpBody> {
    whole(status, message.to_frame())
}

/// A response that is JSON already.
pub(crate) fn whole(status: StatusCode, json: Bytes) -> Response<HttpBody> {
    of_json(status, Kind::Whole(json))
}

fn of_json(status: StatusCode, body: Kind) -> Response<HttpBody> {
    let mut response = response(status, HttpBody(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// A response that is a stream of events.
pub(crate) fn stream(events: impl Events + 'static) -> Response<HttpBody> {
    let mut response = response(StatusCode::OK, HttpBody(Kind::Events(Box::new(events))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some proxies would otherwise collect the events until the stream is over.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// The response to a request that may not come in.
pub(crate) fn rejection(rejection: Rejection) -> Response<HttpBody> {
    let header = rejection.header();
    let status = rejection.status();
    let mut response = json(status, &rejection.into_response().into());
    response.headers_mut().extend(header);
    response
}

/// The response to a request whose principal may not do what it asks. A layer that knows where to get
/// more finds among its extensions what is needed.
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

/// Reads a whole body, charging it as it arrives. While there is no room for more it is not read, so that the sender
/// has to wait.
///
/// The future is a part of every request. Most bodies are there already, and there is room for them: the timers of the
/// others are allocated.
pub(super) async fn read<B: Body>(
    version: Version,
    body: Pin<&mut B>,
    charge: &mut Charge,
) -> Result<Bytes, Rejection> {
    let limits = charge.account().limits();
    let limit = limits.message_bytes;
    let ahead = match version {
        // Bounded by the window of its connection.
        Version::HTTP_2 => 0,
        // One buffer that is full, and one that is being filled.
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
        let deadline = deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(READ_WITHIN)));
        task::ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(Rejection::http(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {READ_WITHIN:?}"),
        )))
    })
    .await
}

/// Reads a body. The connection reads up to `ahead` bytes of it that are not asked for yet; they are charged until the body is
/// there, unless it comes in one piece.
async fn collect<B: Body>(
    mut body: Pin<&mut B>,
    ahead: usize,
    charge: &mut Charge,
) -> Result<Bytes, Rejection> {
    let limit = charge.account().limits().message_bytes;
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
    let mut whole = Collected::default();
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

/// A short body in memory of its own. Over HTTP/2 it is a part of what was read for all requests of its connection, which
/// would stay as long as the handler runs.
pub(super) fn detached(body: Bytes) -> Bytes {
    match body.len() {
        0..=SHORT => Bytes::copy_from_slice(&body),
        _ => body,
    }
}

/// The next piece of a body; `None` at its end.
fn poll_data<B: Body>(
    mut body: Pin<&mut B>,
    cx: &mut task::Context<'_>,
) -> Poll<Result<Option<B::Data>, Rejection>> {
    loop {
        match task::ready!(body.as_mut().poll_frame(cx)) {
            None => return Poll::Ready(Ok(None)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Poll::Ready(Ok(Some(data))),
                Err(_trailers) => {}
            },
            Some(Err(_)) => {
                let why = "the body could not be read to its end";
                return Poll::Ready(Err(Rejection::http(StatusCode::BAD_REQUEST, why)));
            }
        }
    }
}

/// Charges for one more piece of a body, as soon as there is room for it.
async fn make_room(charge: &mut Charge, bytes: usize) -> Result<(), Rejection> {
    if charge.try_grow(bytes) {
        return Ok(());
    }
    let growing = tokio::time::timeout(ROOM_WITHIN, charge.grow_when_possible(bytes));
    match Box::pin(growing).await {
        Ok(grown) => grown.map_err(overloaded),
        Err(_) => charge.grow(bytes).map_err(overloaded),
    }
}

/// The part of a body that has arrived. Most bodies are one chunk, which is then not copied.
///
/// A longer one is collected in pieces of one size until a quarter of it is there, and from then on in a buffer for all of
/// it. Its sender need not send the rest, so a buffer for all of it from the start would be memory for one byte; and a buffer
/// that grows by copying leaves holes of all sizes behind, so the process would keep a multiple of what is charged.
#[derive(Default)]
struct Collected {
    first: Bytes,
    /// Full pieces, in order.
    full: Vec<BytesMut>,
    /// The piece, or the buffer for the whole body, that is being filled.
    last: BytesMut,
    len: usize,
}

impl Collected {
    fn len(&self) -> usize {
        self.len
    }

    /// Appends `data`. The whole body has at least `expected` bytes.
    fn push(&mut self, mut data: impl Buf, expected: usize) {
        let is_first = self.len == 0;
        self.len += data.remaining();
        if is_first {
            self.first = data.copy_to_bytes(data.remaining());
            return;
        }
        if self.last.capacity() == 0 {
            self.last = BytesMut::with_capacity(expected.clamp(LEAST_PIECE, PIECE));
            let first = std::mem::take(&mut self.first);
            self.put(first, expected);
        }
        self.put(data, expected);
    }

    fn put(&mut self, mut data: impl Buf, expected: usize) {
        while data.has_remaining() {
            let room = self.last.capacity() - self.last.len();
            if room == 0 {
                self.grow(expected);
                continue;
            }
            let fits = data.remaining().min(room);
            self.last.put((&mut data).take(fits));
        }
    }

    fn grow(&mut self, expected: usize) {
        let held = self.full.iter().chain([&self.last]);
        let held: usize = held.map(BytesMut::len).sum();
        if (held + 1..=held * 4).contains(&expected) {
            self.last = self.joined(expected);
        } else {
            let next = BytesMut::with_capacity(PIECE);
            self.full.push(std::mem::replace(&mut self.last, next));
        }
    }

    fn joined(&mut self, capacity: usize) -> BytesMut {
        let mut whole = BytesMut::with_capacity(capacity);
        for piece in self.full.drain(..).chain([std::mem::take(&mut self.last)]) {
            whole.extend_from_slice(&piece);
        }
        whole
    }

    fn into_bytes(mut self) -> Bytes {
        if self.last.is_empty() {
            return self.first;
        }
        if self.full.is_empty() && self.last.capacity() <= 2 * self.len {
            return self.last.freeze();
        }
        self.joined(self.len).freeze()
    }
}

fn too_large(charge: &Charge) -> Rejection {
    let account = charge.account();
    let reached = account
        .meters()
        .refuse(Limit::MessageBytes, account.limits().message_bytes);
    let why = format!(
        "the body exceeds the limit of {} bytes (`{}`)",
        reached.max,
        reached.limit.name()
    );
    Rejection::http(StatusCode::PAYLOAD_TOO_LARGE, why)
}

/// Less than what a connection reads at once.
const SHORT: usize = 8 * 1024;
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// From how many bytes on a result is charged, and left where it is rather than copied.
const LONG: usize = 16 * 1024;
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How large the pieces are that a body is kept in while it arrives, and the first one of a body of unknown length.
const PIECE: usize = 64 * 1024;
const LEAST_PIECE: usize = 1024;
/// How long the sender of a body is held back before it is refused.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_same_in_however_many_pieces_it_comes() {
        let text: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        for length in [0, 1, LEAST_PIECE, 40_000, PIECE, PIECE + 1, text.len()] {
            for size in [1, 7, 1000, 16_384, length.max(1)] {
                for expected in [0, length, text.len() * 100] {
                    let mut whole = Collected::default();
                    for piece in text[..length].chunks(size) {
                        whole.push(piece, expected);
                    }

                    assert_eq!(whole.len(), length);
                    assert!(whole.into_bytes() == text[..length], "{length} by {size}");
                }
            }
        }
    }

    #[test]
    fn a_body_reserves_at_most_four_times_what_arrived() {
        let mut whole = Collected::default();
        for sent in 1..=400 {
            whole.push(&[0; 10_000][..], 4 << 20);

            let pieces = whole.full.iter().chain([&whole.last]);
            let held: usize = pieces.map(BytesMut::capacity).sum();
            let most = (sent * 10_000 * 4).max(sent * 10_000 + PIECE);
            assert!(held <= most, "{held} bytes after {sent} pieces");
        }
    }
}
