//! A slow tool behind a proxy that closes idle connections, over sockets and with the defaults.
//!
//! `cargo run --example behind_a_proxy` takes 25 s: a tool that sends nothing for so long is called in four versions
//! through a proxy that closes a connection after 20 idle seconds. The server's keep-alive comments prevent that, so
//! that the program prints `at last` for each version.

use std::io;
use std::time::Duration;

use bowline::{CallToolResult, Client, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const TAKES: Duration = Duration::from_secs(25);
const IDLE: Duration = Duration::from_secs(20);
const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let slow = Tool::raw("slow", json!({"type": "object"}), async |_, _| {
        sleep(TAKES).await;
        Ok(CallToolResult::text("at last"))
    });
    let bound = Server::new("slow", "1.0.0").tool(slow).http();
    let bound = bound.bind("127.0.0.1:0").await?;
    let server = bound.local_addr();
    tokio::spawn(bound.serve());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move { forward(client, TcpStream::connect(server).await?).await });
        }
    });

    let calls = VERSIONS.map(|version| {
        let connect = Client::connect(&url)
            .protocol_version(version)
            .into_future();
        tokio::spawn(async move { connect.await?.call_tool("slow", ()).await })
    });
    for (call, version) in calls.into_iter().zip(VERSIONS) {
        let reply = call.await.expect("no panic")?;
        println!("{version}: {}", reply.text());
    }
    Ok(())
}

/// Forwards bytes in both directions, and closes the connection when there were none for a while.
async fn forward(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        let passing = async {
            tokio::select! {
                read = client.read(&mut up) => server.write_all(&up[..not_empty(read)?]).await,
                read = server.read(&mut down) => client.write_all(&down[..not_empty(read)?]).await,
            }
        };
        timeout(IDLE, passing).await??;
    }
}

/// Returns how many bytes were read, or an error at the end.
fn not_empty(read: io::Result<usize>) -> io::Result<usize> {
    match read? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}
