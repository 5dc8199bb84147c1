//! A server that begins long answers and does not end them.

use bowline::prelude::*;
use bowline::testing::eventually;
use bowline_bridge::{Bridge, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const MODERN: &str = "2026-07-28";
const LIMIT: usize = 1024 * 1024;

#[tokio::test]
async fn unfinished_answers_of_a_server_are_held_up_to_a_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(begin_answer(stream));
        }
    });
    let connect = move |_: &_| Ok(Client::connect(&url).protocol_version(MODERN));
    let bridge = Bridge::builder(Target::new("stalling", connect))
        .max_incoming_bytes(LIMIT)
        .build();
    let client = Client::in_process(&bridge).protocol_version(MODERN);
    let client = client.await.unwrap();

    let calls: Vec<_> = (0..8)
        .map(|_| tokio::spawn(client.call_tool("any", ()).start()))
        .collect();
    assert!(eventually(|| bridge.usage().refused_messages > 0).await);

    assert!(bridge.usage().incoming_bytes <= LIMIT);
    let has_failed = || calls.iter().any(|call| call.is_finished());
    assert!(eventually(has_failed).await);
    for call in calls {
        match call.is_finished() {
            true => {
                let error = call.await.unwrap().unwrap_err().to_string();
                assert!(
                    error.contains("exceed the limit of 1048576 bytes"),
                    "{error}"
                );
            }
            false => call.abort(),
        }
    }
    assert!(eventually(|| bridge.usage().incoming_bytes == 0).await);
    bridge.close().await;
    serving.abort();
}

/// Reads a request, and writes a part of an answer.
async fn begin_answer(mut stream: TcpStream) {
    let mut read = vec![0; 64 * 1024];
    // It ends early if the client has gone.
    let _ = stream.read(&mut read).await;
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10000000\r\n\r\n";
    let part = format!("{head}{{\"x\":\"{}", "x".repeat(600 * 1024));
    let _ = stream.write_all(part.as_bytes()).await;
    while stream.read(&mut read).await.is_ok_and(|read| read > 0) {}
}
