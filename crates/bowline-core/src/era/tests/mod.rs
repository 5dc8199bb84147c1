//! Tests of `stamp`, `admit`, `seal` and `unseal`, and of the era of each message.

mod duplex_admission;
mod legacy;
mod outcomes;
mod requests;
mod round_trips;

use std::sync::Arc;

use bowline_types::{Implementation, Json};
use serde_json::{Value, json};

use super::*;

/// Returns a modern envelope, as in `_meta`.
fn envelope() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// Returns a modern envelope with one key changed or removed.
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

/// Returns the admission state of a server with every version.
fn admission() -> DuplexAdmission {
    DuplexAdmission::new(Dialects::all())
}

/// Returns the admission state after `initialize` of a legacy client.
fn initialized_at(version: &str) -> DuplexAdmission {
    let mut admission = admission();
    admission.admit(initialize(version)).unwrap();
    assert_eq!(
        admission.handle_notification(&initialized()),
        NotificationAction::Initialized
    );
    admission
}

fn request_in(action: RequestAction) -> (Request, Seal) {
    match action {
        RequestAction::Dispatch { request, seal } => (request, seal),
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
