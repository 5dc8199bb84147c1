//! How the endpoints answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// A refusal, in OAuth's form.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: &'static str,
    why: String,
}

impl Refusal {
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
            ..Self::new("temporarily_unavailable", "too much is going on")
        }
    }

    pub(crate) fn error(&self) -> &'static str {
        self.error
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"error": self.error, "error_description": self.why});
        (self.status, unstored(body)).into_response()
    }
}

/// An answer that nobody may keep.
pub(crate) fn unstored(body: Value) -> Response {
    let mut response = Json(body).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// Sends a browser elsewhere, with more in the query.
pub(crate) fn redirect(to: &str, query: &[(&str, &str)]) -> Response {
    let query = serde_urlencoded::to_string(query).unwrap_or_default();
    let separator = if to.contains('?') { '&' } else { '?' };
    let Ok(location) = HeaderValue::try_from(format!("{to}{separator}{query}")) else {
        return Refusal::new("invalid_request", "the redirect is no URL").into_response();
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, location);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}
