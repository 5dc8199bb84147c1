//! A `reqwest` client of the application's own sends the requests.

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

use super::{serve, under_way};
use crate::support::*;

fn own(redirects: Policy) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    builder.redirect(redirects).build().unwrap()
}

#[tokio::test]
async fn calls_are_answered_streamed_and_cancelled_in_both_eras() {
    for version in ["2026-07-28", "2025-11-25"] {
        let mut stage = Stage::new();
        let url = serve(&stage.server).await;
        let connect = Client::connect(&url).http(own(Policy::none()));
        let client = connect.speaking(version).await.unwrap();

        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
        drop(under_way(&client, &mut stage, "wait").await);
        stage.dropped("a").await;
        let (heard, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let talk = client.call_tool("talk", json!({"name": "b"}));
        let mut talk = talk
            .on_progress(move |report| heard.send(report.progress).unwrap())
            .start();
        let first = tokio::select! {
            biased;
            outcome = &mut talk => panic!("the call ended: {outcome:?}"),
            report = reports.recv() => report,
        };
        drop(talk);
        stage.started("b").await;
        stage.dropped("b").await;

        assert_eq!(reply.text(), r#"{"a":1}"#);
        assert!(first.is_some(), "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let connect = Client::connect(&url).http(own(Policy::none()));
    let client = connect.speaking("2026-07-28").await.unwrap();

    let error = client.call_tool("echo", ()).await.unwrap_err();

    assert!(matches!(&error, Error::Transport { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains(&format!("no connection to {url}")), "{told}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(!cause.contains(&url), "{cause}");
}

#[tokio::test]
async fn an_answer_from_another_origin_is_refused() {
    let stage = Stage::new();
    let elsewhere = serve(&stage.server).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let away = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
            );
            let _ = stream.write_all(away.as_bytes()).await;
        }
    });
    for policy in [Policy::none(), Policy::limited(3)] {
        let connect = Client::connect(&url).http(own(policy));
        let client = connect.speaking("2026-07-28").await.unwrap();

        let error = client.call_tool("echo", ()).await.unwrap_err();

        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("another origin"), "{error}");
    }
}

/// Knows where everything is, except when it is asked for the first time.
#[derive(Default)]
struct StallsOnce(AtomicBool);

impl Resolve for StallsOnce {
    fn resolve(&self, _: Name) -> Resolving {
        let stalls = !self.0.swap(true, Ordering::Relaxed);
        Box::pin(async move {
            if stalls {
                std::future::pending::<()>().await;
            }
            let here: Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
            Ok(here)
        })
    }
}

#[tokio::test]
async fn who_waits_for_a_connection_that_a_dropped_call_was_making_makes_its_own() {
    let stage = Stage::new();
    let url = serve(&stage.server).await.replace("127.0.0.1", "localhost");
    let builder = reqwest::Client::builder().no_proxy();
    let builder = builder.dns_resolver(Arc::new(StallsOnce::default()));
    let http = builder.http2_prior_knowledge().build().unwrap();
    let connect = Client::connect(&url).http(http);
    let client = connect.speaking("2026-07-28").await.unwrap();
    let mut calls = [0, 1].map(|_| client.call_tool("echo", ()).start());
    for call in &mut calls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx))).await;
        assert!(polled.is_pending());
    }
    let [first, second] = calls;

    drop(first);

    assert_eq!(second.await.unwrap().text(), "{}");
}
