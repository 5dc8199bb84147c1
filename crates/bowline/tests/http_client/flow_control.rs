//! Unread data: it is not lost, it is bounded, and it does not block other responses.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, SubscriptionEnd};
use bowline::http::client::{HttpClient, HyperClient, RequestBody};
use bowline::testing::PipeConnector;
use bowline::{Client, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};

/// An HTTP/1.1 and HTTP/2 server whose responses come from `answer`.
fn serving<F>(answer: impl Fn(String, Value) -> F + Clone + Send + Sync + 'static) -> PipeConnector
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    PipeConnector::with(move |far| {
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

/// The whole stream of a subscription: `count` updates, a list change after the first, and the result.
fn subscription_stream(id: &Value, count: usize) -> String {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let notification = |method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        event(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    };
    let acknowledged = json!({"notifications": {"toolsListChanged": true}});
    let mut all = notification("notifications/subscriptions/acknowledged", acknowledged);
    for index in 0..count {
        let uri = json!({"uri": format!("file:///{index}")});
        all += &notification("notifications/resources/updated", uri);
        if index == 0 {
            all += &notification("notifications/tools/list_changed", json!({}));
        }
    }
    let result = json!({"resultType": "complete", "_meta": meta});
    all + &event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

#[tokio::test]
async fn no_notification_of_a_fast_subscription_is_lost() {
    let connector = serving(async |_, body: Value| {
        let mut response = Response::new(Full::from(subscription_stream(&body["id"], 5_000)));
        let kind = http::HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert("content-type", kind);
        response
    });
    for send in [
        HyperClient::with_connector(connector.clone()),
        HyperClient::with_http2_connector(connector.clone()),
    ] {
        let connect = Client::connect("http://localhost/mcp").http_client(send);
        let client = connect.protocol_version("2026-07-28").await.unwrap();
        let mut subscription = client.subscribe(ChangeFilter::lists()).await.unwrap();

        let mut received = Vec::new();
        while let Some(change) = subscription.next().await.unwrap() {
            received.push(change);
        }

        assert_eq!(received.len(), 5_001);
        assert_eq!(received[1], Change::Tools);
        assert_eq!(received[5_000], Change::Resource("file:///4999".into()));
        assert_eq!(subscription.ended(), Some(SubscriptionEnd::Graceful));
    }
}

fn request(path: &str) -> Request<RequestBody> {
    let uri = format!("http://localhost{path}");
    let body = RequestBody::from(Bytes::from_static(b"{}"));
    Request::post(uri).body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn unread_responses_do_not_block_others_on_their_connection() -> Result<()> {
    let connector = serving(async |path, _| match &*path {
        "/large" => Response::new(Full::from(vec![b' '; 3_000_000])),
        _ => Response::new(Full::from("small")),
    });
    let send = HyperClient::with_http2_connector(connector);

    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(send.send(request("/large")).await?);
    }
    // The paused clock advances when every task is idle: by then the flow-control windows are full.
    let nothing = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>());
    assert!(nothing.await.is_err());
    let fourth = async {
        let response = send.send(request("/small")).await?;
        response.into_body().collect(100).await
    };
    let fourth = tokio::time::timeout(Duration::from_secs(60), fourth).await;

    assert_eq!(fourth.expect("unread responses do not block it")?, "small");
    for response in unread {
        assert_eq!(
            response.into_body().collect(4_000_000).await?.len(),
            3_000_000
        );
    }
    Ok(())
}
