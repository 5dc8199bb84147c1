//! HTTP/2 stream by stream, with windows and ends in the attacker's hands.

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

/// Connects; the responses of each stream may be `window` bytes ahead of their reader.
pub(crate) async fn connect(to: SocketAddr, window: u32) -> Result<SendRequest<Bytes>, String> {
    let stream = TcpStream::connect(to).await.map_err(text)?;
    let mut builder = Builder::new();
    builder
        .initial_window_size(window)
        .initial_connection_window_size(1 << 20)
        .max_send_buffer_size(16 << 20);
    let (sender, connection) = builder.handshake(stream).await.map_err(text)?;
    // Ends with the connection, which ends when the attacker drops its streams or the server does.
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

/// The head of a modern call of a tool.
pub(crate) fn call(tool: &str) -> Request<()> {
    post(&crate::http1::call_headers(tool))
}

/// The head of a legacy POST with as many headers as fit into 64 KiB, each as short as can be; HTTP/2 counts each with
/// 32 bytes more than its text.
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

/// Sends a request with a body and reads the response, or says that there was none in time.
pub(crate) async fn exchange(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
    within: Duration,
) -> Result<(u16, usize), String> {
    let (response, stream) = begin(sender, request).await?;
    let sent = Arc::new(AtomicU64::new(0));
    let sending = tokio::spawn(send(stream, body, End::Whole, sent));
    let answered = tokio::time::timeout(within, read(response)).await;
    sending.abort();
    answered.map_err(|_| format!("no answer within {within:?}"))?
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

/// Begins a request, as soon as the server's limit of streams lets it.
pub(crate) async fn begin(
    sender: SendRequest<Bytes>,
    request: Request<()>,
) -> Result<(ResponseFuture, SendStream<Bytes>), String> {
    let mut sender = sender.ready().await.map_err(text)?;
    sender.send_request(request, false).map_err(text)
}

/// Whether a body is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The last byte is never sent.
    Never,
}

/// Sends a body as the windows let it, and counts what was sent. A stream that is left open is returned.
pub(crate) async fn send(
    mut stream: SendStream<Bytes>,
    mut body: Bytes,
    end: End,
    sent: Arc<AtomicU64>,
) -> Option<SendStream<Bytes>> {
    if end == End::Never {
        body.truncate(body.len().saturating_sub(1));
    }
    while !body.is_empty() {
        stream.reserve_capacity(body.len().min(64 << 10));
        let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        let piece = body.split_to(capacity.min(body.len()));
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let is_last = body.is_empty() && end == End::Whole;
        stream.send_data(piece, is_last).ok()?;
    }
    Some(stream)
}

/// Waits until a counter has come to `all`, has stood still for a while, or it has taken too long; what it counts.
pub(crate) async fn settled(counter: &AtomicU64, all: u64) -> u64 {
    let deadline = Instant::now() + LONGEST;
    let mut seen = counter.load(Ordering::Relaxed);
    let mut since = Instant::now();
    while seen < all && Instant::now() < deadline && since.elapsed() < QUIET {
        crate::pause::pause(Duration::from_millis(20)).await;
        let now = counter.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    // What was sent has still to be read, and answers to be made.
    crate::pause::pause(AFTERWARDS).await;
    seen
}

/// Fails unless an attack came as far as it has to for what it shows.
pub(crate) fn came_to(seen: u64, least: u64, what: &str) -> Result<(), String> {
    match seen >= least {
        true => Ok(()),
        false => Err(format!(
            "the attack came to {seen} {what} instead of {least}"
        )),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// After this much time without a byte an attacker takes the server for one that does not read on.
const QUIET: Duration = Duration::from_secs(2);
const AFTERWARDS: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
