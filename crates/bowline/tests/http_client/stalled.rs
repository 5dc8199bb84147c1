//! Letting go while the server does not move, by the clock: whoever lets go never waits for the network.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, RequestBody, ResponseBody};
use bowline::{Client, Error, Result};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A server that answers the handshake, and after that nothing any more.
struct Stalled {
    posted: mpsc::UnboundedSender<(Value, Instant)>,
    kept: Kept,
}

/// Bodies that were sent and that nobody has taken yet; none if they are taken as they come.
type Kept = Arc<Mutex<Option<Vec<RequestBody>>>>;

impl HttpSend for Stalled {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        if request.method() != Method::POST {
            return respond(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        if let Some(kept) = &mut *self.kept.lock().unwrap() {
            kept.push(request.into_body());
            return Box::pin(std::future::pending());
        }
        let body = request.into_body().into_bytes();
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("initialize") => {
                let greeting = json!({"protocolVersion": LEGACY, "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stalled", "version": "1"}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": greeting});
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

async fn connect(version: &str) -> (Client, Posted, Kept) {
    let (sender, mut posted) = mpsc::unbounded_channel();
    let kept = Kept::default();
    let send = Stalled {
        posted: sender,
        kept: kept.clone(),
    };
    let connect = Client::connect("http://stalled.invalid/mcp").http(send);
    let client = connect.speaking(version).await.unwrap();
    if version == LEGACY {
        // The handshake's last word comes after the connection is there.
        posted.recv().await.unwrap();
    }
    (client, posted, kept)
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_timeout_returns_at_its_deadline_while_the_server_stalls_on_the_cancel() {
    for version in [MODERN, LEGACY] {
        let (client, mut posted, _) = connect(version).await;
        let start = Instant::now();
        let timed = async |millis: u64| {
            let limit = Duration::from_millis(millis);
            let error = client
                .call_tool("slow", ())
                .timeout(limit)
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
async fn a_cancel_waits_for_the_head_until_100_ms_after_its_request_and_no_longer() {
    for (let_go_after, posted_after) in [(0, 100), (30, 100), (100, 100), (5000, 5000)] {
        let (client, mut posted, _) = connect(LEGACY).await;
        let call = client.call_tool("slow", ()).start();
        let (request, start) = posted.recv().await.unwrap();
        assert_eq!(request["method"], "tools/call");

        tokio::time::advance(Duration::from_millis(let_go_after)).await;
        drop(call);

        let (cancel, at) = posted.recv().await.unwrap();
        assert_eq!(cancel["params"]["requestId"], request["id"]);
        assert_eq!((at - start).as_millis(), posted_after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_withdrawn_cannot_leave_any_more() {
    let (client, mut posted, kept) = connect(LEGACY).await;
    *kept.lock().unwrap() = Some(Vec::new());
    let call = client.call_tool("slow", ()).start();
    let is_kept = || kept.lock().unwrap().iter().any(|kept| !kept.is_empty());
    while !is_kept() {
        tokio::task::yield_now().await;
    }

    drop(call);
    while client.peer().unwrap().sizes().queued > 0 {
        tokio::task::yield_now().await;
    }

    // Whoever has the body may be on another thread, and about to take it.
    let mut body = kept.lock().unwrap().take().unwrap().remove(0);
    let mut cx = Context::from_waker(Waker::noop());
    let taken = Pin::new(&mut body).poll_frame(&mut cx);
    assert!(
        !matches!(taken, Poll::Ready(Some(Ok(_)))),
        "it left: {taken:?}"
    );
    assert!(posted.try_recv().is_err(), "no cancel was posted");
}

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
