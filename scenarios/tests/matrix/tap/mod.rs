//! Taps: what passes over a wire or a socket, written down at the server's end.
//!
//! One line a message. `→` came from the client, `←` goes to it; `→ closes 3` is a response that the client
//! closed before its end.

mod http1;
mod http2;

mod socket;
pub(crate) use socket::TappedSocket;

mod wire;
pub(crate) use wire::TappedWire;

use bowline_core::sse::{Decoder, Limits};
use bytes::Bytes;
use serde_json::Value;

use crate::seen::Seen;

/// A message without what is of no interest here: who is calling, and what a result says. A cancel is written
/// out to the last character.
pub(crate) fn in_short(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message).into_owned();
    let Ok(message) = serde_json::from_slice::<Value>(message) else {
        return format!("no message: {text}");
    };
    let params = &message["params"];
    match (message["method"].as_str(), message.get("id")) {
        (Some("notifications/cancelled"), _) => text,
        (Some("notifications/progress"), _) => format!("progress {}", params["progress"]),
        (Some(method), Some(id)) => {
            let about = [&params["name"], &params["uri"]];
            let about = about.into_iter().find_map(Value::as_str);
            let about = about.map(|about| format!(" {about}")).unwrap_or_default();
            format!("{id} {method}{about}")
        }
        (Some(method), None) => method.to_owned(),
        (None, id) => {
            let id = id.map_or("-".to_owned(), Value::to_string);
            match message["error"]["code"].as_i64() {
                Some(code) => format!("{id} error {code}"),
                None => format!("{id} result"),
            }
        }
    }
}

/// The request that a body carries, by its id; nothing if it carries something else.
fn request_id(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["method"].as_str()?;
    Some(body.get("id")?.to_string())
}

/// Writes down a request's body, or its verb if it has none.
fn write_request(seen: &Seen, verb: &str, body: &[u8]) {
    let what = match body.is_empty() {
        true => verb.to_owned(),
        false => in_short(body),
    };
    seen.frame(format!("→ {what}"));
}

/// A response's body as it goes out: one JSON text, or a stream of events.
#[derive(Debug)]
enum Answer {
    Nothing,
    Json(Vec<u8>),
    Events(Box<Decoder>),
}

impl Answer {
    fn push(&mut self, seen: &Seen, bytes: &[u8]) {
        let Some(first) = bytes.first() else { return };
        if matches!(self, Self::Nothing) {
            *self = match first {
                b'{' | b'[' => Self::Json(Vec::new()),
                _ => Self::Events(Box::new(Decoder::new(Limits::default()))),
            };
        }
        match self {
            Self::Nothing => {}
            Self::Json(text) => text.extend_from_slice(bytes),
            Self::Events(decoder) => {
                decoder.push(Bytes::copy_from_slice(bytes));
                while let Some(Ok(event)) = decoder.next() {
                    let is_message = event.name.is_none_or(|name| name == "message");
                    if is_message && !event.data.is_empty() {
                        seen.frame(format!("← {}", in_short(&event.data)));
                    }
                }
            }
        }
    }

    fn end(&mut self, seen: &Seen) {
        if let Self::Json(text) = std::mem::replace(self, Self::Nothing) {
            seen.frame(format!("← {}", in_short(&text)));
        }
    }
}
