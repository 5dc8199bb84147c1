//! Encoding of `Mcp-Name` and `Mcp-Param-*` values: printable ASCII verbatim, other text as `=?base64?…?=`.

use std::borrow::Cow;

use ::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes any text as a header value.
///
/// # Examples
///
/// ```
/// use bowline_core::http::headers::{decode_value, encode_value};
///
/// assert_eq!(encode_value("us west 1"), "us west 1");
/// assert_eq!(encode_value("Hello, 世界"), "=?base64?SGVsbG8sIOS4lueVjA==?=");
/// assert_eq!(decode_value(b"=?base64?SGVsbG8sIOS4lueVjA==?=")?, "Hello, 世界");
/// # Ok::<(), bowline_core::http::headers::UndecodableHeader>(())
/// ```
#[must_use]
pub fn encode_value(text: &str) -> HeaderValue {
    // Sent verbatim, the receiver would decode such text.
    let looks_encoded = text.starts_with(OPEN) && text.ends_with(CLOSE);
    match plain(text) {
        Some(value) if !looks_encoded => value,
        _ => {
            let encoded = format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
            HeaderValue::try_from(encoded).expect("base64 and its delimiters are visible ASCII")
        }
    }
}

/// Decodes a header value, ignoring surrounding spaces and tabs.
///
/// Only a value with both delimiters, in lower case, is base64. Other text is returned verbatim.
///
/// # Errors
///
/// If the value contains characters other than printable ASCII, or delimited text that is not padded base64 of UTF-8.
pub fn decode_value(value: &[u8]) -> Result<Cow<'_, str>, UndecodableHeader> {
    let value = trim(value);
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(is_plain))
        .ok_or(UndecodableHeader::Characters)?;
    let encoded = text
        .strip_prefix(OPEN)
        .and_then(|rest| rest.strip_suffix(CLOSE));
    let Some(encoded) = encoded else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD
        .decode(encoded)
        .map_err(|_| UndecodableHeader::Base64)?;
    let text = String::from_utf8(bytes).map_err(|_| UndecodableHeader::Utf8)?;
    Ok(Cow::Owned(text))
}

/// The reason a header value could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UndecodableHeader {
    /// It contains characters other than printable ASCII.
    #[error("contains characters other than printable ASCII")]
    Characters,
    /// The text between the delimiters is not base64.
    #[error("contains invalid base64")]
    Base64,
    /// The decoded bytes are not UTF-8.
    #[error("encodes bytes that are not UTF-8")]
    Utf8,
}

/// Returns the text verbatim as a header value, if it is printable ASCII that no receiver would trim.
pub(super) fn plain(text: &str) -> Option<HeaderValue> {
    if !text.bytes().all(is_plain) || trim(text.as_bytes()).len() != text.len() {
        return None;
    }
    HeaderValue::from_str(text).ok()
}

/// Removes the spaces and tabs that HTTP allows around a value.
pub(super) fn trim(value: &[u8]) -> &[u8] {
    let is_content = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let Some(start) = value.iter().position(is_content) else {
        return &[];
    };
    let end = value
        .iter()
        .rposition(is_content)
        .map_or(start, |at| at + 1);
    &value[start..end]
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7E)
}

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";
