//! Proxies that cut connections which are silent for too long: a slow handler gets through all the same.

use std::io;
use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::client::HyperSend;
use bowline::testing::Pipes;
use bowline::{CallToolResult, Client, Error, Reply, Result, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A server whose tool takes this long and says nothing meanwhile.
fn slow(takes: Duration) -> Server {
    let object = json!({"type": "object"});
    let slow = Tool::raw("slow", object, move |_, _| async move {
        let _ = tokio::time::timeout(takes, std::future::pending::<()>()).await;
        Ok(CallToolResult::text("at last"))
    });
    Server::new("slow", "1.0.0").tool(slow)
}

/// Passes bytes on in both directions, and cuts the connection when there were none for a while.
async fn pass_on(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
) {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        let passing = async {
            tokio::select! {
                read = client.read(&mut up) => server.write_all(&up[..some(read)?]).await,
                read = server.read(&mut down) => client.write_all(&down[..some(read)?]).await,
            }
        };
        match tokio::time::timeout(idle, passing).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// How many bytes were read, unless that was the end.
fn some(read: io::Result<usize>) -> io::Result<usize> {
    match read? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}

/// Calls the slow tool of `service` through a proxy, all in memory.
async fn call_through(service: &HttpService, idle: Duration, version: &str) -> Result<Reply> {
    let behind = Pipes::to(service);
    let proxy = Pipes::with(move |client| {
        tokio::spawn(pass_on(client, behind.open(), idle));
    });
    let client = Client::connect("http://localhost/mcp")
        .http(HyperSend::over(proxy))
        .speaking(version)
        .await?;
    client.call_tool("slow", ()).await
}

const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

#[tokio::test(start_paused = true)]
async fn a_stream_is_kept_alive_through_a_proxy_that_cuts_silent_ones() {
    let service = slow(Duration::from_secs(3)).http();
    let service = service.keep_alive(Duration::from_millis(300));

    for version in VERSIONS {
        let reply = call_through(&service, Duration::from_secs(1), version).await;

        assert_eq!(reply.unwrap().text(), "at last", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_defaults_suit_a_proxy_of_twenty_seconds() {
    let service = slow(Duration::from_secs(40)).http();

    for version in VERSIONS {
        let reply = call_through(&service, Duration::from_secs(20), version).await;

        assert_eq!(reply.unwrap().text(), "at last", "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_of_less_patience_than_the_server_cuts_the_call_which_says_so() {
    let service = slow(Duration::from_secs(3)).http();
    let service = service.keep_alive(Duration::from_secs(10));

    let outcome = call_through(&service, Duration::from_secs(1), "2026-07-28").await;

    assert!(
        matches!(outcome, Err(Error::Transport { .. })),
        "{outcome:?}"
    );
    assert_eq!(service.in_flight(), 0);
}
