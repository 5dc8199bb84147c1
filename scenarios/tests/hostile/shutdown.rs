//! A7: inputs that caused panics: guessed event ids, and timeouts of `Duration::MAX`.

use std::time::Duration;

use serde_json::json;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1, RawSession};
use crate::line_wire::LineWire;
use crate::{http2, rpc};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "A7" Default a_stream_is_resumed_from_guessed_event_ids,
        "A7" InfiniteTimeouts a_server_with_infinite_timeouts_answers,
        "A7" ShuttingDown a_shutdown_with_an_infinite_grace_period_drops_no_request,
    ]
    .to_vec()
}

async fn a_stream_is_resumed_from_guessed_event_ids(target: Target) -> Result<String, String> {
    let mut session = RawSession::open(target.http, rpc::LEGACY)
        .await
        .map_err(text)?;
    let mut statuses = Vec::new();
    for (at, id) in guesses().iter().enumerate() {
        // Stores events in the streams.
        let call = rpc::legacy_call(at, "burst", json!({"count": 3, "bytes": 10}));
        session
            .post(&call)
            .await
            .map_err(|error| format!("after {id:?}: {error}"))?;
        let mut headers = session.headers().to_vec();
        headers.push(("last-event-id", id));
        let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
        http.write(http1::head("GET", &headers))
            .await
            .map_err(text)?;
        let head = http
            .head()
            .await
            .map_err(|error| format!("{id:?}: {error}"))?;
        let status = head.get(9..12).unwrap_or("?").to_owned();
        // There are at most a hundred streams of five events each: an id beyond them, or of another form, is invalid.
        let is_invalid = !matches!(id.split_once('-'), Some((stream, place))
            if stream.parse().is_ok_and(|stream: u64| stream < 1000)
                && place.parse().is_ok_and(|place: u64| place < 10));
        if is_invalid && status == "200" {
            return Err(format!("the event {id:?} does not exist and was resumed"));
        }
        statuses.push(status);
    }
    let resumed = statuses.iter().filter(|status| *status == "200").count();
    http2::expect_at_least(resumed as u64, 10, "streams resumed")?;
    let mut kinds = statuses.clone();
    kinds.sort();
    kinds.dedup();
    Ok(format!("{} guesses, statuses {kinds:?}", statuses.len()))
}

/// Event ids that a client might guess: a stream, a hyphen, a position.
fn guesses() -> Vec<String> {
    let numbers = [
        "0",
        "1",
        "2",
        "3",
        "7",
        "1024",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551614",
        "18446744073709551615",
    ];
    let mut guesses: Vec<String> = Vec::new();
    for stream in numbers {
        for place in numbers {
            guesses.push(format!("{stream}-{place}"));
        }
    }
    let odd = [
        "-",
        "--",
        "1-",
        "-1",
        "1--1",
        "0x1-1",
        "1-1-1",
        "+1-+1",
        "1e3-1",
        "x",
        "18446744073709551616-1",
    ];
    guesses.extend(odd.map(str::to_owned));
    guesses.push("9".repeat(4000));
    guesses
}

async fn a_server_with_infinite_timeouts_answers(target: Target) -> Result<String, String> {
    let mut session = RawSession::open(target.http, rpc::LEGACY)
        .await
        .map_err(text)?;
    let mut stream = RawHttp1::connect(target.http).await.map_err(text)?;
    let get = http1::head("GET", &session.headers());
    stream.write(get).await.map_err(text)?;
    stream.head().await.map_err(text)?;
    let call = rpc::legacy_call(1, "slow", json!({"seconds": 0.5}));
    let answer = session.post(&call).await.map_err(text)?;
    if answer.status != 200 {
        return Err(format!(
            "a call in a session that never ends: {}",
            answer.status
        ));
    }
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let call = rpc::call(1, "slow", json!({"seconds": 0.5}));
    let answer = http
        .post(&http1::call_headers("slow"), &call)
        .await
        .map_err(text)?;
    if answer.status != 200 {
        return Err(format!("a modern call: {}", answer.status));
    }
    Ok("all answered".to_owned())
}

async fn a_shutdown_with_an_infinite_grace_period_drops_no_request(
    target: Target,
) -> Result<String, String> {
    let mut modern = RawHttp1::connect(target.http).await.map_err(text)?;
    let call = rpc::call(1, "report_start", json!({"way": "modern"}));
    modern
        .write(http1::post(&http1::call_headers("report_start"), &call))
        .await
        .map_err(text)?;
    let mut session = RawSession::open(target.http, rpc::LEGACY)
        .await
        .map_err(text)?;
    let call = rpc::legacy_call(1, "report_start", json!({"way": "legacy"}));
    session.post_unread(&call).await.map_err(text)?;
    let mut line = LineWire::legacy(target.lines).await.map_err(text)?;
    let call = rpc::legacy_call(1, "report_start", json!({"way": "lines"}));
    line.write(&call).await.map_err(text)?;
    // A request whose handler has not started is rejected, and tasks do not start in the order of their requests.
    for way in ["modern", "legacy", "lines"] {
        let begun = target.process.wait_for_line(&format!("begun {way}")).await;
        begun.ok_or("the server exited before the shutdown")?;
    }

    target.process.write_line("shut down");

    let within = Duration::from_secs(20);
    let answers = async {
        let modern = modern
            .answer()
            .await
            .map_err(|error| format!("modern: {error}"))?;
        let legacy = session
            .http
            .answer()
            .await
            .map_err(|error| format!("legacy: {error}"))?;
        let line = line
            .read()
            .await
            .map_err(|error| format!("lines: {error}"))?;
        Ok::<_, String>((modern, legacy, line))
    };
    let answers = tokio::time::timeout(within, answers).await;
    let (modern, legacy, line) =
        answers.map_err(|_| format!("no responses within {within:?}"))??;
    for (way, text) in [
        ("modern", String::from_utf8_lossy(&modern.body).into_owned()),
        ("legacy", String::from_utf8_lossy(&legacy.body).into_owned()),
        ("lines", line),
    ] {
        if !text.contains("slept") {
            return Err(format!("{way}: {text}"));
        }
    }
    Ok("all answered".to_owned())
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
