//! What takes the place of `legacy/` in a build without the legacy era: nothing gets this far.

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::http::admission::Rejection;
use bowline_core::http::legacy::Post;
use bowline_core::http::media::Accepts;
use bytes::Bytes;

use super::server::{HttpBody, HttpService, Site, Taken};
use crate::limits::Charge;

/// What a service remembers of its legacy clients.
#[derive(Clone, Default)]
pub(crate) struct Legacy {}

impl Legacy {
    pub(super) fn has_http_sse(&self) -> bool {
        false
    }

    pub(super) fn orphan_limit_of_calls(&self) -> Duration {
        Duration::ZERO
    }
}

impl HttpService {
    #[allow(dead_code, reason = "only the feature `testing` calls it")]
    pub(crate) fn with_http_sse(self) -> Self {
        self
    }
}

pub(super) fn answer(
    _: &Arc<Site>,
    _: Parts,
    _: Accepts,
    _: &Bytes,
    post: Post,
    _: Charge,
) -> Result<Taken, Rejection> {
    match post {}
}

pub(super) enum SecondEndpoint {}

pub(super) fn second_endpoint(_: &Site, _: &Parts) -> Option<SecondEndpoint> {
    None
}

pub(super) fn answer_second_endpoint(
    _: &Arc<Site>,
    none: &SecondEndpoint,
    _: Parts,
    _: Accepts,
    _: &Bytes,
    _: Charge,
) -> Result<Taken, Rejection> {
    match *none {}
}

pub(super) fn answer_verb(_: &Arc<Site>, _: &Parts) -> Result<Response<HttpBody>, Rejection> {
    Err(Rejection::http(
        StatusCode::METHOD_NOT_ALLOWED,
        "this method is not served here",
    ))
}
