//! A1: legacy batches: few bytes with many elements, whose memory must be bounded.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{RawHttp1, RawSession};
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
        "A1" Stateless a_batch_of_1_500_kilobytes_that_exceeds_the_request_limit,
        "A1" Stateless a_batch_with_large_responses,
    ]
    .to_vec()
}

async fn a_batch_of_889_kilobytes_with_many_headers_over_http2(
    target: Target,
) -> Result<String, String> {
    // Each element has about 43 bytes with its comma.
    post_batch_over_http2(target, 889_000 / 43).await
}

async fn a_batch_of_90_000_elements_with_many_headers_over_http2(
    target: Target,
) -> Result<String, String> {
    post_batch_over_http2(target, 90_000).await
}

async fn post_batch_over_http2(target: Target, elements: usize) -> Result<String, String> {
    let session = RawSession::open(target.http, rpc::BATCHES).await;
    let session = session.map_err(|error| error.to_string())?;
    let body = Bytes::from(rpc::batch_of_pings(elements));
    let (length, sender) = (body.len(), http2::connect(target.http, 1 << 20).await?);
    let request = http2::post_with_many_headers(&session.id);
    let answered = http2::exchange(sender, request, body, TIME_LIMIT).await;
    let (status, answer) = answered?;
    let sent = length >> 10;
    Ok(format!(
        "{elements} elements, {sent} KiB sent, {status} with {} KiB",
        answer >> 10
    ))
}

async fn a_batch_of_90_000_elements(target: Target) -> Result<String, String> {
    let session = RawSession::open(target.http, rpc::BATCHES).await;
    let mut session = session.map_err(|error| error.to_string())?;
    let body = rpc::batch_of_pings(90_000);
    let answered = session.post(&body);
    describe(tokio::time::timeout(TIME_LIMIT, answered).await)
}

async fn four_mebibytes_of_zeros_in_a_batch_without_a_session(
    target: Target,
) -> Result<String, String> {
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let body = zeros();
    let answered = http.post(&[], &body);
    describe(tokio::time::timeout(TIME_LIMIT, answered).await)
}

async fn four_mebibytes_of_zeros_in_a_batch_within_a_session(
    target: Target,
) -> Result<String, String> {
    let mut session = RawSession::open(target.http, rpc::BATCHES)
        .await
        .map_err(text)?;
    let body = zeros();
    let answered = session.post(&body);
    describe(tokio::time::timeout(TIME_LIMIT, answered).await)
}

async fn a_batch_of_1_500_kilobytes_that_exceeds_the_request_limit(
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

async fn a_batch_with_large_responses(target: Target) -> Result<String, String> {
    let arguments = json!({"bytes": 1 << 20});
    let calls: Vec<String> = (0..1000)
        .map(|id| rpc::legacy_call(id, "big", arguments.clone()))
        .collect();
    post_without_session(target, &format!("[{}]", calls.join(","))).await
}

/// Posts a batch without a session.
async fn post_without_session(target: Target, body: &str) -> Result<String, String> {
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let answered = http.post(&[("mcp-protocol-version", rpc::BATCHES)], body);
    let answered = tokio::time::timeout(TIME_LIMIT, answered).await;
    describe(answered).map(|note| format!("{} KiB sent, {note}", body.len() >> 10))
}

/// `[0,0,…]`, of the maximum body size.
fn zeros() -> String {
    format!("[{}0]", "0,".repeat(rpc::MAX_BODY / 2 - 2))
}

fn describe<E: std::fmt::Display>(
    answered: Result<std::io::Result<crate::http1::RawResponse>, E>,
) -> Result<String, String> {
    match answered {
        Err(_) => Err(format!("the batch got no response within {TIME_LIMIT:?}")),
        Ok(Err(error)) => Ok(format!("no response: {error}")),
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

const TIME_LIMIT: Duration = Duration::from_secs(20);
