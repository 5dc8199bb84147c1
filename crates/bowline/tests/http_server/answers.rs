//! Which form an answer takes, and when that is decided.

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
async fn an_outcome_that_comes_at_once_is_plain_json() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;

    let reply = link.send(call(7, "echo", "a")).await;

    assert_eq!(reply.status(), 200);
    let answer = reply.json().await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"name":"a"}"#);
}

#[tokio::test]
async fn an_answer_arrives_whole_however_long_it_is() {
    let stage = Stage::new();
    let service = stage.server.http();
    for mut link in [Link::to(&service).await, Link::http2_to(&service).await] {
        for length in [0, 1000, 5_000, 100_000] {
            let name = "a\n\"é".repeat(length);

            let reply = link.send(call("seven", "echo", &name)).await;

            let declared = reply.header("content-length").map(str::to_owned);
            let text = reply.text().await;
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
async fn an_outcome_within_the_delay_is_plain_json_too() {
    let mut stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let waiting = tokio::spawn(async move { link.send(call(1, "wait", "a")).await.json().await });
    stage.started("a").await;

    tokio::time::advance(Duration::from_millis(200)).await;
    stage.release.notify_one();

    let answer = waiting.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "released");
    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_still_silent_after_the_delay_gets_a_stream() {
    let mut stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let begun = Instant::now();

    let reply = link.send(call(1, "wait", "a")).await;

    assert_eq!(begun.elapsed().as_millis() / 10, 25);
    assert!(reply.is_events());
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    stage.release.notify_one();
    let messages = reply.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["result"]["content"][0]["text"], "released");
    stage.started("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_wants_progress_gets_a_stream_at_once() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let begun = Instant::now();

    let silent = link.send(call_with_progress(1, "wait", "a")).await;

    assert!(silent.is_events());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    stage.release.notify_one();
    assert_eq!(silent.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_says_something_gets_a_stream_at_once() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let begun = Instant::now();

    let mut reply = link.send(call_with_progress(1, "talk", "a")).await;

    assert!(reply.is_events());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let first = messages(&reply.chunk().await.unwrap());
    assert_eq!(first[0]["method"], "notifications/progress");
    stage.release.notify_one();
    assert_eq!(reply.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_kept_alive_by_comments() {
    let stage = Stage::new();
    let service = stage.server.http().keep_alive(Duration::from_secs(3));
    let mut link = Link::to(&service).await;
    let mut reply = link.send(call_with_progress(1, "wait", "a")).await;
    let begun = Instant::now();

    let first = reply.chunk().await.unwrap();
    let second = reply.chunk().await.unwrap();

    assert_eq!(
        (first.as_str(), second.as_str()),
        (": keep-alive\n\n", ": keep-alive\n\n")
    );
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_interval_without_end_sends_no_comments() {
    let stage = Stage::new();
    let service = stage.server.http().keep_alive(Duration::MAX);
    let mut link = Link::to(&service).await;
    let reply = link.send(call_with_progress(1, "wait", "a")).await;

    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    stage.release.notify_one();

    let body = reply.text().await;
    assert!(!body.contains("keep-alive"), "{body}");
    assert_eq!(messages(&body)[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_never_commits_to_events_waits_for_its_outcome() {
    let mut stage = Stage::new();
    let service = stage.server.http().commit_after(Duration::MAX);
    let mut link = Link::to(&service).await;
    let releasing = async {
        stage.started("a").await;
        tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
        stage.release.notify_one();
    };

    let (reply, ()) = tokio::join!(link.send(call(1, "wait", "a")), releasing);

    assert!(!reply.is_events());
    assert_eq!(reply.json().await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_spoken_may_be_silent_for_the_whole_interval_again() {
    let stage = Stage::new();
    let service = stage.server.http().keep_alive(Duration::from_secs(3));
    let mut link = Link::to(&service).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern("L1", "subscriptions/listen", filter);
    let mut reply = link.send(listen).await;
    reply.chunk().await.unwrap();
    let begun = Instant::now();

    let mut heard = Vec::new();
    // Before the timer rings, in the moment in which it does, and later.
    for at in [2, 3, 8] {
        let until = begun + Duration::from_secs(at);
        while let Ok(chunk) = tokio::time::timeout_at(until, reply.chunk()).await {
            heard.push((begun.elapsed().as_secs(), chunk.unwrap().starts_with(':')));
        }
        stage.server.changed().tools();
    }
    while heard.len() < 5 {
        let chunk = reply.chunk().await.unwrap();
        heard.push((begun.elapsed().as_secs(), chunk.starts_with(':')));
    }

    let (word, comment) = (false, true);
    let expected = [(2, word), (3, word), (6, comment), (8, word), (11, comment)];
    assert_eq!(heard, expected);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_kept_alive_however_busy_its_handler_was() {
    let tool = Tool::raw("busy", json!({"type": "object"}), async |_, _| {
        for _ in 0..1_000 {
            tokio::task::consume_budget().await;
        }
        std::future::pending().await
    });
    let server = Server::new("stage", "1.0.0").tool(tool);
    let mut link = Link::to(&server.http()).await;
    let mut reply = link.send(call_with_progress(1, "busy", "a")).await;

    let kept_alive = tokio::time::timeout(Duration::from_secs(60), reply.chunk()).await;

    assert_eq!(kept_alive, Ok(Some(": keep-alive\n\n".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_polled_when_it_was_woken_and_whoever_asked_last_hears_of_it() {
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
    let service = Server::new("stage", "1.0.0").tool(tool).http();
    let mut body = ask(&service, call_with_progress(1, "waits", "a")).await;
    let polls = || polled.lock().unwrap().len();
    let mut asks = |waker: &Waker| {
        let mut cx = task::Context::from_waker(waker);
        Pin::new(body.body_mut()).poll_frame(&mut cx).is_ready()
    };
    let [first, second] = [(); 2].map(|()| Arc::new(Woken::default()));

    let [word, nothing] = [(); 2].map(|()| asks(&first.clone().into()));
    let before = polls();
    let again = [(); 2].map(|()| asks(&first.clone().into()));
    let between = polls();
    let moved = asks(&second.clone().into());
    let since = polls();
    polled.lock().unwrap()[0].wake_by_ref();
    let woken = [&first, &second].map(|waker| waker.0.load(Ordering::Relaxed));
    asks(&second.clone().into());

    assert_eq!((word, nothing), (true, false));
    assert_eq!((again, moved), ([false; 2], false));
    assert_eq!(between, before);
    assert_eq!(woken, [0, 1]);
    assert_eq!(polls(), since + 1);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_events_waits_for_its_json() {
    let mut stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let request = with(
        call_with_progress(1, "talk", "a"),
        "accept",
        "application/json",
    );
    let waiting = tokio::spawn(async move { link.send(request).await.json().await });
    stage.started("a").await;

    tokio::time::advance(Duration::from_secs(60)).await;
    stage.release.notify_one();

    let answer = waiting.await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "released");
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_said_last_does_not_hide_its_answer() {
    let long = "x".repeat(20_000);
    let talk = move |_, cx: Context| {
        let long = long.clone();
        async move {
            tokio::task::yield_now().await;
            cx.progress(Progress::at(1.0).message(long));
            Ok(CallToolResult::text("said"))
        }
    };
    let tool = Tool::raw("talk", json!({"type": "object"}), talk);
    let service = Server::new("stage", "1.0.0").tool(tool).http();
    let mut link = Link::to(&service).await;
    let begun = Instant::now();

    for accept in ["application/json", "application/json, text/event-stream"] {
        let request = with(call_with_progress(1, "talk", "a"), "accept", accept);
        let answering = async {
            let reply = link.send(request).await;
            match reply.is_events() {
                true => reply.messages().await.pop().unwrap(),
                false => reply.json().await,
            }
        };
        let answer = tokio::time::timeout(Duration::from_secs(60), answering).await;
        let answer = answer.expect(accept);

        assert_eq!(answer["result"]["content"][0]["text"], "said", "{accept}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_only_events_gets_its_result_as_one() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;

    let reply = link
        .send(with(call(1, "echo", "a"), "accept", "text/event-stream"))
        .await;

    assert_eq!(reply.messages().await[0]["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_error_of_one_request() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;

    let torn = link.send(call(1, "panics", "a")).await.json().await;
    let whole = link.send(call(2, "echo", "b")).await.json().await;

    assert_eq!(torn["error"]["code"], -32603);
    assert_eq!(whole["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_capability_has_status_400_and_after_the_head_is_out_another_form() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;

    let early = link.send(call(1, "needs", "a")).await;
    let late = link.send(call_with_progress(2, "needs_late", "a")).await;

    assert_eq!(early.status(), 400);
    assert_eq!(early.json().await["error"]["code"], -32021);
    assert_eq!(late.status(), 200);
    let messages = late.messages().await;
    assert_eq!(messages[1]["result"]["isError"], true);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_stream_that_starts_with_its_acknowledgement() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});

    let mut reply = link
        .send(modern("L1", "subscriptions/listen", filter))
        .await;
    let first = messages(&reply.chunk().await.unwrap());
    stage.server.changed().tools();
    let second = messages(&reply.chunk().await.unwrap());

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
async fn a_subscription_holds_on_to_nothing_that_came_with_its_request() {
    let stage = Stage::new();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let (mut head, body) = modern("L1", "subscriptions/listen", filter).into_parts();
    let (seen, buffer) = (Arc::new(()), Arc::new(whole_body(body).await));
    head.extensions.insert(seen.clone());
    let body = Full::new(Bytes::from_owner(Shared(buffer.clone())));

    let mut response = ask(&stage.server.http(), Request::from_parts(head, body)).await;
    let first = response.frame().await.unwrap().unwrap();

    assert!(first.into_data().unwrap().starts_with(b"data: "));
    assert_eq!(Arc::strong_count(&seen), 1, "the head is let go");
    assert_eq!(Arc::strong_count(&buffer), 1, "the body is let go");
}

struct Shared(Arc<Bytes>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

async fn whole_body(body: Full<Bytes>) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

#[tokio::test(start_paused = true)]
async fn http2_answers_alike() {
    let stage = Stage::new();
    let mut link = Link::http2_to(&stage.server.http()).await;

    let plain = link.send(call(1, "echo", "a")).await;
    let mut stream = link.send(call_with_progress(2, "talk", "b")).await;
    let first = messages(&stream.chunk().await.unwrap());
    stage.release.notify_one();

    assert_eq!(plain.json().await["id"], 1);
    assert_eq!(first[0]["method"], "notifications/progress");
    assert_eq!(stream.messages().await[0]["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_on_whose_behalf_it_runs() {
    let stage = Stage::new();
    let service = stage.server.http();

    let named = ask(&service, on_behalf(call(1, "whose", "a"), "ada")).await;
    let unnamed = ask(&service, call(2, "whose", "a")).await;

    let text = |answer: &serde_json::Value| answer["result"]["content"][0]["text"].clone();
    let (named, unnamed) = (whole(named).await, whole(unnamed).await);
    assert_eq!(text(&named), r#"Principal("ada") at Some("localhost")"#);
    assert_eq!(
        text(&unnamed),
        r#"Principal(anonymous) at Some("localhost")"#
    );
}
