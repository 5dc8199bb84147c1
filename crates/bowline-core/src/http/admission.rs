//! The admission ladder: what an HTTP request must be to come in.
//!
//! ```text
//! admit_head   1 source · path · method · content type · accept       needs no body
//! admit        2 one message   3 which era?                           legacy leaves here
//!              4 version in `_meta`   5 version header   6 served?   7 rest of the envelope
//!              8 Mcp-Method   9 method answered?   10 Mcp-Name   11 Mcp-Param-*
//! ```
//!
//! The rungs stand in this order in the code, so that a request that breaks two gets the earlier one's
//! error. The body says what a message is; headers only confirm it.

use std::sync::Arc;

use ::http::header::{ALLOW, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{Method, StatusCode};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::headers::{self, MirrorHeaders, Mismatch, ParamHeaders};
use super::legacy;
use super::media::{self, Accepts};
use super::paths::Paths;
use super::source::SourcePolicy;
use crate::era::{self, Callers, Dialect, Dialects, Request, Seal, modern, names_modern_era};
use crate::json::{Params, Unpicked};
use crate::{
    BatchError, Malformed, Message, Notification, RawRequest, Response, is_batch, shortened,
};

/// What a request's head lets it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a shell that forgets one kind leaves requests unanswered"
)]
pub enum Arrival {
    /// It posts a message: read the body, within a limit, and [`admit`] it.
    Post(Accepts),
    /// It is a GET or DELETE, which only the legacy era knows.
    LegacyVerb,
}

/// What a posted body turned out to be.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a shell that forgets one kind leaves requests unanswered"
)]
pub enum Admitted {
    /// A modern request: have it answered, and pass the outcome through [`era::seal`].
    Modern {
        /// Names the request in its answer.
        id: RequestId,
        /// What is asked.
        request: Request,
        /// What the answer must look like.
        seal: Seal,
    },
    /// A modern notification: answer 202 with an empty body.
    Notification(Notification),
    /// Anything from the legacy era, for its own handler.
    Legacy(legacy::Post),
}

/// What a server can tell about its methods without running a handler.
pub trait Catalog {
    /// Whether the method is answered: somebody knows it, and its capability is advertised.
    fn answers(&self, method: &str) -> bool;

    /// The member of a method's params that `Mcp-Name` mirrors.
    fn name_member(&self, method: &str) -> Option<&str> {
        headers::name_member(method)
    }

    /// Which arguments of a tool are mirrored, by the schema that this caller can see.
    ///
    /// A tool that does not exist has none; whoever calls it learns that from the router.
    fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>>;
}

/// Climbs the rungs that need no body, so that a request which fails here is never read.
///
/// # Errors
///
/// If the request must not come in.
pub fn admit_head(
    head: &Parts,
    source: &SourcePolicy,
    paths: &Paths,
    served: &Dialects,
) -> Result<Arrival, Rejection> {
    source
        .check(&head.uri, &head.headers)
        .map_err(|why| Rejection::http(StatusCode::FORBIDDEN, why.to_string()))?;
    // Whatever the method: a client that looks for something else here must not take an answer of ours for it.
    if !paths.has(head.uri.path()) {
        let why = "there is no MCP endpoint at this path";
        return Err(Rejection::http(StatusCode::NOT_FOUND, why));
    }
    let has_legacy = served.latest_legacy().is_some();
    match head.method {
        Method::POST => {}
        Method::GET | Method::DELETE if has_legacy => return Ok(Arrival::LegacyVerb),
        _ => return Err(Rejection::method_not_allowed(has_legacy)),
    }
    if !media::is_json(&head.headers) {
        let why = "the content type must be `application/json`";
        return Err(Rejection::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let accepts = Accepts::read(&head.headers);
    if accepts.nothing() {
        let why = "the client accepts neither `application/json` nor `text/event-stream`";
        return Err(Rejection::http(StatusCode::NOT_ACCEPTABLE, why));
    }
    Ok(Arrival::Post(accepts))
}

/// Climbs the rungs that need the body of a POST.
///
/// # Errors
///
/// If the message must not come in.
pub fn admit(
    headers: &HeaderMap,
    body: &Bytes,
    served: &Dialects,
    callers: &Callers,
    catalog: &dyn Catalog,
) -> Result<Admitted, Rejection> {
    // 2. One message; or, in one legacy revision, several.
    let mirror = MirrorHeaders::read(headers);
    if is_batch(body) {
        return legacy::admit_batch(&mirror, body, served).map(Admitted::Legacy);
    }
    let message = Message::decode(body)?;

    // 3. Which era? The mark in the body decides; without it, the header does.
    let is_modern = match &message {
        Message::Request(raw) => {
            header_is_modern(&mirror) || modern::is_marked(raw.params.as_ref())
        }
        Message::Notification(told) => header_is_modern(&mirror) || tells_modern(told),
        Message::Response(_) => false,
    };
    match message {
        Message::Request(raw) if is_modern => {
            let id = raw.id.clone();
            admit_modern(headers, &mirror, raw, served, callers, catalog)
                .map_err(|refused| refused.about(id))
        }
        Message::Notification(told) if is_modern => Ok(Admitted::Notification(told)),
        message => legacy::admit(&mirror, message, served).map(Admitted::Legacy),
    }
}

fn admit_modern(
    headers: &HeaderMap,
    mirror: &MirrorHeaders<'_>,
    raw: RawRequest,
    served: &Dialects,
    callers: &Callers,
    catalog: &dyn Catalog,
) -> Result<Admitted, Rejection> {
    let id = raw.id.clone();

    // 4. The version stands in `_meta`, even if it stands in the header too.
    let envelope = callers.envelope(raw.params.as_ref())?;
    let envelope = envelope.ok_or_else(modern::unversioned)?;

    // 5. The header names the same version, served or not.
    mirror.check_version(envelope.version())?;

    // 6. The version is served. The rest of the envelope is judged after that, for another version may
    // have another one.
    let dialect = envelope.dialect(served)?;

    // 7. The rest of the envelope is well-formed.
    let caller = callers.read(&envelope, dialect)?;
    let progress_token = envelope.progress_token()?;

    // 8. The header names the same method.
    mirror.check_method(&raw.method)?;

    // 9. Somebody answers the method. `initialize` and its kin end here.
    if !catalog.answers(&raw.method) {
        return Err(era::Rejection::method_not_found(&raw.method).into());
    }
    let (request, seal) = modern::admit_from(raw, caller, progress_token)?;

    // 10. The header names the same thing, if the body names one. Params without it are wrong, which the
    // handler says better than a header could.
    let member = |name| request.params.member(name).map_err(ambiguous);
    let (name, arguments) = match catalog.name_member(&request.method) {
        Some(name) => (member(name)?, member("arguments")?),
        None => (None, None),
    };
    let name = name.as_ref().and_then(|name| name.text().ok());
    if let Some(name) = &name {
        mirror.check_name(name)?;
    }

    // 11. The headers say what the arguments say.
    let plan = name
        .filter(|_| request.method == "tools/call")
        .and_then(|tool| catalog.param_headers(&tool));
    if let Some(plan) = plan {
        plan.check(arguments.as_ref(), headers)?;
    }
    Ok(Admitted::Modern { id, request, seal })
}

/// A header that a refusal needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// The methods that are allowed.
    Allow(&'static str),
    /// When to try again: in a second.
    RetryAfter,
}

/// Why a request did not come in: an HTTP status, and an error that names the message if it could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {error}")]
pub struct Rejection {
    status: StatusCode,
    id: Option<RequestId>,
    /// Boxed, because it is rare, and every result that may carry it would be as large.
    error: Box<RpcError>,
    header: Option<Header>,
}

impl Rejection {
    /// A rejection that HTTP has a status for, and JSON-RPC no code.
    #[must_use]
    pub fn http(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            id: None,
            error: Box::new(RpcError::new(ErrorCode::INVALID_REQUEST, why)),
            header: None,
        }
    }

    /// A rejection because a limit is reached: status 503, and the sender is told to try again.
    #[must_use]
    pub fn overloaded(error: RpcError) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            id: None,
            error: Box::new(error),
            header: Some(Header::RetryAfter),
        }
    }

    /// Names the message that was refused.
    #[must_use]
    pub fn about(self, id: impl Into<Option<RequestId>>) -> Self {
        Self {
            id: id.into(),
            ..self
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The error that the sender is told.
    #[must_use]
    pub fn error(&self) -> &RpcError {
        &self.error
    }

    /// The id of the message, if it could be read.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// A header that the response needs besides.
    #[must_use]
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self.header? {
            Header::Allow(methods) => (ALLOW, methods),
            Header::RetryAfter => (RETRY_AFTER, "1"),
        };
        Some((name, HeaderValue::from_static(value)))
    }

    /// The body of the response.
    #[must_use]
    pub fn into_response(self) -> Response {
        Response {
            id: self.id,
            outcome: Err(*self.error),
        }
    }

    fn method_not_allowed(has_legacy: bool) -> Self {
        let allow = if has_legacy {
            "GET, POST, DELETE"
        } else {
            "POST"
        };
        Self {
            header: Some(Header::Allow(allow)),
            ..Self::http(
                StatusCode::METHOD_NOT_ALLOWED,
                "this method is not served here",
            )
        }
    }
}

/// On this side of the handler every error is a bad request, except that nobody answers the method.
impl From<RpcError> for Rejection {
    fn from(error: RpcError) -> Self {
        let status = match error.code {
            ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self {
            status,
            id: None,
            error: Box::new(error),
            header: None,
        }
    }
}

impl From<era::Rejection> for Rejection {
    fn from(rejection: era::Rejection) -> Self {
        RpcError::from(rejection).into()
    }
}

impl From<Mismatch> for Rejection {
    fn from(mismatch: Mismatch) -> Self {
        RpcError::from(mismatch).into()
    }
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Request { id, error } => Self::from(error).about(id),
            // The id is that of a request of ours; an error with it would be taken for its answer.
            Malformed::Response { why, .. } => Self::http(StatusCode::BAD_REQUEST, why),
        }
    }
}

impl From<BatchError> for Rejection {
    fn from(error: BatchError) -> Self {
        Malformed::from(error).into()
    }
}

/// The version that a message claims by its header.
pub(super) enum HeaderVersion {
    Absent,
    Known(&'static Dialect),
    Unknown(String),
}

pub(super) fn header_version(mirror: &MirrorHeaders<'_>) -> Result<HeaderVersion, Mismatch> {
    let Some(version) = mirror.version()? else {
        return Ok(HeaderVersion::Absent);
    };
    let version = String::from_utf8_lossy(version);
    Ok(match Dialect::of(&version) {
        Some(dialect) => HeaderVersion::Known(dialect),
        None => HeaderVersion::Unknown(version.into_owned()),
    })
}

/// Whether a notification claims to be modern.
pub(super) fn tells_modern(told: &Notification) -> bool {
    let params = told.params.clone().map(Params::from);
    modern::is_marked(params.as_ref())
}

fn header_is_modern(mirror: &MirrorHeaders<'_>) -> bool {
    mirror
        .version()
        .ok()
        .flatten()
        .and_then(|version| std::str::from_utf8(version).ok())
        .is_some_and(names_modern_era)
}

/// A header could agree with one of two members, and the handler read the other.
#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn ambiguous(why: Unpicked) -> Rejection {
    era::Rejection::invalid_params(format!("`params`: {}", shortened(why))).into()
}

#[cfg(test)]
mod tests;
