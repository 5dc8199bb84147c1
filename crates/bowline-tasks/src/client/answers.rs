//! `Answers`, the answers to the input requests of a task, by key: each key is passed to the host once.
//!
//! ```text
//! (none) ──claim_open──▶ WithHost ──answered──▶ Ready ──claim_ready──▶ Sending ──sent──▶ Sent
//!    ▲                      │ dropped             ▲                       │ dropped
//!    └──────────────────────┘                     └───────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_types::Json;

use crate::sync::Mutex;

/// The answers of one task, shared by all that wait for it.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<BTreeMap<String, AnswerState>>);

#[derive(Debug)]
enum AnswerState {
    WithHost,
    Ready(Json),
    Sending(Json),
    Sent,
}

impl Answers {
    /// Claims the keys of `requests` that were not claimed before, to answer them. `None` if there are none.
    pub(super) fn claim_open<'a>(
        self: &Arc<Self>,
        requests: impl Iterator<Item = &'a String>,
    ) -> Option<Claim> {
        let mut states = self.0.lock();
        let mut keys = Vec::new();
        for key in requests {
            if !states.contains_key(key) {
                states.insert(key.clone(), AnswerState::WithHost);
                keys.push(key.clone());
            }
        }
        drop(states);
        self.claim(keys)
    }

    /// Claims the answers that are ready, to send them. `None` if there are none.
    pub(super) fn claim_ready(self: &Arc<Self>) -> Option<(Claim, BTreeMap<String, Json>)> {
        let mut states = self.0.lock();
        let mut answers = BTreeMap::new();
        for (key, state) in states.iter_mut() {
            if let AnswerState::Ready(answer) = state {
                answers.insert(key.clone(), answer.clone());
                *state = AnswerState::Sending(answer.clone());
            }
        }
        drop(states);
        let claim = self.claim(answers.keys().cloned().collect())?;
        Some((claim, answers))
    }

    /// Returns whether there are answers to send.
    pub(super) fn has_ready(&self) -> bool {
        let states = self.0.lock();
        states
            .values()
            .any(|state| matches!(state, AnswerState::Ready(_)))
    }

    /// Stores that keys were answered by the application itself.
    pub(super) fn set_sent<'a>(&self, keys: impl Iterator<Item = &'a String>) {
        let mut states = self.0.lock();
        states.extend(keys.map(|key| (key.clone(), AnswerState::Sent)));
    }

    fn claim(self: &Arc<Self>, keys: Vec<String>) -> Option<Claim> {
        (!keys.is_empty()).then(|| Claim {
            answers: self.clone(),
            keys,
        })
    }
}

/// Keys that one waiter answers or sends. Dropping it lets another one do it.
#[derive(Debug)]
pub(super) struct Claim {
    answers: Arc<Answers>,
    keys: Vec<String>,
}

impl Claim {
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Stores the answers of the host.
    pub(super) fn answered(self, answers: BTreeMap<String, Json>) {
        let mut states = self.answers.0.lock();
        for (key, answer) in answers {
            // The application may have answered it meanwhile.
            if let Some(state @ AnswerState::WithHost) = states.get_mut(&key) {
                *state = AnswerState::Ready(answer);
            }
        }
        drop(states);
    }

    /// Stores that the answers arrived.
    pub(super) fn sent(self) {
        self.answers.set_sent(self.keys.iter());
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut states = self.answers.0.lock();
        for key in &self.keys {
            match states.get_mut(key) {
                Some(AnswerState::WithHost) => drop(states.remove(key)),
                Some(state) => {
                    if let AnswerState::Sending(answer) = state {
                        *state = AnswerState::Ready(answer.clone());
                    }
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(claim: Option<&Claim>) -> Vec<&str> {
        let keys = claim.map(Claim::keys).unwrap_or_default();
        keys.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_key_is_claimed_once_until_its_claim_is_dropped() {
        let (answers, open) = (Arc::<Answers>::default(), ["a".into(), "b".into()]);

        let claim = answers.claim_open(open.iter());
        assert_eq!(keys(claim.as_ref()), ["a", "b"]);
        assert!(answers.claim_open(open.iter()).is_none());
        drop(claim);
        assert_eq!(keys(answers.claim_open(open.iter()).as_ref()), ["a", "b"]);
    }

    #[test]
    fn answers_that_did_not_arrive_are_sent_again_and_never_asked_again() {
        let (answers, open) = (Arc::<Answers>::default(), ["a".into()]);
        let claim = answers.claim_open(open.iter()).unwrap();

        claim.answered([("a".into(), Json::empty_object())].into());
        let lost = answers.claim_ready();
        assert!(lost.is_some() && answers.claim_ready().is_none());
        drop(lost);
        let (claim, _) = answers.claim_ready().unwrap();
        claim.sent();

        assert!(answers.claim_ready().is_none() && answers.claim_open(open.iter()).is_none());
    }

    #[test]
    fn a_key_that_the_application_answers_is_not_sent_again() {
        let (answers, open) = (Arc::<Answers>::default(), ["a".into()]);
        let claim = answers.claim_open(open.iter()).unwrap();

        answers.set_sent(open.iter());
        claim.answered([("a".into(), Json::empty_object())].into());

        assert!(!answers.has_ready());
    }
}
