//! What stands in for the legacy era in a build without it: nobody can post anything.

use bowline_types::{ErrorCode, RpcError};
use bytes::Bytes;

use super::admission::{HeaderVersion, Rejection, header_version};
use super::headers::MirrorHeaders;
use crate::Message;
use crate::era::Dialects;
use crate::shortened;

/// A legacy POST, which does not exist.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Post {}

/// Refuses every message.
pub(super) fn admit(
    mirror: &MirrorHeaders<'_>,
    message: Message,
    _served: &Dialects,
) -> Result<Post, Rejection> {
    let id = match message {
        Message::Request(raw) => Some(raw.id),
        Message::Response(_) | Message::Notification(_) => None,
    };
    let why = match header_version(mirror) {
        Err(mismatch) => return Err(Rejection::from(mismatch).about(id)),
        Ok(HeaderVersion::Absent) => "is missing".to_owned(),
        Ok(HeaderVersion::Known(dialect)) => format!("names {dialect}, which is not served"),
        Ok(HeaderVersion::Unknown(version)) => {
            format!("names {:?}, which is not served", shortened(version))
        }
    };
    let why = format!("`{}` {why}", super::headers::PROTOCOL_VERSION);
    Err(Rejection::from(RpcError::new(ErrorCode::HEADER_MISMATCH, why)).about(id))
}

/// Refuses every batch.
pub(super) fn admit_batch(
    _mirror: &MirrorHeaders<'_>,
    _body: &Bytes,
    _served: &Dialects,
) -> Result<Post, Rejection> {
    let why = "expected one JSON-RPC object, not a batch";
    Err(RpcError::new(ErrorCode::INVALID_REQUEST, why).into())
}
