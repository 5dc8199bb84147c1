//! Parses the requests and responses of an HTTP/2 connection.
//!
//! Parses DATA, END_STREAM and RST_STREAM, and of the compressed header block only its first byte, the method: GET and
//! POST have an index in the static table, and the only other method of this protocol is DELETE.

use std::collections::BTreeMap;

use super::{HttpParser, RecordedBody, record_request};
use crate::testing::{Direction, RecordedEvent, RecordedFrame, WireRecord};

#[derive(Default)]
pub(super) struct Http2Parser {
    received: FrameBuffer,
    sent: FrameBuffer,
    has_preface: bool,
    streams: BTreeMap<u32, OpenStream>,
}

/// A request that is incomplete or whose response is.
#[derive(Default)]
struct OpenStream {
    method: &'static str,
    request: Vec<u8>,
    is_request_complete: bool,
    response: RecordedBody,
    /// A server may refuse a request before it has received all of it.
    is_response_complete: bool,
}

impl HttpParser for Http2Parser {
    fn received(&mut self, record: &WireRecord, bytes: &[u8]) {
        self.received.0.extend_from_slice(bytes);
        if !self.has_preface {
            if self.received.0.len() < PREFACE.len() {
                return;
            }
            self.received.0.drain(..PREFACE.len());
            self.has_preface = true;
        }
        while let Some(frame) = self.received.next() {
            let stream = match frame.kind {
                HEADERS => {
                    let new = || OpenStream::new(method(&frame.payload));
                    Some(self.streams.entry(frame.stream).or_insert_with(new))
                }
                DATA => self.streams.get_mut(&frame.stream),
                RST_STREAM => {
                    let reset = self.streams.remove(&frame.stream);
                    if let Some(request) = reset.and_then(OpenStream::into_request) {
                        record.push(RecordedEvent::Reset(request));
                    }
                    None
                }
                _ => None,
            };
            let Some(stream) = stream else { continue };
            if frame.kind == DATA {
                stream.request.extend_from_slice(&frame.payload);
            }
            if frame.is_last() {
                record_request(record, stream.method, &stream.request);
                stream.is_request_complete = true;
                if stream.is_response_complete {
                    self.streams.remove(&frame.stream);
                }
            }
        }
    }

    fn sent(&mut self, record: &WireRecord, bytes: &[u8]) {
        self.sent.0.extend_from_slice(bytes);
        while let Some(frame) = self.sent.next() {
            let Some(stream) = self.streams.get_mut(&frame.stream) else {
                continue;
            };
            if frame.kind == DATA {
                stream.response.push(record, &frame.payload);
            }
            if frame.is_last() {
                stream.response.end(record);
                stream.is_response_complete = true;
            }
            let is_complete = stream.is_request_complete && stream.is_response_complete;
            if is_complete || frame.kind == RST_STREAM {
                self.streams.remove(&frame.stream);
            }
        }
    }

    fn ended(&mut self, record: &WireRecord) {
        for stream in std::mem::take(&mut self.streams).into_values() {
            if let Some(request) = stream.into_request() {
                record.push(RecordedEvent::Closed(request));
            }
        }
    }
}

impl OpenStream {
    fn new(method: &'static str) -> Self {
        Self {
            method,
            ..Self::default()
        }
    }

    /// Returns the posted message if its response is incomplete; `None` if the body is empty.
    fn into_request(self) -> Option<RecordedFrame> {
        let is_open = !self.request.is_empty() && !self.is_response_complete;
        is_open.then(|| RecordedFrame::new(Direction::Received, &self.request))
    }
}

#[derive(Default)]
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
        let (head, _) = self.0.split_first_chunk::<HEAD_BYTES>()?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *head;
        let end = HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
        if self.0.len() < end {
            return None;
        }
        let payload: Vec<u8> = self.0.drain(..end).skip(HEAD_BYTES).collect();
        Some(Http2Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & !(1 << 31),
            payload: content(kind, flags, payload),
        })
    }
}

impl Http2Frame {
    fn is_last(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// Returns the payload of a frame without the padding and the priority that DATA and HEADERS may have.
fn content(kind: u8, flags: u8, mut payload: Vec<u8>) -> Vec<u8> {
    if matches!(kind, DATA | HEADERS) && flags & PADDED != 0 && !payload.is_empty() {
        let padding = usize::from(payload.remove(0));
        payload.truncate(payload.len().saturating_sub(padding));
    }
    if kind == HEADERS && flags & PRIORITY != 0 {
        payload.drain(..PRIORITY_BYTES.min(payload.len()));
    }
    payload
}

/// Returns the method of a request, from the first byte of its compressed header block.
fn method(head: &[u8]) -> &'static str {
    match head.first() {
        Some(0x82) => "GET",
        Some(0x83) => "POST",
        _ => "DELETE",
    }
}

/// The client connection preface.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame header: length, type, flags and stream id.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// The length of the priority in HEADERS: the stream dependency and the weight.
const PRIORITY_BYTES: usize = 5;
