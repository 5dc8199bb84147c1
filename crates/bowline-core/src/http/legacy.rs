//! What the legacy era posts, on its way to its own handler.
//!
//! Only the version is judged here. Whether there is a session, and at which version, is for the handler
//! that keeps sessions.

use ::http::HeaderName;
use bowline_types::{ErrorCode, RpcError};
use bytes::Bytes;
use serde::Deserialize;

use super::admission::{HeaderVersion, Rejection, header_version, tells_modern};
use super::headers::MirrorHeaders;
use crate::era::{self, Dialect, Dialects, modern};
use crate::{BatchError, Malformed, Message, RawRequest, decode_batch, shortened};

/// Names the session a request belongs to: `Mcp-Session-Id`.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Names the event after which a stream is to be resumed: `Last-Event-ID`.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A legacy POST.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Post {
    /// The version in its header; without one, the session's counts, or [`Dialect::UNNAMED_ON_HTTP`].
    pub dialect: Option<&'static Dialect>,
    /// What was posted.
    pub messages: Messages,
}

/// The body of a legacy POST.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a body is one message or a batch of them"
)]
pub enum Messages {
    /// One message.
    One(Message),
    /// Several, each standing for itself.
    Batch(Batch),
}

/// A batch that is not decoded yet: first make sure that its sender may send one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    body: Bytes,
}

impl Batch {
    /// Decodes at most `max` messages.
    ///
    /// # Errors
    ///
    /// If it is not a batch of legacy messages, or has more than `max` of them.
    pub fn decode(&self, max: usize) -> Result<Vec<Result<Message, Malformed>>, BatchError> {
        let messages = decode_batch(&self.body, max)?;
        let is_marked = |message: &Result<Message, Malformed>| match message {
            Ok(Message::Request(raw)) => modern::is_marked(raw.params.as_ref()),
            Ok(Message::Notification(told)) => tells_modern(told),
            Ok(Message::Response(_)) | Err(_) => false,
        };
        if messages.iter().any(is_marked) {
            let error = RpcError::new(ErrorCode::INVALID_REQUEST, NOT_A_BATCH);
            return Err(Malformed::Request { id: None, error }.into());
        }
        Ok(messages)
    }
}

/// Lets a message without a modern mark in.
pub(super) fn admit(
    mirror: &MirrorHeaders<'_>,
    message: Message,
    served: &Dialects,
) -> Result<Post, Rejection> {
    let id = match &message {
        Message::Request(raw) => Some(raw.id.clone()),
        Message::Response(_) | Message::Notification(_) => None,
    };
    let dialect = version(mirror, &message, served).map_err(|refused| refused.about(id))?;
    Ok(Post {
        dialect,
        messages: Messages::One(message),
    })
}

/// Lets a batch in undecoded, if a version that has them may be meant.
pub(super) fn admit_batch(
    mirror: &MirrorHeaders<'_>,
    body: &Bytes,
    served: &Dialects,
) -> Result<Post, Rejection> {
    let dialect = match header_version(mirror)? {
        HeaderVersion::Known(dialect) => served.of(dialect.version),
        HeaderVersion::Absent => served.of(Dialect::UNNAMED_ON_HTTP.version),
        HeaderVersion::Unknown(_) => None,
    };
    match dialect {
        Some(dialect) if dialect.batches => Ok(Post {
            dialect: Some(dialect),
            messages: Messages::Batch(Batch { body: body.clone() }),
        }),
        _ => Err(not_a_batch()),
    }
}

/// The refusal of a batch from a client whose version has none.
#[must_use]
pub fn not_a_batch() -> Rejection {
    invalid(NOT_A_BATCH)
}

/// The version of a legacy message by its header.
fn version(
    mirror: &MirrorHeaders<'_>,
    message: &Message,
    served: &Dialects,
) -> Result<Option<&'static Dialect>, Rejection> {
    if served.latest_legacy().is_none() {
        return Err(not_served(mirror, message, served));
    }
    match header_version(mirror)? {
        HeaderVersion::Absent => Ok(None),
        // The handshake itself finds out which version is spoken.
        HeaderVersion::Known(dialect) if !dialect.is_modern() && is_handshake(message) => {
            Ok(Some(dialect))
        }
        HeaderVersion::Known(dialect)
            if !dialect.is_modern() && served.of(dialect.version).is_some() =>
        {
            Ok(Some(dialect))
        }
        HeaderVersion::Known(dialect) if dialect.is_modern() => {
            Err(invalid("nobody asked for this response"))
        }
        HeaderVersion::Known(dialect) => Err(unknown_version(dialect.version)),
        HeaderVersion::Unknown(version) => Err(unknown_version(&version)),
    }
}

/// What a server without a legacy era tells a legacy client.
fn not_served(mirror: &MirrorHeaders<'_>, message: &Message, served: &Dialects) -> Rejection {
    match message {
        Message::Response(_) => invalid("nobody asked for this response"),
        Message::Request(raw) if is_handshake(message) => {
            era::Rejection::unsupported_version(&requested(raw), served).into()
        }
        Message::Request(_) | Message::Notification(_) => match header_version(mirror) {
            Err(mismatch) => mismatch.into(),
            Ok(HeaderVersion::Absent) => header_mismatch("is missing"),
            Ok(_) => header_mismatch("names a version that is not served"),
        },
    }
}

fn is_handshake(message: &Message) -> bool {
    matches!(message, Message::Request(raw) if raw.method == "initialize")
}

/// The version that `initialize` asks for, for the error that refuses it.
fn requested(raw: &RawRequest) -> String {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "protocolVersion")]
        version: String,
    }

    let params: Option<Params> = raw.params.as_ref().and_then(|json| json.decode().ok());
    params.map(|params| params.version).unwrap_or_default()
}

fn header_mismatch(why: &str) -> Rejection {
    let why = format!("`{}` {why}", super::headers::PROTOCOL_VERSION);
    RpcError::new(ErrorCode::HEADER_MISMATCH, why).into()
}

fn unknown_version(version: &str) -> Rejection {
    // Clients look for these words to learn that another version may be welcome.
    invalid(&format!(
        "Unsupported protocol version: {:?}",
        shortened(version)
    ))
}

fn invalid(why: &str) -> Rejection {
    RpcError::new(ErrorCode::INVALID_REQUEST, why).into()
}

const NOT_A_BATCH: &str = "expected one JSON-RPC object, not a batch";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::era::Callers;
    use crate::http::admission::{self, Admitted, Catalog};
    use crate::http::headers::ParamHeaders;
    use ::http::{HeaderMap, HeaderValue};
    use serde_json::json;
    use std::sync::Arc;

    struct AnswersAll;

    impl Catalog for AnswersAll {
        fn answers(&self, _method: &str) -> bool {
            true
        }

        fn param_headers(&self, _tool: &str) -> Option<Arc<ParamHeaders>> {
            None
        }
    }

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
            &Callers::default(),
            &AnswersAll,
        );

        assert!(
            matches!(admitted, Ok(Admitted::Modern { .. })),
            "{admitted:?}"
        );
    }
}
