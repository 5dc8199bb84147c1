//! Taps record the messages on a wire or a socket, at the server's end.
//!
//! One line per message. `→` was received from the client, `←` was sent to it; `→ closes 3` is a response that the
//! client closed before its end.

mod http1;
mod http2;

mod socket;
pub(crate) use socket::TappedSocket;

mod wire;
pub(crate) use wire::TappedWire;

use bowline_core::sse::{Decoder, DecoderLimits};
use bytes::Bytes;
use serde_json::Value;

use crate::observer::Observer;

/// Summarizes a message without its `_meta` and without the content of a result. A `notifications/cancelled` is
/// recorded in full.
pub(crate) fn summarize(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message).into_owned();
    let Ok(message) = serde_json::from_slice::<Value>(message) else {
        return format!("malformed: {text}");
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

/// The id of the request in a body; `None` if the body is not a request.
fn request_id(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["method"].as_str()?;
    Some(body.get("id")?.to_string())
}

/// Records the body of a request, or its HTTP method if the body is empty.
fn record_request(observer: &Observer, method: &str, body: &[u8]) {
    let what = match body.is_empty() {
        true => method.to_owned(),
        false => summarize(body),
    };
    observer.frame(format!("→ {what}"));
}

/// Records the messages of a response body: one JSON text, or a stream of events.
#[derive(Debug)]
enum BodyTap {
    Empty,
    Json(Vec<u8>),
    Events(Box<Decoder>),
}

impl BodyTap {
    fn push(&mut self, observer: &Observer, bytes: &[u8]) {
        let Some(first) = bytes.first() else { return };
        if matches!(self, Self::Empty) {
            *self = match first {
                b'{' | b'[' => Self::Json(Vec::new()),
                _ => Self::Events(Box::new(Decoder::new(DecoderLimits::default()))),
            };
        }
        match self {
            Self::Empty => {}
            Self::Json(text) => text.extend_from_slice(bytes),
            Self::Events(decoder) => {
                decoder.push(Bytes::copy_from_slice(bytes));
                while let Some(Ok(event)) = decoder.next() {
                    let is_message = event.name.is_none_or(|name| name == "message");
                    if is_message && !event.data.is_empty() {
                        observer.frame(format!("← {}", summarize(&event.data)));
                    }
                }
            }
        }
    }

    fn end(&mut self, observer: &Observer) {
        if let Self::Json(text) = std::mem::replace(self, Self::Empty) {
            observer.frame(format!("← {}", summarize(&text)));
        }
    }
}
