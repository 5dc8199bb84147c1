//! Extracts request bodies and stream resets from an HTTP/2 connection.

use super::RecordedEvent;

/// A parser for the bytes of a client. Each DATA frame is taken for a whole body, which is true of small bodies.
#[derive(Debug, Default)]
pub(super) struct Http2Parser {
    bytes: Vec<u8>,
    has_begun: bool,
}

impl Http2Parser {
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<RecordedEvent> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        if !self.has_begun && self.bytes.len() >= PREFACE {
            self.bytes.drain(..PREFACE);
            self.has_begun = true;
        }
        while self.has_begun {
            let Some((&[high, middle, low, kind, ..], rest)) =
                self.bytes.split_first_chunk::<HEAD>()
            else {
                break;
            };
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some(payload) = rest.get(..length) else {
                break;
            };
            match kind {
                DATA => events.push(RecordedEvent::Post(payload.to_vec())),
                RST_STREAM => events.push(RecordedEvent::Reset),
                _ => {}
            }
            self.bytes.drain(..HEAD + length);
        }
        events
    }
}

/// The length of the connection preface.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The length of a frame header: length, type, flags and stream id.
const HEAD: usize = 9;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_resets_are_found_however_the_bytes_arrive() {
        let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        all.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        all.extend([0, 0, 2, 0, 1, 0, 0, 0, 1, b'a', b'b']);
        all.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);

        for size in [1, 3, all.len()] {
            let mut parser = Http2Parser::default();
            let parts = all.chunks(size);
            let events: Vec<RecordedEvent> = parts.flat_map(|part| parser.feed(part)).collect();

            assert!(
                matches!(&events[..], [RecordedEvent::Post(body), RecordedEvent::Reset] if body == b"ab"),
                "{events:?} in pieces of {size}"
            );
        }
    }
}
