//! Faults on the wire: each call ends in an error that says what happened, and only that call.

use std::time::Duration;

use bowline::http::client::ResponseLimits;
use bowline::{Client, Error};
use serde_json::json;

use crate::scripted::{Peer, STREAM, Say, bare, event, json, result};

fn done() -> serde_json::Value {
    json!({"resultType": "complete", "content": []})
}

async fn outcome_of(
    say: impl Fn(&crate::scripted::Arrived) -> Say + Send + 'static,
) -> bowline::Result<bowline::Reply> {
    let peer = Peer::start(say).await;
    let limits = ResponseLimits {
        body: 1000,
        event: 1000,
    };
    let client = Client::connect(&peer.url)
        .speaking("2026-07-28")
        .response_limits(limits)
        .await
        .unwrap();
    let call = client
        .call_tool("x", ())
        .timeout(Duration::from_secs(20))
        .into_future();
    tokio::time::timeout(Duration::from_secs(10), call)
        .await
        .expect("the call ends by itself")
}

#[tokio::test]
async fn a_response_that_is_cut_at_any_byte_ends_the_call() {
    for is_stream in [false, true] {
        let whole = {
            let sample = crate::scripted::Arrived {
                verb: String::new(),
                head: String::new(),
                body: json!({"id": 1}),
            };
            if is_stream {
                format!("{STREAM}{}", event(&result(&sample, &done())))
            } else {
                json("200 OK", &result(&sample, &done()))
            }
        };
        for cut in 0..whole.len() {
            let part = whole[..cut].to_owned();

            let outcome = outcome_of(move |_| Say::BytesThenClose(part.clone())).await;

            // The last blank line of a stream ends its event; without it there was no answer.
            assert!(
                outcome.is_err(),
                "cut at byte {cut} of {whole:?} gave {outcome:?}"
            );
            assert!(
                !matches!(outcome, Err(Error::Timeout { .. })),
                "cut at byte {cut} hung"
            );
        }
    }
}

#[tokio::test]
async fn a_202_to_a_request_is_a_broken_protocol() {
    let outcome = outcome_of(|_| Say::Bytes(bare("202 Accepted"))).await;

    assert!(matches!(outcome, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn a_stream_that_ends_early_is_a_failed_wire() {
    let outcome = outcome_of(|_| Say::BytesThenClose(format!("{STREAM}: nothing\n\n"))).await;

    assert!(matches!(outcome, Err(Error::Transport { .. })));
}

#[tokio::test]
async fn a_response_of_another_kind_is_told_by_its_status() {
    let page =
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nsad!";

    let outcome = outcome_of(move |_| Say::Bytes(page.into())).await;

    assert!(matches!(outcome, Err(Error::Transport { what, .. }) if what.contains("502")));
}

#[tokio::test]
async fn endless_lines_and_bodies_are_not_read_to_their_end() {
    let line =
        outcome_of(|_| Say::BytesThenStall(format!("{STREAM}data: {}", "x".repeat(5000)))).await;
    let body = outcome_of(|_| Say::BytesThenClose(json("200 OK", &json!("x".repeat(5000))))).await;

    assert!(matches!(line, Err(Error::Protocol { .. })), "{line:?}");
    assert!(matches!(body, Err(Error::Protocol { .. })), "{body:?}");
}

#[tokio::test]
async fn an_answer_to_another_request_is_not_taken() {
    let outcome = outcome_of(|_| {
        Say::Bytes(json(
            "200 OK",
            &json!({"jsonrpc": "2.0", "id": 99, "result": {}}),
        ))
    })
    .await;

    assert!(matches!(outcome, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn chunked_garbage_ends_the_call() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";

    let outcome = outcome_of(move |_| Say::BytesThenClose(head.into())).await;

    assert!(matches!(outcome, Err(Error::Transport { .. })));
}
