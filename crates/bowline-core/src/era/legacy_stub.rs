//! The legacy era, removed: a conversation with it cannot exist.
//!
//! Compiled instead of `legacy.rs` under `--cfg bowline_no_legacy`. That the rest compiles proves that
//! nobody else depends on the legacy era. Every value here is impossible, so every arm is empty.

use std::sync::Arc;

use bowline_types::Json;

use super::modern;
use super::{
    Admitted, Caller, Dialect, Dialects, Era, Heard, Offers, Rejection, Request, Stamped, Unsealed,
    Violation,
};
use crate::{Notification, Outcome, RawRequest};

/// What a server would remember of a legacy client.
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "there is no value and never will be"
)]
pub enum Session {}

/// Refuses a request without a modern envelope.
///
/// # Errors
///
/// Always.
pub fn open(
    raw: &RawRequest,
    served: &Dialects,
    _offers: Offers,
) -> Result<(Era, Admitted), Rejection> {
    match &*raw.method {
        "initialize" => Err(modern::no_handshake(raw.params.as_ref(), served)),
        _ => Err(modern::no_envelope(served)),
    }
}

impl Session {
    /// Who would be asking.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        match *self {}
    }

    /// Whether the client would be ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match *self {}
    }

    /// Lets no request in.
    ///
    /// # Errors
    ///
    /// Never, for it is never called.
    pub fn admit(&mut self, _raw: RawRequest, _served: &Dialects) -> Result<Admitted, Rejection> {
        match *self {}
    }

    /// Hears nothing.
    pub fn hear(&mut self, _notification: &Notification) -> Heard {
        match *self {}
    }
}

/// What would speak a legacy dialect.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "there is no value and never will be"
)]
pub enum Adapter {}

impl Adapter {
    /// No dialect has one.
    #[must_use]
    pub fn of(_dialect: &'static Dialect) -> Option<Self> {
        None
    }

    pub(super) fn stamp(self, _request: &Request) -> Stamped {
        match self {}
    }

    pub(super) fn unseal(self, _method: &str, _result: Json) -> Result<Unsealed, Violation> {
        match self {}
    }

    pub(super) fn seal(self, _method: &str, _server: &Json, _outcome: Outcome) -> Outcome {
        match self {}
    }

    pub(super) fn tell(self, _notification: Notification) -> Notification {
        match self {}
    }

    pub(super) fn admit_from_server(
        self,
        _server: &Arc<Caller>,
        _raw: RawRequest,
    ) -> Result<Admitted, Rejection> {
        match self {}
    }

    pub(super) fn initialized(self) -> Notification {
        match self {}
    }
}
