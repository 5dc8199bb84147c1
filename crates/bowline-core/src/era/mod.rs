//! Conversion between wire messages of each protocol version and one internal form.
//!
//! Internally a request always has the modern form: it contains its [`Caller`] and depends on no earlier request.
//! Four functions convert between this form and the wire. Each reads the era from a [`Dialect`]; code that uses the
//! internal form does not depend on the era.
//!
//! ```text
//!            client                                    server
//!   Request ── stamp ──▶ RawRequest  · · wire · ·  RawRequest ── admit ──▶ Request
//!  Unsealed ◀─ unseal ── Outcome     · · wire · ·  Outcome    ◀── seal ─── Outcome
//! ```
//!
//! ```
//! use bowline_core::era::{Caller, Dialect, Dialects, DuplexAdmission};
//! use bowline_core::era::{Request, RequestAction, Unsealed, seal, stamp, unseal};
//! use bowline_types::{Implementation, Json};
//!
//! let caller = Caller::new(Dialect::LATEST);
//! let request = Request::new("tools/list", Json::empty_object(), caller.into());
//!
//! let raw = stamp(&request).with_id(1);                                  // over the wire …
//! let mut admission = DuplexAdmission::new(Dialects::all());
//! let RequestAction::Dispatch { request, seal: form } = admission.admit(raw)? else { unreachable!() };
//! assert_eq!(request.caller.dialect, Dialect::LATEST);
//!
//! let server = Json::encode(&Implementation::new("calculator", "1.0.0"))?;
//! let outcome = seal(&form, &server, Ok(Json::parse(r#"{"tools":[]}"#)?)); // … and back
//! let answer = unseal("tools/list", Dialect::LATEST, outcome)?;
//! assert!(matches!(answer, Unsealed::Complete(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dialect;
pub use dialect::{
    Dialect, Dialects, ElicitationModes, HttpProperties, HttpTransportKind, InputMechanism,
    Methods, Negotiation, StructuredContent, Tasks, UndefinedMembers, VersionHeader,
    is_modern_version,
};

mod request;
pub use request::{Caller, Request, Stamped};

mod caller_cache;
pub use caller_cache::CallerCache;

mod stamper;
pub use stamper::Stamper;

mod request_converter;
pub use request_converter::RequestConverter;

mod outcome;
pub use outcome::{ResultViolation, Seal, Unsealed};

mod question;
pub use question::{Unsupported, fit_question};

mod rejection;
pub use rejection::Rejection;

mod duplex_admission;
use duplex_admission::DeclaredFeatures;
pub use duplex_admission::{DuplexAdmission, LegacyFeatures, NotificationAction, RequestAction};

#[cfg_attr(not(feature = "legacy"), path = "legacy_disabled.rs")]
pub mod legacy;
pub use legacy::Era;

pub mod modern;

pub mod probe;

mod prober;
pub use prober::{OpeningFailure, OpeningStep, Prober};

mod edit;

use std::sync::Arc;

use bowline_types::{ErrorCode, Json, Method, ReadResourceRequest, RpcError};

use crate::json::pick;
use crate::{Notification, Outcome, RawRequest};

/// Converts a request to the wire form of its caller's dialect; see [`Stamper::stamp`].
#[must_use]
pub fn stamp(request: &Request) -> Stamped {
    Stamper::default().stamp(request)
}

/// Converts the outcome of a request that was stamped for `dialect` to the internal form.
///
/// `method` is the internal name of the method. The error code for a missing resource is
/// [`ErrorCode::RESOURCE_NOT_FOUND`] in every version; `seal` maps it back. A `resultType` that the core specification does not define is returned
/// as [`Unsealed::Extension`]; the caller must check that an extension which the request declared defines it.
///
/// # Errors
///
/// If the peer's result violates the protocol. An error response of the peer is [`Unsealed::Failed`].
pub fn unseal(
    method: &str,
    dialect: &'static Dialect,
    outcome: Outcome,
) -> Result<Unsealed, ResultViolation> {
    let result = match outcome {
        Ok(result) => result,
        Err(error) => return Ok(Unsealed::Failed(unseal_error(method, dialect, error))),
    };
    if !result.is_object() {
        return Err(ResultViolation::ResultIsNotAnObject);
    }
    match legacy::Adapter::of(dialect) {
        Some(legacy) => legacy.unseal(method, result),
        None => modern::unseal(method, dialect, result),
    }
}

/// Maps the code for a missing resource, which differs between versions, to [`ErrorCode::RESOURCE_NOT_FOUND`].
///
/// Modern versions use `INVALID_PARAMS`, which has other meanings too; `data.uri` says that it is about a resource.
fn unseal_error(method: &str, dialect: &Dialect, mut error: RpcError) -> RpcError {
    let has_uri = |data: &Json| matches!(pick(data, ["uri"]), Ok([Some(_)]));
    if method == ReadResourceRequest::NAME
        && error.code == dialect.resource_not_found_code
        && error.data.as_ref().is_some_and(has_uri)
    {
        error.code = ErrorCode::RESOURCE_NOT_FOUND;
    }
    error
}

/// Converts the outcome of an admitted request to the wire form of its caller's dialect.
///
/// `server` is the server's encoded `Implementation`. The result of a legacy handshake decides which features the
/// [admission](DuplexAdmission) of that client has from then on.
///
/// # Errors
///
/// With the error in `outcome`, or an internal error if the dialect cannot express its result.
pub fn seal(seal: &Seal, server: &Json, outcome: Outcome) -> Outcome {
    let Some(legacy) = legacy::Adapter::of(seal.dialect) else {
        return modern::seal(seal, server, outcome);
    };
    let sealed = legacy.seal(&seal.method, server, outcome);
    if let (Some(handshake), Ok(result)) = (&seal.handshake, &sealed) {
        handshake.record(result);
    }
    sealed
}

/// Converts a server's notification to the wire form of a dialect; `None` if the dialect does not define it.
#[must_use]
pub fn convert_notification(
    dialect: &'static Dialect,
    notification: Notification,
) -> Option<Notification> {
    if dialect.lacks_server_notification(&notification.method) {
        return None;
    }
    match legacy::Adapter::of(dialect) {
        Some(legacy) => Some(legacy.convert_notification(notification)),
        None => Some(notification),
    }
}

/// Admits, on a client, a request that `server` sent.
///
/// # Errors
///
/// If the dialect does not define this server-to-client request. Modern dialects define none.
pub fn admit_from_server(
    server: &Arc<Caller>,
    raw: RawRequest,
) -> Result<RequestAction, Rejection> {
    match legacy::Adapter::of(server.dialect) {
        Some(legacy) => legacy.admit_from_server(server, raw),
        None => Err(Rejection::method_not_found(&raw.method)),
    }
}

/// Returns the notification that a client must send after the response to its opening request, if there is one.
#[must_use]
pub fn initialized_notification(dialect: &'static Dialect) -> Option<Notification> {
    legacy::Adapter::of(dialect).map(legacy::Adapter::initialized)
}

/// Returns the error that replaces a result which cannot be sent: an internal error, as the responder is at fault.
fn unsendable_result(why: &str) -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, why)
}

#[cfg(test)]
mod tests;
