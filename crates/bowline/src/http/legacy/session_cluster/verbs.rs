//! What replicas send each other about sessions, as JSON. [`Cluster`](crate::cluster::Cluster) seals it.
//!
//! A `session` is the [key](super::super::sessions::session_key) of its id, which does not open it. The sender of such a
//! message has opened the id for the principal of a request.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A message to all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SessionNotice {
    /// The client has posted a notification, such as a cancel, which may concern any live state.
    Notification { session: String, frame: String },
    /// The record of the session has changed.
    Changed { session: String },
    /// The session has ended.
    Ended { session: String },
    /// The client has attached a GET at the sender.
    Attached { session: String },
}

/// A message to the replica that has a live state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SessionQuestion {
    /// The client has posted the response to a request of this live state. Answered twice, it has one effect.
    Answer {
        session: String,
        number: u64,
        frame: String,
    },
    /// Requests the events of a stream after a position, and waits for one.
    Read {
        session: String,
        number: u64,
        stream: u64,
        after: u64,
        wait_millis: u64,
    },
    /// A POST to the message endpoint of an HTTP+SSE session, whose id is complete.
    Deliver {
        id: String,
        principal: Option<String>,
        scopes: Vec<String>,
        frame: String,
    },
}

/// The answer to a [`SessionQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SessionReply {
    Accepted,
    /// There is no such live state.
    Gone,
    /// Events with their positions, and whether the stream ends after them.
    Events {
        events: Vec<(u64, String)>,
        is_end: bool,
    },
    /// The events are not stored, or the stream is unknown.
    Lost,
    /// A POST was refused with this status.
    Refused {
        status: u16,
        message: String,
    },
    /// The question could not be decoded: the replicas have different versions.
    NotUnderstood,
}

/// Encodes a message. These types always have a JSON form.
pub(super) fn encode(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).unwrap_or_default().into()
}

pub(super) fn decode<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    serde_json::from_slice(message).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        let question = SessionQuestion::Read {
            session: "a".into(),
            number: 1,
            stream: 2,
            after: 3,
            wait_millis: 4,
        };
        let reply = SessionReply::Events {
            events: vec![(7, "{}".into())],
            is_end: true,
        };

        assert_eq!(decode(&encode(&question)), Some(question));
        assert_eq!(decode(&encode(&reply)), Some(reply));
        assert_eq!(decode::<SessionNotice>(b"{\"Unknown\":{}}"), None);
        assert_eq!(decode::<SessionNotice>(b""), None);
    }
}
