//! Requests as bytes, with an id of fixed width that is written in place, and what their replies must say.

use memchr::memmem;

/// Which era a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

/// What a request refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dialog {
    /// All headers and the full `_meta`.
    Modern,
    /// In a conversation that `initialize` opened, known by what its answer gave.
    Legacy { session: Option<String> },
}

/// What a reply must say besides its id.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// A text block with exactly this text.
    Text(String),
    /// At least this many bytes.
    Bytes(usize),
    /// This many progress notices before the response.
    Notices(usize),
}

/// A JSON-RPC request, ready to be framed.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    method: &'static str,
    name: Option<&'static str>,
    /// Everything between the braces of `params`, without `_meta`.
    params: String,
    /// Everything between the braces of `_meta`, besides what the era wants.
    meta: &'static str,
    pub(crate) expect: Expect,
}

impl Message {
    /// `tools/call` of `tool` with these arguments, answered with this text.
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

    /// With a progress token, so that notices may come before the reply.
    pub(crate) fn with_progress(mut self) -> Self {
        self.meta = r#""progressToken":1"#;
        self
    }

    /// The message as JSON, and where its id begins.
    pub(crate) fn json(&self, dialog: &Dialog) -> (String, usize) {
        let head = format!(r#"{{"jsonrpc":"2.0","method":"{}","id":"#, self.method);
        let mut meta: Vec<&str> = Vec::new();
        if *dialog == Dialog::Modern {
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

    /// The message as an HTTP/1.1 request, and where its id begins.
    pub(crate) fn http(&self, dialog: &Dialog) -> (Vec<u8>, usize) {
        let (body, id_at) = self.json(dialog);
        let mut head = String::from(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n",
        );
        for (name, value) in self.headers(dialog) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let id_at = head.len() + id_at;
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        (bytes, id_at)
    }

    /// The protocol's own headers.
    pub(crate) fn headers(&self, dialog: &Dialog) -> Vec<(&'static str, String)> {
        match dialog {
            Dialog::Modern => {
                let mut headers = vec![
                    ("mcp-protocol-version", MODERN.to_owned()),
                    ("mcp-method", self.method.to_owned()),
                ];
                headers.extend(self.name.map(|name| ("mcp-name", name.to_owned())));
                headers
            }
            Dialog::Legacy { session } => {
                let mut headers = vec![("mcp-protocol-version", LEGACY.to_owned())];
                headers.extend(session.clone().map(|id| ("mcp-session-id", id)));
                headers
            }
        }
    }
}

impl Expect {
    /// Whether `reply` answers the request `id` as it must.
    pub(crate) fn fits(&self, id: u64, dialog: &Dialog, reply: &[u8]) -> bool {
        let has = |needle: &[u8]| memmem::find(reply, needle).is_some();
        let id = format!("\"id\":{id}");
        let said = match self {
            Self::Text(text) => {
                let needle = format!(r#""text":"{text}""#);
                has(needle.as_bytes())
            }
            Self::Bytes(least) => reply.len() >= *least,
            Self::Notices(count) => {
                memmem::find_iter(reply, "notifications/progress").count() == *count
            }
        };
        said && has(id.as_bytes())
            && !has(b"\"error\"")
            && (*dialog != Dialog::Modern || has(br#""resultType":"complete""#))
    }
}

/// The handshake of the legacy era: the request and the notification after it.
pub(crate) fn handshake() -> [String; 2] {
    [
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"load","version":"0"}}}}}}"#
        ),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
    ]
}

/// Writes `id` where a request of this kind has its own.
pub(crate) fn write_id(bytes: &mut [u8], at: usize, mut id: u64) {
    for digit in bytes[at..at + ID_WIDTH].iter_mut().rev() {
        *digit = b'0' + (id % 10) as u8;
        id /= 10;
    }
}

/// Ten digits, so that all requests of a kind are as long as each other.
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
        let (mut bytes, at) = message.http(&Dialog::Modern);

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

        assert!(expect.fits(7, &Dialog::Modern, reply));
        assert!(!expect.fits(8, &Dialog::Modern, reply));
        assert!(!Expect::Text("bye".to_owned()).fits(7, &Dialog::Modern, reply));
        let failed = br#"{"id":7,"error":{"message":"hello"}}"#;
        assert!(!expect.fits(7, &Dialog::Modern, failed));
    }
}
