//! Lines over sockets.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use bowline::wire::Lines;
use bowline::{CallToolResult, Client, Server, Tool};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

fn server() -> Server {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    });
    Server::new("sockets", "1.0.0").tool(echo)
}

async fn assert_a_call_is_answered(near: Lines, far: Lines) {
    let serving = tokio::spawn(server().serve(far));
    let client = Client::over(near).await.unwrap();

    let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

    assert_eq!(reply.text(), r#"{"a":1}"#);
    client.close().await.unwrap();
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
