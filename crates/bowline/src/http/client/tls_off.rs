//! Requests in TLS, where the crate was built without it.

use std::sync::Arc;

use super::hyper_send::Reaching;
use super::send::HttpSend;
use crate::{Error, Result};

/// What would send to `https`.
pub(super) fn secure(_: &Reaching) -> Result<Arc<dyn HttpSend>> {
    Err(Error::misuse(
        "`https` needs the feature `tls` of bowline, or a sender of your own by `Connect::http`",
    ))
}
