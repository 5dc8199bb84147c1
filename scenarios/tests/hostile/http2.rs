//! An HTTP/2 client with control of the flow-control windows and the ends of streams.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::rpc;

/// Connects with this initial window size for responses.
pub(crate) async fn connect(to: SocketAddr, window: u32) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect(to).await.map_err(text)?;
    let mut builder = Builder::new();
    builder
        .initial_window_size(window)
        .initial_connection_window_size(1 << 20)
        .max_send_buffer_size(16 << 20);
    let (sender, connection) = builder.handshake(stream).await.map_err(text)?;
    // Ends when the attacker drops its streams, or the server closes the connection.
    tokio::spawn(connection);
    sender.ready().await.map_err(text)
}

/// The head of a POST with these headers.
pub(crate) fn post(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post("http://localhost/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// The head of a modern `tools/call`.
pub(crate) fn call(tool: &str) -> Request<()> {
    post(&crate::http1::call_headers(tool))
}

/// The head of a legacy POST with as many minimal headers as fit into 64 KiB; HTTP/2 counts 32 bytes of overhead for
/// each.
pub(crate) fn post_with_many_headers(id: &str) -> Request<()> {
    let mut request = post(&[
        ("mcp-session-id", id),
        ("mcp-protocol-version", rpc::BATCHES),
    ]);
    for number in 0..380 {
        let name = format!("a{number}");
        let name = http::HeaderName::try_from(name).unwrap();
        let value = http::HeaderValue::from_static("1");
        request.headers_mut().insert(name, value);
    }
    request
}

/// Sends a request with a body and reads the response; fails if there is none in time.
pub(crate) async fn exchange(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
    within: Duration,
) -> Result<(u16, usize), String> {
    let (response, stream) = begin(sender, request).await?;
    let sent = Arc::new(AtomicU64::new(0));
    let sending = tokio::spawn(send(stream, body, BodyEnd::Complete, sent));
    let answered = tokio::time::timeout(within, read(response)).await;
    sending.abort();
    answered.map_err(|_| format!("no response within {within:?}"))?
}

async fn read(response: ResponseFuture) -> Result<(u16, usize), String> {
    let (head, mut body): (_, RecvStream) = {
        let response: Response<RecvStream> = response.await.map_err(text)?;
        response.into_parts()
    };
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data.map_err(text)?;
        length += data.len();
        let _ = body.flow_control().release_capacity(data.len());
    }
    Ok((head.status.as_u16(), length))
}

/// Starts a request as soon as the server's limit of streams allows it.
pub(crate) async fn begin(
    sender: SendRequest<Bytes>,
    request: Request<()>,
) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
    let mut sender = sender.ready().await.map_err(text)?;
    sender.send_request(request, false).map_err(text)
}

/// Whether a body is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    /// The last byte is never sent.
    Never,
}

/// Sends a body as the windows allow, and counts the bytes sent. Returns the stream.
pub(crate) async fn send(
    mut stream: SendStream<Bytes>,
    mut body: Bytes,
    end: BodyEnd,
    sent: Arc<AtomicU64>,
) -> Option<SendStream<Bytes>> {
    if end == BodyEnd::Never {
        body.truncate(body.len().saturating_sub(1));
    }
    while !body.is_empty() {
        stream.reserve_capacity(body.len().min(64 << 10));
        let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        let piece = body.split_to(capacity.min(body.len()));
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let is_last = body.is_empty() && end == BodyEnd::Complete;
        stream.send_data(piece, is_last).ok()?;
    }
    Some(stream)
}

/// Waits until a counter has reached `least`, however slow the machine is, for [`MAX_WAIT_FOR_LEAST`]; then until it has
/// reached `all`, has not changed for [`QUIET_PERIOD`], or [`MAX_WAIT`] has passed. Returns its value.
pub(crate) async fn wait_until_settled(counter: &AtomicU64, least: u64, all: u64) -> u64 {
    let deadline = Instant::now() + MAX_WAIT_FOR_LEAST;
    while counter.load(Ordering::Relaxed) < least && Instant::now() < deadline {
        crate::pause::pause(PAUSE).await;
    }
    let deadline = Instant::now() + MAX_WAIT;
    let mut seen = counter.load(Ordering::Relaxed);
    let mut since = Instant::now();
    while seen < all && Instant::now() < deadline && since.elapsed() < QUIET_PERIOD {
        crate::pause::pause(PAUSE).await;
        let now = counter.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    let_server_read().await;
    seen
}

/// Waits for a moment: the server still has to read the last bytes and create responses.
pub(crate) async fn let_server_read() {
    crate::pause::pause(AFTERWARDS).await;
}

/// Fails if an attack did not reach the scale that makes its result meaningful.
pub(crate) fn expect_at_least(seen: u64, least: u64, what: &str) -> Result<(), String> {
    match seen >= least {
        true => Ok(()),
        false => Err(format!("expected at least {least} {what}, got {seen}")),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Without progress for this long, the server counts as no longer reading.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
const AFTERWARDS: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(30);
const MAX_WAIT_FOR_LEAST: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);
