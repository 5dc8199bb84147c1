//! In the modern era a client that goes has cancelled its request: exactly that one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::http::HttpService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::*;

/// The service on a socket, and a raw connection to it.
async fn over_tcp(service: HttpService) -> (TcpStream, JoinHandle<bowline::Result<()>>) {
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    let addr = bound.addr();
    let serving = tokio::spawn(bound.serve());
    (TcpStream::connect(addr).await.unwrap(), serving)
}

#[tokio::test]
async fn a_disconnect_before_the_head_is_out_drops_the_handler() {
    let mut stage = Stage::new();
    // The delay never ends, so that the head cannot be out.
    let service = stage.server.http().commit_after(Duration::from_secs(3600));
    let (mut stream, _serving) = over_tcp(service.clone()).await;
    stream
        .write_all(&raw(call(1, "wait", "a")).await)
        .await
        .unwrap();
    stage.started("a").await;

    drop(stream);

    stage.dropped("a").await;
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test]
async fn a_disconnect_while_json_is_waited_for_drops_the_handler() {
    let mut stage = Stage::new();
    let (mut stream, _serving) = over_tcp(stage.server.http()).await;
    let request = with(call(1, "wait", "a"), "accept", "application/json");
    stream.write_all(&raw(request).await).await.unwrap();
    stage.started("a").await;

    drop(stream);

    stage.dropped("a").await;
}

#[tokio::test]
async fn a_client_that_closes_only_its_half_has_gone_too() {
    let mut stage = Stage::new();
    let (mut stream, _serving) = over_tcp(stage.server.http()).await;
    stream
        .write_all(&raw(call(1, "wait", "a")).await)
        .await
        .unwrap();
    stage.started("a").await;

    stream.shutdown().await.unwrap();

    stage.dropped("a").await;
}

#[tokio::test]
async fn a_disconnect_in_the_middle_of_a_stream_drops_the_handler() {
    let mut stage = Stage::new();
    let (mut stream, _serving) = over_tcp(stage.server.http()).await;
    stream
        .write_all(&raw(call_with_progress(1, "talk", "a")).await)
        .await
        .unwrap();
    stage.started("a").await;
    let mut head = [0; 64];
    stream.read_exact(&mut head).await.unwrap();

    drop(stream);

    stage.dropped("a").await;
}

/// The server's end of a connection, which reports when it is closed how many requests are in flight.
struct Reporting {
    io: DuplexStream,
    service: HttpService,
    report: Option<oneshot::Sender<usize>>,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let report = self.report.take().unwrap();
        let _ = report.send(self.service.in_flight());
    }
}

impl AsyncRead for Reporting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Reporting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_dropped_before_its_connection_is_closed() {
    for request in [call(1, "wait", "a"), call_with_progress(1, "talk", "a")] {
        let mut stage = Stage::new();
        let service = stage.server.http();
        let (mut near, far) = tokio::io::duplex(4096);
        let (report, reported) = oneshot::channel();
        let io = Reporting {
            io: far,
            service: service.clone(),
            report: Some(report),
        };
        let serving = service.clone();
        tokio::spawn(async move { serving.serve_connection(io).await });
        near.write_all(&raw(request).await).await.unwrap();
        stage.started("a").await;

        drop(near);

        assert_eq!(reported.await.unwrap(), 0, "requests in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_requests_on_an_http2_connection_is_cancelled_alone() {
    let mut stage = Stage::new();
    let mut link = Link::http2_to(&stage.server.http()).await;
    let kept = link.send(call_with_progress(1, "talk", "kept")).await;
    stage.started("kept").await;
    let lost = link.send(call_with_progress(2, "talk", "lost")).await;
    stage.started("lost").await;

    drop(lost);

    stage.dropped("lost").await;
    stage.release.notify_one();
    stage.finished("kept").await;
    assert_eq!(kept.messages().await.last().unwrap()["id"], 1);
    assert_eq!(link.send(call(3, "echo", "c")).await.json().await["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn on_http2_a_request_is_cancelled_before_its_head_is_out() {
    let mut stage = Stage::new();
    let service = stage.server.http().commit_after(Duration::from_secs(3600));
    let mut link = Link::http2_to(&service).await;

    tokio::select! {
        biased;
        reply = link.send(call(1, "wait", "a")) => panic!("too early: {reply:?}"),
        () = stage.started("a") => {}
    }

    stage.dropped("a").await;
    assert_eq!(link.send(call(2, "echo", "b")).await.json().await["id"], 2);
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_releases_its_subscription() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut link = Link::to(&service).await;
    let filter = serde_json::json!({"notifications": {"toolsListChanged": true}});
    let mut reply = link
        .send(modern("L1", "subscriptions/listen", filter))
        .await;
    reply.chunk().await.unwrap();
    assert_eq!(service.in_flight(), 1);

    drop((reply, link));

    while service.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_posted_cancel_is_accepted_and_concerns_nobody() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut first = Link::to(&service).await;
    let mut second = Link::to(&service).await;
    let reply = first.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    let cancel = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}});
    let cancel = with(post(&cancel), "mcp-protocol-version", "2026-07-28");
    let answer = second.send(cancel).await;

    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await, "");
    stage.release.notify_one();
    stage.finished("a").await;
    assert_eq!(reply.messages().await.last().unwrap()["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn two_connections_use_one_id_and_only_the_one_that_closes_is_cancelled() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut first = Link::to(&service).await;
    let mut second = Link::to(&service).await;
    let kept = first.send(call_with_progress(3, "talk", "kept")).await;
    stage.started("kept").await;
    let lost = second.send(call_with_progress(3, "talk", "lost")).await;
    stage.started("lost").await;

    drop((lost, second));

    stage.dropped("lost").await;
    stage.release.notify_one();
    stage.finished("kept").await;
    assert_eq!(kept.messages().await.last().unwrap()["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_modern_disconnect_cancels_whatever_is_kept_for_legacy_clients() {
    let mut stage = Stage::new();
    let legacy = bowline::http::legacy::Legacy::sessions();
    let legacy = legacy.event_store(bowline::http::legacy::MemoryStore::default);
    let service = stage.server.http().legacy(legacy);
    let mut link = Link::to(&service).await;
    let reply = link.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    drop((reply, link));

    stage.dropped("a").await;
}
