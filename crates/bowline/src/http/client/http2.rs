//! One HTTP/2 connection, which many requests share.
//!
//! It is driven by one task. A request has none of its own: its stream is part of the caller's future, and dropping
//! that resets the stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker, ready};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, Write};
use tokio::time::Instant;

use super::connection::{BoxError, SendFailed};
use super::liveness::{InFlight, Liveness, PingUnanswered, Status};
use super::send::{RequestBody, Withdrawn};
use super::watched::Watched;

/// HTTP/2: has many requests at once, each with a clone.
#[derive(Clone)]
pub(super) struct Shared {
    send: SendRequest<Bytes>,
    liveness: Arc<Liveness>,
}

impl Shared {
    /// Opens HTTP/2 on `io`, and has the connection driven up to its end.
    pub(super) async fn open<T>(io: T) -> Result<Self, BoxError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let liveness = Liveness::new();
        let io = Watched::new(io, liveness.clone());
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS as u32)
            .max_header_list_size(MAX_HEADER_LIST)
            // Responses to dropped calls may still be on their way. Counting them as errors would end the connection,
            // with every other call on it, after a thousand drops.
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(None);
        let (send, connection) = builder.handshake(io).await?;
        // Ends when every `Shared` and every stream is dropped, or the peer is lost.
        tokio::spawn(drive(connection, liveness.clone()));
        Ok(Self { send, liveness })
    }

    /// Whether it takes a request at once.
    pub(super) fn has_room(&self) -> bool {
        let max = self.send.current_max_send_streams().min(MAX_STREAMS);
        self.liveness.status() == Status::Live && self.liveness.in_flight() < max
    }

    /// Whether it takes no further requests.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.liveness.status(), Status::Retired | Status::Lost)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.liveness.in_flight() == 0
    }

    /// What decides whether it takes requests, and until when that is worth waiting for.
    pub(super) fn undecided(&self) -> Option<(Arc<Liveness>, Instant)> {
        let until = self.liveness.undecided_until()?;
        Some((self.liveness.clone(), until))
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets the stream.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<StreamBody>, SendFailed>> + use<> {
        let begun = self.begin(request);
        async {
            let (response, mut in_flight) = begun?;
            match response.await {
                Ok(response) => Ok(response.map(|stream| StreamBody { stream, in_flight })),
                Err(error) => {
                    in_flight.is_over = true;
                    Err(failed(&in_flight, error))
                }
            }
        }
    }

    /// Hands a request to the connection.
    fn begin(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<(ResponseFuture, InFlight), SendFailed> {
        // A clone that has sent nothing yet waits for nothing: this tells whether the connection takes requests at all.
        let mut cx = task::Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(closed)) = self.send.poll_ready(&mut cx) {
            self.liveness.retire();
            return Err(SendFailed::Unsent(Box::new(request), closed.into()));
        }
        let (mut head, body) = request.into_parts();
        let Some(bytes) = body.hand_over() else {
            return Err(SendFailed::Failed(Withdrawn.into()));
        };
        adapt(&mut head.headers, bytes.len());
        let head = Request::from_parts(head, ());
        let begun = self.send.send_request(head, bytes.is_empty());
        let (response, mut stream) = begun.map_err(|error| SendFailed::Failed(error.into()))?;
        if !bytes.is_empty() {
            // If the stream is gone already, the response says why.
            let _ = stream.send_data(bytes, true);
        }
        Ok((response, InFlight::new(&self.liveness)))
    }
}

/// Sorts the error of a request that has no response by whether the server may have processed it.
fn failed(in_flight: &InFlight, error: h2::Error) -> SendFailed {
    // h2 fails with a remote GOAWAY exactly the streams above the last one that the server names.
    let is_unprocessed =
        error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
    if !is_unprocessed {
        return SendFailed::Failed(cause(in_flight, error));
    }
    // Whatever made the server refuse this request will make it refuse the next one.
    in_flight.retire();
    SendFailed::Unprocessed(error.into())
}

fn cause(in_flight: &InFlight, error: h2::Error) -> BoxError {
    match in_flight.is_lost() {
        true => PingUnanswered.into(),
        false => error.into(),
    }
}

/// Makes the headers of a request those of HTTP/2.
fn adapt(headers: &mut HeaderMap, length: usize) {
    for name in &OF_HTTP1 {
        headers.remove(name);
    }
    if length > 0 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Moves the bytes of a connection up to its end.
async fn drive<T>(mut connection: Connection<Watched<T>, Bytes>, liveness: Arc<Liveness>)
where
    T: Read + Write + Unpin + Send,
{
    let Some(pings) = connection.ping_pong() else {
        return; // it is taken here only, and once
    };
    tokio::select! {
        // Bytes first: among them may be the pong.
        biased;
        ended = &mut connection => if let Err(error) = ended {
            tracing::debug!(%error, "an HTTP/2 connection failed");
        },
        // Dropping the connection fails what is in flight.
        () = liveness.patrol(pings) => tracing::debug!("an HTTP/2 ping was not answered"),
    }
    liveness.retire();
}

/// The body of a response on one stream.
pub(super) struct StreamBody {
    // Before `in_flight`, so that the stream is reset before the connection is pinged.
    stream: RecvStream,
    in_flight: InFlight,
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let data = ready!(self.stream.poll_data(cx));
        Poll::Ready(match data {
            Some(Ok(bytes)) => {
                // Fails for a stream that has ended, which needs no window.
                let _ = self.stream.flow_control().release_capacity(bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) if error.reason() != Some(Reason::NO_ERROR) => {
                self.in_flight.is_over = true;
                Some(Err(cause(&self.in_flight, error)))
            }
            // A server that has said all may reset the stream without an error.
            Some(Err(_)) | None => {
                self.in_flight.is_over = true;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// How many dropped streams are remembered, so that what still arrives on them is ignored.
const MAX_RESET_STREAMS: usize = 1024;
/// How much of one response may wait to be read. The larger, the faster a response over a long path: 1 MiB is
/// 10 MiB/s at a round trip of 100 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// How many requests share one connection at most. The window of the connection has room for the windows of all of
/// them, so that responses which nobody reads never hold up another; what they make us hold is their own windows.
const MAX_STREAMS: usize = 256;

const MAX_HEADER_LIST: u32 = 16 * 1024;

/// Headers about one connection, which HTTP/2 forbids.
const OF_HTTP1: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];
