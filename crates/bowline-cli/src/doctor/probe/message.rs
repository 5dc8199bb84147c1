//! JSON-RPC messages as the doctor sends and reads them.

use bowline::exchange::Dialect;
use serde_json::{Map, Value, json};

/// A request in the form of a protocol version.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) dialect: &'static Dialect,
}

impl Request {
    /// Adds the envelope in `_meta` if the version has one.
    pub(crate) fn new(id: u64, dialect: &'static Dialect, method: &str, params: Value) -> Self {
        let mut params = match params {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        if dialect.is_modern() {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.insert(format!("{PREFIX}protocolVersion"), json!(dialect.version));
                meta.insert(format!("{PREFIX}clientInfo"), client_info());
                meta.insert(format!("{PREFIX}clientCapabilities"), json!({}));
            }
        }
        Self {
            id,
            method: method.to_owned(),
            params: Value::Object(params),
            dialect,
        }
    }

    /// The handshake, offering this version.
    pub(crate) fn initialize(id: u64, dialect: &'static Dialect) -> Self {
        let params = json!({
            "protocolVersion": dialect.version,
            "capabilities": {},
            "clientInfo": client_info(),
        });
        Self {
            id,
            method: "initialize".to_owned(),
            params,
            dialect,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params})
    }
}

/// A notification of the client.
pub(crate) fn notification(method: &str, params: &Value) -> Value {
    match params.is_null() {
        true => json!({"jsonrpc": "2.0", "method": method}),
        false => json!({"jsonrpc": "2.0", "method": method, "params": params}),
    }
}

fn client_info() -> Value {
    json!({"name": "bowline-doctor", "version": env!("CARGO_PKG_VERSION")})
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Result(Value),
    Error {
        code: i64,
        message: String,
        data: Value,
    },
}

impl Reply {
    /// Reads the answer to the request with this id; `None` if the message is not that.
    pub(crate) fn of(message: &Value, id: u64) -> Option<Self> {
        // Some servers send the id of a number as text.
        let is_same = message["id"] == json!(id) || message["id"] == json!(id.to_string());
        if !is_same || message.get("method").is_some() {
            return None;
        }
        Self::read(message)
    }

    /// Reads an answer with any id, or with none: the error of a request that the server could not read.
    pub(crate) fn read(message: &Value) -> Option<Self> {
        if let Some(error) = message.get("error").filter(|error| error.is_object()) {
            return Some(Self::Error {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error["data"].clone(),
            });
        }
        message.get("result").cloned().map(Self::Result)
    }

    pub(crate) fn result(&self) -> Option<&Value> {
        match self {
            Self::Result(result) => Some(result),
            Self::Error { .. } => None,
        }
    }

    pub(crate) fn error_code(&self) -> Option<i64> {
        match self {
            Self::Result(_) => None,
            Self::Error { code, .. } => Some(*code),
        }
    }

    /// A description for a sentence: `error -32601 (no such method)`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Result(_) => "a result".to_owned(),
            Self::Error { code, message, .. } => {
                let message: String = message.chars().take(MAX_QUOTED).collect();
                format!("error {code} ({message})")
            }
        }
    }
}

/// Returns the messages of a body or an event: one object, or a batch, which some revisions allow.
pub(crate) fn accept_messages(text: &[u8]) -> Vec<Value> {
    let is_message = |value: &Value| value.get("jsonrpc").is_some_and(|it| it == "2.0");
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Array(values)) => values.into_iter().filter(is_message).collect(),
        Ok(value) if is_message(&value) => vec![value],
        _ => Vec::new(),
    }
}

pub(crate) const PREFIX: &str = "io.modelcontextprotocol/";
const MAX_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modern_requests_have_an_envelope_and_legacy_ones_have_none() {
        let modern = Request::new(1, Dialect::LATEST, "tools/list", json!({"cursor": "a"}));
        let legacy = Request::new(2, Dialect::LATEST_LEGACY, "tools/list", Value::Null);

        let meta = &modern.params["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            Dialect::LATEST.version
        );
        assert_eq!(modern.params["cursor"], "a");
        assert_eq!(legacy.to_json()["params"], json!({}));
    }

    #[test]
    fn answers_are_found_by_their_id() {
        let error =
            json!({"jsonrpc": "2.0", "id": "7", "error": {"code": -32601, "message": "no"}});

        assert_eq!(Reply::of(&error, 7).unwrap().error_code(), Some(-32601));
        assert_eq!(Reply::of(&error, 8), None);
        assert_eq!(
            Reply::of(&json!({"id": 7, "method": "ping", "result": 1}), 7),
            None
        );
        assert!(accept_messages(b"<html>").is_empty());
        assert_eq!(accept_messages(br#"[{"jsonrpc":"2.0"},1]"#).len(), 1);
    }
}
