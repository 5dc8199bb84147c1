//! [`PageCursor`]: where a merged list continues.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::{ErrorCode, RpcError};

/// Where a merged list continues: the server, its own cursor, and the generation of the configuration.
///
/// The text is base64url without padding. It is neither secret nor protected: a client that edits it can reach only
/// what it may list anyway.
///
/// # Examples
///
/// ```
/// use bowline_bridge::many::PageCursor;
///
/// let cursor = PageCursor::new("files", Some("page 2".to_owned()), 7);
/// let text = cursor.encode();
/// assert_eq!(PageCursor::decode(&text, 7)?, cursor);
/// let error = PageCursor::decode(&text, 8).unwrap_err();
/// assert_eq!(error.code, bowline::ErrorCode::INVALID_PARAMS);
/// # Ok::<(), bowline::RpcError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor {
    server: String,
    cursor: Option<String>,
    generation: u64,
    /// How many pages of the server come before it.
    pages: u32,
}

impl PageCursor {
    /// Creates a cursor. Without a cursor of the server it points to its first page.
    #[must_use]
    pub fn new(server: impl Into<String>, cursor: Option<String>, generation: u64) -> Self {
        Self {
            server: server.into(),
            cursor,
            generation,
            pages: 0,
        }
    }

    /// Sets how many pages of the server come before it.
    pub(super) fn after_pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the cursor of the server; `None` for its first page.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Returns the text for clients.
    #[must_use]
    pub fn encode(&self) -> String {
        let parts = serde_json::json!([self.generation, self.server, self.cursor, self.pages]);
        URL_SAFE_NO_PAD.encode(parts.to_string())
    }

    /// Reads the text that a client sends.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_PARAMS`] if it is not a cursor of this bridge, or of another generation.
    pub fn decode(text: &str, generation: u64) -> Result<Self, RpcError> {
        let invalid = |why: &str| RpcError::new(ErrorCode::INVALID_PARAMS, why);
        let parts = URL_SAFE_NO_PAD.decode(text).ok();
        let parts = parts.and_then(|text| serde_json::from_slice(&text).ok());
        let Some((issued, server, cursor, pages)): Option<(u64, _, _, _)> = parts else {
            return Err(invalid("invalid cursor"));
        };
        if issued != generation {
            return Err(invalid(
                "the cursor is from another configuration of the bridge; list again without a cursor",
            ));
        }
        Ok(Self {
            server,
            cursor,
            generation,
            pages,
        })
    }

    pub(super) fn into_parts(self) -> (String, Option<String>, u32) {
        (self.server, self.cursor, self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::SplitMix64;

    #[test]
    fn a_cursor_is_read_back() {
        let mut random = SplitMix64::new(3);
        for _ in 0..1000 {
            let inner = random
                .chance(70)
                .then(|| random.text("a\"\\\u{0}é🪢/+=", 20));
            let cursor = PageCursor::new(random.text("ab é", 5), inner, random.next());
            let cursor = cursor.after_pages(random.next() as u32);

            let text = cursor.encode();

            assert!(
                text.bytes()
                    .all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
            );
            assert_eq!(
                PageCursor::decode(&text, cursor.generation).unwrap(),
                cursor
            );
            let error = PageCursor::decode(&text, cursor.generation ^ 1).unwrap_err();
            assert!(error.message.contains("another configuration"));
        }
    }

    #[test]
    fn other_text_is_an_invalid_cursor() {
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for text in [
            "",
            "?",
            "abc",
            &encoded("[1]"),
            &encoded("[1,2,null]"),
            &encoded("{}"),
        ] {
            let error = PageCursor::decode(text, 1).unwrap_err();
            assert_eq!(
                (error.code, &*error.message),
                (ErrorCode::INVALID_PARAMS, "invalid cursor")
            );
        }
    }
}
