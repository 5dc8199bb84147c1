//! Admission of legacy POSTs, before the legacy handler.
//!
//! Only the protocol version is checked here. The legacy handler checks the session and its version.

use ::http::HeaderName;
use bowline_types::{ErrorCode, RpcError};
use bytes::Bytes;
use serde::Deserialize;

use super::admission::{HeaderVersion, HttpRejection, header_version};
use super::headers::MirrorHeaders;
use crate::era::{self, Dialect, Dialects, modern};
use crate::{BatchError, Malformed, Message, RawRequest, decode_batch, shortened};

/// The `Mcp-Session-Id` header: the session of a request.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The `Last-Event-ID` header: the event after which to resume a stream.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// An admitted legacy POST.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LegacyPost {
    /// The version in its header. Without one, the session's version applies, or [`Dialect::ASSUMED_ON_HTTP`].
    pub dialect: Option<&'static Dialect>,
    /// The body.
    pub messages: PostBody,
}

/// The body of a legacy POST.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a body is one message or a batch of them"
)]
pub enum PostBody {
    /// One message.
    One(Message),
    /// A JSON-RPC batch.
    Batch(UndecodedBatch),
}

/// An undecoded batch. Check that the version of its session has batches before decoding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecodedBatch {
    body: Bytes,
}

impl UndecodedBatch {
    /// Decodes at most `max` messages.
    ///
    /// # Errors
    ///
    /// If it is not a batch of legacy messages, or exceeds `max` messages.
    pub fn decode(&self, max: usize) -> Result<Vec<Result<Message, Malformed>>, BatchError> {
        let messages = decode_batch(&self.body, max)?;
        let is_modern = |message: &Result<Message, Malformed>| match message {
            Ok(Message::Request(raw)) => modern::has_version(raw.params.as_ref()),
            Ok(Message::Notification(notification)) => modern::is_modern_notification(notification),
            Ok(Message::Response(_)) | Err(_) => false,
        };
        if messages.iter().any(is_modern) {
            let error = RpcError::new(ErrorCode::INVALID_REQUEST, UNEXPECTED_BATCH);
            return Err(Malformed::Request { id: None, error }.into());
        }
        Ok(messages)
    }
}

/// Admits a message that is not marked as modern.
pub(super) fn admit(
    mirror: &MirrorHeaders<'_>,
    message: Message,
    served: &Dialects,
) -> Result<LegacyPost, HttpRejection> {
    let id = match &message {
        Message::Request(raw) => Some(raw.id.clone()),
        Message::Response(_) | Message::Notification(_) => None,
    };
    let dialect = version(mirror, &message, served).map_err(|rejection| rejection.with_id(id))?;
    Ok(LegacyPost {
        dialect,
        messages: PostBody::One(message),
    })
}

/// Admits a batch undecoded, if the version in the header, or its default, has batches.
pub(super) fn admit_batch(
    mirror: &MirrorHeaders<'_>,
    body: &Bytes,
    served: &Dialects,
) -> Result<LegacyPost, HttpRejection> {
    let dialect = match header_version(mirror)? {
        HeaderVersion::Known(dialect) => served.of(dialect.version),
        HeaderVersion::Absent => served.of(Dialect::ASSUMED_ON_HTTP.version),
        HeaderVersion::Unknown(_) => None,
    };
    match dialect {
        Some(dialect) if dialect.batches => Ok(LegacyPost {
            dialect: Some(dialect),
            messages: PostBody::Batch(UndecodedBatch { body: body.clone() }),
        }),
        _ => Err(unexpected_batch()),
    }
}

/// Returns the rejection of a batch from a client whose version has no batches.
#[must_use]
pub fn unexpected_batch() -> HttpRejection {
    invalid(UNEXPECTED_BATCH)
}

/// Returns the version in the header of a legacy message.
fn version(
    mirror: &MirrorHeaders<'_>,
    message: &Message,
    served: &Dialects,
) -> Result<Option<&'static Dialect>, HttpRejection> {
    if served.latest_legacy().is_none() {
        return Err(not_served(mirror, message, served));
    }
    match header_version(mirror)? {
        HeaderVersion::Absent => Ok(None),
        // `initialize` negotiates the version, so its header may name one that is not served.
        HeaderVersion::Known(dialect) if !dialect.is_modern() && is_handshake(message) => {
            Ok(Some(dialect))
        }
        HeaderVersion::Known(dialect)
            if !dialect.is_modern() && served.of(dialect.version).is_some() =>
        {
            Ok(Some(dialect))
        }
        HeaderVersion::Known(dialect) if dialect.is_modern() => {
            Err(invalid("unexpected response: the server sent no request"))
        }
        HeaderVersion::Known(dialect) => Err(unknown_version(dialect.version)),
        HeaderVersion::Unknown(version) => Err(unknown_version(&version)),
    }
}

/// Returns the rejection of a legacy message by a server without the legacy era.
fn not_served(mirror: &MirrorHeaders<'_>, message: &Message, served: &Dialects) -> HttpRejection {
    match message {
        Message::Response(_) => invalid("unexpected response: the server sent no request"),
        Message::Request(raw) if is_handshake(message) => {
            era::Rejection::unsupported_version(&requested_version(raw), served).into()
        }
        Message::Request(_) | Message::Notification(_) => match header_version(mirror) {
            Err(mismatch) => mismatch.into(),
            Ok(HeaderVersion::Absent) => header_mismatch("is missing"),
            Ok(_) => header_mismatch("names an unsupported version"),
        },
    }
}

fn is_handshake(message: &Message) -> bool {
    matches!(message, Message::Request(raw) if raw.method == "initialize")
}

/// Returns the version that `initialize` requests, for the error.
fn requested_version(raw: &RawRequest) -> String {
    #[derive(Deserialize)]
    struct InitializeParams {
        #[serde(rename = "protocolVersion")]
        version: String,
    }

    let params: Option<InitializeParams> = raw.params.as_ref().and_then(|json| json.decode().ok());
    params.map(|params| params.version).unwrap_or_default()
}

fn header_mismatch(why: &str) -> HttpRejection {
    let why = format!("`{}` {why}", super::headers::PROTOCOL_VERSION);
    RpcError::new(ErrorCode::HEADER_MISMATCH, why).into()
}

fn unknown_version(version: &str) -> HttpRejection {
    // Clients match this text to decide whether to try another version.
    invalid(&format!(
        "Unsupported protocol version: {:?}",
        shortened(version)
    ))
}

fn invalid(why: &str) -> HttpRejection {
    RpcError::new(ErrorCode::INVALID_REQUEST, why).into()
}

const UNEXPECTED_BATCH: &str = "expected one JSON-RPC object, not a batch";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::era::CallerCache;
    use crate::http::admission::{self, AdmittedPost, AnyMethod};
    use ::http::{HeaderMap, HeaderValue};
    use serde_json::json;

    #[test]
    fn a_session_header_does_not_make_a_modern_request_legacy() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
        let headers = HeaderMap::from_iter([
            (SESSION_ID, HeaderValue::from_static("s")),
            (
                crate::http::headers::PROTOCOL_VERSION,
                HeaderValue::from_static("2026-07-28"),
            ),
            (
                crate::http::headers::METHOD,
                HeaderValue::from_static("tools/list"),
            ),
        ]);

        let body = Bytes::from(body.to_string());
        let admitted = admission::admit(
            &headers,
            &body,
            &Dialects::all(),
            &CallerCache::default(),
            &AnyMethod,
        );

        assert!(
            matches!(admitted, Ok(AdmittedPost::Modern { .. })),
            "{admitted:?}"
        );
    }
}
