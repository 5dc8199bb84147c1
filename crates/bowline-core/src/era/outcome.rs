//! Types of [`seal`](super::seal) and [`unseal`](super::unseal), which convert outcomes to and from the wire.

use std::borrow::Cow;

use bowline_types::{Json, RpcError};

use super::{DeclaredFeatures, Dialect};

/// The wire form of the response to an admitted request; an argument of [`seal`](super::seal).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seal {
    /// The caller's protocol version.
    pub dialect: &'static Dialect,
    /// The internal name of the request's method.
    pub method: Cow<'static, str>,
    /// Where the features are recorded that the result of a legacy handshake declares.
    pub(super) handshake: Option<DeclaredFeatures>,
}

impl Seal {
    /// Creates the form of a response to `method` in `dialect`.
    #[must_use]
    pub fn new(dialect: &'static Dialect, method: impl Into<Cow<'static, str>>) -> Self {
        Self {
            dialect,
            method: method.into(),
            handshake: None,
        }
    }
}

/// An outcome in its internal form; returned by [`unseal`](super::unseal).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a caller must handle every kind of outcome"
)]
pub enum Unsealed {
    /// The final result of the method.
    Complete(Json),
    /// An `InputRequiredResult`: the server needs input from the client first.
    InputRequired(Json),
    /// A result whose `resultType` the core specification does not define. It is valid only if an extension that the
    /// request declared defines it for the method.
    Extension {
        /// The `resultType`.
        result_type: String,
        /// The whole result.
        result: Json,
    },
    /// A JSON-RPC error from the peer.
    Failed(RpcError),
}

/// How a peer's result violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultViolation {
    /// The result is not a JSON object.
    #[error("expected `result` to be an object")]
    ResultIsNotAnObject,
    /// `resultType` is not a string, or is duplicated.
    #[error("expected `resultType` to be one string")]
    InvalidResultType,
    /// The result is `input_required`, which is not allowed for this method.
    #[error("`input_required` is not allowed as a result of `{0}`")]
    InputRequiredNotAllowed(String),
    /// A required member of the `initialize` result is missing or invalid.
    #[error("missing or invalid `{0}` in the `initialize` result")]
    InvalidInitializeResult(&'static str),
    /// The server chose a version that is unknown, or modern and thus without `initialize`.
    #[error("unsupported protocol version `{0}` in the `initialize` result")]
    UnsupportedVersion(String),
}
