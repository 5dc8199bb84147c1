//! The rest of a response after what is needed of it: it is drained for a while so that the connection can be reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::http::client::HyperClient;
use bowline::testing::PipeConnector;
use bowline::{Client, Result};
use h2::server::Builder;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::http2_server::{Http2Server, done, head, message, serve};
use crate::scripted_server::{ScriptedReply, ScriptedServer, event, result, text_result};

async fn client(send: HyperClient) -> Client {
    let connect = Client::connect("http://localhost/mcp").http_client(send);
    connect.protocol_version("2026-07-28").await.unwrap()
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
                let answer = event(&result(&request, &text_result("done")));
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
    let client = client(HyperClient::with_connector(connector)).await;

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

/// An HTTP/2 server that ends each response some time after its content, and the number of responses that the client
/// reset.
fn http2_server_with_late_ends() -> (Http2Server, Arc<AtomicUsize>) {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = resets.clone();
    let server = Http2Server::new(move |_, io| {
        let resets = resets.clone();
        async move {
            let answer = |request, respond| answer_and_end_late(request, respond, resets.clone());
            serve(io, &Builder::new(), answer).await;
        }
    });
    (server, counted)
}

async fn answer_and_end_late(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
    resets: Arc<AtomicUsize>,
) {
    let (head, content) = match request.method().as_str() {
        "POST" => answer_to(&message(request).await),
        // No stream for unsolicited messages, and no sessions to delete.
        _ => (status(405), "no".to_owned()),
    };
    let mut body = respond.send_response(head, false).unwrap();
    body.send_data(content.into(), false).unwrap();
    tokio::select! {
        biased;
        _ = std::future::poll_fn(|cx| body.poll_reset(cx)) => {
            resets.fetch_add(1, Ordering::SeqCst);
        }
        () = sleep(END_DELAY) => body.send_data(bytes::Bytes::new(), true).unwrap(),
    }
}

fn answer_to(message: &Value) -> (http::Response<()>, String) {
    let answer = match message["method"].as_str() {
        Some("initialize") => json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "late", "version": "1"},
        }}),
        Some("tools/call") => done(&message["id"]),
        _ => return (status(202), "accepted".to_owned()),
    };
    (head("text/event-stream"), format!("data: {answer}\n\n"))
}

fn status(status: u16) -> http::Response<()> {
    http::Response::builder().status(status).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_http2_response_that_ends_soon_after_its_content_is_not_reset() -> Result<()> {
    for version in ["2026-07-28", "2025-11-25"] {
        let (server, resets) = http2_server_with_late_ends();
        let send = HyperClient::with_http2_connector(server.connector());
        let connect = Client::connect("http://localhost/mcp").http_client(send);
        let client = connect.protocol_version(version).await?;

        for _ in 0..20 {
            assert_eq!(client.call_tool("x", ()).await?.text(), "done");
            sleep(END_DELAY * 2).await;
        }

        let seen = (resets.load(Ordering::SeqCst), server.accepted_count());
        assert_eq!(seen, (0, 1), "{version}");
    }
    Ok(())
}

/// An HTTP/1.1 server that never ends the stream of a result.
fn server_with_open_stream() -> (ScriptedServer, PipeConnector) {
    ScriptedServer::in_memory(|request| {
        let answer = event(&result(request, &text_result("done")));
        let chunk = format!("{CHUNKED}{:x}\r\n{answer}\r\n", answer.len());
        ScriptedReply::BytesThenStall(chunk)
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_left_open_after_the_result_is_closed_within_two_seconds() -> Result<()> {
    let (mut server, connector) = server_with_open_stream();
    let client = client(HyperClient::with_connector(connector)).await;

    let start = Instant::now();
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    server.request().await;
    server.client_disconnected().await;

    assert!(start.elapsed() <= Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_closes_streams_left_open_after_the_result() -> Result<()> {
    let (mut server, connector) = server_with_open_stream();
    let client = client(HyperClient::with_connector(connector)).await;
    assert_eq!(client.call_tool("x", ()).await?.text(), "done");
    server.request().await;

    let dropped = Instant::now();
    drop(client);
    server.client_disconnected().await;

    assert!(dropped.elapsed() < Duration::from_millis(500));
    Ok(())
}
