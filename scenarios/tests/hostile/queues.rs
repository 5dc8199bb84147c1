//! A5: queues that bound the number of messages but not their bytes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use crate::attack::{Attack, Target, on_client, on_server};
use crate::hostile_server::{self, HostileResponse};
use crate::http1::{self, RawHttp1, RawSession};
use crate::http2::{self, BodyEnd};
use crate::line_wire::LineWire;
use crate::rpc;

pub(crate) fn attacks() -> Vec<Attack> {
    let servers = on_server![
        "A5" Default four_thousand_large_calls_are_in_flight_over_lines,
        "A5" Default twenty_four_calls_as_large_as_a_line_may_be_are_in_flight,
        "A5" Default large_calls_are_in_flight_over_http2,
        "A5" Default large_calls_are_in_flight_in_many_sessions,
        "A5" Default large_notifications_to_many_sessions_that_do_not_read,
        "A5" Default large_server_requests_are_pending_over_lines,
    ];
    let clients = on_client![
        "A5" "lines-subscribe" a_subscriber_over_lines_receives_more_than_it_reads,
        "A5" "http-subscribe" a_subscriber_over_http_receives_more_than_it_reads,
        "A5" "lines-call" a_call_over_lines_receives_more_progress_than_it_reads,
        "A5" "lines-legacy" a_client_receives_large_unrelated_notifications,
    ];
    [servers.to_vec(), clients.to_vec()].concat()
}

async fn four_thousand_large_calls_are_in_flight_over_lines(
    target: Target,
) -> Result<String, String> {
    calls_over_lines(target, 4096, 80_000).await
}

async fn twenty_four_calls_as_large_as_a_line_may_be_are_in_flight(
    target: Target,
) -> Result<String, String> {
    calls_over_lines(target, 24, (16 << 20) - 500).await
}

async fn calls_over_lines(target: Target, count: usize, bytes: usize) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let padding = "p".repeat(bytes);
    let arguments = format!(r#"{{"seconds":30,"padding":"{padding}"}}"#);
    let calls = (0..count).map(|id| rpc::quick_call(id, "slow", &arguments));
    Ok(wire.flood(calls).await.to_string())
}

async fn large_calls_are_in_flight_over_http2(target: Target) -> Result<String, String> {
    let padding = "p".repeat(rpc::MAX_BODY - 1000);
    let body = rpc::call(1, "slow", json!({"seconds": 30, "padding": padding}));
    let body = Bytes::from(body);
    let length = body.len();
    let sent = Arc::new(AtomicU64::new(0));
    let mut streams = JoinSet::new();
    let sender = http2::connect(target.http, 1 << 20).await?;
    for _ in 0..120 {
        let (sender, body, sent) = (sender.clone(), body.clone(), sent.clone());
        streams.spawn(async move {
            let (response, stream) = http2::begin(sender, http2::call("slow")).await.ok()?;
            let stream = http2::send(stream, body, BodyEnd::Complete, sent).await;
            let _held = (response, stream);
            std::future::pending::<Option<()>>().await
        });
    }
    let sent = http2::wait_until_settled(&sent, 0, (streams.len() * length) as u64).await;
    Ok(format!(
        "{} MiB sent over {} streams",
        sent >> 20,
        streams.len()
    ))
}

async fn large_calls_are_in_flight_in_many_sessions(target: Target) -> Result<String, String> {
    let padding = "p".repeat(rpc::MAX_BODY - 1000);
    let body = rpc::legacy_call(1, "slow", json!({"seconds": 30, "padding": padding}));
    let body = Arc::new(body);
    let posted = Arc::new(AtomicU64::new(0));
    let mut sessions = JoinSet::new();
    for _ in 0..90 {
        let opened = RawSession::open(target.http, rpc::LEGACY).await;
        let mut session = opened.map_err(text)?;
        let (body, posted) = (body.clone(), posted.clone());
        sessions.spawn(async move {
            session.post_unread(&body).await.ok()?;
            posted.fetch_add(1, Ordering::Relaxed);
            let _held = session;
            std::future::pending::<Option<()>>().await
        });
    }
    let posted = http2::wait_until_settled(&posted, 10, 90).await;
    http2::expect_at_least(posted, 10, "bodies posted")?;
    Ok(format!(
        "{} sessions, {posted} bodies posted",
        sessions.len()
    ))
}

async fn large_notifications_to_many_sessions_that_do_not_read(
    target: Target,
) -> Result<String, String> {
    let uri = format!("note://{}", "u".repeat(60_000));
    let mut held = Vec::new();
    for _ in 0..60 {
        let mut session = RawSession::open(target.http, rpc::LEGACY)
            .await
            .map_err(text)?;
        let subscribe = rpc::legacy(1, "resources/subscribe", json!({"uri": uri}));
        session.post(&subscribe).await.map_err(text)?;
        let get = http1::head("GET", &session.headers());
        session.http.write(get).await.map_err(text)?;
        held.push(session);
    }
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let body = rpc::call(1, "touch", json!({"uri": uri, "times": 80}));
    let answer = http
        .post(&http1::call_headers("touch"), &body)
        .await
        .map_err(text)?;
    crate::pause::pause(Duration::from_millis(700)).await;
    Ok(format!(
        "{} sessions, touched: {}",
        held.len(),
        answer.status
    ))
}

async fn large_server_requests_are_pending_over_lines(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let arguments = format!(r#"{{"prompt":"{}"}}"#, "q".repeat(80_000));
    let calls = (0..4000).map(|id| rpc::quick_call(id, "ask", &arguments));
    let flood = wire.flood(calls).await;
    Ok(flood.to_string())
}

async fn a_subscriber_over_lines_receives_more_than_it_reads(
    listener: TcpListener,
) -> Result<String, String> {
    let (mut wire, id, _) = hostile_server::accept_modern_line(listener).await?;
    wire.write(&hostile_server::acknowledged(&id))
        .await
        .map_err(text)?;
    wire.flood((0..MANY).map(|_| hostile_server::updated(&id, LARGE)))
        .await;
    Ok(String::new())
}

async fn a_subscriber_over_http_receives_more_than_it_reads(
    listener: TcpListener,
) -> Result<String, String> {
    let reply = |id: &serde_json::Value, method: &str, _: &serde_json::Value| match method {
        "subscriptions/listen" => {
            let id = id.clone();
            let first = hostile_server::acknowledged(&id);
            let updates = (0..MANY * 4).map(move |_| hostile_server::updated(&id, LARGE / 4));
            HostileResponse::Events(Box::new([first].into_iter().chain(updates)))
        }
        // Answered once the client has stopped reading, so that it does not exit before.
        _ => HostileResponse::WhenBlocked,
    };
    hostile_server::serve_http(listener, reply).await
}

async fn a_call_over_lines_receives_more_progress_than_it_reads(
    listener: TcpListener,
) -> Result<String, String> {
    let (mut wire, id, _) = hostile_server::accept_modern_line(listener).await?;
    let message = "x".repeat(LARGE);
    let notifications = (0..MANY).map(|step| {
        let params = format!(r#"{{"progressToken":{id},"progress":{step},"message":"{message}"}}"#);
        notification("notifications/progress", &params)
    });
    wire.flood(notifications).await;
    Ok(String::new())
}

async fn a_client_receives_large_unrelated_notifications(
    listener: TcpListener,
) -> Result<String, String> {
    let mut wire = hostile_server::accept_legacy_line(listener).await?;
    let params = format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(LARGE));
    let notifications = (0..MANY).map(|_| notification("notifications/message", &params));
    wire.flood(notifications).await;
    Ok(String::new())
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Far below the 1,024 messages that a mailbox may hold, but too many bytes.
const MANY: usize = 20;
/// Just below the limit of a line.
const LARGE: usize = (16 << 20) - 1000;
