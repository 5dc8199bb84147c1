//! What a resource contains, as its handler has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_types::{
    BlobResourceContents, ReadResourceResult, ResourceContents, RpcError, TextResourceContents,
};
use bytes::Bytes;

/// Text or bytes that are the contents of a resource, or a part of them.
///
/// # Examples
///
/// ```
/// use bowline::server::Contents;
///
/// let page = Contents::text("<p>Hello</p>").mime_type("text/html");
/// let image = Contents::blob([0x89, b'P', b'N', b'G']).mime_type("image/png").uri("docs://logo");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "contents are returned by a resource's handler"]
pub struct Contents {
    body: Body,
    uri: Option<String>,
    mime_type: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Text(String),
    /// In base64.
    Blob(String),
}

/// What a resource's handler may return.
#[diagnostic::on_unimplemented(
    message = "a resource cannot contain `{Self}`",
    label = "has no form as the contents of a resource",
    note = "a resource contains text, bytes, `Contents`, a `ReadResourceResult`, or a `Result` of one of these \
            whose error is `RpcError`"
)]
pub trait IntoReadResult {
    /// The result of `resources/read` for the resource at `uri`.
    ///
    /// # Errors
    ///
    /// If the resource could not be read.
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError>;
}

impl Contents {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Body::Text(text.into()))
    }

    /// Bytes.
    pub fn blob(bytes: impl AsRef<[u8]>) -> Self {
        Self::new(Body::Blob(STANDARD.encode(bytes)))
    }

    fn new(body: Body) -> Self {
        Self {
            body,
            uri: None,
            mime_type: None,
        }
    }

    /// Says of what media type they are.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Says where they are, if that is not what was asked for: a file in a folder, say.
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = Some(uri.into());
        self
    }

    fn at(self, uri: &str) -> ResourceContents {
        let uri = self.uri.unwrap_or_else(|| uri.to_owned());
        match self.body {
            Body::Text(text) => {
                let mut contents = TextResourceContents::new(uri, text);
                contents.mime_type = self.mime_type;
                contents.into()
            }
            Body::Blob(blob) => {
                let mut contents = BlobResourceContents::new(uri, blob);
                contents.mime_type = self.mime_type;
                contents.into()
            }
        }
    }
}

impl IntoReadResult for ReadResourceResult {
    fn into_read_result(self, _: &str) -> Result<ReadResourceResult, RpcError> {
        Ok(self)
    }
}

impl<T: IntoReadResult> IntoReadResult for Result<T, RpcError> {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        self.and_then(|contents| contents.into_read_result(uri))
    }
}

impl IntoReadResult for Vec<Contents> {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        let contents = self.into_iter().map(|contents| contents.at(uri));
        Ok(ReadResourceResult::new(contents.collect()))
    }
}

impl IntoReadResult for Contents {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        vec![self].into_read_result(uri)
    }
}

impl IntoReadResult for String {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        Contents::text(self).into_read_result(uri)
    }
}

impl IntoReadResult for &str {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        Contents::text(self).into_read_result(uri)
    }
}

impl IntoReadResult for Bytes {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        Contents::blob(self).into_read_result(uri)
    }
}

impl IntoReadResult for Vec<u8> {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        Contents::blob(self).into_read_result(uri)
    }
}
