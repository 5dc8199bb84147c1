//! Calls that share a connection: dropping one does not affect the others.

use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bowline::http::client::{HttpStream, HyperClient};
use bowline::{CallToolResult, Client, Server, Tool};
use http::Uri;
use serde_json::json;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_call_waiting_for_the_connection_of_a_dropped_call_opens_its_own() {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("echo"))
    });
    let server = Server::new("echo", "1.0.0").tool(echo);
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    let is_first = AtomicBool::new(true);
    let stalls_once = move |uri: Uri| {
        let stalls = is_first.swap(false, Ordering::Relaxed);
        async move {
            if stalls {
                pending::<()>().await;
            }
            let address = uri.authority().expect("an absolute URL").as_str();
            Ok(HttpStream::new(TcpStream::connect(address).await?))
        }
    };
    let send = HyperClient::with_http2_connector(stalls_once);
    let connect = Client::connect(&url)
        .protocol_version("2026-07-28")
        .http_client(send);
    let client = connect.await.unwrap();
    let mut first = client.call_tool("echo", ()).into_future();
    let mut second = client.call_tool("echo", ()).into_future();
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());

    drop(first);

    assert_eq!(second.await.unwrap().text(), "echo");
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}
