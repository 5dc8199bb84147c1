//! Calls that share a connection: dropping one does not affect the others.

use std::error::Error as StdError;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bowline::http::client::HyperSend;
use bowline::{CallToolResult, Client, Server, Tool};
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tower_service::Service;

#[tokio::test]
async fn a_call_waiting_for_the_connection_of_a_dropped_call_opens_its_own() {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("echo"))
    });
    let server = Server::new("echo", "1.0.0").tool(echo);
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.addr());
    tokio::spawn(bound.serve());
    let send = HyperSend::with_http2_connector(StallsOnceConnector::default());
    let connect = Client::connect(&url)
        .protocol_version("2026-07-28")
        .http(send);
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

/// A connector whose first connect never completes.
#[derive(Clone, Default)]
struct StallsOnceConnector(Arc<AtomicBool>);

impl Service<Uri> for StallsOnceConnector {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let stalls = !self.0.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if stalls {
                pending::<()>().await;
            }
            Ok(HttpConnector::new().call(uri).await?)
        })
    }
}
