//! [`Request`]: a request in its internal form, together with its [`Caller`].

use std::borrow::Cow;
use std::sync::Arc;

use bowline_types::{
    ClientCapabilities, Implementation, Json, LoggingLevel, ProgressToken, RequestId, RpcError,
};

use super::Dialect;
use crate::RawRequest;
use crate::json::Params;

/// The sender of a request as it describes itself: its protocol version, `clientInfo`, capabilities and log level.
///
/// # Examples
///
/// ```
/// use bowline_core::era::{Caller, Dialect};
/// use bowline_types::Implementation;
///
/// let mut caller = Caller::new(Dialect::LATEST);
/// caller.implementation = Some(Implementation::new("editor", "1.2"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Caller {
    /// The protocol version.
    pub dialect: &'static Dialect,
    /// The self-reported name and version. Do not base any decision on it.
    pub implementation: Option<Implementation>,
    /// The client's capabilities.
    pub capabilities: ClientCapabilities,
    /// The minimum severity of log messages that the client requested; see [`Caller::least_log_level`].
    pub log_level: Option<LoggingLevel>,
}

impl Caller {
    /// Creates a caller with a protocol version and no further data.
    #[must_use]
    pub fn new(dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            implementation: None,
            capabilities: ClientCapabilities::default(),
            log_level: None,
        }
    }

    /// The limit of [`bytes`](Self::bytes) for a caller that is kept for longer than a request: 64 KiB.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// Returns the length of what the client says of itself: its capabilities and `clientInfo`, as JSON.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lengths = self.encoded().map(|part| part.as_bytes().len());
        lengths.into_iter().fold(0, usize::saturating_add)
    }

    /// Refuses a caller that is too large to be kept for longer than a request.
    ///
    /// # Errors
    ///
    /// If [`bytes`](Self::bytes) exceeds [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn check_size(&self) -> Result<(), RpcError> {
        check_caller_bytes(self.bytes())
    }

    /// Estimates the memory that it needs, from above: the text, and the nodes of the maps and arrays in it.
    #[must_use]
    pub fn estimated_memory(&self) -> usize {
        let estimate = |part: Json| {
            let text = part.as_bytes();
            let nodes = text.iter().map(|byte| match byte {
                b'{' => MAP_BYTES,
                b'[' | b',' => ITEM_BYTES,
                _ => 0,
            });
            // An empty map has no node.
            let empty = text.windows(2).filter(|it| it == b"{}").count();
            text.len() + nodes.sum::<usize>() - MAP_BYTES * empty
        };
        self.encoded().map(estimate).into_iter().sum()
    }

    fn encoded(&self) -> [Json; 2] {
        // Decoded from JSON, so that encoding it cannot fail.
        [
            Json::encode(&self.capabilities).unwrap_or_else(|_| Json::empty_object()),
            Json::encode(&self.implementation).unwrap_or_else(|_| Json::empty_object()),
        ]
    }

    /// Returns the minimum severity of log messages to send; `None` disables them.
    ///
    /// A modern client that requests no level gets no messages. For legacy clients the specification leaves that to the
    /// server; here they get all.
    #[must_use]
    pub fn least_log_level(&self) -> Option<LoggingLevel> {
        let default = (!self.dialect.is_modern()).then_some(LoggingLevel::Debug);
        self.log_level.or(default)
    }
}

/// The memory of a map with one entry: a node of a B-tree has room for eleven.
const MAP_BYTES: usize = 640;
/// The memory of an entry of an array or a map, with its key, in nodes that are half full.
const ITEM_BYTES: usize = 160;

/// Refuses the text of a caller before it is decoded: 4 MiB of nested objects would take a hundred times as much.
pub(super) fn check_caller_text(
    client: Option<&Json>,
    capabilities: Option<&Json>,
) -> Result<(), RpcError> {
    let parts = [client, capabilities].into_iter().flatten();
    check_caller_bytes(parts.map(|part| part.as_bytes().len()).sum())
}

fn check_caller_bytes(bytes: usize) -> Result<(), RpcError> {
    let max = Caller::MAX_BYTES;
    if bytes <= max {
        return Ok(());
    }
    Err(RpcError::invalid_params(format_args!(
        "the client's capabilities and `clientInfo` have {bytes} bytes, which exceeds the limit of {max} bytes"
    )))
}

/// A request in its internal form, which depends on no earlier request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The modern name of the method.
    pub method: Cow<'static, str>,
    /// An object; its `_meta` is unchanged from the wire.
    pub params: Params,
    /// The sender.
    pub caller: Arc<Caller>,
    /// The token for progress notifications, if the caller requested any.
    pub progress_token: Option<ProgressToken>,
}

impl Request {
    /// Creates a request without a progress token. `params` must be an object.
    #[must_use]
    pub fn new(
        method: impl Into<Cow<'static, str>>,
        params: impl Into<Params>,
        caller: Arc<Caller>,
    ) -> Self {
        Self {
            method: method.into(),
            params: params.into(),
            caller,
            progress_token: None,
        }
    }
}

/// A request in its wire form, without an id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamped {
    /// The dialect's name of the method.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Json>,
}

impl Stamped {
    /// Adds the id.
    #[must_use]
    pub fn with_id(self, id: impl Into<RequestId>) -> RawRequest {
        RawRequest {
            id: id.into(),
            method: self.method,
            params: self.params.map(Params::from),
        }
    }
}
