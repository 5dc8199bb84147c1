//! The return types of resource handlers, and their conversion into a [`ReadResourceResult`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_types::{
    BlobResourceContents, ReadResourceResult, ResourceContents, RpcError, TextResourceContents,
};
use bytes::Bytes;

use super::tool_error::ToolError;

/// The contents of a resource, or a part of them: text or bytes.
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
#[must_use = "contents do nothing unless a resource handler returns them"]
pub struct Contents {
    body: ContentsBody,
    uri: Option<String>,
    mime_type: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ContentsBody {
    Text(String),
    /// Base64.
    Blob(String),
}

/// A return type of a resource handler.
#[diagnostic::on_unimplemented(
    message = "a resource cannot return `{Self}`",
    label = "cannot be converted into a `ReadResourceResult`",
    note = "a resource returns text, bytes, `Contents`, a `ReadResourceResult`, or a `Result` of one of these \
            with any error type that `ToolError` can be made from"
)]
pub trait IntoReadResult {
    /// Converts it into the result of `resources/read` for the resource with this URI.
    ///
    /// # Errors
    ///
    /// If the resource cannot be read.
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError>;
}

impl Contents {
    /// Creates text contents.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ContentsBody::Text(text.into()))
    }

    /// Creates binary contents.
    pub fn blob(bytes: impl AsRef<[u8]>) -> Self {
        Self::new(ContentsBody::Blob(STANDARD.encode(bytes)))
    }

    fn new(body: ContentsBody) -> Self {
        Self {
            body,
            uri: None,
            mime_type: None,
        }
    }

    /// Sets the media type.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Sets the URI, if it differs from the requested one, for example a file in a requested directory.
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = Some(uri.into());
        self
    }

    fn into_resource_contents(self, uri: &str) -> ResourceContents {
        let uri = self.uri.unwrap_or_else(|| uri.to_owned());
        match self.body {
            ContentsBody::Text(text) => {
                let mut contents = TextResourceContents::new(uri, text);
                contents.mime_type = self.mime_type;
                contents.into()
            }
            ContentsBody::Blob(blob) => {
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

impl<T: IntoReadResult, E: Into<ToolError>> IntoReadResult for Result<T, E> {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        self.map_err(Into::into)?.into_read_result(uri)
    }
}

impl IntoReadResult for Vec<Contents> {
    fn into_read_result(self, uri: &str) -> Result<ReadResourceResult, RpcError> {
        let contents = self
            .into_iter()
            .map(|contents| contents.into_resource_contents(uri));
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
