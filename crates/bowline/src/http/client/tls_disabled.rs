//! Replaces `tls.rs` in builds without the `tls` feature.

use std::sync::Arc;

use super::hyper_client::ConnectionOptions;
use super::send::HttpClient;
use crate::{Error, Result};

/// The certificates of the application; not supported without TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsOptions {}

/// Fails: this build cannot connect to `https` URLs.
pub(super) fn secure(options: &ConnectionOptions) -> Result<Arc<dyn HttpClient>> {
    let TlsOptions {} = options.tls;
    Err(Error::misuse(
        "`https` requires the `tls` feature of bowline, or an `HttpClient` set with `ClientBuilder::http_client`",
    ))
}
