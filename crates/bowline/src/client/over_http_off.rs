//! What takes the place of `over_http.rs` in a build without HTTP clients: nobody is reached in that way.

use bowline_core::era::Caller;

use super::caching::Identity;
use super::link::Reached;
use super::opening::Terms;
use crate::{Error, Result};

#[derive(Default)]
pub(super) struct OverHttp {}

impl OverHttp {
    pub(super) fn url_text(&self) -> Option<String> {
        None
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        None
    }

    #[allow(clippy::unused_async, reason = "its counterpart waits")]
    pub(super) async fn reach(self, _: Terms, _: Caller) -> Result<Reached> {
        Err(Error::misuse("this build has no HTTP client"))
    }
}

/// There is no HTTP here to have a status.
pub(super) fn status_of(_: &Error) -> Option<u16> {
    None
}
