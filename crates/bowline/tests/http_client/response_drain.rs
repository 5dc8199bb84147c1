//! The rest of an SSE response after its result: it is drained for a while so that the connection can be reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::http::client::HyperSend;
use bowline::testing::PipeConnector;
use bowline::{Client, Result};
use h2::server::Builder;
use tokio::time::{Instant, sleep};

use crate::http2_server::{Http2Server, done, head, message, serve};
use crate::scripted_server::{ScriptedReply, ScriptedServer, event, result};

async fn client(send: HyperSend) -> Client {
    let connect = Client::connect("http://localhost/mcp").http(send);
    connect.protocol_version("2026-07-28").await.unwrap()
}

fn content() -> serde_json::Value {
    let text = serde_json::json!([{"type": "text", "text": "done"}]);
    serde_json::json!({"resultType": "complete", "content": text})
}

/// An HTTP/1.1 server that ends each stream some time after its result, and the number of connections it accepted.
fn server_with_late_ends() -> (PipeConnector, Arc<AtomicUsize>) {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = accepted.clone();
    let connector = PipeConnector::with(move |mut far| {
        use tokio::io::AsyncWriteExt;
        counted.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(request) = crate::scripted_server::read_request(&mut far).await {
                let answer = event(&result(&request, &content()));
                let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
                far.write_all(chunk.as_bytes()).await.unwrap();
                sleep(END_DELAY).await;
                if far.write_all(b"0\r\n\r\n").await.is_err() {
                    return;
                }
            }
        });
    });
    (connector, accepted)
}

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const END_DELAY: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn a_connection_whose_stream_ends_soon_after_the_result_is_reused() -> Result<()> {
    let (connector, accepted) = server_with_late_ends();
    let client = client(HyperSend::with_connector(connector)).await;

    for _ in 0..200 {
        let start = Instant::now();
        assert_eq!(client.call_tool("x", ()).await?.text(), "done");
        assert!(
            start.elapsed() < END_DELAY,
            "the caller does not wait for the end of the stream"
        );
        sleep(END_DELAY * 2).await;
    }

    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_http2_stream_that_ends_soon_after_the_result_is_not_reset() -> Result<()> {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = resets.clone();
    let server = Http2Server::new(move |_, io| {
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
                        () = sleep(END_DELAY) => body.send_data(bytes::Bytes::new(), true).unwrap(),
                    }
                }
            })
            .await;
        }
    });
    let client = client(HyperSend::with_http2_connector(server.connector())).await;

    for _ in 0..20 {
        assert_eq!(client.call_tool("x", ()).await?.text(), "done");
        sleep(END_DELAY * 2).await;
    }

    assert_eq!(
        (counted.load(Ordering::SeqCst), server.accepted_count()),
        (0, 1)
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_left_open_after_the_result_is_closed_within_two_seconds() -> Result<()> {
    let (mut server, connector) = ScriptedServer::in_memory(|request| {
        let answer = event(&result(request, &content()));
        let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
        ScriptedReply::BytesThenStall(chunk)
    });
    let client = client(HyperSend::with_connector(connector)).await;

    let start = Instant::now();
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    server.request().await;
    server.client_disconnected().await;

    assert!(start.elapsed() <= Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_closes_streams_left_open_after_the_result() -> Result<()> {
    let (mut server, connector) = ScriptedServer::in_memory(|request| {
        let answer = event(&result(request, &content()));
        let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
        ScriptedReply::BytesThenStall(chunk)
    });
    let client = client(HyperSend::with_connector(connector)).await;
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    server.request().await;

    let dropped = Instant::now();
    drop(client);
    server.client_disconnected().await;

    assert!(dropped.elapsed() < Duration::from_millis(500));
    Ok(())
}
