//! Cancellation while the server stalls: neither a timeout nor a drop waits for the network.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
use bowline::{Client, Error, Result};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A server that answers only the handshake.
struct StalledServer {
    posted: mpsc::UnboundedSender<(Value, Instant)>,
    unread: UnreadBodies,
}

/// Request bodies not read yet; `None` if bodies are read as they arrive.
type UnreadBodies = Arc<Mutex<Option<Vec<RequestBody>>>>;

impl HttpClient for StalledServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        if request.method() != Method::POST {
            return respond(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        if let Some(unread) = &mut *self.unread.lock().unwrap() {
            unread.push(request.into_body());
            return Box::pin(std::future::pending());
        }
        let body = request.into_body().into_bytes();
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("initialize") => {
                let result = json!({"protocolVersion": LEGACY, "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stalled", "version": "1"}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                respond(StatusCode::OK, &answer.to_string())
            }
            Some("notifications/initialized") => {
                let _ = self.posted.send((message, Instant::now()));
                respond(StatusCode::ACCEPTED, "")
            }
            _ => {
                let _ = self.posted.send((message, Instant::now()));
                Box::pin(std::future::pending())
            }
        }
    }
}

fn respond(status: StatusCode, body: &str) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
    let mut response = Response::new(ResponseBody::new(Full::from(body.to_owned())));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    Box::pin(async { Ok(response) })
}

type Posted = mpsc::UnboundedReceiver<(Value, Instant)>;

async fn connect(version: &str) -> (Client, Posted, UnreadBodies) {
    let (sender, mut posted) = mpsc::unbounded_channel();
    let unread = UnreadBodies::default();
    let send = StalledServer {
        posted: sender,
        unread: unread.clone(),
    };
    let connect = Client::connect("http://stalled.invalid/mcp").http_client(send);
    let client = connect.protocol_version(version).await.unwrap();
    if version == LEGACY {
        // `notifications/initialized` is sent after `connect` has returned.
        posted.recv().await.unwrap();
    }
    (client, posted, unread)
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out_at_its_deadline_while_its_cancel_stalls() {
    for version in [MODERN, LEGACY] {
        let (client, mut posted, _) = connect(version).await;
        let start = Instant::now();
        let timed = async |millis: u64| {
            let limit = Duration::from_millis(millis);
            let error = client
                .call_tool("slow", ())
                .idle_timeout(limit)
                .await
                .unwrap_err();
            assert!(
                matches!(error, Error::Timeout { after } if after == limit),
                "{error}"
            );
            start.elapsed().as_millis()
        };

        let returned = tokio::join!(timed(200), timed(300), timed(300));

        assert_eq!(returned, (200, 300, 300), "{version}");
        let cancels = if version == MODERN { 0 } else { 3 };
        let mut seen = Vec::new();
        while seen.len() < 3 + cancels {
            seen.push(posted.recv().await.unwrap().0);
        }
        let cancelled = |message: &&Value| message["method"] == "notifications/cancelled";
        assert_eq!(seen.iter().filter(cancelled).count(), cancels, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_the_response_head_for_at_most_100_ms_after_its_request() {
    for (dropped_after, posted_after) in [(0, 100), (30, 100), (100, 100), (5000, 5000)] {
        let (client, mut posted, _) = connect(LEGACY).await;
        let call = client.call_tool("slow", ()).start();
        let (request, start) = posted.recv().await.unwrap();
        assert_eq!(request["method"], "tools/call");

        tokio::time::advance(Duration::from_millis(dropped_after)).await;
        drop(call);

        let (cancel, at) = posted.recv().await.unwrap();
        assert_eq!(cancel["params"]["requestId"], request["id"]);
        assert_eq!((at - start).as_millis(), posted_after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_body_yields_no_data() {
    let (client, mut posted, unread) = connect(LEGACY).await;
    *unread.lock().unwrap() = Some(Vec::new());
    let call = client.call_tool("slow", ()).start();
    let has_body = || {
        unread
            .lock()
            .unwrap()
            .iter()
            .any(|unread| !unread.is_empty())
    };
    while !has_body() {
        tokio::task::yield_now().await;
    }

    drop(call);
    while client.peer().unwrap().sizes().queued > 0 {
        tokio::task::yield_now().await;
    }

    // The owner of the body may be on another thread, about to read it.
    let mut body = unread.lock().unwrap().take().unwrap().remove(0);
    let mut cx = Context::from_waker(Waker::noop());
    let taken = Pin::new(&mut body).poll_frame(&mut cx);
    assert!(
        !matches!(taken, Poll::Ready(Some(Ok(_)))),
        "the body yielded {taken:?}"
    );
    assert!(posted.try_recv().is_err(), "no cancel was posted");
}

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
