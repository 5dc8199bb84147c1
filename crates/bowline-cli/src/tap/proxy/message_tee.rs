//! [`MessageTee`]: finds the messages in a body that passes through, for the recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_core::Message;
use bowline_core::is_batch;
use bowline_core::sse::{Decoder, DecoderLimits};
use bowline_recording::{EventKind, Recorder, Side};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

/// Where a body passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) connection: u64,
    pub(super) exchange: u64,
    pub(super) from: Side,
}

/// What a body contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// Messages in events.
    EventStream,
    /// One message or batch. Anything else is malformed.
    Message,
    /// Perhaps a message; anything else, such as a form or a token, is not recorded.
    Other,
    /// Nothing that can be read.
    Opaque,
}

/// Returns what the body of a request contains.
pub(super) fn request_kind(headers: &HeaderMap, is_post: bool, is_endpoint: bool) -> BodyKind {
    match (is_post, is_endpoint) {
        _ if is_encoded(headers) => BodyKind::Opaque,
        (true, true) => BodyKind::Message,
        (true, false) => BodyKind::Other,
        (false, _) => BodyKind::Opaque,
    }
}

/// Returns what the body of a response contains.
pub(super) fn response_kind(headers: &HeaderMap, is_post: bool, is_endpoint: bool) -> BodyKind {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type
        .unwrap_or_default()
        .trim_start()
        .to_ascii_lowercase();
    match content_type {
        _ if is_encoded(headers) => BodyKind::Opaque,
        it if it.starts_with("text/event-stream") => BodyKind::EventStream,
        it if it.starts_with("application/json") && is_post && is_endpoint => BodyKind::Message,
        _ if is_post => BodyKind::Other,
        _ => BodyKind::Opaque,
    }
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let encoding = headers.get(CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding != "identity")
}

/// Records the messages of a body. It sees each chunk before that is passed on.
pub(super) struct MessageTee {
    recorder: Recorder,
    place: Place,
    state: TeeState,
    budget: TeeBudget,
}

enum TeeState {
    Events(Box<Decoder>),
    Body { body: BytesMut, kind: BodyKind },
    Ended,
}

impl MessageTee {
    pub(super) fn new(recorder: Recorder, place: Place, kind: BodyKind, budget: TeeBudget) -> Self {
        let state = match kind {
            BodyKind::EventStream => {
                TeeState::Events(Box::new(Decoder::new(DecoderLimits::default())))
            }
            BodyKind::Opaque => TeeState::Ended,
            kind => TeeState::Body {
                body: BytesMut::new(),
                kind,
            },
        };
        Self {
            recorder,
            place,
            state,
            budget,
        }
    }

    pub(super) fn push(&mut self, chunk: &Bytes) {
        match &mut self.state {
            TeeState::Events(decoder) => {
                decoder.push(chunk.clone());
                while let TeeState::Events(decoder) = &mut self.state
                    && let Some(event) = decoder.next()
                {
                    match event {
                        Ok(event) if event.is_message() => self.record(event.data),
                        Ok(_) => {} // `endpoint` of HTTP+SSE
                        Err(error) => self.give_up(&error.to_string()),
                    }
                }
            }
            TeeState::Body { body, .. } => {
                if body.len() + chunk.len() > MAX_BODY || !self.budget.take(chunk.len()) {
                    return self.give_up("the body is too large to be recorded");
                }
                body.extend_from_slice(chunk);
            }
            TeeState::Ended => {}
        }
    }

    /// Records a body that is complete.
    pub(super) fn finish(&mut self) {
        if let TeeState::Body { body, kind } = std::mem::replace(&mut self.state, TeeState::Ended) {
            self.budget.give_back(body.len());
            let body = body.freeze();
            if kind == BodyKind::Message || is_message(&body) {
                self.record(body);
            }
        }
    }

    fn record(&self, frame: Bytes) {
        let Place {
            connection,
            exchange,
            from,
        } = self.place;
        self.recorder
            .record_frame(connection, Some(exchange), from, frame);
    }

    /// Stops recording this body; it is passed on all the same.
    fn give_up(&mut self, why: &str) {
        if let TeeState::Body { body, .. } = &self.state {
            self.budget.give_back(body.len());
        }
        self.state = TeeState::Ended;
        let why = why.to_owned();
        let kind = EventKind::Lost { count: 1, why };
        self.recorder
            .record(self.place.connection, Some(self.place.exchange), kind);
    }
}

impl Drop for MessageTee {
    fn drop(&mut self) {
        if let TeeState::Body { body, .. } = &self.state {
            self.budget.give_back(body.len());
        }
    }
}

fn is_message(body: &Bytes) -> bool {
    is_batch(body) || Message::decode(body).is_ok()
}

/// The bytes of all bodies that are being collected.
#[derive(Clone, Debug, Default)]
pub(super) struct TeeBudget(Arc<AtomicUsize>);

impl TeeBudget {
    fn take(&self, bytes: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before.saturating_add(bytes) <= MAX_BODIES;
        if !has_room {
            self.give_back(bytes);
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The number of bytes of one body that are recorded, and of all bodies that are collected at a time.
const MAX_BODY: usize = 16 * 1024 * 1024;
const MAX_BODIES: usize = 256 * 1024 * 1024;
