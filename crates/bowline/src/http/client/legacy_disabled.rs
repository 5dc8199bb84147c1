//! Replaces `legacy/` in builds without the legacy era (without the feature `legacy`).

use super::Endpoint;
use crate::exchange::TimeoutPause;
use crate::wire::EngineWire;
use crate::{Error, Result};

pub(crate) fn wire(_: Endpoint) -> Option<Box<dyn EngineWire>> {
    None
}

pub(crate) async fn http_sse_wire(_: Endpoint, _: &TimeoutPause) -> Result<Box<dyn EngineWire>> {
    Err(Error::misuse(
        "this build does not support legacy protocol versions",
    ))
}
