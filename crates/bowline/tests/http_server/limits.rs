//! Limits on the requests and bytes that the server holds for its peers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::http::HttpService;
use bowline::{Limit, Limits};
use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::support::*;

fn service(limits: Limits) -> (ServerFixture, HttpService) {
    let mut fixture = ServerFixture::new();
    fixture.server = fixture.server.limits(limits);
    let service = fixture.server.http();
    (fixture, service)
}

/// A body that receives its chunks over a channel, and may never end.
struct ChannelBody(mpsc::Receiver<Bytes>);

fn channel_body() -> (mpsc::Sender<Bytes>, ChannelBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, ChannelBody(receiver))
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.0.poll_recv(cx);
        chunk.map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// An HTTP/2 connection whose requests have [`ChannelBody`]s.
async fn http2_connection(service: &HttpService) -> (http2::SendRequest<ChannelBody>, AbortOnDrop) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service.clone();
    let serving = tokio::spawn(async move { service.serve_connection(far).await });
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await;
    let (sender, connection) = handshake.unwrap();
    let connecting = tokio::spawn(async move { drop(connection.await) });
    (sender, AbortOnDrop::new([serving, connecting]))
}

fn post(body: ChannelBody) -> Request<ChannelBody> {
    let (mut head, _) = call(1, "echo", "x").into_parts();
    head.uri = "http://localhost/mcp".parse().unwrap();
    head.headers.remove("host");
    head.headers.remove("content-length");
    Request::from_parts(head, body)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_counted_before_its_body_is_read() {
    let (fixture, service) = service(Limits {
        requests: 4,
        ..Limits::default()
    });
    let (mut sender, _tasks) = http2_connection(&service).await;

    let mut open = Vec::new();
    let mut responses = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (chunks, body) = channel_body();
        chunks.send(Bytes::from_static(b"{")).await.unwrap();
        open.push(chunks);
        sender.ready().await.unwrap();
        responses.spawn(sender.send_request(post(body)));
    }
    let mut refused = 0;
    while refused < 46 {
        let response = responses.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(response.status(), 503);
        refused += 1;
    }

    assert_eq!(service.in_flight(), 4);
    let usage = fixture.server.usage();
    assert_eq!((usage.requests, usage.refused(Limit::Requests)), (4, 46));
    drop((open, responses, sender, _tasks));
    wait_until_idle(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_byte_limit_is_not_read_and_is_refused() {
    let (fixture, service) = service(Limits {
        peer_bytes: 200_000,
        ..Limits::default()
    });
    let (mut sender, tasks) = http2_connection(&service).await;

    // Each body has 1 MB.
    let mut responses = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (chunks, body) = channel_body();
        tokio::spawn(async move {
            for _ in 0..100 {
                if chunks.send(vec![b' '; 10_000].into()).await.is_err() {
                    return;
                }
            }
            std::future::pending().await
        });
        responses.spawn(sender.send_request(post(body)));
    }
    let mut max_held = 0;
    let mut errors = Vec::new();
    while let Some(response) = responses.join_next().await {
        let response = response.unwrap().unwrap();
        max_held = max_held.max(fixture.server.usage().request_bytes);
        assert_eq!(response.status(), 503);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error: Value = serde_json::from_slice(&body).unwrap();
        errors.push(error["error"]["data"]["limit"].clone());
        if errors.len() == 9 {
            break;
        }
    }

    assert!(max_held <= 200_000, "{max_held} bytes were held");
    assert_eq!(errors, vec![json!("peer_bytes"); 9]);
    drop((responses, sender, tasks));
    wait_until_idle(&service).await;
}

#[tokio::test(start_paused = true)]
async fn unfinished_large_bodies_do_not_block_small_requests() {
    let (_stage, service) = service(Limits {
        total_bytes: 4_000_000,
        ..Limits::default()
    });
    let mut held = Vec::new();
    for _ in 0..20 {
        let (mut near, far) = tokio::io::duplex(16 * 1024 * 1024);
        let serving = service.clone();
        tokio::spawn(async move { serving.serve_connection(far).await });
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    accept: application/json\r\ncontent-length: 1000000\r\n\r\n";
        near.write_all(head.as_bytes()).await.unwrap();
        near.write_all(&vec![b' '; 999_999]).await.unwrap();
        held.push(near);
    }
    // The server reads until the limit is reached.
    while service.usage().request_bytes < 2_500_000 {
        tokio::task::yield_now().await;
    }

    let answered = PlainConnection::http1(&service)
        .await
        .send(call(1, "echo", "x"))
        .await;

    assert_eq!(answered.status(), 200);
    assert!(service.usage().request_bytes <= 4_000_000);
    drop(held);
    wait_until_idle(&service).await;
}

#[tokio::test(start_paused = true)]
async fn the_head_limit_applies_to_http_1_and_http_2() {
    let with_token = |length| {
        let token = "x".repeat(length);
        with_header(call(1, "echo", "x"), "authorization", &token)
    };
    for head_bytes in [16 * 1024, 64 * 1024] {
        let (fixture, service) = service(Limits {
            head_bytes,
            ..Limits::default()
        });
        for (length, status) in [(head_bytes - 1000, 200), (head_bytes + 1000, 431)] {
            let mut http1 = PlainConnection::http1(&service).await;
            let mut http2 = PlainConnection::http2(&service).await;

            assert_eq!(http1.send(with_token(length)).await.status(), status);
            assert_eq!(http2.send(with_token(length)).await.status(), status);
        }
        wait_until_idle(&service).await;
        while fixture.server.usage().refused(Limit::HeadBytes) == 0 {
            tokio::task::yield_now().await; // counted when the connection ends
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_response_is_charged_until_the_client_has_read_it() {
    let (fixture, service) = service(Limits {
        peer_bytes: 9_000_000,
        ..Limits::default()
    });
    let mut connection = PlainConnection::http2(&service).await;
    let text = "x".repeat(2_500_000);

    // The server holds what exceeds the flow-control window of this client.
    let mut unread = Vec::new();
    let refused = loop {
        let response = connection.send(call(1, "echo", &text)).await;
        let length = response.header("content-length").map(str::parse::<usize>);
        match length.unwrap().unwrap() {
            ..1000 => break response.json().await,
            _ => unread.push(response),
        }
        assert!(unread.len() < 10, "no request was refused");
    };
    let held = fixture.server.usage().output_bytes;
    for response in unread {
        response.text().await;
    }

    assert!(held > 2_500_000, "{held} bytes are held");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`peer_bytes`"),
        "{refused}"
    );
    wait_until_idle(&service).await;
    assert_eq!(connection.send(call(2, "echo", "x")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_one_principal_do_not_count_against_another() {
    let (mut fixture, service) = service(Limits {
        principal_requests: 1,
        ..Limits::default()
    });
    let call_as = async |id, tool, name, who| {
        call_service(&service, with_principal(call(id, tool, name), who)).await
    };
    let held = tokio::spawn({
        let service = service.clone();
        async move { call_service(&service, with_principal(call(1, "wait", "a"), "ada")).await }
    });
    fixture.handler_started("a").await;

    let refused = call_as(2, "echo", "b", "ada").await;
    let other = call_as(3, "echo", "c", "bob").await;

    assert_eq!(
        (refused.status().as_u16(), other.status().as_u16()),
        (503, 200)
    );
    assert_eq!(fixture.server.usage().refused(Limit::PrincipalRequests), 1);
    held.abort();
}

#[tokio::test(start_paused = true)]
async fn a_head_is_charged_too() {
    let (_stage, service) = service(Limits {
        total_bytes: 30_000,
        ..Limits::default()
    });
    let mut long = call(1, "echo", "x");
    let value = "x".repeat(30_000).parse().unwrap();
    long.headers_mut().insert("x-long", value);

    assert_eq!(call_service(&service, long).await.status(), 503);
    assert_eq!(
        call_service(&service, call(1, "echo", "x")).await.status(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_closed_in_the_middle_of_a_body_releases_its_charges() {
    let (_stage, service) = service(Limits::default());
    let (mut near, far) = tokio::io::duplex(1024);
    let serving = tokio::spawn({
        let service = service.clone();
        async move { service.serve_connection(far).await }
    });
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                accept: application/json\r\ncontent-length: 100000\r\n\r\n";
    near.write_all(head.as_bytes()).await.unwrap();
    near.write_all(&[b' '; 50_000]).await.unwrap();
    assert_eq!(service.in_flight(), 1);

    drop(near);

    serving.await.unwrap();
    wait_until_idle(&service).await;
}

/// Waits until the service holds no requests and no bytes.
async fn wait_until_idle(service: &HttpService) {
    let released = async {
        while service.usage().requests > 0 || service.usage().bytes() > 0 {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), released)
        .await
        .unwrap_or_else(|_| panic!("{:?} is still held", service.usage()));
}
