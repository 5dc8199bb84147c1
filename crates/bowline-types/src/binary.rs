//! Bytes as base64 text: [`InvalidBase64`], and the conversions that content blocks and resources use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text of an image, of audio or of a resource is not base64.
///
/// # Examples
///
/// ```
/// use bowline_types::ImageContent;
///
/// let image = ImageContent::new("not base64!", "image/png");
/// assert!(image.bytes().unwrap_err().to_string().starts_with("invalid base64"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid base64: {why}")]
pub struct InvalidBase64 {
    why: String,
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Result<Vec<u8>, InvalidBase64> {
    STANDARD.decode(text).map_err(|error| InvalidBase64 {
        why: error.to_string(),
    })
}
