//! The content of `requestState`: what a server needs in the next round, carried by the client.
//!
//! The encoding here is plain text; the caller must encrypt it before sending and decrypt it when it comes back.

use std::collections::BTreeMap;

use bowline_types::Json;
use serde::{Deserialize, Serialize};

use super::{Digest, InputKind};

/// The state between two rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RequestState {
    #[serde(rename = "v")]
    version: u64,
    /// The input requests of the last round, by key. Only these can be answered now.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) asked: BTreeMap<String, OpenInputRequest>,
    /// The answers of all rounds so far, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) answered: BTreeMap<String, StoredAnswer>,
    /// The values that the handler stored, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) remembered: BTreeMap<String, Json>,
}

/// An unanswered input request. Its kind is kept, because an answer does not contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenInputRequest(pub(super) InputKind, pub(super) Digest);

/// An answer, and the digest of its input request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredAnswer(pub(super) Digest, pub(super) Json);

/// The decrypted request state could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequestState {
    /// It was written by a release with another encoding.
    #[error("expected version {VERSION} of the request state, got version {found}")]
    Version {
        /// The version of the state.
        found: u64,
    },
    /// It is not a request state.
    #[error("failed to decode the request state")]
    Malformed(#[source] serde_json::Error),
}

/// The request state exceeds its limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request state of {size} bytes exceeds the limit of {limit} bytes; {largest} takes {largest_size} bytes"
)]
#[non_exhaustive]
pub struct RequestStateTooLarge {
    /// The length of the state in bytes.
    pub size: usize,
    /// The limit in bytes.
    pub limit: usize,
    /// Its largest part, such as "the answer to `name`".
    pub largest: String,
    /// The length of that part in bytes.
    pub largest_size: usize,
}

impl RequestState {
    /// Creates a state without input requests.
    pub(super) fn new(
        answered: BTreeMap<String, StoredAnswer>,
        remembered: BTreeMap<String, Json>,
    ) -> Self {
        Self {
            version: VERSION,
            asked: BTreeMap::new(),
            answered,
            remembered,
        }
    }

    pub(super) fn decode(text: &[u8]) -> Result<Self, InvalidRequestState> {
        // Derived `Deserialize` implementations accept an array for a struct, too.
        if text.first() != Some(&b'{') {
            let error = serde::de::Error::custom("expected an object");
            return Err(InvalidRequestState::Malformed(error));
        }
        // Decoded first, because another version may have any shape.
        let StateVersion { version } =
            serde_json::from_slice(text).map_err(InvalidRequestState::Malformed)?;
        if version != VERSION {
            return Err(InvalidRequestState::Version { found: version });
        }
        serde_json::from_slice(text).map_err(InvalidRequestState::Malformed)
    }

    pub(super) fn encode(&self, limit: usize) -> Result<Vec<u8>, RequestStateTooLarge> {
        let text = serde_json::to_vec(self).expect("keys are strings and values are JSON");
        if text.len() > limit {
            return Err(self.too_large(text.len(), limit));
        }
        Ok(text)
    }

    fn too_large(&self, size: usize, limit: usize) -> RequestStateTooLarge {
        let answers = self.answered.iter().map(|(key, StoredAnswer(_, answer))| {
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
        RequestStateTooLarge {
            size,
            limit,
            largest,
            largest_size,
        }
    }
}

#[derive(Deserialize)]
struct StateVersion {
    #[serde(rename = "v")]
    version: u64,
}

const VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> RequestState {
        let digest = Digest::of_input_request(InputKind::Roots, None);
        RequestState {
            version: VERSION,
            asked: [("a".into(), OpenInputRequest(InputKind::Roots, digest))].into(),
            answered: [("b".into(), StoredAnswer(digest, Json::null()))].into(),
            remembered: [("c".into(), Json::parse(r#"{"z": 1.0}"#).unwrap())].into(),
        }
    }

    #[test]
    fn a_state_survives_encoding_and_decoding() {
        let text = full().encode(1000).unwrap();

        assert_eq!(RequestState::decode(&text).unwrap(), full());
    }

    #[test]
    fn malformed_states_are_rejected() {
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
                matches!(
                    RequestState::decode(garbage),
                    Err(InvalidRequestState::Malformed(_))
                ),
                "{} was taken for a state",
                String::from_utf8_lossy(garbage)
            );
        }
    }

    #[test]
    fn another_version_is_refused_by_its_number_whatever_its_shape() {
        let error = RequestState::decode(br#"{"v":7,"requests":[]}"#).unwrap_err();

        assert_eq!(
            error.to_string(),
            "expected version 1 of the request state, got version 7"
        );
    }

    #[test]
    fn a_state_that_is_too_large_names_its_largest_part() {
        let mut state = full();
        let long = Json::encode(&"x".repeat(500)).unwrap();
        state.remembered.insert("draft".into(), long);

        let error = state.encode(300).unwrap_err();
        let size = state.encode(usize::MAX).unwrap().len();
        assert!(state.encode(size).is_ok() && state.encode(size - 1).is_err());

        assert_eq!((error.limit, error.largest_size), (300, 502));
        assert_eq!(error.largest, "the value remembered as `draft`");
    }
}
