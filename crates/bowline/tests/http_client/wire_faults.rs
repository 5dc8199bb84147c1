//! Faults on the wire: each call ends in an error that says what happened, in time, and only that call.

use std::time::Duration;

use bowline::http::client::{HyperSend, ResponseLimits};
use bowline::{Client, Error, Reply, Result};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::legacy::manners;
use crate::scripted::{Arrived, Peer, STREAM, Say, bare, event, json, result};

const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
const PATIENCE: Duration = Duration::from_secs(20);

fn done() -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]})
}

/// Calls a tool whose answer is what `say` says, then one that is answered as it should be. Returns what became
/// of the first, and how long that took.
async fn outcome_of(
    version: &str,
    say: impl Fn(&Arrived) -> Say + Send + 'static,
) -> (Result<Reply>, Duration) {
    let (peer, pipes) = Peer::in_memory(move |request| match &*request.what() {
        "POST tools/call" if request.body["params"]["name"] == "faulty" => say(request),
        "POST tools/call" => Say::Bytes(json("200 OK", &result(request, &done()))),
        _ => manners(request),
    });
    let limits = ResponseLimits {
        body: 1000,
        event: 1000,
        ..ResponseLimits::default()
    };
    let client = Client::connect(&peer.url)
        .http(HyperSend::over(pipes))
        .speaking(version)
        .response_limits(limits)
        .await
        .unwrap();
    let begun = Instant::now();

    let outcome = client.call_tool("faulty", ()).timeout(PATIENCE).await;
    let took = begun.elapsed();

    let next = client.call_tool("next", ()).await;
    assert_eq!(next.unwrap().text(), "done", "a fault costs only its call");
    (outcome, took)
}

/// What a fault is to be told as.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Timeout,
    Protocol,
    Transport,
}

fn told(outcome: &Result<Reply>) -> Option<Told> {
    match outcome {
        Err(Error::Timeout { .. }) => Some(Told::Timeout),
        Err(Error::Protocol { .. }) => Some(Told::Protocol),
        Err(Error::Transport { .. }) => Some(Told::Transport),
        _ => None,
    }
}

/// A response with this head, of which not more than this comes.
fn part(head: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}")
}

#[tokio::test(start_paused = true)]
async fn a_response_that_stalls_ends_at_the_deadline_of_its_call() {
    for version in VERSIONS {
        for stalled in [
            String::new(),
            "HTTP/1.1 200".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n".to_owned(),
            part(
                "Content-Type: application/json\r\nContent-Length: 100",
                "{\"jsonrpc\"",
            ),
            part("Content-Type: text/event-stream", ""),
            part("Content-Type: text/event-stream", "data: {\"jsonrpc\""),
            part(
                "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked",
                "ff\r\ndata:",
            ),
        ] {
            let said = stalled.clone();

            let (outcome, took) =
                outcome_of(version, move |_| Say::BytesThenStall(said.clone())).await;

            assert_eq!(
                told(&outcome),
                Some(Told::Timeout),
                "{version} {stalled:?} {outcome:?}"
            );
            assert_eq!(took, PATIENCE, "{version} {stalled:?}");
        }
    }
}

/// What comes back, what it is to be told as, and what it is.
fn faults() -> Vec<(&'static str, Told, String)> {
    let chunked = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked";
    let endless_line = format!("{STREAM}data: {}", "x".repeat(5000));
    let endless_event = format!("{STREAM}{}", "data: xxxxxxxx\n".repeat(500));
    let endless_head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1_000_000));
    vec![
        (
            "accepted and not answered",
            Told::Protocol,
            bare("202 Accepted"),
        ),
        ("nothing at all", Told::Protocol, bare("200 OK")),
        (
            "ends early",
            Told::Transport,
            format!("{STREAM}: nothing\n\n"),
        ),
        (
            "ends within an event",
            Told::Transport,
            format!("{STREAM}data: {{"),
        ),
        (
            "another kind",
            Told::Protocol,
            part("Content-Type: text/html\r\nContent-Length: 2", "hi"),
        ),
        ("no kind", Told::Protocol, part("Content-Length: 2", "{}")),
        (
            "no JSON",
            Told::Protocol,
            part("Content-Type: application/json\r\nContent-Length: 1", "{"),
        ),
        (
            "no message",
            Told::Protocol,
            json("200 OK", &json!({"id": 1})),
        ),
        (
            "another answer",
            Told::Protocol,
            json("200 OK", &json!({"jsonrpc": "2.0", "id": 99, "result": {}})),
        ),
        ("an endless line", Told::Protocol, endless_line),
        ("an endless event", Told::Protocol, endless_event),
        (
            "an endless body",
            Told::Protocol,
            json("200 OK", &json!("x".repeat(5000))),
        ),
        ("an endless head", Told::Transport, endless_head),
        (
            "a chunk of no length",
            Told::Transport,
            part(chunked, "zz\r\n"),
        ),
        (
            "a chunk of any length",
            Told::Transport,
            part(chunked, "ffffffffffffffffff\r\n"),
        ),
        ("no HTTP", Told::Transport, "nonsense\r\n\r\n".to_owned()),
        (
            "no server",
            Told::Transport,
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_fault_is_told_by_what_it_is_and_at_once() {
    for version in VERSIONS {
        for (what, expected, said) in faults() {
            let (outcome, took) =
                outcome_of(version, move |_| Say::BytesThenClose(said.clone())).await;

            assert_eq!(
                told(&outcome),
                Some(expected),
                "{version} {what}: {outcome:?}"
            );
            assert!(took < PATIENCE, "{version} {what} took {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_cut_at_any_byte_ends_the_call() {
    for version in VERSIONS {
        for is_stream in [false, true] {
            let respond = move |request: &Arrived| {
                let answer = result(request, &done());
                match is_stream {
                    true => format!("{STREAM}{}", event(&answer)),
                    false => json("200 OK", &answer),
                }
            };
            let (whole, _) = outcome_of(version, move |request| Say::Bytes(respond(request))).await;
            assert!(whole.is_ok(), "{whole:?}");
            let sample = Arrived {
                verb: String::new(),
                head: String::new(),
                body: json!({"id": 1}),
            };

            for cut in 0..respond(&sample).len() {
                let (outcome, took) = outcome_of(version, move |request| {
                    Say::BytesThenClose(respond(request)[..cut].to_owned())
                })
                .await;

                // The last blank line of a stream ends its event; without it there was no answer.
                assert!(outcome.is_err(), "{version} cut at byte {cut}: {outcome:?}");
                assert!(took < PATIENCE, "{version} cut at byte {cut} hung");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_without_an_answer_is_told() {
    let page =
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nsad!";

    for version in VERSIONS {
        let (outcome, _) = outcome_of(version, move |_| Say::Bytes(page.into())).await;

        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("502"), "{version}: {error}");
    }
}

/// How often a server is asked for its stream, and what becomes of a call, if each stream is only this.
async fn asked_for(stream: &'static str) -> (usize, Result<Reply>) {
    let (mut peer, pipes) = Peer::in_memory(move |request| match &*request.what() {
        "GET" => Say::BytesThenClose(format!("{STREAM}{stream}")),
        "POST tools/call" => Say::BytesThenClose(format!("{STREAM}id: e1\nretry: 0\ndata:\n\n")),
        _ => manners(request),
    });
    let client = Client::connect(&peer.url)
        .http(HyperSend::over(pipes))
        .speaking("2025-11-25")
        .await
        .unwrap();

    let outcome = client.call_tool("x", ()).timeout(PATIENCE).await;
    // Time passes at once while nothing else happens.
    let _ = tokio::time::timeout(PATIENCE * 60, std::future::pending::<()>()).await;

    let gets = peer.so_far().iter().filter(|what| *what == "GET").count();
    (gets, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_its_streams_at_once_is_not_asked_for_ever() {
    for stream in ["", "id: g1\nretry: 0\ndata:\n\n"] {
        let (gets, outcome) = asked_for(stream).await;

        assert_eq!(told(&outcome), Some(Told::Transport), "{outcome:?}");
        assert!(gets <= 12, "{stream:?} was asked for {gets} times");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_polled_is_polled_for_as_long_as_it_takes() {
    let mut polls = 0;
    let (_peer, pipes) = Peer::in_memory(move |request| match &*request.what() {
        "POST tools/call" => Say::BytesThenClose(format!("{STREAM}id: e1\ndata:\n\n")),
        "GET" if request.header("last-event-id").is_none() => Say::BytesThenStall(STREAM.into()),
        "GET" if polls < 20 => {
            polls += 1;
            Say::BytesThenCloseAfter(STREAM.into(), Duration::from_secs(2))
        }
        "GET" => {
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result": done()});
            Say::BytesThenClose(format!("{STREAM}{}", event(&answer)))
        }
        _ => manners(request),
    });
    let client = Client::connect("http://localhost/mcp")
        .http(HyperSend::over(pipes))
        .speaking("2025-11-25")
        .await
        .unwrap();

    let outcome = client.call_tool("x", ()).id(1).timeout(PATIENCE * 60).await;

    assert_eq!(outcome.unwrap().text(), "done");
}
