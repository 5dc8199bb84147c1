//! The connection pool: reuse, sharing, idle timeouts and closing of connections.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::http::client::{
    Connector, HttpClient, HttpStream, HyperClient, RequestBody, ResponseBody,
};
use bowline::testing::PipeConnector;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;
use tokio::sync::{Barrier, mpsc, watch};

/// A server that counts its connections.
#[derive(Clone)]
struct CountingServer {
    open: watch::Sender<usize>,
    /// The number of connections accepted so far.
    accepted: Arc<Mutex<usize>>,
}

impl CountingServer {
    /// `/` responds with `word`; the response of `/stream` starts with `word` and does not end.
    fn new() -> (Self, PipeConnector) {
        let server = Self {
            open: watch::Sender::new(0),
            accepted: Arc::default(),
        };
        let serving = server.clone();
        let connector = PipeConnector::with(move |far| {
            tokio::spawn(serving.clone().serve(far));
        });
        (server, connector)
    }

    async fn serve(self, far: DuplexStream) {
        *self.accepted.lock().unwrap() += 1;
        self.open.send_modify(|open| *open += 1);
        let service = service_fn(async |request: Request<hyper::body::Incoming>| {
            let never_ends = request.uri().path() == "/stream";
            let chunk = Some(Bytes::from_static(b"word"));
            Ok::<_, Infallible>(Response::new(ChunkBody { chunk, never_ends }))
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http2().max_concurrent_streams(MAX_STREAMS);
        let _ = builder.serve_connection(TokioIo::new(far), service).await;
        self.open.send_modify(|open| *open -= 1);
    }

    fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }

    async fn wait_for_open(&self, count: usize) {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open == count).await.unwrap();
    }
}

/// A body of one chunk, which may never end.
struct ChunkBody {
    chunk: Option<Bytes>,
    never_ends: bool,
}

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.chunk.take() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None if self.never_ends => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

const MAX_STREAMS: u32 = 4;

fn sender_over(connector: PipeConnector, http2: bool) -> HyperClient {
    match http2 {
        true => HyperClient::with_http2_connector(connector),
        false => HyperClient::with_connector(connector),
    }
}

fn request(uri: &str) -> Request<RequestBody> {
    let body = RequestBody::from(Bytes::from_static(b"{}"));
    Request::post(uri).body(body).unwrap()
}

async fn head(send: &HyperClient, uri: &str) -> Response<ResponseBody> {
    send.send(request(uri)).await.unwrap()
}

/// Sends a request and reads the whole response.
async fn fetch(send: &HyperClient, uri: &str) -> Bytes {
    let response = head(send, uri).await;
    response.into_body().collect(1_000).await.unwrap()
}

#[tokio::test]
async fn a_connection_is_reused_after_its_response_was_read() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);

    for _ in 0..3 {
        assert_eq!(fetch(&send, "http://tools.example/").await, "word");
    }

    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn concurrent_requests_use_one_connection_each_and_all_are_pooled() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);
    let url = "http://tools.example/";

    for _ in 0..2 {
        let (one, other) = tokio::join!(head(&send, url), head(&send, url));
        one.into_body().collect(1_000).await.unwrap();
        other.into_body().collect(1_000).await.unwrap();
    }

    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn connections_are_pooled_per_origin() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);
    let urls = [
        "http://a.example/",
        "http://b.example/",
        "http://a.example:81/",
        "https://a.example/",
    ];

    for url in urls.iter().chain(&urls) {
        fetch(&send, url).await;
    }

    assert_eq!(server.accepted(), urls.len());
}

#[tokio::test]
async fn a_dropped_response_closes_only_its_own_connection() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);
    let (stream, reusable) = tokio::join!(
        head(&send, "http://tools.example/stream"),
        head(&send, "http://tools.example/")
    );
    reusable.into_body().collect(1_000).await.unwrap();
    server.wait_for_open(2).await;

    drop(stream);
    server.wait_for_open(1).await;
    fetch(&send, "http://tools.example/").await;

    assert_eq!(server.accepted(), 2, "the idle connection was reused");
}

/// A sender, and the server ends of its connections.
fn manual_server() -> (HyperClient, mpsc::UnboundedReceiver<DuplexStream>) {
    let (accepted, accept) = mpsc::unbounded_channel();
    let connector = PipeConnector::with(move |far| accepted.send(far).unwrap());
    (HyperClient::with_connector(connector), accept)
}

/// Reads one request, answers it, and returns what was read.
async fn answer(far: &mut DuplexStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        read.push(far.read_u8().await.unwrap());
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword";
    far.write_all(answer).await.unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_request_on_an_idle_connection_closed_by_the_server_is_retried() {
    let (send, mut accept) = manual_server();
    let url = "http://tools.example/";
    let serve_one = async {
        let mut far = accept.recv().await.unwrap();
        answer(&mut far).await;
        far
    };
    let (_, far) = tokio::join!(fetch(&send, url), serve_one);

    // The next request takes the connection before the pool has noticed that it was closed.
    drop(far);
    let serve_another = async {
        let mut far = accept.recv().await.unwrap();
        answer(&mut far).await;
        far
    };
    let (text, far) = tokio::join!(fetch(&send, url), serve_another);

    assert_eq!(text, "word");

    // Now the pool notices first.
    drop(far);
    tokio::task::yield_now().await;
    let serve_third = async { answer(&mut accept.recv().await.unwrap()).await };
    let (text, _) = tokio::join!(fetch(&send, url), serve_third);
    assert_eq!(text, "word");
}

#[tokio::test]
async fn a_request_on_a_new_connection_closed_by_the_server_is_not_retried() {
    let (send, mut accept) = manual_server();
    let close = async { drop(accept.recv().await.unwrap()) };

    let (outcome, ()) = tokio::join!(send.send(request("http://tools.example/")), close);

    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("http://tools.example/"), "{error}");
    assert!(accept.try_recv().is_err(), "no second connection");
}

#[tokio::test]
async fn the_host_header_is_derived_from_the_uri() {
    let (send, mut accept) = manual_server();
    let cases = [
        ("http://tools.example/mcp?a=b", "tools.example"),
        ("http://tools.example:80/mcp?a=b", "tools.example"),
        ("https://tools.example:443/mcp?a=b", "tools.example"),
        ("http://tools.example:443/mcp?a=b", "tools.example:443"),
        (
            "http://me:secret@tools.example:81/mcp?a=b",
            "tools.example:81",
        ),
        ("http://[::1]:8000/mcp?a=b", "[::1]:8000"),
    ];

    for (url, host) in cases {
        let serve = async { answer(&mut accept.recv().await.unwrap()).await };
        let (_, read) = tokio::join!(fetch(&send, url), serve);

        assert!(read.starts_with("POST /mcp?a=b HTTP/1.1\r\n"), "{read}");
        assert!(read.contains(&format!("\r\nhost: {host}\r\n")), "{read}");
    }
}

#[tokio::test]
async fn an_explicit_host_header_is_kept() {
    let (send, mut accept) = manual_server();
    let mut request = request("http://127.0.0.1:8000/mcp");
    let headers = request.headers_mut();
    headers.insert(http::header::HOST, "tools.example".parse().unwrap());

    let serve = async { answer(&mut accept.recv().await.unwrap()).await };
    let (_, read) = tokio::join!(send.send(request), serve);

    assert!(read.contains("\r\nhost: tools.example\r\n"), "{read}");
    assert!(!read.contains("127.0.0.1"), "{read}");
}

/// Connects as TLS does: the HTTP version is known only once the handshake is complete. All handshakes but the first
/// wait for one another.
fn alpn_connector(pipes: PipeConnector, negotiates_http2: bool) -> impl Connector {
    let (first, others) = (AtomicBool::new(true), Arc::new(Barrier::new(2)));
    move |_: Uri| {
        let is_first = first.swap(false, Ordering::Relaxed);
        let (pipes, others) = (pipes.clone(), others.clone());
        async move {
            if is_first {
                tokio::task::yield_now().await;
            } else {
                others.wait().await;
            }
            let stream = HttpStream::new(pipes.open());
            Ok(match negotiates_http2 {
                true => stream.http2(),
                false => stream,
            })
        }
    }
}

#[tokio::test]
async fn requests_share_a_connection_that_negotiates_http2() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(alpn_connector(connector, true));
    let url = "https://tools.example/";

    let (a, b, c) = tokio::join!(fetch(&send, url), fetch(&send, url), fetch(&send, url));
    fetch(&send, url).await;

    assert_eq!([a, b, c], ["word"; 3]);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_stream_limit_opens_another_http2_connection() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_http2_connector(connector);
    let url = "http://tools.example/stream";

    let mut streams = Vec::new();
    for _ in 0..2 * MAX_STREAMS {
        let opening = tokio::time::timeout(Duration::from_secs(60), head(&send, url));
        streams.push(opening.await.expect("a stream is available"));
    }
    let accepted_when_full = server.accepted();
    streams.pop();
    streams.remove(0);
    for _ in 0..2 {
        streams.push(head(&send, url).await);
    }

    assert_eq!((accepted_when_full, server.accepted()), (2, 2));
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn requests_waiting_for_a_connection_that_negotiates_http1_connect_concurrently() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(alpn_connector(connector, false));
    let url = "https://tools.example/";

    let fetching = async { tokio::join!(fetch(&send, url), fetch(&send, url), fetch(&send, url)) };
    let fetched = tokio::time::timeout(Duration::from_secs(60), fetching).await;

    assert!(fetched.is_ok(), "the two handshakes run concurrently");
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_idle_timeout() {
    tokio::time::pause();
    for http2 in [false, true] {
        let (server, connector) = CountingServer::new();
        let send = sender_over(connector, http2);
        let start = tokio::time::Instant::now();
        fetch(&send, "http://tools.example/").await;

        server.wait_for_open(0).await;

        let idle_for = start.elapsed();
        assert!(idle_for >= Duration::from_secs(45), "{idle_for:?}");
        assert!(idle_for <= Duration::from_secs(91), "{idle_for:?}");
        fetch(&send, "http://tools.example/").await;
        assert_eq!(server.accepted(), 2);
    }
}

#[tokio::test]
async fn a_connection_in_use_is_not_closed_by_the_idle_timeout() {
    tokio::time::pause();
    let url = "http://tools.example/";
    for (http2, accepted) in [(false, 3), (true, 1)] {
        let (server, connector) = CountingServer::new();
        let send = sender_over(connector, http2);
        let stream = head(&send, "http://tools.example/stream").await;
        fetch(&send, url).await;

        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(30)).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        assert_eq!(*server.open.borrow(), 1, "the connection with the stream");
        fetch(&send, url).await;
        assert_eq!(server.accepted(), accepted);
        drop(stream);
    }
}

#[tokio::test]
async fn dropping_the_sender_closes_idle_connections_and_leaves_no_task() {
    let before = Handle::current().metrics().num_alive_tasks();
    for http2 in [false, true] {
        let (server, connector) = CountingServer::new();
        let send = sender_over(connector, http2);
        fetch(&send, "http://tools.example/").await;

        drop(send);

        server.wait_for_open(0).await;
        while Handle::current().metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_response_can_be_dropped_outside_a_runtime() {
    let (server, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);
    let response = head(&send, "http://tools.example/").await;

    std::thread::spawn(move || drop(response)).join().unwrap();

    fetch(&send, "http://tools.example/").await;
    assert!(server.accepted() <= 2);
}

#[tokio::test]
async fn a_uri_without_an_authority_is_rejected() {
    let (_, connector) = CountingServer::new();
    let send = HyperClient::with_connector(connector);

    let sending = pin!(send.send(request("/mcp")));
    let error = sending.await.unwrap_err().to_string();

    assert!(error.contains("failed to connect to /mcp"), "{error}");
}
