//! Messages through `bowline-core`, without I/O.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bowline_core::era::{
    Caller, CallerCache, Dialect, Dialects, Request, modern, seal, stamp, unseal,
};
use bowline_core::http::admission::{AnyMethod, admit, admit_head};
use bowline_core::http::paths::EndpointPaths;
use bowline_core::http::source_policy::SourcePolicy;
use bowline_core::mux::{AbandonReason, CallOptions, Mux, MuxEvent};
use bowline_core::{Message, RawRequest, sse};
use bowline_types::{Json, ProgressToken};
use bytes::Bytes;

/// Receives, admits and answers a request.
pub(crate) fn request(times: u64) {
    let frame = Bytes::from_static(REQUEST.as_bytes());
    let (served, server, result) = (Dialects::all(), json(SERVER), json(RESULT));
    let (now, mut mux) = (Instant::now(), Mux::default());
    for _ in 0..times {
        mux.handle_message(now, decode(&frame));
        let Some(MuxEvent::Request {
            id, method, params, ..
        }) = mux.poll_event()
        else {
            panic!("expected a request");
        };
        let raw = RawRequest {
            id: id.request_id().clone(),
            method,
            params,
        };
        let (request, mark) = modern::admit(raw, &served).expect("a well-formed request");
        black_box(request);
        mux.respond(&id, seal(&mark, &server, Ok(result.clone())));
        black_box(mux.poll_transmit().expect("a response").to_frame());
    }
}

/// Sends a call and receives its response.
pub(crate) fn call(times: u64) {
    let (caller, params) = (Arc::new(Caller::new(Dialect::LATEST)), json(PARAMS));
    let (now, mut mux) = (Instant::now(), Mux::default());
    for _ in 0..times {
        let request = Request::new("tools/call", params.clone(), caller.clone());
        let stamped = stamp(&request);
        let options = CallOptions::default();
        let call = mux.call(now, stamped.method, stamped.params, options);
        let call = call.expect("the queue has room");
        black_box(mux.poll_transmit().expect("a request").to_frame());
        let id = mux.request_id(call).expect("the call was sent");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ANSWER}}}"#);
        mux.handle_message(now, decode(&Bytes::from(answer)));
        let Some(MuxEvent::Settled {
            outcome: Ok(result),
            ..
        }) = mux.poll_event()
        else {
            panic!("expected the outcome of the call");
        };
        let _ = black_box(unseal("tools/call", Dialect::LATEST, Ok(result)));
    }
}

/// Sends a call and abandons it.
pub(crate) fn abandoned(times: u64) {
    let (caller, params) = (Arc::new(Caller::new(Dialect::LATEST)), json(PARAMS));
    let (now, mut mux) = (Instant::now(), Mux::default());
    for _ in 0..times {
        let request = Request::new("tools/call", params.clone(), caller.clone());
        let stamped = stamp(&request);
        let call = mux.call(now, stamped.method, stamped.params, CallOptions::default());
        black_box(mux.poll_transmit().expect("a request").to_frame());
        mux.abandon(call.expect("the queue has room"), &AbandonReason::Dropped);
        black_box(mux.poll_transmit().expect("a cancel").to_frame());
    }
}

/// Receives a request and its cancellation.
pub(crate) fn cancelled(times: u64) {
    let frame = Bytes::from_static(REQUEST.as_bytes());
    let cancel = Bytes::from_static(CANCEL.as_bytes());
    let (now, mut mux) = (Instant::now(), Mux::default());
    for _ in 0..times {
        mux.handle_message(now, decode(&frame));
        black_box(mux.poll_event().expect("a request"));
        mux.handle_message(now, decode(&cancel));
        let Some(MuxEvent::Cancelled { .. }) = black_box(mux.poll_event()) else {
            panic!("expected a cancellation");
        };
    }
}

/// Receives progress of a call.
pub(crate) fn progress(times: u64) {
    let (now, mut mux) = (Instant::now(), Mux::default());
    let params = Some(json(r#"{"_meta":{"progressToken":7}}"#));
    let options = CallOptions {
        progress_token: Some(ProgressToken::from(7)),
        ..CallOptions::default()
    };
    let called = mux.call(now, "tools/call", params, options);
    called.expect("the queue has room");
    black_box(mux.poll_transmit());
    let frame = Bytes::from_static(PROGRESS.as_bytes());
    for _ in 0..times {
        mux.handle_message(now, decode(&frame));
        let Some(MuxEvent::CallNotification { .. }) = black_box(mux.poll_event()) else {
            panic!("expected a notification of the call");
        };
    }
}

/// Receives a notification without a request.
pub(crate) fn notification(times: u64) {
    let frame = Bytes::from_static(CHANGED.as_bytes());
    let (now, mut mux) = (Instant::now(), Mux::default());
    for _ in 0..times {
        mux.handle_message(now, decode(&frame));
        let Some(MuxEvent::Notification(_)) = black_box(mux.poll_event()) else {
            panic!("expected a notification");
        };
    }
}

/// Receives a malformed frame and answers it with an error.
pub(crate) fn malformed(times: u64) {
    let frame = Bytes::from_static(br#"{"jsonrpc":"2.0","id":7,"method":7}"#);
    let mut mux = Mux::default();
    for _ in 0..times {
        let malformed = Message::decode(&frame).expect_err("a method that is a number");
        mux.handle_malformed(malformed);
        while black_box(mux.poll_event()).is_some() {}
        black_box(mux.poll_transmit().expect("a response").to_frame());
    }
}

/// Admits the head and the body of an HTTP request.
pub(crate) fn admission(times: u64) {
    let (head, ()) = crate::server::post("tools/call", Some("echo"), ()).into_parts();
    let body = Bytes::from_static(REQUEST.as_bytes());
    let (source, served) = (SourcePolicy::loopback(), Dialects::all());
    let paths = EndpointPaths::only(["/", "/mcp"]);
    let caller_cache = CallerCache::default();
    for _ in 0..times {
        black_box(admit_head(&head, &source, &paths, &served).expect("a well-formed head"));
        let admitted = admit(&head.headers, &body, &served, &caller_cache, &AnyMethod);
        black_box(admitted.expect("a well-formed body"));
    }
}

/// Encodes and decodes one event of a stream.
pub(crate) fn event(times: u64) {
    let message = Bytes::from_static(PROGRESS.as_bytes());
    let mut decoder = sse::Decoder::new(sse::DecoderLimits::default());
    for _ in 0..times {
        let mut out = Vec::new();
        sse::encode_frame(&message, &mut out);
        decoder.push(out.into());
        while let Some(event) = decoder.next() {
            let _ = black_box(event);
        }
    }
}

fn decode(frame: &Bytes) -> Message {
    Message::decode(frame).expect("a message")
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("JSON")
}

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"count","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const PARAMS: &str = r#"{"name":"echo","arguments":{"text":"hello"}}"#;
const RESULT: &str = r#"{"content":[{"type":"text","text":"hello"}]}"#;
const ANSWER: &str = r#"{"content":[{"type":"text","text":"hello"}],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"0"}}}"#;
const SERVER: &str = r#"{"name":"s","version":"0"}"#;
