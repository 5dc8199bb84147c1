//! HTTP/2 as it passes: many requests at once, each a stream of frames.
//!
//! Only what is needed here is read: bodies, their ends, resets, and of the headers the first, which is the
//! verb. Heads are compressed, but the verbs of this protocol have a byte of their own, all but one.

use std::collections::BTreeMap;

use super::{Answer, request_id, write_request};
use crate::seen::Seen;

#[derive(Debug, Default)]
pub(super) struct Http2 {
    came: Frames,
    went: Frames,
    has_greeted: bool,
    streams: BTreeMap<u32, Stream>,
}

/// A request whose response is not complete.
#[derive(Debug)]
struct Stream {
    verb: &'static str,
    body: Vec<u8>,
    answer: Answer,
}

impl Http2 {
    pub(super) fn came(&mut self, seen: &Seen, bytes: &[u8]) {
        self.came.0.extend_from_slice(bytes);
        if !self.has_greeted {
            if self.came.0.len() < PREFACE.len() {
                return;
            }
            self.came.0.drain(..PREFACE.len());
            self.has_greeted = true;
        }
        while let Some(frame) = self.came.next() {
            match frame.kind {
                HEADERS => {
                    let stream = Stream {
                        verb: verb(&frame.payload),
                        body: Vec::new(),
                        answer: Answer::Nothing,
                    };
                    self.streams.insert(frame.stream, stream);
                }
                DATA => {
                    if let Some(stream) = self.streams.get_mut(&frame.stream) {
                        stream.body.extend_from_slice(&frame.payload);
                    }
                }
                RESET => self.close(seen, frame.stream),
                _ => {}
            }
            if frame.is_last()
                && let Some(stream) = self.streams.get(&frame.stream)
            {
                write_request(seen, stream.verb, &stream.body);
            }
        }
    }

    pub(super) fn went(&mut self, seen: &Seen, bytes: &[u8]) {
        self.went.0.extend_from_slice(bytes);
        while let Some(frame) = self.went.next() {
            let Some(stream) = self.streams.get_mut(&frame.stream) else {
                continue;
            };
            if frame.kind == DATA {
                stream.answer.push(seen, &frame.payload);
            }
            if frame.is_last() {
                stream.answer.end(seen);
            }
            if frame.is_last() || frame.kind == RESET {
                self.streams.remove(&frame.stream);
            }
        }
    }

    pub(super) fn ended(&mut self, seen: &Seen) {
        let open: Vec<u32> = self.streams.keys().copied().collect();
        for stream in open {
            self.close(seen, stream);
        }
    }

    fn close(&mut self, seen: &Seen, stream: u32) {
        let closed = self.streams.remove(&stream);
        if let Some(id) = closed.and_then(|stream| request_id(&stream.body)) {
            seen.frame(format!("→ closes {id}"));
        }
    }
}

#[derive(Debug, Default)]
struct Frames(Vec<u8>);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frames {
    /// The next frame, once all of it is there.
    fn next(&mut self) -> Option<Frame> {
        let (head, _) = self.0.split_first_chunk::<HEAD>()?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *head;
        let end = HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
        if self.0.len() < end {
            return None;
        }
        let payload = self.0.drain(..end).skip(HEAD).collect();
        Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & !(1 << 31),
            payload,
        })
    }
}

impl Frame {
    fn is_last(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The verb of a request, by the first byte of its compressed head.
fn verb(head: &[u8]) -> &'static str {
    match head.first() {
        Some(0x82) => "GET",
        Some(0x83) => "POST",
        _ => "DELETE",
    }
}

/// What a client says first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;
