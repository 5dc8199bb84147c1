//! The HTTP client over a `reqwest::Client` of the application.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bowline::{Client, Error};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{serve, start_call};
use crate::support::*;

fn build_client(redirects: Policy) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    builder.redirect(redirects).build().unwrap()
}

#[tokio::test]
async fn calls_are_answered_streamed_and_cancelled_in_both_eras() {
    for version in ["2026-07-28", "2025-11-25"] {
        let mut fixture = ServerFixture::new();
        let url = serve(&fixture.server).await;
        let connect = Client::connect(&url).http_client(build_client(Policy::none()));
        let client = connect.protocol_version(version).await.unwrap();

        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
        drop(start_call(&client, &mut fixture, "wait").await);
        fixture.handler_dropped("a").await;
        let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let call = client.call_tool("progress", json!({"name": "b"}));
        let mut call = call
            .on_progress(move |report| sender.send(report.progress).unwrap())
            .start();
        let first = tokio::select! {
            biased;
            outcome = &mut call => panic!("the call ended: {outcome:?}"),
            report = reports.recv() => report,
        };
        drop(call);
        fixture.handler_started("b").await;
        fixture.handler_dropped("b").await;

        assert_eq!(reply.text(), r#"{"a":1}"#);
        assert!(first.is_some(), "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_connect_failure_names_the_url_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let connect = Client::connect(&url).http_client(build_client(Policy::none()));
    let client = connect.protocol_version("2026-07-28").await.unwrap();

    let error = client.call_tool("echo", ()).await.unwrap_err();

    assert!(matches!(&error, Error::Transport { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("failed to connect to {url}")),
        "{text}"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(!cause.contains(&url), "{cause}");
}

#[tokio::test]
async fn a_response_from_another_origin_is_refused() {
    let fixture = ServerFixture::new();
    let elsewhere = serve(&fixture.server).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let redirect = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
            );
            let _ = stream.write_all(redirect.as_bytes()).await;
        }
    });
    for policy in [Policy::none(), Policy::limited(3)] {
        let connect = Client::connect(&url).http_client(build_client(policy));
        let client = connect.protocol_version("2026-07-28").await.unwrap();

        let error = client.call_tool("echo", ()).await.unwrap_err();

        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("another origin"), "{error}");
    }
}

/// A DNS resolver whose first lookup never completes; later ones return 127.0.0.1.
#[derive(Default)]
struct StallFirstLookup(AtomicBool);

impl Resolve for StallFirstLookup {
    fn resolve(&self, _: Name) -> Resolving {
        let stalls = !self.0.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if stalls {
                std::future::pending::<()>().await;
            }
            let addresses: Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
            Ok(addresses)
        })
    }
}

#[tokio::test]
async fn a_call_waiting_for_the_connection_of_a_dropped_call_opens_its_own() {
    let fixture = ServerFixture::new();
    let url = serve(&fixture.server)
        .await
        .replace("127.0.0.1", "localhost");
    let builder = reqwest::Client::builder().no_proxy();
    let builder = builder.dns_resolver(Arc::new(StallFirstLookup::default()));
    let http = builder.http2_prior_knowledge().build().unwrap();
    let connect = Client::connect(&url).http_client(http);
    let client = connect.protocol_version("2026-07-28").await.unwrap();
    let mut calls = [0, 1].map(|_| client.call_tool("echo", ()).start());
    for call in &mut calls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx))).await;
        assert!(polled.is_pending());
    }
    let [first, second] = calls;

    drop(first);

    assert_eq!(second.await.unwrap().text(), "{}");
}
