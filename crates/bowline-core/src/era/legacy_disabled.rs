//! Replaces `legacy.rs` without the feature `legacy`, to prove that no other code depends on the legacy era.
//!
//! [`Session`] and [`Adapter`] are uninhabited, so their methods have no body.

use std::sync::Arc;

use bowline_types::Json;

use super::modern;
use super::{
    Caller, Dialect, Dialects, NotificationAction, Rejection, Request, RequestAction,
    ResultViolation, Stamped, Unsealed,
};
use crate::json::Object;
use crate::{Notification, Outcome, RawRequest};

/// The era of a wire.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the set of eras is closed")]
pub enum Era {
    /// Each request carries its envelope; unsolicited messages are not allowed.
    Modern,
    /// Never constructed.
    Legacy(Session),
}

/// The state of a legacy client, which cannot exist.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the type is uninhabited by design")]
pub enum Session {}

/// Rejects a request without a modern envelope.
///
/// # Errors
///
/// Always.
pub fn admit_before_initialize(
    raw: &RawRequest,
    served: &Dialects,
) -> Result<(Era, RequestAction), Rejection> {
    match &*raw.method {
        "initialize" => Err(modern::unsupported_initialize(raw.params.as_ref(), served)),
        _ => Err(modern::missing_envelope(served)),
    }
}

impl Session {
    /// Never called.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// None.
    pub fn admit(
        &mut self,
        _raw: RawRequest,
        _served: &Dialects,
    ) -> Result<RequestAction, Rejection> {
        match *self {}
    }

    /// Never called.
    pub fn handle_notification(&mut self, _notification: &Notification) -> NotificationAction {
        match *self {}
    }
}

/// The converter for a legacy dialect, which cannot exist.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the type is uninhabited by design")]
pub enum Adapter {}

impl Adapter {
    /// Returns `None`.
    #[must_use]
    pub fn of(_dialect: &'static Dialect) -> Option<Self> {
        None
    }

    pub(super) fn stamp(self, _request: &Request) -> Stamped {
        match self {}
    }

    pub(super) fn convert_params(self, _request: &mut Request) {
        match self {}
    }

    pub(super) fn convert_question(self, _method: &str, _params: &mut Object<'_>) {
        match self {}
    }

    pub(super) fn convert_caller(self, _caller: &Arc<Caller>) -> Arc<Caller> {
        match self {}
    }

    pub(super) fn unseal(self, _method: &str, _result: Json) -> Result<Unsealed, ResultViolation> {
        match self {}
    }

    pub(super) fn seal(self, _method: &str, _server: &Json, _outcome: Outcome) -> Outcome {
        match self {}
    }

    pub(super) fn convert_notification(self, _notification: Notification) -> Notification {
        match self {}
    }

    pub(super) fn admit_from_server(
        self,
        _server: &Arc<Caller>,
        _raw: RawRequest,
    ) -> Result<RequestAction, Rejection> {
        match self {}
    }

    pub(super) fn initialized(self) -> Notification {
        match self {}
    }
}
