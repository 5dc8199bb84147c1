//! A8: what a legacy session keeps between its requests: capabilities, and the URIs of subscriptions.

use serde_json::json;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1, RawSession};
use crate::line_wire::LineWire;
use crate::rpc;

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "A8" Default a_hundred_sessions_describe_their_client_at_length,
        "A8" Default three_hundred_sessions_describe_their_client_as_long_as_they_may,
        "A8" Default handshakes_describe_their_client_in_half_a_million_objects,
        "A8" Default calls_describe_their_client_in_half_a_million_objects,
        "A8" Default handshakes_replace_each_other_while_calls_run,
        "A8" Default long_uris_are_subscribed_in_one_session,
        "A8" Default long_uris_are_refused_in_one_session,
        "A8" Default long_uris_are_subscribed_in_many_sessions,
    ]
    .to_vec()
}

async fn a_hundred_sessions_describe_their_client_at_length(
    target: Target,
) -> Result<String, String> {
    let long = format!(r#""{}""#, "z".repeat(3_900_000));
    initialize_often(target, 100, &long).await
}

/// Small in text, large once it is decoded.
async fn three_hundred_sessions_describe_their_client_as_long_as_they_may(
    target: Target,
) -> Result<String, String> {
    initialize_often(target, 300, &many_objects(60_000)).await
}

/// Decoded, one of them would take more memory than the server may need in all.
async fn handshakes_describe_their_client_in_half_a_million_objects(
    target: Target,
) -> Result<String, String> {
    initialize_often(target, 3, &many_objects(3_900_000)).await
}

/// The same in the revision that has capabilities in each request.
async fn calls_describe_their_client_in_half_a_million_objects(
    target: Target,
) -> Result<String, String> {
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let call = rpc::call(1, "echo", json!({"text": "a"}));
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{"#;
    let many = format!(r#"{capabilities}"x":{}"#, many_objects(3_900_000));
    let request = http1::post(
        &http1::call_headers("echo"),
        &call.replace(capabilities, &many),
    );
    let mut refused = 0;
    for _ in 0..3 {
        http.write(&request).await.map_err(text)?;
        let answer = http.answer().await.map_err(text)?;
        refused += usize::from(String::from_utf8_lossy(&answer.body).contains("exceeds the limit"));
    }
    match refused {
        3 => Ok("3 calls refused".to_owned()),
        _ => Err(format!("{refused} of 3 calls refused")),
    }
}

async fn initialize_often(
    target: Target,
    count: usize,
    capability: &str,
) -> Result<String, String> {
    let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
    let request = http1::post(&[], &initialize(1, capability));
    let mut opened = 0;
    for _ in 0..count {
        http.write(&request).await.map_err(text)?;
        let answer = http.answer().await.map_err(text)?;
        opened += usize::from(http1::header(&answer.head, "mcp-session-id").is_some());
    }
    Ok(format!("{opened} of {count} sessions opened"))
}

async fn handshakes_replace_each_other_while_calls_run(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let long = many_objects(60_000);
    let messages = (0..500).flat_map(|number| {
        let handshake = initialize(2 * number, &long);
        let call = rpc::quick_call(2 * number + 1, "slow", r#"{"seconds":30}"#);
        [handshake, call]
    });
    Ok(wire.flood(messages).await.to_string())
}

async fn long_uris_are_subscribed_in_one_session(target: Target) -> Result<String, String> {
    let mut session = open(&target).await?;
    subscribe_often(&mut session, 60, 3_900_000).await
}

async fn long_uris_are_refused_in_one_session(target: Target) -> Result<String, String> {
    let mut session = open(&target).await?;
    let short = subscribe_often(&mut session, 1024, 1).await?;
    let long = subscribe_often(&mut session, 80, 3_900_000).await?;
    Ok(format!("{short}, then {long}"))
}

async fn long_uris_are_subscribed_in_many_sessions(target: Target) -> Result<String, String> {
    let mut accepted = String::new();
    for _ in 0..250 {
        let mut session = open(&target).await?;
        accepted = subscribe_often(&mut session, 3, 100_000).await?;
    }
    Ok(format!("250 sessions, in the last {accepted}"))
}

async fn open(target: &Target) -> Result<RawSession, String> {
    let opened = RawSession::open(target.http, rpc::LEGACY).await;
    opened.map_err(text)
}

async fn subscribe_often(
    session: &mut RawSession,
    count: usize,
    bytes: usize,
) -> Result<String, String> {
    let mut accepted = 0;
    for number in 0..count {
        let uri = format!("note://{number}/{}", "u".repeat(bytes));
        let subscribe = rpc::legacy(number, "resources/subscribe", json!({"uri": uri}));
        let answer = session.post(&subscribe).await.map_err(text)?;
        accepted += usize::from(!String::from_utf8_lossy(&answer.body).contains("\"error\""));
    }
    Ok(format!("{accepted} of {count} subscriptions accepted"))
}

/// `initialize` with this unknown capability.
fn initialize(id: usize, capability: &str) -> String {
    let version = rpc::LEGACY;
    let params = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{{"x":{capability}}},"clientInfo":{{"name":"attacker","version":"1"}}}}"#
    );
    rpc::quick(id, "initialize", &params)
}

/// An object whose memory is many times its length.
fn many_objects(bytes: usize) -> String {
    let objects = vec![r#"{"":1}"#; bytes / 8];
    format!("[{}]", objects.join(","))
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
