//! What an answer must look like on its way out, and what it turns out to be on its way in.

use std::borrow::Cow;

use bowline_types::{Json, RpcError};

use super::Dialect;

/// What the answer to an admitted request must look like; used up by [`seal`](super::seal).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seal {
    /// The version that the caller reads.
    pub dialect: &'static Dialect,
    /// The inside name of the method that is answered.
    pub method: Cow<'static, str>,
}

impl Seal {
    /// The form of an answer to `method` in `dialect`.
    #[must_use]
    pub fn new(dialect: &'static Dialect, method: impl Into<Cow<'static, str>>) -> Self {
        Self {
            dialect,
            method: method.into(),
        }
    }
}

/// What an answer turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a caller must handle every kind of answer"
)]
pub enum Unsealed {
    /// The result that the method names.
    Complete(Json),
    /// The server needs something first; an `InputRequiredResult`.
    InputRequired(Json),
    /// A result of a kind that an extension adds.
    Extension {
        /// Its `resultType`.
        result_type: String,
        /// The whole result.
        result: Json,
    },
    /// The peer said no.
    Failed(RpcError),
}

/// How a peer's result breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A result is an object.
    #[error("the result is not an object")]
    ResultIsNotAnObject,
    /// `resultType` is text.
    #[error("`resultType` is not one text")]
    ResultTypeIsNotText,
    /// The core has two result types, and no extension that was negotiated has this one.
    #[error("the result is of the unknown type `{0}`")]
    UnknownResultType(String),
    /// Only some methods may be answered by `input_required`.
    #[error("`{0}` cannot be answered by `input_required`")]
    InputRequiredNotAllowed(String),
    /// The answer to `initialize` lacks something that it must have.
    #[error("the answer to `initialize` has no valid `{0}`")]
    BadHandshake(&'static str),
    /// The server chose a version that cannot be spoken after `initialize`.
    #[error("the server wants to speak version `{0}` after `initialize`")]
    UnspeakableVersion(String),
}
