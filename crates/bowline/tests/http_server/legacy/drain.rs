//! The drain of legacy sessions.

use std::time::Duration;

use serde_json::json;

use super::{SessionClient, initialize, tool_call};
use crate::support::*;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_session_takes_calls_during_the_delay_and_then_only_what_belongs_to_its_work() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().drain_delay(Duration::MAX);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let stream = client.send(client.get()).await;
    let finishing = client.start_call(&mut fixture, 1, "a").await;

    fixture.server.drain();
    let cancelled = client.start_call(&mut fixture, 2, "b").await;
    fixture.server.shut_down(MINUTE);

    let refused = client.send(client.call(3, "echo", "c")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let refused = refused.json().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(3), &json!(-32603))
    );
    let opened = client.send(post(&initialize("2025-11-25"))).await;
    assert_eq!(opened.status(), 503);

    let ping = json!({"jsonrpc": "2.0", "id": 4, "method": "ping"});
    assert_eq!(client.send(client.post(&ping)).await.status(), 200);
    assert_eq!(client.send(client.cancel(2)).await.status(), 202);
    fixture.handler_dropped("b").await;
    assert_eq!(
        cancelled.messages().await.last().unwrap()["error"]["code"],
        -32800
    );

    fixture.release.notify_one();
    assert_eq!(finishing.messages().await.last().unwrap()["id"], 1);
    stream.text().await; // it ends with the session
    assert_eq!(service.drained().await.refused, 2);
    assert_eq!(service.drain_report().cancelled, 0);
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_a_batch_are_refused_one_by_one() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-03-26").await;
    let running = client.start_call(&mut fixture, 1, "a").await;
    fixture.server.shut_down(MINUTE);

    let batch = json!([
        tool_call(&json!(2), "echo", &json!({}), &json!({})),
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    ]);
    let answered = client.send(client.post(&batch)).await;

    let answers = match answered.is_event_stream() {
        true => json!(answered.messages().await),
        false => answered.json().await,
    };
    let refused = answers.as_array().unwrap().iter();
    let refused: Vec<_> = refused
        .filter(|answer| answer["error"] != json!(null))
        .collect();
    assert_eq!(refused.len(), 1, "{answers}");
    assert_eq!(refused[0]["id"], 2);
    assert_eq!(refused[0]["error"]["data"]["retryable"], true);
    fixture.handler_dropped("a").await;
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_session_that_do_not_finish_are_counted() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let _first = client.start_call(&mut fixture, 1, "a").await;
    let _second = client.start_call(&mut fixture, 2, "b").await;

    fixture.server.shut_down(MINUTE);
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    assert_eq!(service.drain_report().cancelled, 2);
    assert_eq!(service.drain_report().refused, 0);
}
