//! What is not read is not lost, is bounded, and holds nothing else up.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bowline::client::{Change, Changes, Ended};
use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bowline::testing::Pipes;
use bowline::{Client, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};

/// A server of HTTP/1.1 and HTTP/2 whose responses `answer` makes.
fn serving<F>(answer: impl Fn(String, Value) -> F + Clone + Send + Sync + 'static) -> Pipes
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    Pipes::with(move |far| {
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                Ok::<_, Infallible>(answer(path, body).await)
            }
        });
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
    })
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// A subscription's whole stream: `count` updates, a list change after the first, and the end.
fn told(id: &Value, count: usize) -> String {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let note = |method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        event(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    };
    let honoured = json!({"notifications": {"toolsListChanged": true}});
    let mut all = note("notifications/subscriptions/acknowledged", honoured);
    for index in 0..count {
        let uri = json!({"uri": format!("file:///{index}")});
        all += &note("notifications/resources/updated", uri);
        if index == 0 {
            all += &note("notifications/tools/list_changed", json!({}));
        }
    }
    let result = json!({"resultType": "complete", "_meta": meta});
    all + &event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

#[tokio::test]
async fn every_notice_of_a_subscription_is_heard_however_fast_they_come() {
    let pipes = serving(async |_, body: Value| {
        let mut response = Response::new(Full::from(told(&body["id"], 5_000)));
        let kind = http::HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert("content-type", kind);
        response
    });
    for send in [
        HyperSend::over(pipes.clone()),
        HyperSend::over_http2(pipes.clone()),
    ] {
        let connect = Client::connect("http://localhost/mcp").http(send);
        let client = connect.speaking("2026-07-28").await.unwrap();
        let mut subscription = client.subscribe(Changes::lists()).await.unwrap();

        let mut heard = Vec::new();
        while let Some(change) = subscription.next().await.unwrap() {
            heard.push(change);
        }

        assert_eq!(heard.len(), 5_001);
        assert_eq!(heard[1], Change::Tools);
        assert_eq!(heard[5_000], Change::Resource("file:///4999".into()));
        assert_eq!(subscription.ended(), Some(Ended::Graceful));
    }
}

fn request(path: &str) -> Request<RequestBody> {
    let uri = format!("http://localhost{path}");
    let body = RequestBody::from(Bytes::from_static(b"{}"));
    Request::post(uri).body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn responses_that_nobody_reads_hold_up_no_other_on_their_connection() -> Result<()> {
    let pipes = serving(async |path, _| match &*path {
        "/large" => Response::new(Full::from(vec![b' '; 3_000_000])),
        _ => Response::new(Full::from("small")),
    });
    let send = HyperSend::over_http2(pipes);

    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(send.send(request("/large")).await?);
    }
    // The paused clock moves on when no task has anything to do: by then the windows are full.
    let nothing = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>());
    assert!(nothing.await.is_err());
    let fourth = async {
        let response = send.send(request("/small")).await?;
        response.into_body().collect(100).await
    };
    let fourth = tokio::time::timeout(Duration::from_secs(60), fourth).await;

    assert_eq!(fourth.expect("nothing is in its way")?, "small");
    for response in unread {
        assert_eq!(
            response.into_body().collect(4_000_000).await?.len(),
            3_000_000
        );
    }
    Ok(())
}
