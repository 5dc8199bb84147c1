//! What comes after the answer: the end of a stream is read, for a while, so that its connection can be used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::http::client::HyperSend;
use bowline::testing::Pipes;
use bowline::{Client, Result};
use h2::server::Builder;
use tokio::time::{Instant, sleep};

use crate::http2_peer::{Http2Peer, done, head, message, serve};
use crate::scripted::{Peer, Say, event, result};

async fn client(send: HyperSend) -> Client {
    let connect = Client::connect("http://localhost/mcp").http(send);
    connect.speaking("2026-07-28").await.unwrap()
}

fn content() -> serde_json::Value {
    let text = serde_json::json!([{"type": "text", "text": "done"}]);
    serde_json::json!({"resultType": "complete", "content": text})
}

/// A server of HTTP/1.1 that ends each stream some time after its answer; how many connections it has had.
fn late_ends() -> (Pipes, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let pipes = Pipes::with(move |mut far| {
        use tokio::io::AsyncWriteExt;
        counted.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(arrived) = crate::scripted::read_request(&mut far).await {
                let answer = event(&result(&arrived, &content()));
                let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
                far.write_all(chunk.as_bytes()).await.unwrap();
                sleep(LATE).await;
                if far.write_all(b"0\r\n\r\n").await.is_err() {
                    return;
                }
            }
        });
    });
    (pipes, made)
}

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LATE: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn a_connection_whose_stream_ends_soon_after_the_answer_is_used_again() -> Result<()> {
    let (pipes, made) = late_ends();
    let client = client(HyperSend::over(pipes)).await;

    for _ in 0..200 {
        let asked = Instant::now();
        assert_eq!(client.call_tool("x", ()).await?.text(), "done");
        assert!(
            asked.elapsed() < LATE,
            "the caller does not wait for the end"
        );
        sleep(LATE * 2).await;
    }

    assert_eq!(made.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_soon_after_the_answer_is_not_reset() -> Result<()> {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = resets.clone();
    let peer = Http2Peer::new(move |_, io| {
        let resets = resets.clone();
        async move {
            serve(io, &Builder::new(), |request, mut respond| {
                let resets = resets.clone();
                async move {
                    let message = message(request).await;
                    let answer = format!("data: {}\n\n", done(&message["id"]));
                    let mut body = respond
                        .send_response(head("text/event-stream"), false)
                        .unwrap();
                    body.send_data(answer.into(), false).unwrap();
                    tokio::select! {
                        biased;
                        _ = std::future::poll_fn(|cx| body.poll_reset(cx)) => {
                            resets.fetch_add(1, Ordering::SeqCst);
                        }
                        () = sleep(LATE) => body.send_data(bytes::Bytes::new(), true).unwrap(),
                    }
                }
            })
            .await;
        }
    });
    let client = client(HyperSend::over_http2(peer.pipes())).await;

    for _ in 0..20 {
        assert_eq!(client.call_tool("x", ()).await?.text(), "done");
        sleep(LATE * 2).await;
    }

    assert_eq!((counted.load(Ordering::SeqCst), peer.accepted()), (0, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_end_after_its_answer_is_closed_soon() -> Result<()> {
    let (mut peer, pipes) = Peer::in_memory(|arrived| {
        let answer = event(&result(arrived, &content()));
        let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
        Say::BytesThenStall(chunk)
    });
    let client = client(HyperSend::over(pipes)).await;

    let asked = Instant::now();
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    peer.request().await;
    peer.client_left().await;

    assert!(asked.elapsed() <= Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_leaves_no_stream_to_be_read_to_its_end() -> Result<()> {
    let (mut peer, pipes) = Peer::in_memory(|arrived| {
        let answer = event(&result(arrived, &content()));
        let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
        Say::BytesThenStall(chunk)
    });
    let client = client(HyperSend::over(pipes)).await;
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    peer.request().await;

    let dropped = Instant::now();
    drop(client);
    peer.client_left().await;

    assert!(dropped.elapsed() < Duration::from_millis(500));
    Ok(())
}
