//! The frames that come in over an HTTP/2 connection, as far as they tell how calls are let go of.

use super::Event;

/// Finds bodies and resets in what a connection carries. A body is taken to be one frame, as it is when
/// it is small.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    has_begun: bool,
}

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
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
                DATA => events.push(Event::Post(payload.to_vec())),
                RST_STREAM => events.push(Event::Reset),
                _ => {}
            }
            self.bytes.drain(..HEAD + length);
        }
        events
    }
}

/// What a client says first.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Length, kind, flags and stream.
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
            let mut frames = Frames::default();
            let parts = all.chunks(size);
            let events: Vec<Event> = parts.flat_map(|part| frames.feed(part)).collect();

            assert!(
                matches!(&events[..], [Event::Post(body), Event::Reset] if body == b"ab"),
                "{events:?} in pieces of {size}"
            );
        }
    }
}
