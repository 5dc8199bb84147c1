//! B: thousands of connections, streams and subscriptions, each of which uses some memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bowline::Limits;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1};
use crate::http2::{self, BodyEnd};
use crate::line_wire::LineWire;
use crate::raw_http2::{self, RawHttp2, frame};
use crate::{rpc, runner};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "B" Default incomplete_heads_on_thousands_of_connections,
        "B" Default long_incomplete_heads_on_thousands_of_connections,
        "B" Default every_call_in_flight_has_the_maximum_of_headers,
        "B" Default five_thousand_subscriptions_on_one_line_wire_without_reading,
        "B" Default subscriptions_over_http2_with_a_zero_window,
        "B" Default bursts_of_log_messages_over_lines_without_reading,
        "B" Default bursts_of_log_messages_over_http2_with_a_zero_window,
    ]
    .to_vec()
}

async fn incomplete_heads_on_thousands_of_connections(target: Target) -> Result<String, String> {
    let heads = [
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    open_connections(target, heads.map(Bytes::from)).await
}

/// A connection buffers an incomplete head, before there is a request to charge for it.
async fn long_incomplete_heads_on_thousands_of_connections(
    target: Target,
) -> Result<String, String> {
    let longest = Limits::default().head_bytes - 1000;
    let head = Bytes::from(format!("POST /mcp HTTP/1.1\r\nx: {}", "y".repeat(longest)));
    open_connections(target, [head.clone(), head]).await
}

/// Opens nearly as many connections as a server accepts, writes one of the two heads to each, and sends no more.
async fn open_connections(target: Target, first: [Bytes; 2]) -> Result<String, String> {
    let (opened, mut all_opened) = watch::channel(0);
    let mut heads = JoinSet::new();
    for number in 0..runner::connections(Limits::default().connections - 50) {
        let (opened, to) = (opened.clone(), target.http);
        let first = first[number % 2].clone();
        heads.spawn(async move {
            let mut http = RawHttp1::connect(to).await.map_err(text)?;
            http.write(first).await.map_err(text)?;
            opened.send_modify(|count| *count += 1);
            let _held = http;
            std::future::pending::<Result<(), String>>().await
        });
    }
    let all = heads.len();
    // However long it takes: the attack as a whole has a limit.
    tokio::select! {
        biased; // a failure first, since the others may wait for it
        Some(failed) = heads.join_next() => failed.map_err(text)??,
        opened = all_opened.wait_for(|count| *count == all) => drop(opened.map_err(text)?),
    }
    http2::let_server_read().await;
    Ok(format!("{all} connections"))
}

async fn every_call_in_flight_has_the_maximum_of_headers(target: Target) -> Result<String, String> {
    let body = rpc::call(1, "slow", json!({"seconds": 30}));
    let mut block = raw_http2::call("slow");
    for number in 0..380 {
        block.extend(raw_http2::block(&[(&format!("a{number}"), "")]));
    }
    let mut connections = Vec::new();
    let mut note = String::new();
    for _ in 0..8 {
        let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
        let requests = (0..250_u32).flat_map(|number| {
            let stream = number * 2 + 1;
            [
                frame(raw_http2::HEADERS, raw_http2::END_HEADERS, stream, &block),
                frame(
                    raw_http2::DATA,
                    raw_http2::END_STREAM,
                    stream,
                    body.as_bytes(),
                ),
            ]
        });
        note = raw.flood(requests).await;
        connections.push(raw);
    }
    crate::pause::pause(Duration::from_millis(700)).await;
    Ok(format!(
        "{} connections, the last: {note}",
        connections.len()
    ))
}

async fn five_thousand_subscriptions_on_one_line_wire_without_reading(
    target: Target,
) -> Result<String, String> {
    let mut wire = LineWire::connect(target.lines).await.map_err(text)?;
    let wanted = json!({"notifications": {"resourceSubscriptions": [uri()]}});
    let listen = rpc::modern(4711, "subscriptions/listen", wanted);
    let listens = (0..5000).map(|id| listen.replacen("4711", &id.to_string(), 1));
    let flood = wire.flood(listens).await;
    touch(&target, 20).await?;
    Ok(flood.to_string())
}

async fn subscriptions_over_http2_with_a_zero_window(target: Target) -> Result<String, String> {
    let wanted = json!({"notifications": {"resourceSubscriptions": [uri()]}});
    let body = Bytes::from(rpc::modern(1, "subscriptions/listen", wanted));
    let head = http2::post(&[
        ("mcp-protocol-version", rpc::MODERN),
        ("mcp-method", "subscriptions/listen"),
    ]);
    let note = on_streams(&target, 4, head, body, async |target| {
        touch(target, 500).await
    });
    note.await
}

async fn bursts_of_log_messages_over_lines_without_reading(
    target: Target,
) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let calls = (0..100).map(|id| rpc::quick_call(id, "burst", r#"{"count":1000,"bytes":8000}"#));
    let flood = wire.flood(calls).await;
    crate::pause::pause(Duration::from_secs(2)).await;
    Ok(flood.to_string())
}

async fn bursts_of_log_messages_over_http2_with_a_zero_window(
    target: Target,
) -> Result<String, String> {
    let params = json!({
        "name": "burst",
        "arguments": {"count": 1000, "bytes": 8000},
        "_meta": {"io.modelcontextprotocol/logLevel": "error"},
    });
    let body = Bytes::from(rpc::modern(1, "tools/call", params));
    let head = http2::call("burst");
    on_streams(&target, 1, head, body, async |_| Ok(())).await
}

/// Sends a request on each of 250 streams of this many connections without reading responses, runs `then`, and waits
/// until more responses are queued.
async fn on_streams(
    target: &Target,
    connections: usize,
    head: http::Request<()>,
    body: Bytes,
    then: impl AsyncFnOnce(&Target) -> Result<(), String>,
) -> Result<String, String> {
    let sent = Arc::new(AtomicU64::new(0));
    let length = body.len();
    let mut streams = JoinSet::new();
    for _ in 0..connections {
        let sender = http2::connect(target.http, 0).await?;
        for _ in 0..250 {
            let (sender, body, sent) = (sender.clone(), body.clone(), sent.clone());
            let head = head.clone();
            streams.spawn(async move {
                let (response, stream) = http2::begin(sender, head).await.ok()?;
                let stream = http2::send(stream, body, BodyEnd::Complete, sent).await;
                let _held = (response, stream);
                std::future::pending::<Option<()>>().await
            });
        }
    }
    let sent = http2::wait_until_settled(&sent, 0, (streams.len() * length) as u64).await;
    then(target).await?;
    crate::pause::pause(Duration::from_secs(1)).await;
    Ok(format!(
        "{} streams, {} KiB sent",
        streams.len(),
        sent >> 10
    ))
}

/// Announces this many updates of the resource with the long URI.
async fn touch(target: &Target, times: usize) -> Result<(), String> {
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let body = rpc::call(1, "touch", json!({"uri": uri(), "times": times}));
    let answer = http
        .post(&http1::call_headers("touch"), &body)
        .await
        .map_err(text)?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("the announcement was rejected: {status}")),
    }
}

fn uri() -> String {
    format!("note://{}", "u".repeat(10_000))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
