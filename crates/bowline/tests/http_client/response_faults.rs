//! Faulty responses: each fails only its own call, with the right error, before the deadline.

use std::time::Duration;

use bowline::http::client::{HyperClient, ResponseLimits};
use bowline::{Client, Error, Reply, Result};
use serde_json::json;
use tokio::time::Instant;

use crate::legacy::default_legacy_reply;
use crate::scripted_server::{
    ReceivedRequest, SSE_HEAD, ScriptedReply, ScriptedServer, bare, event, json, reply_with,
    result, text_result,
};

const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Calls a tool that `reply` answers, then one with a valid response. Returns the outcome of the first call and how
/// long it took.
async fn outcome_of(
    version: &str,
    reply: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + 'static,
) -> (Result<Reply>, Duration) {
    let (server, connector) = ScriptedServer::in_memory(move |request| match &*request.label() {
        "POST tools/call" if request.body["params"]["name"] == "faulty" => reply(request),
        "POST tools/call" => reply_with(request, &text_result("done")),
        _ => default_legacy_reply(request),
    });
    let limits = ResponseLimits {
        body: 1000,
        event: 1000,
        ..ResponseLimits::default()
    };
    let client = Client::connect(&server.url)
        .http_client(HyperClient::with_connector(connector))
        .protocol_version(version)
        .response_limits(limits)
        .await
        .unwrap();
    let start = Instant::now();

    let outcome = client
        .call_tool("faulty", ())
        .idle_timeout(CALL_TIMEOUT)
        .await;
    let took = start.elapsed();

    let next = client.call_tool("next", ()).await;
    assert_eq!(
        next.unwrap().text(),
        "done",
        "a fault affects only its call"
    );
    (outcome, took)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ErrorKind {
    Timeout,
    Protocol,
    Transport,
}

fn error_kind(outcome: &Result<Reply>) -> Option<ErrorKind> {
    match outcome {
        Err(Error::Timeout { .. }) => Some(ErrorKind::Timeout),
        Err(Error::Protocol { .. }) => Some(ErrorKind::Protocol),
        Err(Error::Transport { .. }) => Some(ErrorKind::Transport),
        _ => None,
    }
}

/// A response with these headers and only this part of its body.
fn partial_response(head: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}")
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_stalled_response_times_out_at_its_deadline() {
    for version in VERSIONS {
        for stalled in [
            String::new(),
            "HTTP/1.1 200".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n".to_owned(),
            partial_response(
                "Content-Type: application/json\r\nContent-Length: 100",
                "{\"jsonrpc\"",
            ),
            partial_response("Content-Type: text/event-stream", ""),
            partial_response("Content-Type: text/event-stream", "data: {\"jsonrpc\""),
            partial_response(
                "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked",
                "ff\r\ndata:",
            ),
        ] {
            let bytes = stalled.clone();

            let (outcome, took) = outcome_of(version, move |_| {
                ScriptedReply::BytesThenStall(bytes.clone())
            })
            .await;

            assert_eq!(
                error_kind(&outcome),
                Some(ErrorKind::Timeout),
                "{version} {stalled:?} {outcome:?}"
            );
            assert_eq!(took, CALL_TIMEOUT, "{version} {stalled:?}");
        }
    }
}

/// Faulty responses: a description, the expected kind of error, and the bytes.
fn faults() -> Vec<(&'static str, ErrorKind, String)> {
    let chunked = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked";
    let oversized_line = format!("{SSE_HEAD}data: {}", "x".repeat(5000));
    let oversized_event = format!("{SSE_HEAD}{}", "data: xxxxxxxx\n".repeat(500));
    let oversized_head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1_000_000));
    vec![
        (
            "202 without a result",
            ErrorKind::Protocol,
            bare("202 Accepted"),
        ),
        ("empty body", ErrorKind::Protocol, bare("200 OK")),
        (
            "stream ends without a result",
            ErrorKind::Transport,
            format!("{SSE_HEAD}: nothing\n\n"),
        ),
        (
            "stream ends within an event",
            ErrorKind::Transport,
            format!("{SSE_HEAD}data: {{"),
        ),
        (
            "wrong content type",
            ErrorKind::Protocol,
            partial_response("Content-Type: text/html\r\nContent-Length: 2", "hi"),
        ),
        (
            "no content type",
            ErrorKind::Protocol,
            partial_response("Content-Length: 2", "{}"),
        ),
        (
            "malformed JSON",
            ErrorKind::Protocol,
            partial_response("Content-Type: application/json\r\nContent-Length: 1", "{"),
        ),
        (
            "not a JSON-RPC message",
            ErrorKind::Protocol,
            json("200 OK", &json!({"id": 1})),
        ),
        (
            "result of another request",
            ErrorKind::Protocol,
            json("200 OK", &json!({"jsonrpc": "2.0", "id": 99, "result": {}})),
        ),
        ("oversized line", ErrorKind::Protocol, oversized_line),
        ("oversized event", ErrorKind::Protocol, oversized_event),
        (
            "oversized body",
            ErrorKind::Protocol,
            json("200 OK", &json!("x".repeat(5000))),
        ),
        ("oversized head", ErrorKind::Transport, oversized_head),
        (
            "malformed chunk length",
            ErrorKind::Transport,
            partial_response(chunked, "zz\r\n"),
        ),
        (
            "chunk length overflow",
            ErrorKind::Transport,
            partial_response(chunked, "ffffffffffffffffff\r\n"),
        ),
        (
            "not HTTP",
            ErrorKind::Transport,
            "nonsense\r\n\r\n".to_owned(),
        ),
        (
            "502",
            ErrorKind::Transport,
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_fault_causes_its_error_kind_before_the_deadline() {
    for version in VERSIONS {
        for (what, expected, bytes) in faults() {
            let (outcome, took) = outcome_of(version, move |_| {
                ScriptedReply::BytesThenClose(bytes.clone())
            })
            .await;

            assert_eq!(
                error_kind(&outcome),
                Some(expected),
                "{version} {what}: {outcome:?}"
            );
            assert!(took < CALL_TIMEOUT, "{version} {what} took {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_truncated_at_any_byte_fails_the_call() {
    for version in VERSIONS {
        for is_stream in [false, true] {
            let respond = move |request: &ReceivedRequest| {
                let answer = result(request, &text_result("done"));
                match is_stream {
                    true => format!("{SSE_HEAD}{}", event(&answer)),
                    false => json("200 OK", &answer),
                }
            };
            let (whole, _) = outcome_of(version, move |request| {
                ScriptedReply::Bytes(respond(request))
            })
            .await;
            assert!(whole.is_ok(), "{whole:?}");
            let sample = ReceivedRequest {
                method: String::new(),
                head: String::new(),
                body: json!({"id": 1}),
            };

            for cut in 0..respond(&sample).len() {
                let (outcome, took) = outcome_of(version, move |request| {
                    ScriptedReply::BytesThenClose(respond(request)[..cut].to_owned())
                })
                .await;

                // Without its final blank line the event is incomplete, so there is no result.
                assert!(outcome.is_err(), "{version} cut at byte {cut}: {outcome:?}");
                assert!(
                    took < CALL_TIMEOUT,
                    "{version} cut at byte {cut} took {took:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_status_without_a_json_body_is_in_the_error_message() {
    let page =
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nsad!";

    for version in VERSIONS {
        let (outcome, _) = outcome_of(version, move |_| ScriptedReply::Bytes(page.into())).await;

        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("502"), "{version}: {error}");
    }
}

/// Counts the GETs to a server whose streams are only `stream`, and returns the outcome of a call.
async fn count_gets(stream: &'static str) -> (usize, Result<Reply>) {
    let (mut server, connector) =
        ScriptedServer::in_memory(move |request| match &*request.label() {
            "GET" => ScriptedReply::BytesThenClose(format!("{SSE_HEAD}{stream}")),
            "POST tools/call" => {
                ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 0\ndata:\n\n"))
            }
            _ => default_legacy_reply(request),
        });
    let client = Client::connect(&server.url)
        .http_client(HyperClient::with_connector(connector))
        .protocol_version("2025-11-25")
        .await
        .unwrap();

    let outcome = client.call_tool("x", ()).idle_timeout(CALL_TIMEOUT).await;
    // The paused clock advances as soon as every task is idle.
    let _ = tokio::time::timeout(CALL_TIMEOUT * 60, std::future::pending::<()>()).await;

    let gets = server
        .drain_events()
        .iter()
        .filter(|label| *label == "GET")
        .count();
    (gets, outcome)
}

#[tokio::test(start_paused = true)]
async fn reopening_of_streams_without_a_result_is_bounded() {
    for stream in ["", "id: g1\nretry: 0\ndata:\n\n"] {
        let (gets, outcome) = count_gets(stream).await;

        assert_eq!(
            error_kind(&outcome),
            Some(ErrorKind::Transport),
            "{outcome:?}"
        );
        assert!(gets <= 12, "{gets} GETs for streams of {stream:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_streams_to_be_polled_is_polled_until_it_answers() {
    let mut polls = 0;
    let (_server, connector) = ScriptedServer::in_memory(move |request| match &*request.label() {
        "POST tools/call" => ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\ndata:\n\n")),
        "GET" if request.header("last-event-id").is_none() => {
            ScriptedReply::BytesThenStall(SSE_HEAD.into())
        }
        "GET" if polls < 20 => {
            polls += 1;
            ScriptedReply::BytesThenCloseAfter(SSE_HEAD.into(), Duration::from_secs(2))
        }
        "GET" => {
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result": text_result("done")});
            ScriptedReply::BytesThenClose(format!("{SSE_HEAD}{}", event(&answer)))
        }
        _ => default_legacy_reply(request),
    });
    let client = Client::connect("http://localhost/mcp")
        .http_client(HyperClient::with_connector(connector))
        .protocol_version("2025-11-25")
        .await
        .unwrap();

    let outcome = client
        .call_tool("x", ())
        .id(1)
        .idle_timeout(CALL_TIMEOUT * 60)
        .await;

    assert_eq!(outcome.unwrap().text(), "done");
}
