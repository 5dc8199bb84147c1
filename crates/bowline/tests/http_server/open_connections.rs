//! Connections that wait for their clients make room for others: open heads, idle connections, and responses over HTTP/2
//! that are not read.

use std::net::SocketAddr;
use std::time::Duration;

use bowline::http::HttpService;
use bowline::{Client, Limit, Limits, Server};
use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::*;

async fn serve(connections: usize) -> (Server, SocketAddr, AbortOnDrop) {
    let server = ServerFixture::new().server.limits(Limits {
        connections,
        ..Limits::default()
    });
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let addr = bound.local_addr();
    let serving = tokio::spawn(async move { bound.serve().await.unwrap() });
    (server, addr, AbortOnDrop::new([serving]))
}

async fn open(to: SocketAddr, first: impl AsRef<[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(first.as_ref()).await.unwrap();
    stream
}

/// Sends a request on a new connection, and reads until the server closes it.
async fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = open(to, request).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Reads the head of a response, and nothing after it.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    head
}

/// A request that leaves its connection open.
async fn listen() -> String {
    let params = json!({"notifications": {}});
    let bytes = http1_bytes(modern_request(1, "subscriptions/listen", params)).await;
    String::from_utf8(bytes).unwrap()
}

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn open_heads_on_more_connections_than_the_limit_delay_no_other() {
    let (server, addr, _serving) = serve(32).await;
    let mut held = Vec::new();
    for first in [
        "",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "G",
    ] {
        for _ in 0..40 {
            held.push(open(addr, first).await);
        }

        assert!(exchange(addr, LIVEZ).await.starts_with("HTTP/1.1 200"));
        let client = Client::connect(&format!("http://{addr}/mcp")).await;
        let echoed = client
            .unwrap()
            .call_tool("echo", json!({"name": "x"}))
            .await;
        assert_eq!(echoed.unwrap().text(), r#"{"name":"x"}"#);
    }

    let usage = server.usage();
    assert!(usage.connections <= 8 + 2, "{usage:?}");
    assert!(usage.refused(Limit::Connections) >= 150, "{usage:?}");
    // The oldest went.
    assert!(matches!(held[0].read(&mut [0; 1]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn requests_without_an_end_on_every_connection_leave_room_for_probes() {
    let (server, addr, _serving) = serve(32).await;
    let mut busy = Vec::new();
    for _ in 0..30 {
        let mut stream = open(addr, listen().await).await;
        let head = head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        busy.push(stream);
    }

    for _ in 0..10 {
        let refused = exchange(addr, &listen().await).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.to_lowercase().contains("retry-after"), "{refused}");
        assert!(refused.contains("limit `connections`"), "{refused}");
        // Even if the probe wants to keep its connection.
        let probe = LIVEZ.replace("connection: close\r\n", "");
        assert!(exchange(addr, &probe).await.starts_with("HTTP/1.1 200"));
    }
    assert!(server.usage().refused(Limit::Connections) >= 20);

    drop(busy.pop());
    loop {
        let mut stream = open(addr, listen().await).await;
        // The server may not have noticed yet.
        if head(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn the_connection_that_has_been_idle_for_longest_is_closed_for_a_new_one() {
    let (_server, addr, _serving) = serve(16).await;
    let keep_alive = LIVEZ.replace("connection: close\r\n", "");
    let mut idle = Vec::new();
    for _ in 0..15 {
        let mut stream = open(addr, &keep_alive).await;
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
        stream.read_exact(&mut [0; 3]).await.unwrap();
        idle.push(stream);
    }
    // The first is used again, so that the second has been idle for longest.
    idle[0].write_all(keep_alive.as_bytes()).await.unwrap();
    assert!(head(&mut idle[0]).await.starts_with("HTTP/1.1 200"));
    idle[0].read_exact(&mut [0; 3]).await.unwrap();

    // Refused until the second has been idle for two seconds: a response may be on its way until then.
    let _late = loop {
        let mut late = open(addr, listen().await).await;
        if head(&mut late).await.starts_with("HTTP/1.1 200") {
            break late;
        }
    };

    assert!(matches!(idle[1].read(&mut [0; 1]).await, Ok(0) | Err(_)));
    for (number, stream) in idle.iter_mut().enumerate() {
        if number != 1 {
            stream.write_all(keep_alive.as_bytes()).await.unwrap();
            let head = head(stream).await;
            assert!(head.starts_with("HTTP/1.1 200"), "{number}: {head}");
        }
    }
}

type Sender = http2::SendRequest<Full<Bytes>>;

/// A connection whose client admits this many bytes of each response.
async fn with_window(service: &HttpService, window: u32) -> (Sender, AbortOnDrop) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service.clone();
    let serving = tokio::spawn(async move { service.serve_connection(far).await });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(near)).await.unwrap();
    let connecting = tokio::spawn(async move { drop(connection.await) });
    (sender, AbortOnDrop::new([serving, connecting]))
}

fn http2_call(name: &str) -> Request<Full<Bytes>> {
    let (mut head, body) = call(1, "echo", name).into_parts();
    head.uri = "http://localhost/mcp".parse().unwrap();
    head.headers.remove("host");
    Request::from_parts(head, body)
}

#[tokio::test(start_paused = true)]
async fn small_responses_over_http2_are_charged_until_the_client_has_read_them() {
    for window in [0, 1] {
        let service = ServerFixture::new().server.http();
        let (mut sender, tasks) = with_window(&service, window).await;
        let mut unread = Vec::new();
        for _ in 0..10 {
            sender.ready().await.unwrap();
            let response = sender
                .send_request(http2_call("a small response"))
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            unread.push(response);
        }

        let usage = service.usage();
        assert_eq!(usage.requests, 0, "the handlers have ended");
        assert!(usage.output_bytes > 10 * 4096, "window {window}: {usage:?}");

        drop((unread, sender, tasks));
        while service.usage().bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_over_http2_that_reads_nothing_is_refused_without_a_body() {
    let limits = Limits {
        peer_bytes: 100_000,
        ..Limits::default()
    };
    let service = ServerFixture::new().server.limits(limits).http();
    let (mut sender, _tasks) = with_window(&service, 0).await;
    let mut unread = Vec::new();

    let refused = loop {
        sender.ready().await.unwrap();
        let response = sender
            .send_request(http2_call("a small response"))
            .await
            .unwrap();
        // While there is room for the refusal, it says which limit was reached.
        if response.status() == 503 && response.body().is_end_stream() {
            break response;
        }
        unread.push(response);
        assert!(unread.len() < 60, "no request was refused");
    };

    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "");
    assert!(service.usage().refused(Limit::PeerBytes) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_http2_whose_client_reads_nothing_is_closed_although_it_answers_pings() {
    let service = ServerFixture::new().server.http();
    let (mut sender, _tasks) = with_window(&service, 0).await;
    let response = sender
        .send_request(http2_call("a small response"))
        .await
        .unwrap();
    let began = Instant::now();

    let read = response.into_body().collect().await;

    assert!(read.is_err(), "the connection was closed");
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(80), "{waited:?}");
    assert!(waited <= Duration::from_secs(160), "{waited:?}");
    while service.usage().bytes() > 0 {
        tokio::task::yield_now().await;
    }
}
