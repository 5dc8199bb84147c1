//! HTTP/2 requests that a server provably did not process are sent again; others never are. How many requests a
//! server takes at once is known before the second one.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::{Client, Error};
use h2::Reason;
use h2::server::Builder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::http2_peer::{Http2Peer, Io, answer, message, serve};

async fn connect(peer: &Http2Peer) -> Client {
    let url = peer.listen().await;
    let connect = Client::connect(&url).http2();
    connect.speaking("2026-07-28").await.unwrap()
}

/// A server that refuses the first `refusals` requests unread.
fn refusing(refusals: usize) -> (Http2Peer, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let peer = Http2Peer::new(move |_, io| {
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
    (peer, counted)
}

#[tokio::test]
async fn a_request_that_was_refused_unread_is_sent_again_on_another_connection() {
    let (peer, seen) = refusing(1);
    let client = connect(&peer).await;

    let result = client.call_tool("once", ()).await;

    assert_eq!(result.unwrap().text(), "done");
    assert_eq!((seen.load(Ordering::SeqCst), peer.accepted()), (2, 2));
}

#[tokio::test]
async fn a_server_that_refuses_every_request_is_asked_a_bounded_number_of_times() {
    let (peer, seen) = refusing(usize::MAX);
    let client = connect(&peer).await;

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

/// Accepts one request, then says GOAWAY with `last` as the last stream that it has processed, and closes.
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

fn going_away(last: u32) -> Http2Peer {
    Http2Peer::new(move |number, io| async move {
        match number {
            1 => go_away(io, last).await,
            _ => serve(io, &Builder::new(), answer).await,
        }
    })
}

#[tokio::test]
async fn a_request_above_the_last_stream_of_a_goaway_is_sent_again_on_another_connection() {
    let peer = going_away(0);
    let client = connect(&peer).await;

    let result = client.call_tool("once", ()).await;

    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test]
async fn a_request_that_a_server_may_have_processed_before_its_goaway_is_not_sent_again() {
    let peer = going_away(1);
    let client = connect(&peer).await;

    let lost = client.call_tool("once", ()).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test]
async fn a_server_that_takes_one_request_at_a_time_gets_a_second_connection_for_the_second() {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let peer = Http2Peer::new(move |_, io| {
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
                    let json = crate::http2_peer::done(&message["id"]).to_string();
                    let head = crate::http2_peer::head("application/json");
                    if let Ok(mut body) = respond.send_response(head, false) {
                        let _ = body.send_data(json.into(), true);
                    }
                }
            })
            .await;
        }
    });
    let client = connect(&peer).await;

    let second = async {
        let calling = client.call_tool("quick", ()).into_future();
        let second = tokio::time::timeout(Duration::from_secs(20), calling).await;
        gate.add_permits(1);
        second
    };
    // The first is polled first, and makes the first connection.
    let (first, second) = tokio::join!(client.call_tool("held", ()), second);

    assert_eq!(second.expect("it does not wait").unwrap().text(), "done");
    assert_eq!(first.unwrap().text(), "done");
    assert_eq!(peer.accepted(), 2);
}
