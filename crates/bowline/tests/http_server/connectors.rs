//! The HTTP client against a real server over HTTP/1.1, HTTP/2, a custom connector and reqwest.

use std::sync::{Arc, Mutex};

use bowline::http::client::{HttpStream, HyperClient};
use bowline::layer::Next;
use bowline::{Call, Client};
use http::{Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use crate::support::*;

/// Records the HTTP version of each request.
#[derive(Clone, Default)]
struct VersionRecorder(Arc<Mutex<Vec<Version>>>);

impl VersionRecorder {
    fn layer(&self) -> impl bowline::layer::Layer + use<> {
        let versions = self.clone();
        move |request, next: Next| {
            let head = next.context().extensions().get::<http::request::Parts>();
            versions
                .0
                .lock()
                .unwrap()
                .extend(head.map(|head| head.version));
            next.run(request)
        }
    }

    fn take(&self) -> Vec<Version> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Serves `server` on a socket and returns its URL.
async fn serve(server: &bowline::Server) -> String {
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    url
}

/// Starts a call of `tool` and waits until its handler runs.
async fn start_call(client: &Client, fixture: &mut ServerFixture, tool: &str) -> Call {
    let mut call = client.call_tool(tool, json!({"name": "a"})).start();
    tokio::select! {
        biased;
        outcome = &mut call => panic!("the call ended: {outcome:?}"),
        () = fixture.handler_started("a") => {}
    }
    call
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_used_if_configured() {
    let (mut fixture, versions) = (ServerFixture::new(), VersionRecorder::default());
    let url = serve(&fixture.server.clone().layer(versions.layer())).await;

    let default = Client::connect(&url).await.unwrap();
    default.call_tool("echo", ()).await.unwrap();
    let by_default = versions.take();
    let http2 = Client::connect(&url).http2().await.unwrap();
    http2.call_tool("echo", ()).await.unwrap();
    drop(start_call(&http2, &mut fixture, "wait").await);
    fixture.handler_dropped("a").await;

    assert_eq!(by_default, [Version::HTTP_11; 2]);
    assert_eq!(versions.take(), [Version::HTTP_2; 3]);
}

#[tokio::test]
async fn an_application_can_supply_its_own_connector() {
    let mut fixture = ServerFixture::new();
    let http = fixture.server.http();
    let connector = move |_: Uri| {
        let (near, far) = tokio::io::duplex(4096);
        let service = TowerToHyperService::new(http.clone());
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
        std::future::ready(Ok(HttpStream::new(near)))
    };
    for send in [
        HyperClient::with_connector(connector.clone()),
        HyperClient::with_http2_connector(connector),
    ] {
        for version in ["2026-07-28", "2025-11-25"] {
            let connect = Client::connect("http://localhost/mcp").http_client(send.clone());
            let client = connect.protocol_version(version).await.unwrap();

            let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
            drop(start_call(&client, &mut fixture, "progress").await);

            fixture.handler_dropped("a").await;
            assert_eq!(reply.text(), r#"{"a":1}"#);
            client.close().await.unwrap();
        }
    }
}

#[cfg(feature = "reqwest")]
mod reqwest_client;
