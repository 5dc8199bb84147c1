//! The JSON-RPC error object and its codes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::json::present;
use crate::{ClientCapabilities, ElicitRequestUrlParams, Json, ProtocolVersion};

/// Why a request failed, as the peer tells it: a code, a sentence, and whatever else it adds.
///
/// # Examples
///
/// ```
/// use bowline_types::{ErrorCode, RpcError};
///
/// let error = RpcError::new(ErrorCode::INVALID_PARAMS, "no tool is called `ad`");
/// assert_eq!(error.to_string(), "no tool is called `ad` (-32602)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// What kind of failure it is.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: String,
    /// Anything more, in a form that the code decides.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub data: Option<Json>,
    /// What only this process knows about it.
    #[serde(skip)]
    local: LocalMark,
}

/// A mark that is neither sent nor read, nor compared.
#[derive(Clone, Copy, Debug, Default)]
struct LocalMark(bool);

impl PartialEq for LocalMark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LocalMark {}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            local: LocalMark::default(),
        }
    }

    /// Marks an error about scopes as one that was made in this process: what a peer sends has no mark, whatever it
    /// says.
    #[doc(hidden)]
    #[must_use]
    pub fn marked_as_own(mut self) -> Self {
        self.local = LocalMark(true);
        self
    }

    /// Whether the error was marked in this process.
    #[doc(hidden)]
    #[must_use]
    pub fn is_marked_as_own(&self) -> bool {
        self.local.0
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Json>) -> Self {
        self.data = Some(data.into());
        self
    }
}

/// A JSON-RPC error code. Codes are an open set: any number may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "it is a number with names")]
pub struct ErrorCode(pub i64);

impl ErrorCode {
    /// The frame was not JSON.
    pub const PARSE_ERROR: Self = Self(-32700);
    /// The JSON was not a JSON-RPC message.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// Nobody answers this method, or its capability was not advertised.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The params have the wrong shape, or name something that does not exist.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// The answering side failed.
    pub const INTERNAL_ERROR: Self = Self(-32603);
    /// An HTTP header is missing, unreadable, or contradicts the body (from 2026-07-28).
    pub const HEADER_MISMATCH: Self = Self(-32020);
    /// The request needs a client capability that was not declared (from 2026-07-28).
    pub const MISSING_CLIENT_CAPABILITY: Self = Self(-32021);
    /// The server does not speak the requested protocol version (from 2026-07-28).
    pub const UNSUPPORTED_PROTOCOL_VERSION: Self = Self(-32022);
    /// The resource does not exist (until 2025-11-25; later `INVALID_PARAMS`).
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);
    /// The user must first visit a URL (2025-11-25 only).
    pub const URL_ELICITATION_REQUIRED: Self = Self(-32042);
    /// The user declined a sampling request (until 2025-11-25).
    pub const USER_REJECTED: Self = Self(-1);
    /// The request was cancelled: the last word on a legacy HTTP response that nobody waits for.
    pub const REQUEST_CANCELLED: Self = Self(-32800);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The data of [`ErrorCode::UNSUPPORTED_PROTOCOL_VERSION`].
///
/// # Examples
///
/// ```
/// use bowline_types::{ErrorCode, ProtocolVersion, RpcError, UnsupportedProtocolVersion};
///
/// let error = RpcError::from(UnsupportedProtocolVersion::new(
///     "1999-12-31".into(),
///     vec![ProtocolVersion::LATEST],
/// ));
/// assert_eq!(error.code, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnsupportedProtocolVersion {
    /// The revisions that the server speaks.
    pub supported: Vec<ProtocolVersion>,
    /// The revision that the request asked for.
    pub requested: ProtocolVersion,
}

impl UnsupportedProtocolVersion {
    /// One revision was asked for, and only others are spoken.
    #[must_use]
    pub fn new(requested: ProtocolVersion, supported: Vec<ProtocolVersion>) -> Self {
        Self {
            supported,
            requested,
        }
    }
}

impl From<UnsupportedProtocolVersion> for RpcError {
    fn from(data: UnsupportedProtocolVersion) -> Self {
        let message = format!("protocol version {} is not supported", data.requested);
        Self::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message).with_data(encode(&data))
    }
}

/// The data of [`ErrorCode::MISSING_CLIENT_CAPABILITY`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MissingRequiredClientCapability {
    /// What the client would have to declare.
    pub required_capabilities: ClientCapabilities,
}

impl MissingRequiredClientCapability {
    /// The client would have to declare these.
    #[must_use]
    pub fn new(required_capabilities: ClientCapabilities) -> Self {
        Self {
            required_capabilities,
        }
    }
}

impl From<MissingRequiredClientCapability> for RpcError {
    fn from(data: MissingRequiredClientCapability) -> Self {
        let message = "the request needs a client capability that was not declared";
        Self::new(ErrorCode::MISSING_CLIENT_CAPABILITY, message).with_data(encode(&data))
    }
}

/// The data of [`ErrorCode::URL_ELICITATION_REQUIRED`] (2025-11-25 only).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UrlElicitationRequired {
    /// Where the user must go first.
    pub elicitations: Vec<ElicitRequestUrlParams>,
}

impl UrlElicitationRequired {
    /// The user must go to these URLs first.
    #[must_use]
    pub fn new(elicitations: Vec<ElicitRequestUrlParams>) -> Self {
        Self { elicitations }
    }
}

impl From<UrlElicitationRequired> for RpcError {
    fn from(data: UrlElicitationRequired) -> Self {
        let message = "the user must visit a URL first";
        Self::new(ErrorCode::URL_ELICITATION_REQUIRED, message).with_data(encode(&data))
    }
}

fn encode<T: Serialize>(data: &T) -> Json {
    Json::encode(data).expect("the data of known errors has a JSON form")
}
