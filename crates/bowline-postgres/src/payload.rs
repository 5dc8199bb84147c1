//! [`Payload`], the text of a notification, and the names of channels.
//!
//! A notification has at most 8,000 bytes, so it contains the number of a row with the body.

use bowline::cluster::{GroupId, ReplicaId};
use sha2::{Digest as _, Sha256};

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// A question of a replica. `id` is that of the question, `body` the row.
    Question {
        id: u64,
        from: ReplicaId,
        body: i64,
    },
    Answer {
        id: u64,
        body: i64,
    },
    /// A message to a group.
    Message {
        body: i64,
    },
}

impl Payload {
    /// Returns the text of a question before the number of its row.
    pub(crate) fn question_prefix(id: u64, from: ReplicaId) -> String {
        format!("Q {id} {from} ")
    }

    /// Returns the text of an answer before the number of its row.
    pub(crate) fn answer_prefix(id: u64) -> String {
        format!("A {id} ")
    }

    /// The text of a message before the number of its row.
    pub(crate) const MESSAGE_PREFIX: &str = "M ";

    /// Returns the row of the body.
    pub(crate) fn body(self) -> i64 {
        match self {
            Self::Question { body, .. } | Self::Answer { body, .. } | Self::Message { body } => {
                body
            }
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let payload = match words.next()? {
            "Q" => Self::Question {
                id: words.next()?.parse().ok()?,
                from: words.next()?.parse().ok()?,
                body: words.next()?.parse().ok()?,
            },
            "A" => Self::Answer {
                id: words.next()?.parse().ok()?,
                body: words.next()?.parse().ok()?,
            },
            "M" => Self::Message {
                body: words.next()?.parse().ok()?,
            },
            _ => return None,
        };
        words.next().is_none().then_some(payload)
    }
}

/// The channel of a replica. Made of lower-case letters, digits and underscores, so that it needs no quotes.
pub(crate) fn replica_channel(replica: ReplicaId) -> String {
    format!("bowline_r_{replica}")
}

/// The channel of a group: a name has at most 63 bytes, so it is a hash.
pub(crate) fn group_channel(group: &GroupId) -> String {
    let digest = Sha256::digest(group.as_str());
    let hash: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("bowline_g_{hash}")
}

/// The advisory lock that a replica holds while it listens.
pub(crate) fn replica_lock(replica: ReplicaId) -> i64 {
    i64::from_be_bytes(*replica.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_parsed_as_it_was_written() {
        let from = ReplicaId::from_bytes([7; 8]);
        let question = format!("{}{}", Payload::question_prefix(3, from), 9);
        let answer = format!("{}{}", Payload::answer_prefix(3), 9);
        let message = format!("{}{}", Payload::MESSAGE_PREFIX, 9);

        let parsed = [question, answer, message].map(|text| Payload::parse(&text).unwrap());

        let (id, body) = (3, 9);
        assert_eq!(parsed[0], Payload::Question { id, from, body });
        assert_eq!(parsed[1], Payload::Answer { id, body });
        assert_eq!(parsed[2], Payload::Message { body });
        for other in ["", "Q", "A 1", "A x 1", "M 1 2", "X 1", "Q 1 2 3"] {
            assert_eq!(Payload::parse(other), None, "{other}");
        }
    }

    #[test]
    fn channels_are_names_without_quotes() {
        let group = group_channel(&GroupId::new("changes", "it's \"quoted\""));

        assert_eq!(group.len(), 42);
        assert!(
            group
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        );
    }
}
