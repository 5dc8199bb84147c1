//! A1: legacy batches. Few bytes sent, many elements, each of which must cost little and none of which may
//! be free.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{Http1, Session};
use crate::{http2, rpc};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "A1" Default a_batch_of_889_kilobytes_with_many_headers_over_http2,
        "A1" Default a_batch_of_90_000_elements,
        "A1" Default a_batch_of_90_000_elements_with_many_headers_over_http2,
        "A1" Default four_mebibytes_of_zeros_in_a_batch_without_a_session,
        "A1" ModernOnly four_mebibytes_of_zeros_in_a_batch_without_a_session,
        "A1" Stateless four_mebibytes_of_zeros_in_a_batch_without_a_session,
        "A1" Default four_mebibytes_of_zeros_in_a_batch_within_a_session,
        "A1" Stateless a_batch_of_1_500_kilobytes_that_would_take_every_place,
        "A1" Stateless a_batch_of_large_answers,
    ]
    .to_vec()
}

async fn a_batch_of_889_kilobytes_with_many_headers_over_http2(
    target: Target,
) -> Result<String, String> {
    // 39 bytes and a comma each.
    post_batch_over_http2(target, 889_000 / 43).await
}

async fn a_batch_of_90_000_elements_with_many_headers_over_http2(
    target: Target,
) -> Result<String, String> {
    post_batch_over_http2(target, 90_000).await
}

async fn post_batch_over_http2(target: Target, elements: usize) -> Result<String, String> {
    let session = Session::open(target.http, rpc::BATCHES).await;
    let session = session.map_err(|error| error.to_string())?;
    let body = Bytes::from(rpc::batch_of_pings(elements));
    let (length, sender) = (body.len(), http2::connect(target.http, 1 << 20).await?);
    let request = http2::post_with_many_headers(&session.id);
    let answered = http2::exchange(sender, request, body, PATIENCE).await;
    let (status, answer) = answered?;
    let sent = length >> 10;
    Ok(format!(
        "{elements} elements, {sent} KiB sent, {status} with {} KiB",
        answer >> 10
    ))
}

async fn a_batch_of_90_000_elements(target: Target) -> Result<String, String> {
    let session = Session::open(target.http, rpc::BATCHES).await;
    let mut session = session.map_err(|error| error.to_string())?;
    let body = rpc::batch_of_pings(90_000);
    let answered = session.post(&body);
    told(tokio::time::timeout(PATIENCE, answered).await)
}

async fn four_mebibytes_of_zeros_in_a_batch_without_a_session(
    target: Target,
) -> Result<String, String> {
    let mut http = Http1::connect(target.http).await.map_err(text)?;
    let body = zeros();
    let answered = http.post(&[], &body);
    told(tokio::time::timeout(PATIENCE, answered).await)
}

async fn four_mebibytes_of_zeros_in_a_batch_within_a_session(
    target: Target,
) -> Result<String, String> {
    let mut session = Session::open(target.http, rpc::BATCHES)
        .await
        .map_err(text)?;
    let body = zeros();
    let answered = session.post(&body);
    told(tokio::time::timeout(PATIENCE, answered).await)
}

async fn a_batch_of_1_500_kilobytes_that_would_take_every_place(
    target: Target,
) -> Result<String, String> {
    let calls: Vec<String> = (0..16_384)
        .map(|id| {
            let call =
                r#""method":"tools/call","params":{"name":"slow","arguments":{"seconds":9}}"#;
            format!(r#"{{"jsonrpc":"2.0","id":{id},{call}}}"#)
        })
        .collect();
    post_without_session(target, &format!("[{}]", calls.join(","))).await
}

async fn a_batch_of_large_answers(target: Target) -> Result<String, String> {
    let arguments = json!({"bytes": 1 << 20});
    let calls: Vec<String> = (0..1000)
        .map(|id| rpc::legacy_call(id, "big", arguments.clone()))
        .collect();
    post_without_session(target, &format!("[{}]", calls.join(","))).await
}

/// Posts a batch without a session.
async fn post_without_session(target: Target, body: &str) -> Result<String, String> {
    let mut http = Http1::connect(target.http).await.map_err(text)?;
    let answered = http.post(&[("mcp-protocol-version", rpc::BATCHES)], body);
    let answered = tokio::time::timeout(PATIENCE, answered).await;
    told(answered).map(|told| format!("{} KiB sent, {told}", body.len() >> 10))
}

/// `[0,0,…]`, as long as a body may be.
fn zeros() -> String {
    format!("[{}0]", "0,".repeat(rpc::MAX_BODY / 2 - 2))
}

fn told<E: std::fmt::Display>(
    answered: Result<std::io::Result<crate::http1::Answer>, E>,
) -> Result<String, String> {
    match answered {
        Err(_) => Err(format!(
            "the batch is neither answered nor refused within {PATIENCE:?}"
        )),
        Ok(Err(error)) => Ok(format!("no answer: {error}")),
        Ok(Ok(answer)) => Ok(format!(
            "{} with {} KiB",
            answer.status,
            answer.body.len() >> 10
        )),
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

const PATIENCE: Duration = Duration::from_secs(20);
