//! Admission of HTTP requests: all checks before a message reaches the server, in order.
//!
//! ```text
//! admit_head   1 source · path · method · content type · accept       needs no body
//! admit        2 one message   3 which era?                           legacy messages end here
//!              4 version in `_meta`   5 version header   6 served?   7 rest of the envelope
//!              8 Mcp-Method   9 method known?   10 Mcp-Name   11 Mcp-Param-*
//! ```
//!
//! The code follows this order, so that a request that fails two checks gets the error of the earlier one. The body is
//! authoritative; headers only confirm it.

use std::sync::Arc;

use ::http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, ALLOW, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
};
use ::http::request::Parts;
use ::http::{Method, StatusCode};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::headers::{self, HeaderMismatch, MirrorHeaders, ParamHeaders};
use super::legacy;
use super::media::{self, AcceptedTypes};
use super::paths::EndpointPaths;
use super::source_policy::SourcePolicy;
use crate::drain;
use crate::era::{
    self, Caller, CallerCache, Dialect, Dialects, Request, Seal, is_modern_version, modern,
};
use crate::json::PickError;
use crate::{
    BatchError, Malformed, Message, Notification, RawRequest, Response, is_batch, shortened,
};

/// An admitted request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a server that ignores one kind leaves requests unanswered"
)]
pub enum AdmittedHead {
    /// A POST: read the body, within a limit, and pass it to [`admit`].
    Post(AcceptedTypes),
    /// A GET or DELETE, which only the legacy era has.
    LegacyMethod,
    /// A CORS preflight of a web page whose origin is accepted.
    Preflight,
}

/// An admitted POST body.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a server that ignores one kind leaves requests unanswered"
)]
pub enum AdmittedPost {
    /// A modern request: run its handler and pass the outcome to [`era::seal`].
    Modern {
        /// The id for the response.
        id: RequestId,
        /// The request.
        request: Request,
        /// The wire form of the response.
        seal: Seal,
    },
    /// A modern notification: respond with 202 and an empty body.
    Notification(Notification),
    /// A legacy POST, for the legacy handler.
    Legacy(legacy::LegacyPost),
}

/// Describes the methods and tools of a server to [`admit`].
pub trait MethodCatalog {
    /// Returns whether the method is implemented and its capability advertised.
    fn has_method(&self, method: &str) -> bool;

    /// Returns the member of a method's params that `Mcp-Name` mirrors.
    fn name_member(&self, method: &str) -> Option<&str> {
        headers::name_member(method)
    }

    /// Returns the mirrored arguments of a tool, by the schema that this caller can see.
    ///
    /// Returns `None` for an unknown tool, which the router rejects later.
    fn param_headers(&self, tool: &str, caller: &Caller) -> Option<Arc<ParamHeaders>>;
}

/// A [`MethodCatalog`] with every method, for a responder that does not know its methods in advance, such as a proxy. It
/// checks no `Mcp-Param-*` headers.
///
/// # Examples
///
/// ```
/// use bowline_core::http::admission::{AnyMethod, MethodCatalog};
///
/// assert!(AnyMethod.has_method("com.example/anything"));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "it has no settings")]
pub struct AnyMethod;

impl MethodCatalog for AnyMethod {
    fn has_method(&self, _: &str) -> bool {
        true
    }

    fn param_headers(&self, _: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        None
    }
}

/// Runs the checks that need no body, so that the body of a rejected request is never read.
///
/// # Errors
///
/// If the request is rejected; with status 403 only if its source is forbidden.
pub fn admit_head(
    head: &Parts,
    source: &SourcePolicy,
    paths: &EndpointPaths,
    served: &Dialects,
) -> Result<AdmittedHead, HttpRejection> {
    source
        .check(&head.uri, &head.headers)
        .map_err(|why| HttpRejection::new(StatusCode::FORBIDDEN, why.to_string()))?;
    // For every HTTP method: a client that probes this path for metadata must not get an MCP response.
    let path = head.uri.path();
    if !paths.matches(path) {
        let why = paths.not_found(path);
        return Err(HttpRejection::new(StatusCode::NOT_FOUND, why));
    }
    let has_legacy = served.latest_legacy().is_some();
    match head.method {
        Method::POST => {}
        Method::GET | Method::DELETE if has_legacy => return Ok(AdmittedHead::LegacyMethod),
        Method::OPTIONS if is_preflight(head) => return Ok(AdmittedHead::Preflight),
        _ => return Err(HttpRejection::method_not_allowed(has_legacy)),
    }
    if !media::is_json(&head.headers) {
        let why = "`Content-Type` must be `application/json`";
        return Err(HttpRejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let accepts = AcceptedTypes::read(&head.headers);
    if accepts.is_empty() {
        let why = "`Accept` must include `application/json` or `text/event-stream`";
        return Err(HttpRejection::new(StatusCode::NOT_ACCEPTABLE, why));
    }
    Ok(AdmittedHead::Post(accepts))
}

/// Returns whether a request is a CORS preflight: a browser checks whether a web page may send the actual request. It has
/// no credentials, and must run no handler.
#[must_use]
pub fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Runs the checks that need the body of a POST.
///
/// # Errors
///
/// If the message is rejected.
pub fn admit(
    headers: &HeaderMap,
    body: &Bytes,
    served: &Dialects,
    caller_cache: &CallerCache,
    catalog: &dyn MethodCatalog,
) -> Result<AdmittedPost, HttpRejection> {
    // 2. One message, or a batch in the one legacy revision that has batches.
    let mirror = MirrorHeaders::read(headers);
    if is_batch(body) {
        return legacy::admit_batch(&mirror, body, served).map(AdmittedPost::Legacy);
    }
    let message = Message::decode(body)?;

    // 3. The era: modern if the header names a modern version or `_meta` any version. Responses are legacy.
    let is_modern = match &message {
        Message::Request(raw) => {
            header_is_modern(&mirror) || modern::has_version(raw.params.as_ref())
        }
        Message::Notification(notification) => {
            header_is_modern(&mirror) || modern::is_modern_notification(notification)
        }
        Message::Response(_) => false,
    };
    match message {
        Message::Request(raw) if is_modern => {
            let id = raw.id.clone();
            admit_modern(headers, &mirror, raw, served, caller_cache, catalog)
                .map_err(|rejection| rejection.with_id(id))
        }
        Message::Notification(notification) if is_modern => {
            Ok(AdmittedPost::Notification(notification))
        }
        message => legacy::admit(&mirror, message, served).map(AdmittedPost::Legacy),
    }
}

fn admit_modern(
    headers: &HeaderMap,
    mirror: &MirrorHeaders<'_>,
    raw: RawRequest,
    served: &Dialects,
    caller_cache: &CallerCache,
    catalog: &dyn MethodCatalog,
) -> Result<AdmittedPost, HttpRejection> {
    let id = raw.id.clone();

    // 4. `_meta` names the version, even if the header does too.
    let envelope = caller_cache.envelope(raw.params.as_ref())?;
    let envelope = envelope.ok_or_else(modern::missing_version)?;

    // 5. The header names the same version, served or not.
    mirror.check_version(envelope.version())?;

    // 6. The version is served. Before the rest of the envelope, which may differ in other versions.
    let dialect = envelope.dialect(served)?;

    // 7. The rest of the envelope is well-formed.
    let caller = caller_cache.caller(&envelope, dialect)?;
    let progress_token = envelope.progress_token()?;

    // 8. The header names the same method.
    mirror.check_method(&raw.method)?;

    // 9. The method is implemented. `initialize` and other legacy methods are rejected here.
    if !catalog.has_method(&raw.method) {
        return Err(era::Rejection::method_not_found(&raw.method).into());
    }
    let (request, seal) = modern::admit_from(raw, caller, progress_token)?;

    // 10. `Mcp-Name` equals the name in the body. If the body has none, the handler reports that more precisely
    // than a header error would.
    let member = |name| request.params.member(name).map_err(invalid_params);
    let (name, arguments) = match catalog.name_member(&request.method) {
        Some(name) => (member(name)?, member("arguments")?),
        None => (None, None),
    };
    let name = name.as_ref().and_then(|name| name.text().ok());
    if let Some(name) = &name {
        mirror.check_name(name)?;
    }

    // 11. The `Mcp-Param-*` headers equal the arguments.
    let plan = name
        .filter(|_| request.method == "tools/call")
        .and_then(|tool| catalog.param_headers(&tool, &request.caller));
    if let Some(plan) = plan {
        plan.check(arguments.as_ref(), headers)?;
    }
    Ok(AdmittedPost::Modern { id, request, seal })
}

/// An additional header of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RejectionHeader {
    /// `Allow`: the supported HTTP methods.
    Allow(&'static str),
    /// `Retry-After`: one second.
    RetryAfter,
}

/// A rejected request: an HTTP status, and a JSON-RPC error with the id of the message if that could be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {error}")]
pub struct HttpRejection {
    status: StatusCode,
    id: Option<RequestId>,
    /// Boxed, to keep every `Result<_, HttpRejection>` small.
    error: Box<RpcError>,
    header: Option<RejectionHeader>,
}

impl HttpRejection {
    /// Creates a rejection with this status, and the JSON-RPC error "invalid request".
    #[must_use]
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            id: None,
            error: Box::new(RpcError::new(ErrorCode::INVALID_REQUEST, why)),
            header: None,
        }
    }

    /// Creates a rejection because of a limit: status 503 with `Retry-After`.
    #[must_use]
    pub fn overloaded(error: RpcError) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            id: None,
            error: Box::new(error),
            header: Some(RejectionHeader::RetryAfter),
        }
    }

    /// Creates a rejection because the server [drains](crate::drain): status 503 with `Retry-After`.
    #[must_use]
    pub fn draining() -> Self {
        Self::overloaded(drain::refusal())
    }

    /// Sets the id of the rejected message.
    #[must_use]
    pub fn with_id(self, id: impl Into<Option<RequestId>>) -> Self {
        Self {
            id: id.into(),
            ..self
        }
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the JSON-RPC error.
    #[must_use]
    pub fn error(&self) -> &RpcError {
        &self.error
    }

    /// Returns the id of the message, if it could be decoded.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// Returns an additional header of the response.
    #[must_use]
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self.header? {
            RejectionHeader::Allow(methods) => (ALLOW, methods),
            RejectionHeader::RetryAfter => (RETRY_AFTER, "1"),
        };
        Some((name, HeaderValue::from_static(value)))
    }

    /// Returns the body of the response.
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
            header: Some(RejectionHeader::Allow(allow)),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this HTTP method is not supported",
            )
        }
    }
}

/// Before the handler, every error has status 400, except "method not found", which has 404.
impl From<RpcError> for HttpRejection {
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

impl From<era::Rejection> for HttpRejection {
    fn from(rejection: era::Rejection) -> Self {
        RpcError::from(rejection).into()
    }
}

impl From<HeaderMismatch> for HttpRejection {
    fn from(mismatch: HeaderMismatch) -> Self {
        RpcError::from(mismatch).into()
    }
}

impl From<Malformed> for HttpRejection {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Request { id, error } => Self::from(error).with_id(id),
            // The id is that of a request of ours; in an error it could match a request of the client.
            Malformed::Response { why, .. } => Self::new(StatusCode::BAD_REQUEST, why),
        }
    }
}

impl From<BatchError> for HttpRejection {
    fn from(error: BatchError) -> Self {
        Malformed::from(error).into()
    }
}

/// The version in the `MCP-Protocol-Version` header.
pub(super) enum HeaderVersion {
    Absent,
    Known(&'static Dialect),
    Unknown(String),
}

pub(super) fn header_version(mirror: &MirrorHeaders<'_>) -> Result<HeaderVersion, HeaderMismatch> {
    let Some(version) = mirror.version()? else {
        return Ok(HeaderVersion::Absent);
    };
    let version = String::from_utf8_lossy(version);
    Ok(match Dialect::of(&version) {
        Some(dialect) => HeaderVersion::Known(dialect),
        None => HeaderVersion::Unknown(version.into_owned()),
    })
}

fn header_is_modern(mirror: &MirrorHeaders<'_>) -> bool {
    mirror
        .version()
        .ok()
        .flatten()
        .and_then(|version| std::str::from_utf8(version).ok())
        .is_some_and(is_modern_version)
}

/// Rejects duplicate members: a header could match one of them, and the handler read the other.
#[allow(clippy::needless_pass_by_value, reason = "used with `map_err`")]
fn invalid_params(why: PickError) -> HttpRejection {
    era::Rejection::invalid_params(format!("`params`: {}", shortened(why))).into()
}

#[cfg(test)]
mod tests;
