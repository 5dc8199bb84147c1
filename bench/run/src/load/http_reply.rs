//! `HttpReply`: an incremental parser of an HTTP/1.1 response.

use memchr::memmem;

/// The received part of a response.
#[derive(Debug, Default)]
pub(crate) struct HttpReply {
    /// All received bytes.
    bytes: Vec<u8>,
    head: Option<Head>,
    /// The decoded body of a chunked response.
    chunks: Vec<u8>,
}

#[derive(Debug)]
struct Head {
    length: usize,
    status: u16,
    session: Option<String>,
    /// The length of the body, or the progress of reading its chunks.
    body: Body,
}

#[derive(Debug)]
enum Body {
    Length(usize),
    Chunks { read: usize, ended: bool },
}

impl HttpReply {
    /// Adds received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.head.is_none() {
            self.head = memmem::find(&self.bytes, b"\r\n\r\n")
                .map(|end| Head::read(&self.bytes[..end], end + 4));
        }
        if let Some(Head {
            body: Body::Chunks { read, ended },
            ..
        }) = &mut self.head
        {
            while !*ended {
                let rest = &self.bytes[*read..];
                let Some(line) = memmem::find(rest, b"\r\n") else {
                    break;
                };
                let size = std::str::from_utf8(&rest[..line]).unwrap_or_default();
                let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                let Some(chunk) = rest.get(line + 2..line + 2 + size + 2) else {
                    break;
                };
                self.chunks.extend_from_slice(&chunk[..size]);
                *read += line + 2 + size + 2;
                *ended = size == 0;
            }
        }
    }

    /// Returns the received part of the body.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.head {
            Some(Head {
                body: Body::Length(_),
                length,
                ..
            }) => &self.bytes[*length..],
            Some(_) => &self.chunks,
            None => &[],
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.head.as_ref().is_some_and(|head| match head.body {
            Body::Length(length) => self.bytes.len() >= head.length + length,
            Body::Chunks { ended, .. } => ended,
        })
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.head.as_ref().map(|head| head.status)
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.head.as_ref()?.session.as_deref()
    }

    /// Prepares for the next response.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.chunks.clear();
        self.head = None;
    }
}

impl Head {
    fn read(head: &[u8], length: usize) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut read = Self {
            length,
            status,
            session: None,
            body: Body::Length(0),
        };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                read.body = Body::Length(value.parse().unwrap_or(0));
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                read.body = Body::Chunks {
                    read: length,
                    ended: false,
                };
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                read.session = Some(value.to_owned());
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_known_length_is_complete_with_its_last_byte() {
        let mut reply = HttpReply::default();

        reply.push(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
        assert!(!reply.is_complete());
        reply.push(b"o");

        assert!(reply.is_complete());
        assert_eq!(reply.body(), b"hello");
        assert_eq!(reply.status(), Some(200));
    }

    #[test]
    fn chunks_are_decoded_wherever_they_are_split() {
        let whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        for cut in 1..whole.len() {
            let mut reply = HttpReply::default();

            reply.push(&whole[..cut]);
            assert!(!reply.is_complete());
            reply.push(&whole[cut..]);

            assert!(reply.is_complete());
            assert_eq!(reply.body(), b"hello");
        }
    }
}
