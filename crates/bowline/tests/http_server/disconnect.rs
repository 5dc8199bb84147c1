//! In the modern era a disconnect cancels the requests of that connection, and no others.

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

/// Serves on a TCP socket, and returns a raw connection to it with the serving task.
async fn over_tcp(service: HttpService) -> (TcpStream, JoinHandle<bowline::Result<()>>) {
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    let addr = bound.local_addr();
    let serving = tokio::spawn(bound.serve());
    (TcpStream::connect(addr).await.unwrap(), serving)
}

#[tokio::test]
async fn a_disconnect_before_the_head_is_sent_drops_the_handler() {
    let mut fixture = ServerFixture::new();
    // The head is not sent before the commit delay.
    let service = fixture
        .server
        .http()
        .stream_after(Duration::from_secs(3600));
    let (mut stream, _serving) = over_tcp(service.clone()).await;
    stream
        .write_all(&http1_bytes(call(1, "wait", "a")).await)
        .await
        .unwrap();
    fixture.handler_started("a").await;

    drop(stream);

    fixture.handler_dropped("a").await;
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test]
async fn a_disconnect_before_a_json_response_drops_the_handler() {
    let mut fixture = ServerFixture::new();
    let (mut stream, _serving) = over_tcp(fixture.server.http()).await;
    let request = with_header(call(1, "wait", "a"), "accept", "application/json");
    stream.write_all(&http1_bytes(request).await).await.unwrap();
    fixture.handler_started("a").await;

    drop(stream);

    fixture.handler_dropped("a").await;
}

#[tokio::test]
async fn a_half_close_by_the_client_drops_the_handler() {
    let mut fixture = ServerFixture::new();
    let (mut stream, _serving) = over_tcp(fixture.server.http()).await;
    stream
        .write_all(&http1_bytes(call(1, "wait", "a")).await)
        .await
        .unwrap();
    fixture.handler_started("a").await;

    stream.shutdown().await.unwrap();

    fixture.handler_dropped("a").await;
}

#[tokio::test]
async fn a_disconnect_in_the_middle_of_a_stream_drops_the_handler() {
    let mut fixture = ServerFixture::new();
    let (mut stream, _serving) = over_tcp(fixture.server.http()).await;
    stream
        .write_all(&http1_bytes(call_with_progress(1, "progress", "a")).await)
        .await
        .unwrap();
    fixture.handler_started("a").await;
    let mut head = [0; 64];
    stream.read_exact(&mut head).await.unwrap();

    drop(stream);

    fixture.handler_dropped("a").await;
}

/// The server end of a connection. Reports on close how many requests are in flight.
struct ReportOnClose {
    io: DuplexStream,
    service: HttpService,
    report: Option<oneshot::Sender<usize>>,
}

impl Drop for ReportOnClose {
    fn drop(&mut self) {
        let report = self.report.take().unwrap();
        let _ = report.send(self.service.in_flight());
    }
}

impl AsyncRead for ReportOnClose {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ReportOnClose {
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
    for request in [call(1, "wait", "a"), call_with_progress(1, "progress", "a")] {
        let mut fixture = ServerFixture::new();
        let service = fixture.server.http();
        let (mut near, far) = tokio::io::duplex(4096);
        let (report, reported) = oneshot::channel();
        let io = ReportOnClose {
            io: far,
            service: service.clone(),
            report: Some(report),
        };
        let serving = service.clone();
        tokio::spawn(async move { serving.serve_connection(io).await });
        near.write_all(&http1_bytes(request).await).await.unwrap();
        fixture.handler_started("a").await;

        drop(near);

        assert_eq!(reported.await.unwrap(), 0, "requests in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_requests_on_an_http2_connection_is_cancelled_alone() {
    let mut fixture = ServerFixture::new();
    let mut connection = PlainConnection::http2(&fixture.server.http()).await;
    let kept = connection.start_call(&mut fixture, 1, "kept").await;
    let lost = connection.start_call(&mut fixture, 2, "lost").await;

    drop(lost);

    fixture.handler_dropped("lost").await;
    fixture.release.notify_one();
    fixture.handler_finished("kept").await;
    assert_eq!(kept.messages().await.last().unwrap()["id"], 1);
    assert_eq!(
        connection.send(call(3, "echo", "c")).await.json().await["id"],
        3
    );
}

#[tokio::test(start_paused = true)]
async fn on_http2_a_reset_before_the_head_is_sent_cancels_the_request() {
    let mut fixture = ServerFixture::new();
    let service = fixture
        .server
        .http()
        .stream_after(Duration::from_secs(3600));
    let mut connection = PlainConnection::http2(&service).await;

    tokio::select! {
        biased;
        response = connection.send(call(1, "wait", "a")) => panic!("too early: {response:?}"),
        () = fixture.handler_started("a") => {}
    }

    fixture.handler_dropped("a").await;
    assert_eq!(
        connection.send(call(2, "echo", "b")).await.json().await["id"],
        2
    );
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_releases_its_subscription() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http1(&service).await;
    let filter = serde_json::json!({"notifications": {"toolsListChanged": true}});
    let mut response = connection
        .send(modern_request("L1", "subscriptions/listen", filter))
        .await;
    response.chunk().await.unwrap();
    assert_eq!(service.in_flight(), 1);

    drop((response, connection));

    while service.in_flight() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_posted_cancel_is_accepted_and_ignored() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut first = PlainConnection::http1(&service).await;
    let mut second = PlainConnection::http1(&service).await;
    let response = first.send(call_with_progress(1, "progress", "a")).await;
    fixture.handler_started("a").await;

    let cancel = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}});
    let cancel = with_header(post(&cancel), "mcp-protocol-version", "2026-07-28");
    let answer = second.send(cancel).await;

    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await, "");
    fixture.release.notify_one();
    fixture.handler_finished("a").await;
    assert_eq!(response.messages().await.last().unwrap()["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn two_connections_use_one_id_and_only_the_one_that_closes_is_cancelled() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut first = PlainConnection::http1(&service).await;
    let mut second = PlainConnection::http1(&service).await;
    let kept = first.send(call_with_progress(3, "progress", "kept")).await;
    fixture.handler_started("kept").await;
    let lost = second.send(call_with_progress(3, "progress", "lost")).await;
    fixture.handler_started("lost").await;

    drop((lost, second));

    fixture.handler_dropped("lost").await;
    fixture.release.notify_one();
    fixture.handler_finished("kept").await;
    assert_eq!(kept.messages().await.last().unwrap()["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_modern_disconnect_cancels_even_with_a_legacy_event_store() {
    let mut fixture = ServerFixture::new();
    let legacy = bowline::http::legacy::Legacy::sessions();
    let legacy = legacy.event_store(bowline::http::legacy::MemoryEventStore::default);
    let service = fixture.server.http().legacy(legacy);
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.start_call(&mut fixture, 1, "a").await;

    drop((response, connection));

    fixture.handler_dropped("a").await;
}
