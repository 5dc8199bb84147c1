//! The form of a response, JSON or an event stream, and when the server commits to it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use bowline::{CallToolResult, Context, Progress, Server, Tool};
use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_immediate_outcome_is_sent_as_json() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;

    let response = connection.send(call(7, "echo", "a")).await;

    assert_eq!(response.status(), 200);
    let answer = response.json().await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"name":"a"}"#);
}

#[tokio::test]
async fn a_response_of_any_length_arrives_complete() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    for mut connection in [
        PlainConnection::http1(&service).await,
        PlainConnection::http2(&service).await,
    ] {
        for length in [0, 1000, 5_000, 100_000] {
            let name = "a\n\"é".repeat(length);

            let response = connection.send(call("seven", "echo", &name)).await;

            let declared = response.header("content-length").map(str::to_owned);
            let text = response.text().await;
            assert_eq!(declared, Some(text.len().to_string()));
            let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["id"], "seven");
            assert_eq!(answer["result"]["resultType"], "complete");
            let echoed = &answer["result"]["content"][0]["text"];
            assert_eq!(*echoed, json!({ "name": name }).to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_within_the_commit_delay_is_sent_as_json() {
    let mut fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let waiting =
        tokio::spawn(async move { connection.send(call(1, "wait", "a")).await.json().await });
    fixture.handler_started("a").await;

    tokio::time::advance(Duration::from_millis(200)).await;
    fixture.release.notify_one();

    let answer = waiting.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "released");
    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_an_outcome_after_the_commit_delay_gets_an_event_stream() {
    let mut fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let begun = Instant::now();

    let response = connection.send(call(1, "wait", "a")).await;

    assert_eq!(begun.elapsed().as_millis() / 10, 25);
    assert!(response.is_event_stream());
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    fixture.release.notify_one();
    let messages = response.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["result"]["content"][0]["text"], "released");
    fixture.handler_started("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_progress_token_gets_an_event_stream_immediately() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let begun = Instant::now();

    let response = connection.send(call_with_progress(1, "wait", "a")).await;

    assert!(response.is_event_stream());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    fixture.release.notify_one();
    assert_eq!(response.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_reports_progress_gets_an_event_stream_immediately() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let begun = Instant::now();

    let mut response = connection
        .send(call_with_progress(1, "progress", "a"))
        .await;

    assert!(response.is_event_stream());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let first = messages(&response.chunk().await.unwrap());
    assert_eq!(first[0]["method"], "notifications/progress");
    fixture.release.notify_one();
    assert_eq!(response.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_event_stream_is_kept_alive_by_comments() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().keep_alive(Duration::from_secs(3));
    let mut connection = PlainConnection::http1(&service).await;
    let mut response = connection.send(call_with_progress(1, "wait", "a")).await;
    let begun = Instant::now();

    let first = response.chunk().await.unwrap();
    let second = response.chunk().await.unwrap();

    assert_eq!(
        (first.as_str(), second.as_str()),
        (": keep-alive\n\n", ": keep-alive\n\n")
    );
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_maximum_keep_alive_interval_sends_no_comments() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().keep_alive(Duration::MAX);
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.send(call_with_progress(1, "wait", "a")).await;

    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    fixture.release.notify_one();

    let body = response.text().await;
    assert!(!body.contains("keep-alive"), "{body}");
    assert_eq!(messages(&body)[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_never_commits_to_an_event_stream_waits_for_its_outcome() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().stream_after(Duration::MAX);
    let mut connection = PlainConnection::http1(&service).await;
    let releasing = async {
        fixture.handler_started("a").await;
        tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
        fixture.release.notify_one();
    };

    let (response, ()) = tokio::join!(connection.send(call(1, "wait", "a")), releasing);

    assert!(!response.is_event_stream());
    assert_eq!(response.json().await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_restarts_the_keep_alive_interval() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().keep_alive(Duration::from_secs(3));
    let mut connection = PlainConnection::http1(&service).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern_request("L1", "subscriptions/listen", filter);
    let mut response = connection.send(listen).await;
    response.chunk().await.unwrap();
    let begun = Instant::now();

    let mut chunks = Vec::new();
    // Before the keep-alive timer expires, exactly when it expires, and later.
    for at in [2, 3, 8] {
        let until = begun + Duration::from_secs(at);
        while let Ok(chunk) = tokio::time::timeout_at(until, response.chunk()).await {
            chunks.push((begun.elapsed().as_secs(), chunk.unwrap().starts_with(':')));
        }
        fixture.server.changed().tools();
    }
    while chunks.len() < 5 {
        let chunk = response.chunk().await.unwrap();
        chunks.push((begun.elapsed().as_secs(), chunk.starts_with(':')));
    }

    let (event, comment) = (false, true);
    let expected = [
        (2, event),
        (3, event),
        (6, comment),
        (8, event),
        (11, comment),
    ];
    assert_eq!(chunks, expected);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_kept_alive_after_its_handler_used_up_the_task_budget() {
    let tool = Tool::raw("busy", json!({"type": "object"}), async |_, _| {
        for _ in 0..1_000 {
            tokio::task::consume_budget().await;
        }
        std::future::pending().await
    });
    let server = Server::new("fixture", "1.0.0").tool(tool);
    let mut connection = PlainConnection::http1(&server.http()).await;
    let mut response = connection.send(call_with_progress(1, "busy", "a")).await;

    let kept_alive = tokio::time::timeout(Duration::from_secs(60), response.chunk()).await;

    assert_eq!(kept_alive, Ok(Some(": keep-alive\n\n".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_polled_only_when_woken_and_wakes_the_last_task_that_polled() {
    let polled: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let seen = polled.clone();
    let waits = move |_, cx: Context| {
        cx.progress(1.0);
        let seen = seen.clone();
        poll_fn(move |cx| {
            seen.lock().unwrap().push(cx.waker().clone());
            Poll::Pending
        })
    };
    let tool = Tool::raw("waits", json!({"type": "object"}), waits);
    let service = Server::new("fixture", "1.0.0").tool(tool).http();
    let mut body = call_service(&service, call_with_progress(1, "waits", "a")).await;
    let polls = || polled.lock().unwrap().len();
    let mut poll_body = |waker: &Waker| {
        let mut cx = task::Context::from_waker(waker);
        Pin::new(body.body_mut()).poll_frame(&mut cx).is_ready()
    };
    let [first, second] = [(); 2].map(|()| Arc::new(WakeCounter::default()));

    let [progress, pending] = [(); 2].map(|()| poll_body(&first.clone().into()));
    let before = polls();
    let again = [(); 2].map(|()| poll_body(&first.clone().into()));
    let between = polls();
    let moved = poll_body(&second.clone().into());
    let since = polls();
    polled.lock().unwrap()[0].wake_by_ref();
    let woken = [&first, &second].map(|waker| waker.0.load(Ordering::Relaxed));
    poll_body(&second.clone().into());

    assert_eq!((progress, pending), (true, false));
    assert_eq!((again, moved), ([false; 2], false));
    assert_eq!(between, before);
    assert_eq!(woken, [0, 1]);
    assert_eq!(polls(), since + 1);
}

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_accept_events_gets_json_when_the_handler_ends() {
    let mut fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let request = with_header(
        call_with_progress(1, "progress", "a"),
        "accept",
        "application/json",
    );
    let waiting = tokio::spawn(async move { connection.send(request).await.json().await });
    fixture.handler_started("a").await;

    tokio::time::advance(Duration::from_secs(60)).await;
    fixture.release.notify_one();

    let answer = waiting.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "released");
}

#[tokio::test(start_paused = true)]
async fn progress_right_before_the_result_does_not_delay_the_result() {
    let long = "x".repeat(20_000);
    let report = move |_, cx: Context| {
        let long = long.clone();
        async move {
            tokio::task::yield_now().await;
            cx.progress(Progress::new(1.0).message(long));
            Ok(CallToolResult::text("done"))
        }
    };
    let tool = Tool::raw("progress", json!({"type": "object"}), report);
    let service = Server::new("fixture", "1.0.0").tool(tool).http();
    let mut connection = PlainConnection::http1(&service).await;
    let begun = Instant::now();

    for accept in ["application/json", "application/json, text/event-stream"] {
        let request = with_header(call_with_progress(1, "progress", "a"), "accept", accept);
        let answering = async {
            let response = connection.send(request).await;
            match response.is_event_stream() {
                true => response.messages().await.pop().unwrap(),
                false => response.json().await,
            }
        };
        let answer = tokio::time::timeout(Duration::from_secs(60), answering).await;
        let answer = answer.expect(accept);

        assert_eq!(answer["result"]["content"][0]["text"], "done", "{accept}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_accepts_only_events_gets_its_result_as_an_event() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;

    let response = connection
        .send(with_header(
            call(1, "echo", "a"),
            "accept",
            "text/event-stream",
        ))
        .await;

    assert_eq!(response.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_panic_fails_only_its_request() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;

    let panicked = connection.send(call(1, "panics", "a")).await.json().await;
    let next = connection.send(call(2, "echo", "b")).await.json().await;

    assert_eq!(panicked["error"]["code"], -32603);
    assert_eq!(next["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_capability_has_status_400_or_is_a_tool_error_once_the_head_was_sent() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;

    let early = connection.send(call(1, "missing_capability", "a")).await;
    let late = connection
        .send(call_with_progress(
            2,
            "missing_capability_after_progress",
            "a",
        ))
        .await;

    assert_eq!(early.status(), 400);
    assert_eq!(early.json().await["error"]["code"], -32021);
    assert_eq!(late.status(), 200);
    let messages = late.messages().await;
    assert_eq!(messages[1]["result"]["isError"], true);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_stream_that_starts_with_its_acknowledgement() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});

    let mut response = connection
        .send(modern_request("L1", "subscriptions/listen", filter))
        .await;
    let first = messages(&response.chunk().await.unwrap());
    fixture.server.changed().tools();
    let second = messages(&response.chunk().await.unwrap());

    let id = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(
        first[0]["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(first[0]["params"]["_meta"][id], "L1");
    assert_eq!(second[0]["method"], "notifications/tools/list_changed");
    assert_eq!(second[0]["params"]["_meta"][id], "L1");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_drops_the_head_and_body_of_its_request() {
    let fixture = ServerFixture::new();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let (mut head, body) = modern_request("L1", "subscriptions/listen", filter).into_parts();
    let (seen, buffer) = (Arc::new(()), Arc::new(whole_body(body).await));
    head.extensions.insert(seen.clone());
    let body = Full::new(Bytes::from_owner(SharedBytes(buffer.clone())));

    let mut response = call_service(&fixture.server.http(), Request::from_parts(head, body)).await;
    let first = response.frame().await.unwrap().unwrap();

    let first = first.into_data().unwrap();
    assert!(first.starts_with(b"event: message\ndata: "));
    assert_eq!(Arc::strong_count(&seen), 1, "the head is dropped");
    assert_eq!(Arc::strong_count(&buffer), 1, "the body is dropped");
}

struct SharedBytes(Arc<Bytes>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

async fn whole_body(body: Full<Bytes>) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

#[tokio::test(start_paused = true)]
async fn http2_responses_have_the_same_form() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http2(&fixture.server.http()).await;

    let plain = connection.send(call(1, "echo", "a")).await;
    let mut stream = connection
        .send(call_with_progress(2, "progress", "b"))
        .await;
    let first = messages(&stream.chunk().await.unwrap());
    fixture.release.notify_one();

    assert_eq!(plain.json().await["id"], 1);
    assert_eq!(first[0]["method"], "notifications/progress");
    assert_eq!(stream.messages().await[0]["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_receives_the_principal_and_the_http_head() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();

    let named = call_service(&service, with_principal(call(1, "principal", "a"), "ada")).await;
    let unnamed = call_service(&service, call(2, "principal", "a")).await;

    let text = |answer: &serde_json::Value| answer["result"]["content"][0]["text"].clone();
    let (named, unnamed) = (response_json(named).await, response_json(unnamed).await);
    assert_eq!(text(&named), r#"Principal("ada") at Some("localhost")"#);
    assert_eq!(
        text(&unnamed),
        r#"Principal(anonymous) at Some("localhost")"#
    );
}
