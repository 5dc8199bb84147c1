//! Records HTTP/2 requests and responses from the bytes of a connection.
//!
//! Parses DATA, END_STREAM and RST_STREAM, and of the compressed header block only its first byte, the method: GET and
//! POST have an index in the static table, and the only other method of this protocol is DELETE.

use std::collections::BTreeMap;

use super::{BodyTap, record_request, request_id};
use crate::observer::Observer;

#[derive(Debug, Default)]
pub(super) struct Http2Tap {
    received: FrameBuffer,
    sent: FrameBuffer,
    has_preface: bool,
    streams: BTreeMap<u32, OpenStream>,
}

/// A request whose response is not complete.
#[derive(Debug)]
struct OpenStream {
    method: &'static str,
    body: Vec<u8>,
    body_tap: BodyTap,
}

impl Http2Tap {
    pub(super) fn received(&mut self, observer: &Observer, bytes: &[u8]) {
        self.received.0.extend_from_slice(bytes);
        if !self.has_preface {
            if self.received.0.len() < PREFACE.len() {
                return;
            }
            self.received.0.drain(..PREFACE.len());
            self.has_preface = true;
        }
        while let Some(frame) = self.received.next() {
            match frame.kind {
                HEADERS => {
                    let stream = OpenStream {
                        method: method(&frame.payload),
                        body: Vec::new(),
                        body_tap: BodyTap::Empty,
                    };
                    self.streams.insert(frame.stream, stream);
                }
                DATA => {
                    if let Some(stream) = self.streams.get_mut(&frame.stream) {
                        stream.body.extend_from_slice(&frame.payload);
                    }
                }
                RESET => self.close(observer, frame.stream),
                _ => {}
            }
            if frame.is_last()
                && let Some(stream) = self.streams.get(&frame.stream)
            {
                record_request(observer, stream.method, &stream.body);
            }
        }
    }

    pub(super) fn sent(&mut self, observer: &Observer, bytes: &[u8]) {
        self.sent.0.extend_from_slice(bytes);
        while let Some(frame) = self.sent.next() {
            let Some(stream) = self.streams.get_mut(&frame.stream) else {
                continue;
            };
            if frame.kind == DATA {
                stream.body_tap.push(observer, &frame.payload);
            }
            if frame.is_last() {
                stream.body_tap.end(observer);
            }
            if frame.is_last() || frame.kind == RESET {
                self.streams.remove(&frame.stream);
            }
        }
    }

    pub(super) fn ended(&mut self, observer: &Observer) {
        let open: Vec<u32> = self.streams.keys().copied().collect();
        for stream in open {
            self.close(observer, stream);
        }
    }

    fn close(&mut self, observer: &Observer, stream: u32) {
        let closed = self.streams.remove(&stream);
        if let Some(id) = closed.and_then(|stream| request_id(&stream.body)) {
            observer.frame(format!("→ closes {id}"));
        }
    }
}

#[derive(Debug, Default)]
struct FrameBuffer(Vec<u8>);

struct Http2Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl FrameBuffer {
    /// Takes the next complete frame.
    fn next(&mut self) -> Option<Http2Frame> {
        let (head, _) = self.0.split_first_chunk::<HEAD>()?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *head;
        let end = HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
        if self.0.len() < end {
            return None;
        }
        let payload = self.0.drain(..end).skip(HEAD).collect();
        Some(Http2Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & !(1 << 31),
            payload,
        })
    }
}

impl Http2Frame {
    fn is_last(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The method of a request, from the first byte of its compressed header block.
fn method(head: &[u8]) -> &'static str {
    match head.first() {
        Some(0x82) => "GET",
        Some(0x83) => "POST",
        _ => "DELETE",
    }
}

/// The client connection preface.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;
