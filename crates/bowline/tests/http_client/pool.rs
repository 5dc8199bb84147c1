//! Which connection a request leaves by, and what becomes of it afterwards.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::http::client::{HttpSend, HyperSend, RequestBody, ResponseBody};
use bowline::testing::Pipes;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;
use tokio::sync::{Barrier, mpsc, watch};

/// Connections as they are seen from the server.
#[derive(Clone)]
struct Door {
    open: watch::Sender<usize>,
    /// How many there ever were.
    made: Arc<Mutex<usize>>,
}

impl Door {
    /// A server that answers `/` at once, and at `/stream` says one word and then nothing.
    fn new() -> (Self, Pipes) {
        let door = Self {
            open: watch::Sender::new(0),
            made: Arc::default(),
        };
        let visited = door.clone();
        let pipes = Pipes::with(move |far| {
            tokio::spawn(visited.clone().serve(far));
        });
        (door, pipes)
    }

    async fn serve(self, far: DuplexStream) {
        *self.made.lock().unwrap() += 1;
        self.open.send_modify(|open| *open += 1);
        let service = service_fn(async |request: Request<hyper::body::Incoming>| {
            let is_endless = request.uri().path() == "/stream";
            let word = Some(Bytes::from_static(b"word"));
            Ok::<_, Infallible>(Response::new(Words { word, is_endless }))
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http2().max_concurrent_streams(MOST_STREAMS);
        let _ = builder.serve_connection(TokioIo::new(far), service).await;
        self.open.send_modify(|open| *open -= 1);
    }

    fn made(&self) -> usize {
        *self.made.lock().unwrap()
    }

    async fn has_open(&self, count: usize) {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open == count).await.unwrap();
    }
}

/// A body of one word.
struct Words {
    word: Option<Bytes>,
    is_endless: bool,
}

impl Body for Words {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.word.take() {
            Some(word) => Poll::Ready(Some(Ok(Frame::data(word)))),
            None if self.is_endless => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

const MOST_STREAMS: u32 = 4;

fn over(pipes: Pipes, http2: bool) -> HyperSend {
    match http2 {
        true => HyperSend::over_http2(pipes),
        false => HyperSend::over(pipes),
    }
}

fn request(uri: &str) -> Request<RequestBody> {
    let body = RequestBody::from(Bytes::from_static(b"{}"));
    Request::post(uri).body(body).unwrap()
}

async fn head(send: &HyperSend, uri: &str) -> Response<ResponseBody> {
    send.send(request(uri)).await.unwrap()
}

/// The text of the response.
async fn ask(send: &HyperSend, uri: &str) -> Bytes {
    let response = head(send, uri).await;
    response.into_body().collect(1_000).await.unwrap()
}

#[tokio::test]
async fn a_connection_whose_response_was_read_is_used_again() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(pipes);

    for _ in 0..3 {
        assert_eq!(ask(&send, "http://tools.example/").await, "word");
    }

    assert_eq!(door.made(), 1);
}

#[tokio::test]
async fn requests_at_once_have_a_connection_each_and_all_are_kept() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(pipes);
    let url = "http://tools.example/";

    for _ in 0..2 {
        let (one, other) = tokio::join!(head(&send, url), head(&send, url));
        one.into_body().collect(1_000).await.unwrap();
        other.into_body().collect(1_000).await.unwrap();
    }

    assert_eq!(door.made(), 2);
}

#[tokio::test]
async fn servers_do_not_share_connections() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(pipes);
    let urls = [
        "http://a.example/",
        "http://b.example/",
        "http://a.example:81/",
        "https://a.example/",
    ];

    for url in urls.iter().chain(&urls) {
        ask(&send, url).await;
    }

    assert_eq!(door.made(), urls.len());
}

#[tokio::test]
async fn a_response_that_is_let_go_of_takes_its_connection_with_it_and_no_other() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(pipes);
    let (stream, kept) = tokio::join!(
        head(&send, "http://tools.example/stream"),
        head(&send, "http://tools.example/")
    );
    kept.into_body().collect(1_000).await.unwrap();
    door.has_open(2).await;

    drop(stream);
    door.has_open(1).await;
    ask(&send, "http://tools.example/").await;

    assert_eq!(door.made(), 2, "the one that rested was used again");
}

/// Pipes whose far ends are handed to the test.
fn by_hand() -> (HyperSend, mpsc::UnboundedReceiver<DuplexStream>) {
    let (accepted, accept) = mpsc::unbounded_channel();
    let pipes = Pipes::with(move |far| accepted.send(far).unwrap());
    (HyperSend::over(pipes), accept)
}

/// Reads one request and answers it; what was read.
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
async fn a_request_does_not_fail_because_the_server_has_closed_what_rested() {
    let (send, mut accept) = by_hand();
    let url = "http://tools.example/";
    let serve_one = async {
        let mut far = accept.recv().await.unwrap();
        answer(&mut far).await;
        far
    };
    let (_, far) = tokio::join!(ask(&send, url), serve_one);

    // Nobody has had a chance to see it when the next request takes the connection.
    drop(far);
    let serve_another = async {
        let mut far = accept.recv().await.unwrap();
        answer(&mut far).await;
        far
    };
    let (text, far) = tokio::join!(ask(&send, url), serve_another);

    assert_eq!(text, "word");

    // And now it has been seen.
    drop(far);
    tokio::task::yield_now().await;
    let serve_third = async { answer(&mut accept.recv().await.unwrap()).await };
    let (text, _) = tokio::join!(ask(&send, url), serve_third);
    assert_eq!(text, "word");
}

#[tokio::test]
async fn a_server_that_closes_what_is_new_is_not_asked_again() {
    let (send, mut accept) = by_hand();
    let hang_up = async { drop(accept.recv().await.unwrap()) };

    let (outcome, ()) = tokio::join!(send.send(request("http://tools.example/")), hang_up);

    let told = outcome.unwrap_err().to_string();
    assert!(told.contains("http://tools.example/"), "{told}");
    assert!(accept.try_recv().is_err(), "there is one connection only");
}

#[tokio::test]
async fn a_request_says_which_host_it_is_for() {
    let (send, mut accept) = by_hand();
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
        let (_, read) = tokio::join!(ask(&send, url), serve);

        assert!(read.starts_with("POST /mcp?a=b HTTP/1.1\r\n"), "{read}");
        assert!(read.contains(&format!("\r\nhost: {host}\r\n")), "{read}");
    }
}

#[tokio::test]
async fn a_request_that_names_its_host_itself_is_left_as_it_is() {
    let (send, mut accept) = by_hand();
    let mut request = request("http://127.0.0.1:8000/mcp");
    let headers = request.headers_mut();
    headers.insert(http::header::HOST, "tools.example".parse().unwrap());

    let serve = async { answer(&mut accept.recv().await.unwrap()).await };
    let (_, read) = tokio::join!(send.send(request), serve);

    assert!(read.contains("\r\nhost: tools.example\r\n"), "{read}");
    assert!(!read.contains("127.0.0.1"), "{read}");
}

/// Makes connections as TLS does: what they speak is known once they are there, which takes its time.
#[derive(Clone)]
struct Negotiating {
    pipes: Pipes,
    speaks_http2: bool,
    /// All handshakes but the first wait here for each other.
    others: Arc<Barrier>,
    first: Arc<AtomicBool>,
}

impl Negotiating {
    fn new(pipes: Pipes, speaks_http2: bool) -> Self {
        Self {
            pipes,
            speaks_http2,
            others: Arc::new(Barrier::new(2)),
            first: Arc::new(AtomicBool::new(true)),
        }
    }
}

struct Negotiated {
    stream: TokioIo<DuplexStream>,
    speaks_http2: bool,
}

impl tower_service::Service<Uri> for Negotiating {
    type Response = Negotiated;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Negotiated, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            if this.first.swap(false, Ordering::Relaxed) {
                tokio::task::yield_now().await;
            } else {
                this.others.wait().await;
            }
            Ok(Negotiated {
                stream: TokioIo::new(this.pipes.open()),
                speaks_http2: this.speaks_http2,
            })
        })
    }
}

impl Connection for Negotiated {
    fn connected(&self) -> Connected {
        match self.speaks_http2 {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}

impl hyper::rt::Read for Negotiated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Negotiated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn requests_share_a_connection_that_turns_out_to_speak_http2() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(Negotiating::new(pipes, true));
    let url = "https://tools.example/";

    let (a, b, c) = tokio::join!(ask(&send, url), ask(&send, url), ask(&send, url));
    ask(&send, url).await;

    assert_eq!([a, b, c], ["word"; 3]);
    assert_eq!(door.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shared_connection_that_is_full_keeps_nobody_waiting() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over_http2(pipes);
    let url = "http://tools.example/stream";

    let mut streams = Vec::new();
    for _ in 0..2 * MOST_STREAMS {
        let opening = tokio::time::timeout(Duration::from_secs(60), head(&send, url));
        streams.push(opening.await.expect("there is room"));
    }
    let full = door.made();
    streams.pop();
    streams.remove(0);
    for _ in 0..2 {
        streams.push(head(&send, url).await);
    }

    assert_eq!((full, door.made()), (2, 2));
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_connection_that_turns_out_not_to_be_shared() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(Negotiating::new(pipes, false));
    let url = "https://tools.example/";

    let asking = async { tokio::join!(ask(&send, url), ask(&send, url), ask(&send, url)) };
    let asked = tokio::time::timeout(Duration::from_secs(60), asking).await;

    assert!(asked.is_ok(), "two handshakes are made at once");
    assert_eq!(door.made(), 3);
}

#[tokio::test]
async fn what_has_rested_for_long_is_closed() {
    tokio::time::pause();
    for http2 in [false, true] {
        let (door, pipes) = Door::new();
        let send = over(pipes, http2);
        let begun = tokio::time::Instant::now();
        ask(&send, "http://tools.example/").await;

        door.has_open(0).await;

        let rested = begun.elapsed();
        assert!(rested >= Duration::from_secs(45), "{rested:?}");
        assert!(rested <= Duration::from_secs(91), "{rested:?}");
        ask(&send, "http://tools.example/").await;
        assert_eq!(door.made(), 2);
    }
}

#[tokio::test]
async fn what_is_in_use_is_not_closed_however_long_it_takes() {
    tokio::time::pause();
    let url = "http://tools.example/";
    for (http2, made) in [(false, 3), (true, 1)] {
        let (door, pipes) = Door::new();
        let send = over(pipes, http2);
        let stream = head(&send, "http://tools.example/stream").await;
        ask(&send, url).await;

        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(30)).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        assert_eq!(*door.open.borrow(), 1, "the one with the stream");
        ask(&send, url).await;
        assert_eq!(door.made(), made);
        drop(stream);
    }
}

#[tokio::test]
async fn dropping_the_sender_closes_what_rests_and_leaves_no_task() {
    let before = Handle::current().metrics().num_alive_tasks();
    for http2 in [false, true] {
        let (door, pipes) = Door::new();
        let send = over(pipes, http2);
        ask(&send, "http://tools.example/").await;

        drop(send);

        door.has_open(0).await;
        while Handle::current().metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_response_may_be_dropped_where_there_is_no_runtime() {
    let (door, pipes) = Door::new();
    let send = HyperSend::over(pipes);
    let response = head(&send, "http://tools.example/").await;

    std::thread::spawn(move || drop(response)).join().unwrap();

    ask(&send, "http://tools.example/").await;
    assert!(door.made() <= 2);
}

#[tokio::test]
async fn an_address_without_a_server_is_refused() {
    let (_, pipes) = Door::new();
    let send = HyperSend::over(pipes);

    let sending = pin!(send.send(request("/mcp")));
    let told = sending.await.unwrap_err().to_string();

    assert!(told.contains("no connection to /mcp"), "{told}");
}
