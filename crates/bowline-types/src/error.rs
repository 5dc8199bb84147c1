//! The JSON-RPC error object and its codes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::json::deserialize_present;
use crate::{ClientCapabilities, ElicitRequestUrlParams, Json, ProtocolVersion};

/// A JSON-RPC error object: a code, a message, and optional data.
///
/// # Examples
///
/// ```
/// use bowline_types::{ErrorCode, RpcError};
///
/// let error = RpcError::new(ErrorCode::INVALID_PARAMS, "unknown tool `ad`");
/// assert_eq!(error.to_string(), "unknown tool `ad` (-32602)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// The error code.
    pub code: ErrorCode,
    /// A short description for people.
    pub message: String,
    /// Additional data, whose type depends on the code.
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub data: Option<Json>,
    /// Whether this process created the error; see [`mark_local`](Self::mark_local).
    #[serde(skip)]
    local: LocalFlag,
}

/// A flag that is neither serialized, deserialized nor compared.
#[derive(Clone, Copy, Debug, Default)]
struct LocalFlag(bool);

impl PartialEq for LocalFlag {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LocalFlag {}

impl RpcError {
    /// Creates an error without data.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            local: LocalFlag::default(),
        }
    }

    /// Creates an error with [`ErrorCode::INVALID_PARAMS`], from a text or another error.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_types::RpcError;
    ///
    /// fn port(text: &str) -> Result<u16, RpcError> {
    ///     text.parse().map_err(RpcError::invalid_params)
    /// }
    /// assert_eq!(port("x").unwrap_err().to_string(), "invalid digit found in string (-32602)");
    /// ```
    #[must_use]
    pub fn invalid_params(error: impl fmt::Display) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, error.to_string())
    }

    /// Creates an error with [`ErrorCode::INTERNAL_ERROR`], from a text or another error.
    #[must_use]
    pub fn internal(error: impl fmt::Display) -> Self {
        Self::new(ErrorCode::INTERNAL_ERROR, error.to_string())
    }

    /// Marks an error about scopes as created in this process. An error that a peer sent is never marked, whatever it
    /// contains.
    #[doc(hidden)]
    #[must_use]
    pub fn mark_local(mut self) -> Self {
        self.local = LocalFlag(true);
        self
    }

    /// Returns whether the error was created in this process.
    #[doc(hidden)]
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local.0
    }

    /// Sets the data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Json>) -> Self {
        self.data = Some(data.into());
        self
    }
}

/// A JSON-RPC error code. The set is open: a peer may send any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[allow(clippy::exhaustive_structs, reason = "a newtype of a number")]
pub struct ErrorCode(pub i64);

impl ErrorCode {
    /// The message is not JSON.
    pub const PARSE_ERROR: Self = Self(-32700);
    /// The JSON is not a JSON-RPC message.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// The method does not exist, or its capability was not advertised.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// The params are invalid, or refer to a tool, prompt or resource that does not exist.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// The receiver of the request failed.
    pub const INTERNAL_ERROR: Self = Self(-32603);
    /// An HTTP header is missing, malformed, or contradicts the body (from 2026-07-28).
    pub const HEADER_MISMATCH: Self = Self(-32020);
    /// The request needs a client capability that was not declared (from 2026-07-28).
    pub const MISSING_CLIENT_CAPABILITY: Self = Self(-32021);
    /// The server does not support the requested protocol version (from 2026-07-28).
    pub const UNSUPPORTED_PROTOCOL_VERSION: Self = Self(-32022);
    /// The resource does not exist (until 2025-11-25; later `INVALID_PARAMS`).
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);
    /// The request requires a URL elicitation first (2025-11-25 only).
    pub const URL_ELICITATION_REQUIRED: Self = Self(-32042);
    /// The user rejected a sampling request (until 2025-11-25).
    pub const USER_REJECTED: Self = Self(-1);
    /// The request was cancelled; ends the HTTP response to a cancelled legacy request.
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
    /// The versions that the server supports.
    pub supported: Vec<ProtocolVersion>,
    /// The version that the request contains.
    pub requested: ProtocolVersion,
}

impl UnsupportedProtocolVersion {
    /// Creates the data.
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
    /// The capabilities that the client has to declare.
    pub required_capabilities: ClientCapabilities,
}

impl MissingRequiredClientCapability {
    /// Creates the data.
    #[must_use]
    pub fn new(required_capabilities: ClientCapabilities) -> Self {
        Self {
            required_capabilities,
        }
    }
}

impl From<MissingRequiredClientCapability> for RpcError {
    fn from(data: MissingRequiredClientCapability) -> Self {
        let names = capability_names(&data.required_capabilities);
        let message = match &*names {
            [] => "the request requires a client capability that was not declared".to_owned(),
            [name] => {
                format!("the request requires the client capability {name}, which was not declared")
            }
            names => format!(
                "the request requires the client capabilities {}, which were not declared",
                names.join(", ")
            ),
        };
        Self::new(ErrorCode::MISSING_CLIENT_CAPABILITY, message).with_data(encode(&data))
    }
}

/// Returns the quoted names of the capabilities, such as `roots` or `sampling.tools`.
fn capability_names(capabilities: &ClientCapabilities) -> Vec<String> {
    let capabilities = serde_json::to_value(capabilities).unwrap_or_default();
    let mut names = Vec::new();
    for (name, settings) in capabilities.as_object().into_iter().flatten() {
        let members = settings.as_object().filter(|members| !members.is_empty());
        let Some(members) = members else {
            names.push(format!("`{name}`"));
            continue;
        };
        names.extend(members.keys().map(|member| format!("`{name}.{member}`")));
    }
    names
}

/// The data of [`ErrorCode::URL_ELICITATION_REQUIRED`] (2025-11-25 only).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UrlElicitationRequired {
    /// The URL elicitations to complete first.
    pub elicitations: Vec<ElicitRequestUrlParams>,
}

impl UrlElicitationRequired {
    /// Creates the data.
    #[must_use]
    pub fn new(elicitations: Vec<ElicitRequestUrlParams>) -> Self {
        Self { elicitations }
    }
}

impl From<UrlElicitationRequired> for RpcError {
    fn from(data: UrlElicitationRequired) -> Self {
        let message = "URL elicitation required: the user must visit a URL first";
        Self::new(ErrorCode::URL_ELICITATION_REQUIRED, message).with_data(encode(&data))
    }
}

fn encode<T: Serialize>(data: &T) -> Json {
    Json::encode(data).expect("error data serializes to JSON")
}
