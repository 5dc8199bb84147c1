//! Line-delimited messages over sockets.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use bowline::wire::Lines;
use bowline::{CallToolResult, Client, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, duplex, split};
use tokio::net::{TcpListener, TcpStream};

fn server() -> Server {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    });
    Server::new("sockets", "1.0.0").tool(echo)
}

async fn assert_a_call_is_answered(near: Lines, far: Lines) {
    let serving = tokio::spawn(server().serve(far));
    let client = Client::from_wire(near).await.unwrap();

    let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

    assert_eq!(reply.text(), r#"{"a":1}"#);
    client.close().await.unwrap();
    serving.await.unwrap().unwrap();
}

/// Regression test: bytes in the buffer of a wire are neither queued nor in flight, and were lost.
#[tokio::test]
async fn a_response_being_written_when_the_input_ends_is_completed() {
    let (mut near, far) = duplex(64);
    let (read, write) = split(far);
    let serving = tokio::spawn(server().serve(Lines::new(read, write)));
    let (id, long) = (1, "x".repeat(10_000));
    let request = json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1.0.0"},
    }});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "echo",
        "arguments": {"long": long},
    }});
    let mut lines = BufReader::new(&mut near);
    lines
        .write_all(format!("{request}\n").as_bytes())
        .await
        .unwrap();
    lines.read_line(&mut String::new()).await.unwrap();
    lines
        .write_all(format!("{call}\n").as_bytes())
        .await
        .unwrap();
    lines.fill_buf().await.unwrap(); // the response has begun, and most of it is in the buffer of the wire

    lines.shutdown().await.unwrap();

    let mut answer = String::new();
    lines.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.contains(&long) && answer.ends_with('\n'),
        "{}",
        answer.len()
    );
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_is_answered_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (far, _) = listener.accept().await.unwrap();

    assert_a_call_is_answered(Lines::tcp(near), Lines::tcp(far)).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_call_is_answered_over_a_unix_socket() {
    let (near, far) = tokio::net::UnixStream::pair().unwrap();

    assert_a_call_is_answered(Lines::unix(near), Lines::unix(far)).await;
}
