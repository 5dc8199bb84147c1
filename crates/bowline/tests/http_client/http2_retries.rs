//! Retries of HTTP/2 requests: only those that the server provably did not process. The stream limit of the server
//! is known before the second request.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::{Client, Error};
use h2::Reason;
use h2::server::Builder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::http2_server::{Http2Server, Io, answer, message, serve};

async fn connect(server: &Http2Server) -> Client {
    let url = server.listen().await;
    let connect = Client::connect(&url).http2();
    connect.protocol_version("2026-07-28").await.unwrap()
}

/// A server that resets the first `refusals` streams with `REFUSED_STREAM`.
fn refusing_server(refusals: usize) -> (Http2Server, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let server = Http2Server::new(move |_, io| {
        let seen = seen.clone();
        async move {
            serve(io, &Builder::new(), |request, mut respond| {
                let is_refused = seen.fetch_add(1, Ordering::SeqCst) < refusals;
                async move {
                    match is_refused {
                        true => respond.send_reset(Reason::REFUSED_STREAM),
                        false => answer(request, respond).await,
                    }
                }
            })
            .await;
        }
    });
    (server, counted)
}

#[tokio::test]
async fn a_request_reset_with_refused_stream_is_retried_on_another_connection() {
    let (server, seen) = refusing_server(1);
    let client = connect(&server).await;

    let result = client.call_tool("once", ()).await;

    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(
        (seen.load(Ordering::SeqCst), server.accepted_count()),
        (2, 2)
    );
}

#[tokio::test]
async fn retries_of_refused_streams_are_bounded() {
    let (server, seen) = refusing_server(usize::MAX);
    let client = connect(&server).await;

    let refused = client.call_tool("once", ()).await;

    assert!(
        matches!(refused, Err(Error::Transport { .. })),
        "{refused:?}"
    );
    let seen = seen.load(Ordering::SeqCst);
    assert!((2..=5).contains(&seen), "{seen}");
}

/// Reads one frame: its type and its stream.
async fn frame(io: &mut Box<dyn Io>) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    io.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    io.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], stream))
}

/// Accepts one request, sends GOAWAY with `last` as the last processed stream, and closes the connection.
async fn go_away(mut io: Box<dyn Io>, last: u32) {
    let mut preface = [0; 24];
    io.read_exact(&mut preface).await.unwrap();
    io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    while let Some((kind, stream)) = frame(&mut io).await {
        if kind == HEADERS {
            assert_eq!(stream, 1);
            break;
        }
    }
    let mut go_away = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
    go_away.extend(last.to_be_bytes());
    go_away.extend(0_u32.to_be_bytes());
    io.write_all(&go_away).await.unwrap();
    let _ = io.shutdown().await;
    while frame(&mut io).await.is_some() {}
}

const HEADERS: u8 = 1;

fn goaway_server(last: u32) -> Http2Server {
    Http2Server::new(move |number, io| async move {
        match number {
            1 => go_away(io, last).await,
            _ => serve(io, &Builder::new(), answer).await,
        }
    })
}

#[tokio::test]
async fn a_request_above_the_last_stream_of_a_goaway_is_retried_on_another_connection() {
    let server = goaway_server(0);
    let client = connect(&server).await;

    let result = client.call_tool("once", ()).await;

    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(server.accepted_count(), 2);
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_before_a_goaway_is_not_retried() {
    let server = goaway_server(1);
    let client = connect(&server).await;

    let lost = client.call_tool("once", ()).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(server.accepted_count(), 1);
}

#[tokio::test]
async fn a_server_with_a_stream_limit_of_one_gets_a_second_connection_for_a_concurrent_request() {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let server = Http2Server::new(move |_, io| {
        let held = held.clone();
        async move {
            let mut builder = Builder::new();
            builder.max_concurrent_streams(1);
            serve(io, &builder, |request, mut respond| {
                let held = held.clone();
                async move {
                    if request.uri().path() != "/mcp" {
                        return;
                    }
                    let message = message(request).await;
                    if message["params"]["name"] == "held" {
                        drop(held.acquire().await);
                    }
                    let json = crate::http2_server::done(&message["id"]).to_string();
                    let head = crate::http2_server::head("application/json");
                    if let Ok(mut body) = respond.send_response(head, false) {
                        let _ = body.send_data(json.into(), true);
                    }
                }
            })
            .await;
        }
    });
    let client = connect(&server).await;

    let second = async {
        let calling = client.call_tool("quick", ()).into_future();
        let second = tokio::time::timeout(Duration::from_secs(20), calling).await;
        gate.add_permits(1);
        second
    };
    // `join!` polls the held call first, so that it opens the first connection.
    let (first, second) = tokio::join!(client.call_tool("held", ()), second);

    assert_eq!(
        second
            .expect("the second call does not wait for the first")
            .unwrap()
            .text(),
        "done"
    );
    assert_eq!(first.unwrap().text(), "done");
    assert_eq!(server.accepted_count(), 2);
}
