//! Eras, spent at the door.
//!
//! Inside, a request always has the modern form: complete in itself, carrying its [`Caller`]. Four verbs
//! carry a message across the door. Each asks the [`Dialect`] in its hand which era it is; behind them
//! nobody asks again.
//!
//! ```text
//!            client                                    server
//!   Request ── stamp ──▶ RawRequest  · · wire · ·  RawRequest ── admit ──▶ Request
//!  Unsealed ◀─ unseal ── Outcome     · · wire · ·  Outcome    ◀── seal ─── Outcome
//! ```
//!
//! ```
//! use bowline_core::era::{Admitted, Caller, Dialect, Dialects, Door, Offers, Request, Unsealed};
//! use bowline_core::era::{seal, stamp, unseal};
//! use bowline_types::{Implementation, Json};
//!
//! let caller = Caller::new(Dialect::LATEST);
//! let request = Request::new("tools/list", Json::empty_object(), caller.into());
//!
//! let raw = stamp(&request).with_id(1);                                  // over the wire …
//! let mut door = Door::new(Dialects::all(), Offers::default());
//! let Admitted::Request { request, seal: form } = door.admit(raw)? else { unreachable!() };
//! assert_eq!(request.caller.dialect, Dialect::LATEST);
//!
//! let server = Json::encode(&Implementation::new("calculator", "1.0.0"))?;
//! let outcome = seal(&form, &server, Ok(Json::parse(r#"{"tools":[]}"#)?)); // … and back
//! let answer = unseal("tools/list", Dialect::LATEST, &[], outcome)?;
//! assert!(matches!(answer, Unsealed::Complete(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dialect;
pub use dialect::{
    Absent, Dialect, Dialects, ElicitationModes, HttpFacts, HttpTransport, Methods, Opening,
    ServerAsksBy, StructuredContent, Tasks, VersionHeader, names_modern_era,
};

mod request;
pub use request::{Caller, Request, Stamped};

mod callers;
pub use callers::Callers;

mod stamper;
pub use stamper::Stamper;

mod outcome;
pub use outcome::{Seal, Unsealed, Violation};

mod rejection;
pub use rejection::Rejection;

mod door;
pub use door::{Admitted, Door, Heard, Offers};

#[cfg_attr(bowline_no_legacy, path = "legacy_stub.rs")]
pub mod legacy;
pub use legacy::Era;

pub mod modern;

pub mod probe;

mod text;

use std::sync::Arc;

use bowline_types::{ErrorCode, Json, RpcError};

use crate::{Notification, Outcome, RawRequest};

/// Writes a request as its caller's dialect has it; see [`Stamper::stamp`].
#[must_use]
pub fn stamp(request: &Request) -> Stamped {
    Stamper::default().stamp(request)
}

/// Reads the outcome of a request that was stamped for `dialect`; `method` is its inside name.
///
/// `extensions` are the values of `resultType` that negotiated extensions add.
///
/// # Errors
///
/// If the peer's result breaks the protocol. An error that the peer reports is [`Unsealed::Failed`].
pub fn unseal(
    method: &str,
    dialect: &'static Dialect,
    extensions: &[&str],
    outcome: Outcome,
) -> Result<Unsealed, Violation> {
    let result = match outcome {
        Ok(result) => result,
        Err(error) => return Ok(Unsealed::Failed(error)),
    };
    if !result.is_object() {
        return Err(Violation::ResultIsNotAnObject);
    }
    match legacy::Adapter::of(dialect) {
        Some(legacy) => legacy.unseal(method, result),
        None => modern::unseal(method, dialect, extensions, result),
    }
}

/// Writes the outcome of an admitted request as its caller's dialect has it.
///
/// `server` is the server's `Implementation`, encoded. A result that the dialect has no form for becomes
/// an internal error.
///
/// # Errors
///
/// With the error that `outcome` is, or that its result had to become.
pub fn seal(seal: &Seal, server: &Json, outcome: Outcome) -> Outcome {
    match legacy::Adapter::of(seal.dialect) {
        Some(legacy) => legacy.seal(&seal.method, server, outcome),
        None => modern::seal(seal, server, outcome),
    }
}

/// Writes a server's notification as a dialect has it, or withholds one that it does not know.
#[must_use]
pub fn tell(dialect: &'static Dialect, notification: Notification) -> Option<Notification> {
    if dialect.lacks_server_notification(&notification.method) {
        return None;
    }
    match legacy::Adapter::of(dialect) {
        Some(legacy) => Some(legacy.tell(notification)),
        None => Some(notification),
    }
}

/// Admits, on a client, a request from its server; `server` is who is asking.
///
/// # Errors
///
/// If the dialect does not let a server ask this, which a modern one never does.
pub fn admit_from_server(server: &Arc<Caller>, raw: RawRequest) -> Result<Admitted, Rejection> {
    match legacy::Adapter::of(server.dialect) {
        Some(legacy) => legacy.admit_from_server(server, raw),
        None => Err(Rejection::method_not_found(&raw.method)),
    }
}

/// What a client must say once its opening request was answered, if anything.
#[must_use]
pub fn after_opening(dialect: &'static Dialect) -> Option<Notification> {
    legacy::Adapter::of(dialect).map(legacy::Adapter::initialized)
}

/// A result that cannot be sent is the answering side's fault.
fn unsendable(why: &str) -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, why)
}

#[cfg(test)]
mod tests;
