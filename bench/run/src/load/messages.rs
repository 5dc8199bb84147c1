//! Requests as bytes, with an id of fixed width that is overwritten in place, and checks of their replies.

use memchr::memmem;

/// The protocol era of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

/// The era of a request, with its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolContext {
    /// All headers and the full `_meta`.
    Modern,
    /// In the session of an `initialize`, if the server has sessions.
    Legacy { session: Option<String> },
}

/// The expected content of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// A text block with exactly this text.
    Text(String),
    /// At least this many bytes.
    Bytes(usize),
    /// This many progress notifications before the response.
    Notifications(usize),
}

/// A JSON-RPC request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    method: &'static str,
    name: Option<&'static str>,
    /// Everything between the braces of `params`, without `_meta`.
    params: String,
    /// Everything between the braces of `_meta`, besides the members of the era.
    meta: &'static str,
    pub(crate) expect: Expect,
}

impl Message {
    /// A `tools/call` with these arguments; the result must have this text.
    pub(crate) fn call(tool: &'static str, arguments: &str, text: impl Into<String>) -> Self {
        Self {
            method: "tools/call",
            name: Some(tool),
            params: format!(r#""name":"{tool}","arguments":{arguments}"#),
            meta: "",
            expect: Expect::Text(text.into()),
        }
    }

    pub(crate) fn list_tools() -> Self {
        Self {
            method: "tools/list",
            name: None,
            params: String::new(),
            meta: "",
            expect: Expect::Bytes(0),
        }
    }

    pub(crate) fn listen() -> Self {
        Self {
            method: "subscriptions/listen",
            params: r#""notifications":{"toolsListChanged":true}"#.to_owned(),
            ..Self::list_tools()
        }
    }

    pub(crate) fn expecting(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Adds a progress token, so that notifications may precede the reply.
    pub(crate) fn with_progress(mut self) -> Self {
        self.meta = r#""progressToken":1"#;
        self
    }

    /// Returns the message as JSON, and the offset of its id.
    pub(crate) fn json(&self, context: &ProtocolContext) -> (String, usize) {
        let head = format!(r#"{{"jsonrpc":"2.0","method":"{}","id":"#, self.method);
        let mut meta: Vec<&str> = Vec::new();
        if *context == ProtocolContext::Modern {
            meta.push(ENVELOPE);
        }
        if !self.meta.is_empty() {
            meta.push(self.meta);
        }
        let mut params: Vec<String> = Vec::new();
        if !self.params.is_empty() {
            params.push(self.params.clone());
        }
        if !meta.is_empty() {
            params.push(format!(r#""_meta":{{{}}}"#, meta.join(",")));
        }
        let id_at = head.len();
        let text = format!("{head}{FIRST_ID},\"params\":{{{}}}}}", params.join(","));
        (text, id_at)
    }

    /// Returns the message as an HTTP/1.1 request, and the offset of its id.
    pub(crate) fn http(&self, context: &ProtocolContext) -> (Vec<u8>, usize) {
        let (body, id_at) = self.json(context);
        let mut head = String::from(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n",
        );
        for (name, value) in self.headers(context) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let id_at = head.len() + id_at;
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        (bytes, id_at)
    }

    /// Returns the headers of the MCP specification.
    pub(crate) fn headers(&self, context: &ProtocolContext) -> Vec<(&'static str, String)> {
        match context {
            ProtocolContext::Modern => {
                let mut headers = vec![
                    ("mcp-protocol-version", MODERN.to_owned()),
                    ("mcp-method", self.method.to_owned()),
                ];
                headers.extend(self.name.map(|name| ("mcp-name", name.to_owned())));
                headers
            }
            ProtocolContext::Legacy { session } => {
                let mut headers = vec![("mcp-protocol-version", LEGACY.to_owned())];
                headers.extend(session.clone().map(|id| ("mcp-session-id", id)));
                headers
            }
        }
    }
}

impl Expect {
    /// Returns whether `reply` is the expected reply to the request `id`.
    pub(crate) fn fits(&self, id: u64, context: &ProtocolContext, reply: &[u8]) -> bool {
        let has = |needle: &[u8]| memmem::find(reply, needle).is_some();
        let id = format!("\"id\":{id}");
        let has_content = match self {
            Self::Text(text) => {
                let needle = format!(r#""text":"{text}""#);
                has(needle.as_bytes())
            }
            Self::Bytes(least) => reply.len() >= *least,
            Self::Notifications(count) => {
                memmem::find_iter(reply, "notifications/progress").count() == *count
            }
        };
        has_content
            && has(id.as_bytes())
            && !has(b"\"error\"")
            && (*context != ProtocolContext::Modern || has(br#""resultType":"complete""#))
    }
}

/// Returns `initialize` and `notifications/initialized`.
pub(crate) fn handshake() -> [String; 2] {
    [
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"load","version":"0"}}}}}}"#
        ),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
    ]
}

/// Overwrites the id of a request.
pub(crate) fn write_id(bytes: &mut [u8], at: usize, mut id: u64) {
    for digit in bytes[at..at + ID_WIDTH].iter_mut().rev() {
        *digit = b'0' + (id % 10) as u8;
        id /= 10;
    }
}

/// Ten digits, so that all requests of a kind have the same length.
pub(crate) const FIRST_ID: u64 = 1_000_000_000;
const ID_WIDTH: usize = 10;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
const ENVELOPE: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_in_place() {
        let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
        let (mut bytes, at) = message.http(&ProtocolContext::Modern);

        write_id(&mut bytes, at, 1_234_567_890);

        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(r#""id":1234567890,"params""#), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
    }

    #[test]
    fn a_reply_must_have_the_id_and_the_text_and_no_error() {
        let expect = Expect::Text("hello".to_owned());
        let reply = br#"{"id":7,"result":{"content":[{"text":"hello"}],"resultType":"complete"}}"#;

        assert!(expect.fits(7, &ProtocolContext::Modern, reply));
        assert!(!expect.fits(8, &ProtocolContext::Modern, reply));
        assert!(!Expect::Text("bye".to_owned()).fits(7, &ProtocolContext::Modern, reply));
        let failed = br#"{"id":7,"error":{"message":"hello"}}"#;
        assert!(!expect.fits(7, &ProtocolContext::Modern, failed));
    }
}
