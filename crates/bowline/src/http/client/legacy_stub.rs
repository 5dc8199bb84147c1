//! What takes the place of `legacy/` in a build without the legacy era.

use super::Endpoint;
use crate::exchange::Pause;
use crate::wire::Wire;
use crate::{Error, Result};

pub(crate) fn wire(_: Endpoint) -> Option<Box<dyn Wire>> {
    None
}

pub(crate) async fn two_endpoints(_: Endpoint, _: &Pause) -> Result<Box<dyn Wire>> {
    Err(Error::misuse("this build speaks no legacy version"))
}
