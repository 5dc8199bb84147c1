//! Replaces `tls.rs` in builds without the `tls` feature.

use std::sync::Arc;

use super::hyper_send::ConnectionOptions;
use super::send::HttpSend;
use crate::{Error, Result};

/// Fails: this build cannot connect to `https` URLs.
pub(super) fn secure(_: &ConnectionOptions) -> Result<Arc<dyn HttpSend>> {
    Err(Error::misuse(
        "`https` requires the `tls` feature of bowline, or an `HttpSend` set with `Connect::http`",
    ))
}
