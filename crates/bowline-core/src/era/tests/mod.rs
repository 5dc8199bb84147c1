//! Laws of the door, and the tables of which message belongs to which era.

mod door;
mod laws;
mod outcomes;
mod requests;

use std::sync::Arc;

use bowline_types::{Implementation, Json};
use serde_json::{Value, json};

use super::*;

/// A modern envelope as it stands in `_meta`.
fn envelope() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A modern envelope in which one key has another value, or none.
fn envelope_with(key: &str, value: Option<Value>) -> Value {
    let mut meta = envelope();
    let keys = meta.as_object_mut().unwrap();
    match value {
        Some(value) => keys.insert(key.to_owned(), value),
        None => keys.remove(key),
    };
    meta
}

fn raw(method: &'static str, params: Value) -> RawRequest {
    RawRequest {
        id: 1.into(),
        method: method.into(),
        params: Some(params.into()),
    }
}

fn initialize(version: &str) -> RawRequest {
    raw(
        "initialize",
        json!({
            "protocolVersion": version,
            "capabilities": {"roots": {"listChanged": true}},
            "clientInfo": {"name": "c", "version": "1"},
        }),
    )
}

fn initialized() -> Notification {
    Notification::new("notifications/initialized", None)
}

/// A door that serves every version and offers everything.
fn door() -> Door {
    let offers = Offers {
        logging: true,
        subscriptions: true,
    };
    Door::new(Dialects::all(), offers)
}

/// A door through which a legacy client came.
fn opened_at(version: &str) -> Door {
    let mut door = door();
    door.admit(initialize(version)).unwrap();
    assert_eq!(door.hear(&initialized()), Heard::Initialized);
    door
}

fn request_in(admitted: Admitted) -> (Request, Seal) {
    match admitted {
        Admitted::Request { request, seal } => (request, seal),
        other => panic!("expected a request, got {other:?}"),
    }
}

fn server() -> Json {
    Json::encode(&Implementation::new("s", "2")).unwrap()
}

fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

fn caller(dialect: &'static Dialect) -> Caller {
    let mut caller = Caller::new(dialect);
    caller.implementation = Some(Implementation::new("c", "1"));
    caller
}
