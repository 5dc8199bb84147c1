//! Replaces `legacy/` in builds without the legacy era (without the feature `legacy`); no request gets here.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use ::http::request::Parts;
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::legacy::LegacyPost;
use bowline_core::http::media::AcceptedTypes;
use bytes::Bytes;

use super::server::{HttpService, ResponseFuture, ServiceState};
use crate::limits::Charge;

/// The legacy configuration of a service: empty.
#[derive(Clone, Default)]
pub(crate) struct Legacy {}

impl Legacy {
    pub(super) fn has_http_sse(&self) -> bool {
        false
    }

    pub(super) fn has_unread_streams(&self) -> bool {
        false
    }

    pub(super) fn call_orphan_timeout(&self) -> Duration {
        Duration::ZERO
    }
}

impl HttpService {
    #[allow(dead_code, reason = "only the feature `testing` calls it")]
    pub(crate) fn with_http_sse(self) -> Self {
        self
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the enabled counterpart consumes it"
)]
pub(super) fn answer(
    _: &Arc<ServiceState>,
    _: Parts,
    _: AcceptedTypes,
    _: &Bytes,
    post: LegacyPost,
    _: Charge,
) -> Result<ResponseFuture, HttpRejection> {
    match post {}
}

pub(super) enum HttpSseSession {}

pub(super) fn message_endpoint(_: &Arc<ServiceState>, _: &Parts) -> Option<HttpSseSession> {
    None
}

pub(super) fn answer_message_endpoint(
    _: &Arc<ServiceState>,
    none: HttpSseSession,
    _: Parts,
    _: AcceptedTypes,
    _: &Bytes,
    _: Charge,
) -> Result<ResponseFuture, HttpRejection> {
    match none {}
}

pub(super) fn answer_verb(
    _: &Arc<ServiceState>,
    _: Parts,
) -> Result<ResponseFuture, HttpRejection> {
    Err(HttpRejection::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed: use POST",
    ))
}
