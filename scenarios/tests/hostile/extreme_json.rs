//! B: valid but extreme JSON: deep nesting, huge ids, methods and names.

use serde_json::json;

use crate::attack::{Attack, Target, on_server};
use crate::http1::{self, RawHttp1};
use crate::line_wire::LineWire;
use crate::rpc;

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "B" Default nesting_as_deep_as_a_body_allows,
        "B" Default nesting_as_deep_as_a_line_allows,
        "B" Default huge_ids_and_methods_over_lines_without_reading,
        "B" Default huge_ids_methods_and_names_over_http,
    ]
    .to_vec()
}

async fn nesting_as_deep_as_a_body_allows(target: Target) -> Result<String, String> {
    let mut statuses = Vec::new();
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let depth = (rpc::MAX_BODY - 2000) / (open.len() + close.len());
        let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","#;
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        let meta = format!(r#""_meta":{{{version},{capabilities}}}"#);
        let arguments = format!(r#"{call}{meta},"arguments":{{"seconds":0,"padding":{deep}}}}}}}"#);
        let in_meta = format!(
            r#"{call}"arguments":{{}},"_meta":{{{version},{capabilities},"x":{deep}}}}}}}"#
        );
        for body in [&deep, &arguments, &in_meta, &open.repeat(depth)] {
            let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
            let answer = http
                .post(&http1::call_headers("slow"), body)
                .await
                .map_err(text)?;
            statuses.push(answer.status);
        }
        let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
        let answer = http.post(&[("mcp-protocol-version", rpc::BATCHES)], &deep);
        statuses.push(answer.await.map_err(text)?.status);
    }
    Ok(format!("{statuses:?}"))
}

async fn nesting_as_deep_as_a_line_allows(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let depth = 7 << 20;
    let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let message = |method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"x":{deep}}}}}"#)
    };
    let lines = [
        deep.clone(),
        message("tools/call"),
        message("ping"),
        message("resources/subscribe"),
        message("notifications/cancelled"),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#),
        "[".repeat(15 << 20),
    ];
    Ok(wire.flood(lines).await.to_string())
}

async fn huge_ids_and_methods_over_lines_without_reading(target: Target) -> Result<String, String> {
    let mut wire = LineWire::legacy(target.lines).await.map_err(text)?;
    let huge = "h".repeat(1 << 20);
    let lines = (0..300).map(|number| match number % 3 {
        0 => rpc::quick(format_args!(r#""{huge}{number}""#), "ping", "{}"),
        1 => rpc::quick(number, &huge, "{}"),
        _ => rpc::quick_call(number, &huge, "{}"),
    });
    Ok(wire.flood(lines).await.to_string())
}

async fn huge_ids_methods_and_names_over_http(target: Target) -> Result<String, String> {
    let huge = "h".repeat(rpc::MAX_BODY - 1000);
    let long = "h".repeat(12_000);
    let bodies = [
        (
            rpc::modern(huge.as_str(), "tools/list", json!({})),
            "tools/list",
            "echo",
        ),
        (rpc::modern(1, &huge, json!({})), "tools/list", "echo"),
        (rpc::modern(1, &long, json!({})), &*long, "echo"),
        (rpc::call(1, &long, json!({})), "tools/call", &*long),
        (rpc::call(1, &huge, json!({})), "tools/call", "echo"),
        (
            rpc::legacy(huge.as_str(), "ping", json!({})),
            "ping",
            "echo",
        ),
        (rpc::initialize(&huge), "initialize", "echo"),
        (
            rpc::call(1, "slow", json!({"seconds": &huge})),
            "tools/call",
            "slow",
        ),
        (
            rpc::modern(1, "tools/call", json!({"name": "echo", "arguments": &huge})),
            "tools/call",
            "echo",
        ),
    ];
    let mut statuses = Vec::new();
    for (body, method, name) in &bodies {
        for version in [rpc::MODERN, rpc::LEGACY] {
            let headers = [
                ("mcp-protocol-version", version),
                ("mcp-method", method),
                ("mcp-name", name),
            ];
            let mut http = RawHttp1::connect(target.http).await.map_err(text)?;
            let answer = http.post(&headers, body).await.map_err(text)?;
            // A response repeats the id, as JSON-RPC requires, and no other long text.
            let has_huge_id = body.contains(&format!(r#""id":"{}"#, &huge[..100]));
            if answer.body.len() > 4096 && !has_huge_id {
                let begin = String::from_utf8_lossy(&answer.body[..200]);
                return Err(format!(
                    "a response of {} bytes: {begin}",
                    answer.body.len()
                ));
            }
            statuses.push((answer.status, answer.body.len() >> 10));
        }
    }
    Ok(format!("status and KiB: {statuses:?}"))
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
