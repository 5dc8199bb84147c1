//! An HTTP/2 client connection, shared by many requests.
//!
//! One task drives the connection. Requests have no tasks: the stream of a request is part of the caller's future, and
//! dropping that resets the stream.

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
use super::liveness::{InFlightGuard, Liveness, LivenessStatus, PingUnanswered};
use super::liveness_io::LivenessIo;
use super::send::{RequestBody, Withdrawn};

/// A handle to an HTTP/2 connection; each request has a clone.
#[derive(Clone)]
pub(super) struct Http2Connection {
    send: SendRequest<Bytes>,
    liveness: Arc<Liveness>,
}

/// A stream of a connection for one request. It counts as in flight from the beginning: if it counted when it is sent, two
/// requests could get the last stream, and one of them would wait until another request has ended.
pub(super) struct Http2Slot {
    connection: Http2Connection,
    in_flight: InFlightGuard,
}

impl Http2Connection {
    /// Performs the HTTP/2 handshake on `io` and spawns the task that drives the connection. Returns its first slot.
    pub(super) async fn open<T>(io: T) -> Result<Http2Slot, BoxError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let liveness = Liveness::new();
        let io = LivenessIo::new(io, liveness.clone());
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS as u32)
            .max_header_list_size(MAX_HEADER_LIST)
            // Responses to dropped calls may still arrive. h2 counts them as errors by default, and would close the
            // connection with every other call on it after a thousand drops.
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(None);
        let (send, connection) = builder.handshake(io).await?;
        // Ends when every `Http2Connection` and every stream is dropped, or the peer is lost.
        tokio::spawn(drive(connection, liveness.clone()));
        Ok(Self { send, liveness }.slot())
    }

    /// Takes a slot, if there is one now. Called with the lock of the pool, so that none is taken twice.
    pub(super) fn take_slot(&self) -> Option<Http2Slot> {
        let max = self.send.current_max_send_streams().min(MAX_STREAMS);
        let has_room =
            self.liveness.status() == LivenessStatus::Live && self.liveness.in_flight() < max;
        has_room.then(|| self.slot())
    }

    fn slot(&self) -> Http2Slot {
        Http2Slot {
            connection: self.clone(),
            in_flight: InFlightGuard::reserve(&self.liveness),
        }
    }

    /// Returns whether it takes no further requests.
    pub(super) fn is_closed(&self) -> bool {
        matches!(
            self.liveness.status(),
            LivenessStatus::Retired | LivenessStatus::Lost
        )
    }

    pub(super) fn is_idle(&self) -> bool {
        self.liveness.in_flight() == 0
    }

    /// Returns the liveness and how long to wait for its pong, if a pong will decide whether it takes requests.
    pub(super) fn undecided(&self) -> Option<(Arc<Liveness>, Instant)> {
        let until = self.liveness.undecided_until()?;
        Some((self.liveness.clone(), until))
    }
}

impl Http2Slot {
    pub(super) fn connection(&self) -> &Http2Connection {
        &self.connection
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets the stream.
    pub(super) fn send(
        self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Http2Body>, SendFailed>> + use<> {
        let begun = self.begin(request);
        async {
            let (response, mut in_flight) = begun?;
            match response.await {
                Ok(response) => Ok(response.map(|stream| Http2Body { stream, in_flight })),
                Err(error) => {
                    in_flight.is_over = true;
                    Err(classify_error(&in_flight, error))
                }
            }
        }
    }

    /// Hands a request to the connection.
    fn begin(
        self,
        request: Request<RequestBody>,
    ) -> Result<(ResponseFuture, InFlightGuard), SendFailed> {
        let Http2Connection { mut send, liveness } = self.connection;
        let mut in_flight = self.in_flight;
        // Never pending on a fresh clone; used only to detect a closed connection before the body is handed over.
        let mut cx = task::Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(closed)) = send.poll_ready(&mut cx) {
            liveness.retire();
            return Err(SendFailed::Unsent(Box::new(request), closed.into()));
        }
        let (mut head, body) = request.into_parts();
        let Some(bytes) = body.hand_over() else {
            return Err(SendFailed::Failed(Withdrawn.into()));
        };
        adapt_headers(&mut head.headers, bytes.len());
        let head = Request::from_parts(head, ());
        let begun = send.send_request(head, bytes.is_empty());
        let (response, mut stream) = begun.map_err(|error| SendFailed::Failed(error.into()))?;
        if !bytes.is_empty() {
            // If the stream was reset already, the response future returns the reason.
            let _ = stream.send_data(bytes, true);
        }
        in_flight.begin();
        Ok((response, in_flight))
    }
}

/// Classifies the error of a request by whether the server may have processed it.
fn classify_error(in_flight: &InFlightGuard, error: h2::Error) -> SendFailed {
    // On a remote GOAWAY, h2 fails exactly the streams above its last stream id.
    let is_unprocessed =
        error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
    if !is_unprocessed {
        return SendFailed::Failed(cause(in_flight, error));
    }
    // The server would refuse the next request for the same reason.
    in_flight.retire();
    SendFailed::Unprocessed(error.into())
}

fn cause(in_flight: &InFlightGuard, error: h2::Error) -> BoxError {
    match in_flight.is_lost() {
        true => PingUnanswered.into(),
        false => error.into(),
    }
}

/// Removes HTTP/1.1 headers and sets `Content-Length`.
fn adapt_headers(headers: &mut HeaderMap, length: usize) {
    for name in &CONNECTION_HEADERS {
        headers.remove(name);
    }
    if length > 0 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Drives a connection until it ends or a ping times out.
async fn drive<T>(mut connection: Connection<LivenessIo<T>, Bytes>, liveness: Arc<Liveness>)
where
    T: Read + Write + Unpin + Send,
{
    let Some(pings) = connection.ping_pong() else {
        return; // unreachable: `ping_pong` returns `None` only if it was taken before
    };
    tokio::select! {
        // The connection first: it may have read the pong.
        biased;
        ended = &mut connection => if let Err(error) = ended {
            tracing::debug!(%error, "HTTP/2 connection failed");
        },
        // Dropping the connection fails the requests in flight.
        () = liveness.run_pings(pings) => tracing::debug!("HTTP/2 ping timed out"),
    }
    liveness.retire();
}

/// The body of a response on one stream.
pub(super) struct Http2Body {
    // Dropped before `in_flight`, so that the stream is reset before the connection is pinged.
    stream: RecvStream,
    in_flight: InFlightGuard,
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let data = ready!(self.stream.poll_data(cx));
        Poll::Ready(match data {
            Some(Ok(bytes)) => {
                // Fails only if the stream has ended, which needs no window.
                let _ = self.stream.flow_control().release_capacity(bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) if error.reason() != Some(Reason::NO_ERROR) => {
                self.in_flight.is_over = true;
                Some(Err(cause(&self.in_flight, error)))
            }
            // A server that has sent the complete response may reset the stream with NO_ERROR.
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

/// How many reset streams h2 remembers, so that frames still arriving on them are ignored.
const MAX_RESET_STREAMS: usize = 1024;
/// The flow-control window of a stream. It limits the throughput of a response: 1 MiB allows 10 MiB/s at a round trip
/// of 100 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Maximum number of requests on one connection. The connection window is the sum of their stream windows, so that
/// unread responses never block the others; each buffers at most its own stream window.
const MAX_STREAMS: usize = 256;

const MAX_HEADER_LIST: u32 = 16 * 1024;

/// Connection-specific headers, which HTTP/2 forbids.
const CONNECTION_HEADERS: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;

    #[tokio::test(start_paused = true)]
    async fn no_slot_is_taken_twice_before_its_request_is_sent() {
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut server = h2::server::Builder::new();
            let mut serving = server
                .max_concurrent_streams(2)
                .handshake::<_, Bytes>(far)
                .await
                .unwrap();
            serving.accept().await.map(drop)
        });
        let first = Http2Connection::open(TokioIo::new(near)).await.unwrap();
        let connection = first.connection().clone();
        // The first pong follows the SETTINGS.
        while let Some((liveness, until)) = connection.undecided() {
            liveness.wait_until_decided(until).await;
        }

        let second = connection.take_slot();
        assert!(second.is_some());
        assert!(connection.take_slot().is_none(), "the server allows two");

        drop(first);
        assert!(connection.take_slot().is_some());
    }
}
