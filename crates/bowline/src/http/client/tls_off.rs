//! Requests in TLS, where the crate was built without it.

use std::sync::Arc;

use super::connection::Versions;
use super::proxy::Proxies;
use super::send::HttpSend;
use crate::{Error, Result};

/// What would send to `https`.
pub(super) fn secure(_: &Proxies, _: Versions) -> Result<Arc<dyn HttpSend>> {
    Err(Error::misuse(
        "`https` needs the feature `tls` of bowline, or a sender of your own by `Connect::http`",
    ))
}
