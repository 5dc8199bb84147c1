//! Header values: plain ASCII as it is, everything else in base64 between two marks.

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
/// # Ok::<(), bowline_core::http::headers::Undecodable>(())
/// ```
#[must_use]
pub fn encode_value(text: &str) -> HeaderValue {
    let looks_encoded = text.starts_with(OPEN) && text.ends_with(CLOSE);
    match plain(text) {
        Some(value) if !looks_encoded => value,
        _ => {
            let encoded = format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
            HeaderValue::try_from(encoded).expect("base64 and its marks are visible ASCII")
        }
    }
}

/// Decodes a header value; blanks around it do not count.
///
/// Only a value with both marks, in lower case, is encoded. All other text is itself.
///
/// # Errors
///
/// If the value has characters that it must not have, or what stands between the marks is not base64, with
/// its padding, of UTF-8.
pub fn decode_value(value: &[u8]) -> Result<Cow<'_, str>, Undecodable> {
    let value = trim(value);
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(is_plain))
        .ok_or(Undecodable::Characters)?;
    let encoded = text
        .strip_prefix(OPEN)
        .and_then(|rest| rest.strip_suffix(CLOSE));
    let Some(encoded) = encoded else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(encoded).map_err(|_| Undecodable::Base64)?;
    let text = String::from_utf8(bytes).map_err(|_| Undecodable::Utf8)?;
    Ok(Cow::Owned(text))
}

/// Why a header value could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undecodable {
    /// It has characters other than printable ASCII.
    #[error("has characters other than printable ASCII")]
    Characters,
    /// It is marked as base64 and is not.
    #[error("is marked as base64 and is not")]
    Base64,
    /// It encodes bytes that are no text.
    #[error("encodes bytes that are not UTF-8")]
    Utf8,
}

/// The text as a header value as it is, if no reader would take it for another.
pub(super) fn plain(text: &str) -> Option<HeaderValue> {
    if !text.bytes().all(is_plain) || trim(text.as_bytes()).len() != text.len() {
        return None;
    }
    HeaderValue::from_str(text).ok()
}

/// Removes the blanks and tabs that HTTP allows around a value.
pub(super) fn trim(value: &[u8]) -> &[u8] {
    let is_ink = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let Some(start) = value.iter().position(is_ink) else {
        return &[];
    };
    let end = value.iter().rposition(is_ink).map_or(start, |at| at + 1);
    &value[start..end]
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7E)
}

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";
