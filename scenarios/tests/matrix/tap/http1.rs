//! HTTP/1.1 as it passes: one request after the other, each with its response.

use super::{Answer, request_id, write_request};
use crate::seen::Seen;

#[derive(Debug, Default)]
pub(super) struct Http1 {
    came: Vec<u8>,
    went: Vec<u8>,
    response: Response,
    /// The request whose response is not complete, by its id.
    open: Option<String>,
}

/// How far the response has come.
#[derive(Debug, Default)]
enum Response {
    #[default]
    Head,
    /// A body of which so much is still to come.
    Length(usize, Answer),
    Chunks(Answer),
}

impl Http1 {
    pub(super) fn came(&mut self, seen: &Seen, bytes: &[u8]) {
        self.came.extend_from_slice(bytes);
        while let Some((head, start)) = head(&self.came) {
            let end = start + content_length(&head).unwrap_or_default();
            if self.came.len() < end {
                break;
            }
            let body: Vec<u8> = self.came.drain(..end).skip(start).collect();
            let verb = head.split(' ').next().unwrap_or_default();
            write_request(seen, verb, &body);
            self.open = request_id(&body);
        }
    }

    pub(super) fn went(&mut self, seen: &Seen, bytes: &[u8]) {
        self.went.extend_from_slice(bytes);
        while self.step(seen) {}
    }

    pub(super) fn ended(&mut self, seen: &Seen) {
        if let Some(id) = self.open.take() {
            seen.frame(format!("→ closes {id}"));
        }
    }

    /// Takes in the next piece of the response, if it is all there.
    fn step(&mut self, seen: &Seen) -> bool {
        match &mut self.response {
            Response::Head => {
                let Some((head, start)) = head(&self.went) else {
                    return false;
                };
                self.went.drain(..start);
                self.response = match content_length(&head) {
                    Some(length) => Response::Length(length, Answer::Nothing),
                    None if head.to_ascii_lowercase().contains("chunked") => {
                        Response::Chunks(Answer::Nothing)
                    }
                    None => Response::Length(0, Answer::Nothing),
                };
                true
            }
            Response::Length(left, answer) => {
                let count = self.went.len().min(*left);
                let body: Vec<u8> = self.went.drain(..count).collect();
                answer.push(seen, &body);
                *left -= count;
                let is_complete = *left == 0;
                if is_complete {
                    answer.end(seen);
                    self.complete();
                }
                is_complete
            }
            Response::Chunks(answer) => {
                let Some((size, start)) = chunk(&self.went) else {
                    return false;
                };
                let end = start + size + 2;
                if self.went.len() < end {
                    return false;
                }
                let body: Vec<u8> = self.went.drain(..end).skip(start).take(size).collect();
                answer.push(seen, &body);
                if size == 0 {
                    answer.end(seen);
                    self.complete();
                }
                true
            }
        }
    }

    fn complete(&mut self) {
        self.response = Response::Head;
        self.open = None;
    }
}

/// A head and where its body starts, once all of it is there.
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

/// The size of a chunk and where it starts, once that is told.
fn chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let size = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    Some((size, end + 2))
}
