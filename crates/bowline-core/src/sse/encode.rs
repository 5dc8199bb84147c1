//! The encoder. Whatever is in an event, it stays one event.

use memchr::memchr2;

use super::Event;
use crate::Message;

/// Appends one event to `out`.
///
/// Line breaks of any kind in the data arrive as `\n`. A name or an id has no line breaks, and an id no
/// NUL, in this format; they are left out rather than let them end the field.
pub fn encode(event: &Event, out: &mut Vec<u8>) {
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

/// Appends an event that carries a message and nothing else.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    out.reserve(message.room() + b"data: \n\n".len());
    out.extend_from_slice(b"data: ");
    message.encode(out); // which is one line
    out.extend_from_slice(b"\n\n");
}

/// Appends an event that carries the frame of a message and nothing else.
///
/// A frame is one line, so that it is copied as it is; one that is not is still encoded correctly.
pub fn encode_frame(frame: &[u8], out: &mut Vec<u8>) {
    out.reserve(frame.len() + b"data: \n\n".len());
    push_lines(b"data: ", frame, out);
    out.push(b'\n');
}

/// Appends a comment, which readers ignore.
pub fn encode_comment(text: &str, out: &mut Vec<u8>) {
    push_lines(b": ", text.as_bytes(), out);
    out.push(b'\n');
}

/// A comment that keeps an idle stream from being cut, ready to be sent.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

fn push_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r');
    out.extend(value.bytes().filter(|byte| !ends_line(byte)));
    out.push(b'\n');
}

/// Appends each line of `text` behind `prefix`. CR, LF and CRLF all end a line.
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
