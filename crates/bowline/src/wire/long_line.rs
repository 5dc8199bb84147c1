//! [`LongLine`]: which request a line answers that is too long to be kept.
//!
//! A peer writes the `id` of a response before the result, or after it. In both places it can be read without the rest of
//! the line:
//!
//! ```text
//! {"jsonrpc":"2.0","id":7,"result":{ …                 the members before the result
//! {"result":{ … },"jsonrpc":"2.0","id":7}              the last members of the line
//! ```

use crate::RequestId;

/// A line that is too long, of which the start and the end are known.
#[derive(Debug, Default)]
pub(super) struct LongLine {
    /// Whether it is a response whose id comes after the result.
    has_late_id: bool,
    /// The last bytes.
    tail: Vec<u8>,
}

/// What the first members of a message are.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Those of a response with this id.
    Response(RequestId),
    /// Those of a response whose id comes later.
    LateId,
    /// Those of another message, or of none.
    Other,
}

impl LongLine {
    /// Starts with the first bytes of a line. Returns the id of the request that it answers, if they contain it.
    pub(super) fn start(bytes: &[u8]) -> (Self, Option<RequestId>) {
        let start = read_start(bytes);
        let mut line = Self {
            has_late_id: start == Start::LateId,
            tail: Vec::new(),
        };
        line.push(bytes);
        match start {
            Start::Response(id) => (line, Some(id)),
            Start::LateId | Start::Other => (line, None),
        }
    }

    /// Adds the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.has_late_id {
            return;
        }
        let bytes = &bytes[bytes.len().saturating_sub(MAX_TAIL)..];
        let surplus = (self.tail.len() + bytes.len()).saturating_sub(MAX_TAIL);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(bytes);
    }

    /// Returns the id of the request that the line answers, if its last bytes contain it.
    pub(super) fn end(&self) -> Option<RequestId> {
        let is_response = self.has_late_id;
        is_response.then(|| read_end(&self.tail)).flatten()
    }
}

fn read_start(bytes: &[u8]) -> Start {
    let mut reader = Reader(bytes);
    if reader.take(b'{').is_none() {
        return Start::Other;
    }
    let mut id = None;
    loop {
        match (reader.key(), id) {
            (Some("result" | "error"), Some(id)) => return Start::Response(id),
            (Some("result" | "error"), None) => return Start::LateId,
            (Some("id"), None) => id = reader.id(),
            (Some("jsonrpc"), known) if reader.text().is_some() => id = known,
            // A request has an id too, which is one of the peer.
            _ => return Start::Other,
        }
        if reader.take(b',').is_none() {
            return Start::Other;
        }
    }
}

/// Reads the last members of an object: nothing but them stands before the brace that closes it.
fn read_end(tail: &[u8]) -> Option<RequestId> {
    let at = tail.windows(ID.len()).rposition(|window| window == ID)?;
    if tail[..at].trim_ascii_end().last() != Some(&b',') {
        return None;
    }
    let mut reader = Reader(&tail[at..]);
    let (mut id, mut has_version) = (None, false);
    loop {
        match reader.key()? {
            "id" if id.is_none() => id = Some(reader.id()?),
            "jsonrpc" if !has_version => has_version = reader.text().is_some(),
            _ => return None,
        }
        if reader.take(b',').is_none() {
            break;
        }
    }
    reader.take(b'}')?;
    reader.0.trim_ascii().is_empty().then_some(id)?
}

/// Reads tokens of JSON from the start of bytes. Texts with escapes are not read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.trim_ascii_start().strip_prefix(&[byte])?;
        Some(())
    }

    /// Reads the name of a member, and the colon.
    fn key(&mut self) -> Option<&'a str> {
        let key = self.text()?;
        self.take(b':')?;
        Some(key)
    }

    fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let end = self
            .0
            .iter()
            .take(MAX_TAIL)
            .position(|byte| *byte == b'"')?;
        let (text, rest) = self.0.split_at(end);
        if text.contains(&b'\\') {
            return None;
        }
        self.0 = &rest[1..];
        std::str::from_utf8(text).ok()
    }

    fn id(&mut self) -> Option<RequestId> {
        self.0 = self.0.trim_ascii_start();
        if self.0.first() == Some(&b'"') {
            return Some(RequestId::from(self.text()?.to_owned()));
        }
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let end = self.0.iter().position(|byte| !is_part(byte))?;
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        let number: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(RequestId::from(number))
    }
}

const ID: &[u8] = b"\"id\"";
/// More than an id and its neighbours have.
const MAX_TAIL: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a line that arrives in pieces of this size.
    fn read(line: &str, piece: usize) -> Option<RequestId> {
        let mut pieces = line.as_bytes().chunks(piece);
        let (mut long, id) = LongLine::start(pieces.next().unwrap_or_default());
        pieces.for_each(|bytes| long.push(bytes));
        id.or_else(|| long.end())
    }

    #[test]
    fn the_id_of_a_response_is_found_before_and_after_its_result() {
        let (seven, text) = (RequestId::from(7), RequestId::from("a"));
        let long = "x".repeat(3000);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":"{long}"}}}}"#),
                &seven,
            ),
            (
                format!(r#" {{ "id" : "a" , "jsonrpc" : "2.0" , "error" : {{"m":"{long}"}}}}"#),
                &text,
            ),
            (
                format!(r#"{{"result":{{"id":8,"t":"{long}"}},"jsonrpc":"2.0","id":7}}"#),
                &seven,
            ),
            (
                format!(r#"{{"result":{{"id":8,"t":"{long}"}} , "id": "a", "jsonrpc": "2.0" }} "#),
                &text,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","result":["{long}"],"id":7}}"#),
                &seven,
            ),
        ] {
            assert_eq!(read(&line, 100_000).as_ref(), Some(id), "{line}");
            assert_eq!(read(&line, 1000).as_ref(), Some(id), "{line}");
            assert_eq!(read(&line, 60).as_ref(), Some(id), "{line}");
        }
    }

    #[test]
    fn other_lines_answer_nothing() {
        let long = "x".repeat(3000);
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"t":"{long}"}}}}"#),
            format!(r#"{{"method":"m","params":{{"t":"{long}"}},"jsonrpc":"2.0","id":7}}"#),
            format!(r#"{{"result":{{"t":"{long}"}},"jsonrpc":"2.0","id":{{"id":7}}}}"#),
            format!(r#"{{"result":{{"t":"{long}","jsonrpc":"2.0","id":7}}}}"#),
            format!(r#"{{"result":"{long},\"id\":7}}"#),
            format!(r#"{{"result":"{long}","id":1.5}}"#),
            format!(r#"{{"i\u0064":7,"result":"{long}"}}"#),
            format!("not json {long}"),
            format!(r#"[{{"id":7,"result":"{long}"}}]"#),
            String::new(),
        ] {
            assert_eq!(read(&line, 100_000), None, "{line}");
            assert_eq!(read(&line, 500), None, "{line}");
        }
    }
}
