//! CORS: lets web pages of accepted origins send requests and read the responses, such as the page of the MCP
//! Inspector. Other origins are refused by the [source policy](super::SourcePolicy) with status 403, without these
//! headers.

use ::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ORIGIN,
    VARY,
};
use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bowline_core::http::admission::{AdmittedHead, HttpRejection};

use super::HttpBody;
use super::body;

/// Returns the origin of a request, unless its source is forbidden. A page of an accepted origin may also read why its
/// request was rejected.
pub(super) fn accepted_origin(
    head: &Parts,
    checked: &Result<AdmittedHead, HttpRejection>,
) -> Option<HeaderValue> {
    match checked {
        // `admit_head` rejects with this status for no other reason.
        Err(rejection) if rejection.status() == StatusCode::FORBIDDEN => None,
        _ => head.headers.get(ORIGIN).cloned(),
    }
}

/// Returns the response to a preflight. All requested headers are allowed, because the names of `Mcp-Param-*` depend on
/// the tools.
pub(super) fn preflight(head: &Parts) -> Response<HttpBody> {
    let mut response = body::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(requested) = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    // A page of a public site needs it to reach a private address.
    if head.headers.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

/// Lets the page at `origin` read the response.
pub(super) fn allow(response: &mut Response<HttpBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("origin"));
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// All of them: responses have no private headers, and pages need several.
const EXPOSED: HeaderValue = HeaderValue::from_static("*");
/// Two hours: the most that Chromium accepts.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");
