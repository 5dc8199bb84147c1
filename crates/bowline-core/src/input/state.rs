//! What a server must know in the next round, and its way through the client's hands.
//!
//! The text here is plain: whoever sends it away seals it first, and opens it when it comes back.

use std::collections::BTreeMap;

use bowline_types::Json;
use serde::{Deserialize, Serialize};

use super::{Digest, Kind};

/// Everything that is kept between two rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct State {
    #[serde(rename = "v")]
    version: u64,
    /// Questions of the last round, by key: only these can be answered now.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) asked: BTreeMap<String, Awaited>,
    /// Answers of all rounds so far, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) answered: BTreeMap<String, Answered>,
    /// What the handler wants to find again, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) remembered: BTreeMap<String, Json>,
}

/// A question that is with the client. The kind is kept, because an answer does not tell its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Awaited(pub(super) Kind, pub(super) Digest);

/// An answer, and what exactly it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answered(pub(super) Digest, pub(super) Json);

/// The state that came back is none of ours, though it was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateUnreadable {
    /// It was written by a release that writes it differently.
    #[error("the request state has version {found}, and this server reads version {VERSION}")]
    Version {
        /// The version it says it has.
        found: u64,
    },
    /// It is not a state at all.
    #[error("the request state is garbled")]
    Garbled(#[source] serde_json::Error),
}

/// There is more to remember than may be sent to the client and back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request state takes {size} bytes of {limit} allowed; its largest part is {largest}, {largest_size} bytes"
)]
#[non_exhaustive]
pub struct StateTooLarge {
    /// How long the state is.
    pub size: usize,
    /// How long it may be.
    pub limit: usize,
    /// What takes most of it, such as "the answer to `name`".
    pub largest: String,
    /// How much of it that takes.
    pub largest_size: usize,
}

impl State {
    /// A state in which nothing is asked.
    pub(super) fn new(
        answered: BTreeMap<String, Answered>,
        remembered: BTreeMap<String, Json>,
    ) -> Self {
        Self {
            version: VERSION,
            asked: BTreeMap::new(),
            answered,
            remembered,
        }
    }

    pub(super) fn decode(text: &[u8]) -> Result<Self, StateUnreadable> {
        // Derived readers take an array for an object as well.
        if text.first() != Some(&b'{') {
            let error = serde::de::Error::custom("a state is an object");
            return Err(StateUnreadable::Garbled(error));
        }
        // Read first, because another version may have any shape.
        let Version { version } = serde_json::from_slice(text).map_err(StateUnreadable::Garbled)?;
        if version != VERSION {
            return Err(StateUnreadable::Version { found: version });
        }
        serde_json::from_slice(text).map_err(StateUnreadable::Garbled)
    }

    pub(super) fn encode(&self, limit: usize) -> Result<Vec<u8>, StateTooLarge> {
        let text = serde_json::to_vec(self).expect("keys are strings and values are JSON");
        if text.len() > limit {
            return Err(self.too_large(text.len(), limit));
        }
        Ok(text)
    }

    fn too_large(&self, size: usize, limit: usize) -> StateTooLarge {
        let answers = self.answered.iter().map(|(key, Answered(_, answer))| {
            (answer.as_bytes().len(), format!("the answer to `{key}`"))
        });
        let values = self.remembered.iter().map(|(key, value)| {
            (
                value.as_bytes().len(),
                format!("the value remembered as `{key}`"),
            )
        });
        let keys = self
            .asked
            .keys()
            .map(|key| (key.len(), format!("the key `{key}`")));
        let (largest_size, largest) = answers.chain(values).chain(keys).max().unwrap_or_default();
        StateTooLarge {
            size,
            limit,
            largest,
            largest_size,
        }
    }
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "v")]
    version: u64,
}

const VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> State {
        let digest = Digest::of_question(Kind::Roots, None);
        State {
            version: VERSION,
            asked: [("a".into(), Awaited(Kind::Roots, digest))].into(),
            answered: [("b".into(), Answered(digest, Json::null()))].into(),
            remembered: [("c".into(), Json::parse(r#"{"z": 1.0}"#).unwrap())].into(),
        }
    }

    #[test]
    fn a_state_comes_back_as_it_left() {
        let text = full().encode(1000).unwrap();

        assert_eq!(State::decode(&text).unwrap(), full());
    }

    #[test]
    fn garbage_is_refused() {
        let cut = &full().encode(1000).unwrap()[..40];
        for garbage in [
            cut,
            b"",
            b"{}",
            b"[1]",
            b"\xff\xfe",
            br#"{"v":"1"}"#,
            br#"{"v":1,"more":{}}"#,
            br#"{"v":1,"asked":{"a":["roots/list","00"]}}"#,
            br#"{"v":1,"asked":{"a":["tools/call","00"]}}"#,
        ] {
            assert!(
                matches!(State::decode(garbage), Err(StateUnreadable::Garbled(_))),
                "{} was taken for a state",
                String::from_utf8_lossy(garbage)
            );
        }
    }

    #[test]
    fn another_version_is_refused_by_its_number_whatever_its_shape() {
        let error = State::decode(br#"{"v":7,"questions":[]}"#).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the request state has version 7, and this server reads version 1"
        );
    }

    #[test]
    fn a_state_that_is_too_large_names_its_largest_part() {
        let mut state = full();
        let long = Json::encode(&"x".repeat(500)).unwrap();
        state.remembered.insert("draft".into(), long);

        let error = state.encode(300).unwrap_err();

        assert_eq!((error.limit, error.largest_size), (300, 502));
        assert_eq!(error.largest, "the value remembered as `draft`");
    }
}
