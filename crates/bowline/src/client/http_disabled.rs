//! Replaces `http/` in a build without the feature `http-client`.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Caller, Request};

use http::{HeaderName, HeaderValue};

use super::builder::ConnectTarget;
use super::cache_policy::IdentitySource;
use super::known_tools::KnownTools;
use super::opener::Opener;
use super::{ClientBuilder, Connection, ReadBudget};
use crate::exchange::{CallOptions, Channel, Exchange};
use crate::telemetry::Sender;
use crate::{Error, Result};

/// Returns a builder that fails to connect.
pub(super) fn connect_with_headers(_: &str, _: Vec<(HeaderName, HeaderValue)>) -> ClientBuilder {
    ClientBuilder::new(ConnectTarget::Http)
}

/// Never constructed.
pub(super) enum HttpTransport {}

#[derive(Default)]
pub(super) struct HttpConfig {}

impl HttpConfig {
    pub(super) fn cache_url(&self) -> Option<String> {
        None
    }

    pub(super) fn set_connect_timeout(&mut self, _: Duration) {}

    pub(super) fn identity(&self) -> Option<IdentitySource> {
        None
    }

    pub(super) fn transport(
        self,
        _: Arc<KnownTools>,
        _: Vec<(String, String)>,
        _: Option<ReadBudget>,
    ) -> Result<HttpTransport> {
        Err(Error::misuse(
            "this build has no HTTP client; enable the feature `http-client`",
        ))
    }
}

#[allow(clippy::unused_async, reason = "the enabled counterparts wait")]
impl HttpTransport {
    pub(super) async fn connect(self, _: &Opener<'_>) -> Result<Connection> {
        match self {}
    }

    pub(super) fn sender(&self) -> &Sender {
        match *self {}
    }

    pub(super) async fn probe(&self, _: &Opener<'_>, _: Caller) -> Result<Connection> {
        match *self {}
    }
}

impl Channel for HttpTransport {
    fn open(&self, _: Request, _: CallOptions) -> Exchange {
        match *self {}
    }
}

/// There is no HTTP response whose status could be read.
pub(super) fn status_of(_: &Error) -> Option<u16> {
    None
}
