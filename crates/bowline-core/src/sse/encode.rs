//! The SSE encoder. The content of an event cannot add a field or start another event.

use memchr::memchr2;

use super::SseEvent;
use crate::Message;

/// Appends one event to `out`.
///
/// CR, LF and CRLF in the data each start a new `data:` line, so receivers see `\n`. Line breaks in a name or id, and
/// NUL in an id, are removed: a line break would end the field, and receivers ignore an id with NUL.
pub fn encode(event: &SseEvent, out: &mut Vec<u8>) {
    if let Some(name) = event.name.as_deref().filter(|name| !name.is_empty()) {
        push_field("event", name, out);
    }
    if let Some(id) = &event.id {
        push_field("id", &id.replace('\0', ""), out);
    }
    if let Some(retry) = event.retry {
        push_field("retry", &retry.to_string(), out);
    }
    push_lines(b"data: ", &event.data, out);
    out.push(b'\n');
}

/// Appends an event with a message as its data.
///
/// It has the name `message`, which is the default: some clients ignore an event without a name.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    out.reserve(message.encoded_len() + NAMED_MESSAGE.len() + b"data: \n\n".len());
    out.extend_from_slice(NAMED_MESSAGE);
    out.extend_from_slice(b"data: ");
    message.encode(out); // a message is one line
    out.extend_from_slice(b"\n\n");
}

/// Appends an event with an encoded message as its data.
///
/// A frame is usually one line, which is copied verbatim; several lines are encoded correctly, too. The event is named
/// as by [`encode_message`].
pub fn encode_frame(frame: &[u8], out: &mut Vec<u8>) {
    out.reserve(frame.len() + NAMED_MESSAGE.len() + b"data: \n\n".len());
    out.extend_from_slice(NAMED_MESSAGE);
    push_lines(b"data: ", frame, out);
    out.push(b'\n');
}

/// Appends a comment, which receivers ignore.
pub fn encode_comment(text: &str, out: &mut Vec<u8>) {
    push_lines(b": ", text.as_bytes(), out);
    out.push(b'\n');
}

/// An encoded comment that keeps an idle stream open.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

const NAMED_MESSAGE: &[u8] = b"event: message\n";

fn push_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r');
    out.extend(value.bytes().filter(|byte| !ends_line(byte)));
    out.push(b'\n');
}

/// Appends each line of `text` after `prefix`. CR, LF and CRLF end a line.
fn push_lines(prefix: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        let end = memchr2(b'\n', b'\r', rest);
        out.extend_from_slice(prefix);
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        let Some(end) = end else { return };
        let width = if rest[end..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        rest = &rest[end + width..];
    }
}
