//! Replaces `legacy.rs` in a build without the legacy era: rejects every legacy POST.

use bowline_types::{ErrorCode, RpcError};
use bytes::Bytes;

use super::admission::{HeaderVersion, HttpRejection, header_version};
use super::headers::MirrorHeaders;
use crate::Message;
use crate::era::Dialects;
use crate::shortened;

/// A legacy POST; uninhabited.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "it is uninhabited")]
pub enum LegacyPost {}

/// Rejects every message.
pub(super) fn admit(
    mirror: &MirrorHeaders<'_>,
    message: Message,
    _served: &Dialects,
) -> Result<LegacyPost, HttpRejection> {
    let id = match message {
        Message::Request(raw) => Some(raw.id),
        Message::Response(_) | Message::Notification(_) => None,
    };
    let why = match header_version(mirror) {
        Err(mismatch) => return Err(HttpRejection::from(mismatch).with_id(id)),
        Ok(HeaderVersion::Absent) => "is missing".to_owned(),
        Ok(HeaderVersion::Known(dialect)) => format!("names {dialect}, which is not supported"),
        Ok(HeaderVersion::Unknown(version)) => {
            format!("names {:?}, which is not supported", shortened(version))
        }
    };
    let why = format!("`{}` {why}", super::headers::PROTOCOL_VERSION);
    Err(HttpRejection::from(RpcError::new(ErrorCode::HEADER_MISMATCH, why)).with_id(id))
}

/// Rejects every batch.
pub(super) fn admit_batch(
    _mirror: &MirrorHeaders<'_>,
    _body: &Bytes,
    _served: &Dialects,
) -> Result<LegacyPost, HttpRejection> {
    let why = "expected one JSON-RPC object, not a batch";
    Err(RpcError::new(ErrorCode::INVALID_REQUEST, why).into())
}
