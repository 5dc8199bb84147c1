//! JSON-RPC messages as text, for the attackers.

use serde_json::{Value, json};

/// A modern request.
pub(crate) fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> String {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    legacy(id, method, params)
}

/// A legacy request.
pub(crate) fn legacy(id: impl Into<Value>, method: &str, params: Value) -> String {
    let id: Value = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A modern `tools/call`.
pub(crate) fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> String {
    modern(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// A legacy `tools/call`.
pub(crate) fn legacy_call(id: impl Into<Value>, tool: &str, arguments: Value) -> String {
    legacy(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// A legacy request from preformatted JSON: building it must be faster than handling it.
pub(crate) fn quick(id: impl std::fmt::Display, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A legacy `tools/call` from preformatted arguments.
pub(crate) fn quick_call(id: usize, tool: &str, arguments: &str) -> String {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    quick(id, "tools/call", &params)
}

/// The `initialize` request.
pub(crate) fn initialize(version: &str) -> String {
    let info = json!({"name": "attacker", "version": "1"});
    let capabilities = json!({"elicitation": {}, "roots": {}});
    let params =
        json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
    legacy("hello", "initialize", params)
}

/// The `notifications/initialized` that ends the handshake.
pub(crate) fn initialized() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()
}

/// A legacy batch of this many minimal requests.
pub(crate) fn batch_of_pings(count: usize) -> String {
    let mut text = String::from("[");
    for id in 1..=count {
        if id > 1 {
            text.push(',');
        }
        text.push_str(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
    }
    text.push(']');
    text
}

pub(crate) const MODERN: &str = "2026-07-28";
/// The latest version with sessions.
pub(crate) const LEGACY: &str = "2025-11-25";
/// The only version with batches over Streamable HTTP.
pub(crate) const BATCHES: &str = "2025-03-26";
/// The default limit of a body.
pub(crate) const MAX_BODY: usize = 4 << 20;
