//! Parses the requests and responses of an HTTP/1.1 connection.

use super::{HttpParser, RecordedBody, record_request};
use crate::testing::{RecordedEvent, RecordedFrame, WireRecord};

#[derive(Default)]
pub(super) struct Http1Parser {
    received: Vec<u8>,
    sent: Vec<u8>,
    response: ResponseState,
    body: RecordedBody,
    /// The posted message whose response is incomplete.
    open: Option<RecordedFrame>,
}

/// The next part of the response.
#[derive(Clone, Copy, Default)]
enum ResponseState {
    #[default]
    Head,
    /// A body with this many bytes left.
    Length(usize),
    Chunks,
}

impl HttpParser for Http1Parser {
    fn received(&mut self, record: &WireRecord, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        while let Some((head, start)) = head(&self.received) {
            let end = start + content_length(&head).unwrap_or_default();
            if self.received.len() < end {
                break;
            }
            let method = head.split(' ').next().unwrap_or_default();
            self.open = record_request(record, method, &self.received[start..end]);
            self.received.drain(..end);
        }
    }

    fn sent(&mut self, record: &WireRecord, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        while self.next_part(record).is_some() {}
    }

    fn ended(&mut self, record: &WireRecord) {
        if let Some(request) = self.open.take() {
            record.push(RecordedEvent::Closed(request));
        }
    }
}

impl Http1Parser {
    /// Parses the next part of the response; returns `None` if it is incomplete.
    fn next_part(&mut self, record: &WireRecord) -> Option<()> {
        let is_last = match self.response {
            ResponseState::Head => {
                let (head, start) = head(&self.sent)?;
                self.sent.drain(..start);
                self.response = match content_length(&head) {
                    None if head.to_ascii_lowercase().contains("chunked") => ResponseState::Chunks,
                    length => ResponseState::Length(length.unwrap_or_default()),
                };
                false
            }
            ResponseState::Length(left) => {
                let count = self.sent.len().min(left);
                self.body.push(record, &self.sent[..count]);
                self.sent.drain(..count);
                self.response = ResponseState::Length(left - count);
                if count < left {
                    return None;
                }
                true
            }
            ResponseState::Chunks => {
                let (size, start) = chunk(&self.sent)?;
                let data = self.sent.get(start..start + size + 2)?;
                self.body.push(record, &data[..size]);
                self.sent.drain(..start + size + 2);
                size == 0
            }
        };
        if is_last {
            self.body.end(record);
            self.response = ResponseState::Head;
            self.open = None;
        }
        Some(())
    }
}

/// Returns the head and the offset of the body, if the head is complete.
fn head(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), end + 4))
}

fn content_length(head: &str) -> Option<usize> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse().ok())
}

/// Returns the size of a chunk and the offset of its data, if its size line is complete.
fn chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let size = std::str::from_utf8(&bytes[..end]).ok()?;
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    Some((size, end + 2))
}
