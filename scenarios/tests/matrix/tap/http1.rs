//! Records HTTP/1.1 requests and responses from the bytes of a connection.

use super::{BodyTap, record_request, request_id};
use crate::observer::Observer;

#[derive(Debug, Default)]
pub(super) struct Http1Tap {
    received: Vec<u8>,
    sent: Vec<u8>,
    response: ResponseState,
    /// The id of the request whose response is not complete.
    open: Option<String>,
}

/// The parser state of the current response.
#[derive(Debug, Default)]
enum ResponseState {
    #[default]
    Head,
    /// A body with this many bytes left.
    Length(usize, BodyTap),
    Chunks(BodyTap),
}

impl Http1Tap {
    pub(super) fn received(&mut self, observer: &Observer, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        while let Some((head, start)) = head(&self.received) {
            let end = start + content_length(&head).unwrap_or_default();
            if self.received.len() < end {
                break;
            }
            let body: Vec<u8> = self.received.drain(..end).skip(start).collect();
            let method = head.split(' ').next().unwrap_or_default();
            record_request(observer, method, &body);
            self.open = request_id(&body);
        }
    }

    pub(super) fn sent(&mut self, observer: &Observer, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        while self.step(observer) {}
    }

    pub(super) fn ended(&mut self, observer: &Observer) {
        if let Some(id) = self.open.take() {
            observer.frame(format!("→ closes {id}"));
        }
    }

    /// Parses the next part of the response; returns false if it is incomplete.
    fn step(&mut self, observer: &Observer) -> bool {
        match &mut self.response {
            ResponseState::Head => {
                let Some((head, start)) = head(&self.sent) else {
                    return false;
                };
                self.sent.drain(..start);
                self.response = match content_length(&head) {
                    Some(length) => ResponseState::Length(length, BodyTap::Empty),
                    None if head.to_ascii_lowercase().contains("chunked") => {
                        ResponseState::Chunks(BodyTap::Empty)
                    }
                    None => ResponseState::Length(0, BodyTap::Empty),
                };
                true
            }
            ResponseState::Length(left, body_tap) => {
                let count = self.sent.len().min(*left);
                let body: Vec<u8> = self.sent.drain(..count).collect();
                body_tap.push(observer, &body);
                *left -= count;
                let is_complete = *left == 0;
                if is_complete {
                    body_tap.end(observer);
                    self.complete();
                }
                is_complete
            }
            ResponseState::Chunks(body_tap) => {
                let Some((size, start)) = chunk(&self.sent) else {
                    return false;
                };
                let end = start + size + 2;
                if self.sent.len() < end {
                    return false;
                }
                let body: Vec<u8> = self.sent.drain(..end).skip(start).take(size).collect();
                body_tap.push(observer, &body);
                if size == 0 {
                    body_tap.end(observer);
                    self.complete();
                }
                true
            }
        }
    }

    fn complete(&mut self) {
        self.response = ResponseState::Head;
        self.open = None;
    }
}

/// The head and the offset of the body, once the head is complete.
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

/// The size of a chunk and the offset of its data, once the size line is complete.
fn chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let size = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    Some((size, end + 2))
}
