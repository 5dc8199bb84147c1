//! What a peer can make the server hold, and what is refused beyond that.

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

fn service(limits: Limits) -> (Stage, HttpService) {
    let mut stage = Stage::new();
    stage.server = stage.server.limits(limits);
    let service = stage.server.http();
    (stage, service)
}

/// A body that is sent piece by piece, and may never end.
struct Piecemeal(mpsc::Receiver<Bytes>);

fn piecemeal() -> (mpsc::Sender<Bytes>, Piecemeal) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Piecemeal(receiver))
}

impl Body for Piecemeal {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A connection over HTTP/2 whose requests have bodies that are sent piece by piece.
async fn http2(service: &HttpService) -> (http2::SendRequest<Piecemeal>, Tasks) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service.clone();
    let serving = tokio::spawn(async move { service.serve_connection(far).await });
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await;
    let (sender, connection) = shaken.unwrap();
    let connecting = tokio::spawn(async move { drop(connection.await) });
    (sender, Tasks::of([serving, connecting]))
}

fn post(body: Piecemeal) -> Request<Piecemeal> {
    let (mut head, _) = call(1, "echo", "x").into_parts();
    head.uri = "http://localhost/mcp".parse().unwrap();
    head.headers.remove("host");
    head.headers.remove("content-length");
    Request::from_parts(head, body)
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_its_place_before_its_body_is_read() {
    let (stage, service) = service(Limits {
        requests: 4,
        ..Limits::default()
    });
    let (mut sender, _tasks) = http2(&service).await;

    let mut open = Vec::new();
    let mut responses = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (pieces, body) = piecemeal();
        pieces.send(Bytes::from_static(b"{")).await.unwrap();
        open.push(pieces);
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
    let usage = stage.server.usage();
    assert_eq!((usage.requests, usage.refused(Limit::Requests)), (4, 46));
    drop((open, responses, sender, _tasks));
    settled(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_for_which_there_is_no_room_is_not_read_and_then_refused() {
    let (stage, service) = service(Limits {
        peer_bytes: 200_000,
        ..Limits::default()
    });
    let (mut sender, tasks) = http2(&service).await;

    // Each sends 1 MB, if it is read.
    let mut responses = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (pieces, body) = piecemeal();
        tokio::spawn(async move {
            for _ in 0..100 {
                if pieces.send(vec![b' '; 10_000].into()).await.is_err() {
                    return;
                }
            }
            std::future::pending().await
        });
        responses.spawn(sender.send_request(post(body)));
    }
    let mut most = 0;
    let mut errors = Vec::new();
    while let Some(response) = responses.join_next().await {
        let response = response.unwrap().unwrap();
        most = most.max(stage.server.usage().request_bytes);
        assert_eq!(response.status(), 503);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error: Value = serde_json::from_slice(&body).unwrap();
        errors.push(error["error"]["data"]["limit"].clone());
        if errors.len() == 9 {
            break;
        }
    }

    assert!(most <= 200_000, "{most} bytes were held");
    assert_eq!(errors, vec![json!("peer_bytes"); 9]);
    drop((responses, sender, tasks));
    settled(&service).await;
}

#[tokio::test(start_paused = true)]
async fn few_large_bodies_that_never_end_do_not_keep_small_requests_out() {
    let (_stage, service) = service(Limits {
        total_bytes: 4_000_000,
        ..Limits::default()
    });
    let mut held = Vec::new();
    for _ in 0..20 {
        let (mut near, far) = tokio::io::duplex(16 * 1024 * 1024);
        let of_stranger = service.clone();
        tokio::spawn(async move { of_stranger.serve_connection(far).await });
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    accept: application/json\r\ncontent-length: 1000000\r\n\r\n";
        near.write_all(head.as_bytes()).await.unwrap();
        near.write_all(&vec![b' '; 999_999]).await.unwrap();
        held.push(near);
    }
    // As much is read as there is room for.
    while service.usage().request_bytes < 2_500_000 {
        tokio::task::yield_now().await;
    }

    let answered = Link::to(&service).await.send(call(1, "echo", "x")).await;

    assert_eq!(answered.status(), 200);
    assert!(service.usage().request_bytes <= 4_000_000);
    drop(held);
    settled(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_is_as_long_as_its_limit_over_http_1_and_2() {
    let with_token = |length| {
        let token = "x".repeat(length);
        with(call(1, "echo", "x"), "authorization", &token)
    };
    for head_bytes in [16 * 1024, 64 * 1024] {
        let (stage, service) = service(Limits {
            head_bytes,
            ..Limits::default()
        });
        for (length, status) in [(head_bytes - 1000, 200), (head_bytes + 1000, 431)] {
            let mut http1 = Link::to(&service).await;
            let mut http2 = Link::http2_to(&service).await;

            assert_eq!(http1.send(with_token(length)).await.status(), status);
            assert_eq!(http2.send(with_token(length)).await.status(), status);
        }
        settled(&service).await;
        while stage.server.usage().refused(Limit::HeadBytes) == 0 {
            tokio::task::yield_now().await; // counted when the connection is at its end
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_charged_until_the_client_has_read_it() {
    let (stage, service) = service(Limits {
        peer_bytes: 9_000_000,
        ..Limits::default()
    });
    let mut link = Link::http2_to(&service).await;
    let text = "x".repeat(2_500_000);

    // What does not fit into the windows of this client stays with the server.
    let mut unread = Vec::new();
    let refused = loop {
        let reply = link.send(call(1, "echo", &text)).await;
        let length = reply.header("content-length").map(str::parse::<usize>);
        match length.unwrap().unwrap() {
            ..1000 => break reply.json().await,
            _ => unread.push(reply),
        }
        assert!(unread.len() < 10, "nothing is refused");
    };
    let held = stage.server.usage().output_bytes;
    for reply in unread {
        reply.text().await;
    }

    assert!(held > 2_500_000, "{held} bytes are held");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`peer_bytes`"),
        "{refused}"
    );
    settled(&service).await;
    assert_eq!(link.send(call(2, "echo", "x")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn what_one_principal_holds_is_not_taken_from_another() {
    let (mut stage, service) = service(Limits {
        principal_requests: 1,
        ..Limits::default()
    });
    let on_behalf_of =
        async |id, tool, name, who| ask(&service, on_behalf(call(id, tool, name), who)).await;
    let held = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, on_behalf(call(1, "wait", "a"), "ada")).await }
    });
    stage.started("a").await;

    let refused = on_behalf_of(2, "echo", "b", "ada").await;
    let other = on_behalf_of(3, "echo", "c", "bob").await;

    assert_eq!(
        (refused.status().as_u16(), other.status().as_u16()),
        (503, 200)
    );
    assert_eq!(stage.server.usage().refused(Limit::PrincipalRequests), 1);
    held.abort();
}

#[tokio::test(start_paused = true)]
async fn a_head_takes_up_room_too() {
    let (_stage, service) = service(Limits {
        total_bytes: 30_000,
        ..Limits::default()
    });
    let mut long = call(1, "echo", "x");
    let value = "x".repeat(30_000).parse().unwrap();
    long.headers_mut().insert("x-long", value);

    assert_eq!(ask(&service, long).await.status(), 503);
    assert_eq!(ask(&service, call(1, "echo", "x")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_in_the_middle_of_a_body_gives_everything_back() {
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
    settled(&service).await;
}

/// Waits until nothing is held.
async fn settled(service: &HttpService) {
    let nothing = async {
        while service.usage().requests > 0 || service.usage().bytes() > 0 {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), nothing)
        .await
        .unwrap_or_else(|_| panic!("{:?} is still held", service.usage()));
}
