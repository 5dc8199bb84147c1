//! A request as everyone inside sees it: complete in itself, with whoever is asking.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_types::{
    ClientCapabilities, Implementation, Json, LoggingLevel, ProgressToken, RequestId,
};

use super::Dialect;
use crate::RawRequest;
use crate::json::Params;

/// Who is asking.
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
    /// The version it speaks.
    pub dialect: &'static Dialect,
    /// What it says it is. Never base a decision on it.
    pub implementation: Option<Implementation>,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// The least severe log message it wants; none at all if absent.
    pub log_level: Option<LoggingLevel>,
}

impl Caller {
    /// A caller of whom only the version is known.
    #[must_use]
    pub fn new(dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            implementation: None,
            capabilities: ClientCapabilities::default(),
            log_level: None,
        }
    }
}

/// A request, complete in itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// What is asked for, by its modern name.
    pub method: Cow<'static, str>,
    /// An object; `_meta` stands in it as it came.
    pub params: Params,
    /// Who is asking.
    pub caller: Arc<Caller>,
    /// What its progress notifications are to be marked with.
    pub progress_token: Option<ProgressToken>,
}

impl Request {
    /// A request whose progress nobody asks for; `params` are an object.
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

/// A request as it travels, but for its id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamped {
    /// What is asked for, by the name that the dialect has for it.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Json>,
}

impl Stamped {
    /// Gives the request its id.
    #[must_use]
    pub fn with_id(self, id: impl Into<RequestId>) -> RawRequest {
        RawRequest {
            id: id.into(),
            method: self.method,
            params: self.params.map(Params::from),
        }
    }
}
