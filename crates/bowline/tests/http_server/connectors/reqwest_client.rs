//! A `reqwest` client of the application's own sends the requests.

use bowline::{Client, Error};
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

        let told = error.to_string();
        assert!(
            !told.is_empty() && matches!(error, Error::Protocol { .. } | Error::Transport { .. }),
            "{told}"
        );
    }
}
