//! The ways in which a client's requests leave its process, against a real server.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};

use bowline::http::client::HyperSend;
use bowline::layer::Next;
use bowline::{Call, Client};
use http::{Uri, Version};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::DuplexStream;

use crate::support::*;

/// Notes the HTTP version of each request.
#[derive(Clone, Default)]
struct Versions(Arc<Mutex<Vec<Version>>>);

impl Versions {
    fn layer(&self) -> impl bowline::layer::Layer + use<> {
        let versions = self.clone();
        move |request, next: Next| {
            let head = next.context().extensions().find::<http::request::Parts>();
            versions
                .0
                .lock()
                .unwrap()
                .extend(head.map(|head| head.version));
            next.run(request)
        }
    }

    fn seen(&self) -> Vec<Version> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Serves `server` on a socket; its URL.
async fn serve(server: &bowline::Server) -> String {
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.addr());
    tokio::spawn(bound.serve());
    url
}

/// A call of `tool` whose handler is at work.
async fn under_way(client: &Client, stage: &mut Stage, tool: &str) -> Call {
    let mut call = client.call_tool(tool, json!({"name": "a"})).start();
    tokio::select! {
        biased;
        outcome = &mut call => panic!("the call ended: {outcome:?}"),
        () = stage.started("a") => {}
    }
    call
}

#[tokio::test]
async fn http2_is_spoken_from_the_first_byte_if_that_is_chosen() {
    let (mut stage, versions) = (Stage::new(), Versions::default());
    let url = serve(&stage.server.clone().layer(versions.layer())).await;

    let usual = Client::connect(&url).await.unwrap();
    usual.call_tool("echo", ()).await.unwrap();
    let by_default = versions.seen();
    let chosen = Client::connect(&url).http2().await.unwrap();
    chosen.call_tool("echo", ()).await.unwrap();
    drop(under_way(&chosen, &mut stage, "wait").await);
    stage.dropped("a").await;

    assert_eq!(by_default, [Version::HTTP_11; 2]);
    assert_eq!(versions.seen(), [Version::HTTP_2; 3]);
}

/// Makes connections that are pipes in memory.
#[derive(Clone)]
struct Pipes(bowline::http::HttpService);

struct Pipe(TokioIo<DuplexStream>);

impl tower_service::Service<Uri> for Pipes {
    type Response = Pipe;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, far) = tokio::io::duplex(4096);
        let service = TowerToHyperService::new(self.0.clone());
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
        std::future::ready(Ok(Pipe(TokioIo::new(near))))
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Pipe {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Pipe {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn connections_may_be_of_the_applications_own_making() {
    let mut stage = Stage::new();
    let pipes = Pipes(stage.server.http());
    for send in [HyperSend::over(pipes.clone()), HyperSend::over_http2(pipes)] {
        for version in ["2026-07-28", "2025-11-25"] {
            let connect = Client::connect("http://localhost/mcp").http(send.clone());
            let client = connect.speaking(version).await.unwrap();

            let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
            drop(under_way(&client, &mut stage, "talk").await);

            stage.dropped("a").await;
            assert_eq!(reply.text(), r#"{"a":1}"#);
            client.close().await.unwrap();
        }
    }
}

#[cfg(feature = "reqwest")]
mod reqwest_client;
