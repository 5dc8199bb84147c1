//! What takes the place of `legacy/` in a build without the legacy era.

use super::Endpoint;
use crate::wire::Wire;

pub(crate) fn wire(_: Endpoint) -> Option<Box<dyn Wire>> {
    None
}
