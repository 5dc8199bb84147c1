//! Responses of the endpoints: OAuth errors, uncacheable JSON, redirects.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// An OAuth error response.
#[derive(Debug)]
pub(crate) struct OAuthError {
    status: StatusCode,
    error: &'static str,
    why: String,
}

impl OAuthError {
    pub(crate) fn new(error: &'static str, why: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error,
            why: why.into(),
        }
    }

    pub(crate) fn unauthorized(why: &str) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            ..Self::new("invalid_client", why)
        }
    }

    pub(crate) fn overloaded() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::new("temporarily_unavailable", "the server has reached a limit")
        }
    }

    pub(crate) fn error(&self) -> &'static str {
        self.error
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let body = json!({"error": self.error, "error_description": self.why});
        (self.status, no_store_json(body)).into_response()
    }
}

/// Returns JSON with `Cache-Control: no-store`.
pub(crate) fn no_store_json(body: Value) -> Response {
    let mut response = Json(body).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// Redirects a browser to `to`, with these parameters added to the query.
pub(crate) fn redirect(to: &str, query: &[(&str, &str)]) -> Response {
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    let separator = if to.contains('?') { '&' } else { '?' };
    let Ok(location) = HeaderValue::try_from(format!("{to}{separator}{query}")) else {
        return OAuthError::new("invalid_request", "the redirect URI is malformed").into_response();
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, location);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}
