//! Slow calls through a proxy that closes idle connections.

use std::io;
use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::testing::PipeConnector;
use bowline::{CallToolResult, Client, Error, Reply, Result, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A server whose tool runs for `takes` without notifications.
fn slow_server(takes: Duration) -> Server {
    let object = json!({"type": "object"});
    let slow = Tool::raw("slow", object, move |_, _| async move {
        let _ = tokio::time::timeout(takes, std::future::pending::<()>()).await;
        Ok(CallToolResult::text("done"))
    });
    Server::new("slow", "1.0.0").tool(slow)
}

/// Forwards bytes in both directions, and closes the connection after `idle` without any.
async fn forward(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
) {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        let forwarding = async {
            tokio::select! {
                read = client.read(&mut up) => server.write_all(&up[..non_empty(read)?]).await,
                read = server.read(&mut down) => client.write_all(&down[..non_empty(read)?]).await,
            }
        };
        match tokio::time::timeout(idle, forwarding).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Turns the end of input into an error.
fn non_empty(read: io::Result<usize>) -> io::Result<usize> {
    match read? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}

/// Calls the slow tool of `service` through an in-memory proxy.
async fn call_through(service: &HttpService, idle: Duration, version: &str) -> Result<Reply> {
    let upstream = PipeConnector::to(service);
    let proxy = PipeConnector::with(move |client| {
        tokio::spawn(forward(client, upstream.open(), idle));
    });
    let client = Client::connect("http://localhost/mcp")
        .http_client(HyperClient::with_connector(proxy))
        .protocol_version(version)
        .await?;
    client.call_tool("slow", ()).await
}

const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

#[tokio::test(start_paused = true)]
async fn keep_alive_comments_keep_a_stream_open_through_a_proxy_with_an_idle_timeout() {
    let service = slow_server(Duration::from_secs(3)).http();
    let service = service.keep_alive(Duration::from_millis(300));

    for version in VERSIONS {
        let reply = call_through(&service, Duration::from_secs(1), version).await;

        assert_eq!(reply.unwrap().text(), "done", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_keep_alive_works_with_a_proxy_timeout_of_twenty_seconds() {
    let service = slow_server(Duration::from_secs(40)).http();

    for version in VERSIONS {
        let reply = call_through(&service, Duration::from_secs(20), version).await;

        assert_eq!(reply.unwrap().text(), "done", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_timeout_below_the_keep_alive_interval_fails_the_call() {
    let service = slow_server(Duration::from_secs(3)).http();
    let service = service.keep_alive(Duration::from_secs(10));

    let outcome = call_through(&service, Duration::from_secs(1), "2026-07-28").await;

    assert!(
        matches!(outcome, Err(Error::Transport { .. })),
        "{outcome:?}"
    );
    assert_eq!(service.in_flight(), 0);
}
