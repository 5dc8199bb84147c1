//! A4: thousands of legacy sessions, each of which stores events that are never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1, RawSession};
use crate::{http2, rpc};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "A4" Default a_hundred_sessions_each_store_the_maximum_of_events,
        "A4" Default a_hundred_sessions_each_store_large_results,
        "A4" Default twelve_thousand_sessions_are_opened_and_never_used,
    ]
    .to_vec()
}

async fn a_hundred_sessions_each_store_the_maximum_of_events(
    target: Target,
) -> Result<String, String> {
    let call = rpc::legacy_call(1, "burst", json!({"count": 1020, "bytes": 8000}));
    in_sessions(target, 100, call).await
}

async fn a_hundred_sessions_each_store_large_results(target: Target) -> Result<String, String> {
    let arguments = json!({"bytes": 1 << 20});
    let calls: Vec<String> = (0..4)
        .map(|id| rpc::legacy_call(id, "big", arguments.clone()))
        .collect();
    in_sessions(target, 100, calls.join("\n")).await
}

/// Posts these lines in this many sessions, on a connection each, without reading responses.
async fn in_sessions(target: Target, count: usize, calls: String) -> Result<String, String> {
    let mut connections = Vec::new();
    let (mut sent, mut refused) = (0, 0);
    for _ in 0..count {
        let Ok(mut session) = RawSession::open(target.http, rpc::LEGACY).await else {
            refused += 1;
            continue;
        };
        for call in calls.lines() {
            // A new connection for each: the server does not read past a pending response.
            let fresh = RawHttp1::connect(target.http).await.map_err(text)?;
            connections.push(std::mem::replace(&mut session.http, fresh));
            session.post_unread(call).await.map_err(text)?;
            sent += call.len();
        }
        connections.push(session.http);
    }
    crate::pause::pause(Duration::from_secs(2)).await;
    Ok(format!(
        "{count} sessions, {refused} rejected, {} KiB sent",
        sent >> 10
    ))
}

async fn twelve_thousand_sessions_are_opened_and_never_used(
    target: Target,
) -> Result<String, String> {
    open_sessions(target, 12_000).await
}

async fn open_sessions(target: Target, count: u64) -> Result<String, String> {
    let opened = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let request = Arc::new(http1::post(&[], &rpc::initialize(rpc::LEGACY)));
    for _ in 0..CONNECTIONS {
        let (request, opened, to) = (request.clone(), opened.clone(), target.http);
        tasks.spawn(async move {
            let mut http = RawHttp1::connect(to).await.map_err(text)?;
            for _ in 0..count / CONNECTIONS {
                http.write(request.as_bytes()).await.map_err(text)?;
                let answer = http.answer().await.map_err(text)?;
                if http1::header(&answer.head, "mcp-session-id").is_some() {
                    opened.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), String>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap()?;
    }
    let opened = opened.load(Ordering::Relaxed);
    http2::expect_at_least(opened, count, "sessions opened")?;
    Ok(format!("{count} requested, {opened} opened"))
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

const CONNECTIONS: u64 = 8;
