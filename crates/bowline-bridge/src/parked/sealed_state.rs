//! The `requestState` of a parked call: who owns the call, its serial and its round, sealed.
//!
//! It is bound to the principal and the digest of the request. It contains no question, answer or argument.

use std::fmt;
use std::sync::OnceLock;

use bowline::cluster::ReplicaId;
use bowline::exchange::{Digest, Principal};
use bowline::seal::{Binding, Purpose, SealError, Sealer};

use super::entry::{Round, Serial};
use super::refusal::Refusal;
use crate::state_keys::StateKeys;

/// Seals and opens the states of one process.
#[derive(Debug)]
pub(super) struct StateSealer {
    keys: StateKeys,
    /// Empty until the first state is sealed: no state that opens before is of this process.
    owner: OnceLock<Owner>,
}

/// Identifies a process, by random bytes of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner([u8; 8]);

impl Owner {
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl StateSealer {
    pub(super) fn new(keys: StateKeys) -> Self {
        Self {
            keys,
            owner: OnceLock::new(),
        }
    }

    /// Makes this process one of several that share the keys, under its name there. Must be called before a state is
    /// sealed.
    pub(super) fn set_owner(&self, replica: ReplicaId) {
        let _ = self.owner.set(Owner(*replica.as_bytes()));
    }

    pub(super) fn seal(
        &self,
        round: &Round,
        principal: &Principal,
        digest: Digest,
    ) -> Result<String, Refusal> {
        let Owner(owner) = self.owner().map_err(not_sealed)?;
        let Serial(serial) = round.serial;
        let content = [
            &owner[..],
            &serial.to_be_bytes(),
            &round.number.to_be_bytes(),
        ]
        .concat();
        let bound = bound(principal, digest);
        (self.keys.sealer())
            .seal(Purpose::ParkedCall, bound, &content, round.seal_lifetime)
            .map_err(not_sealed)
    }

    /// Returns the call and the round, if this process owns the call.
    pub(super) fn open(
        &self,
        text: &str,
        principal: &Principal,
        digest: Digest,
    ) -> Result<(Serial, u32), Refusal> {
        let (owner, serial, round) = self.open_any(text, principal, digest)?;
        if self.owner.get() != Some(&owner) {
            return Err(Refusal::Lost);
        }
        Ok((serial, round))
    }

    /// Returns the other process that owns the call, if the state opens.
    pub(super) fn other_owner(
        &self,
        text: &str,
        principal: &Principal,
        digest: Digest,
    ) -> Option<ReplicaId> {
        let (owner, _, _) = self.open_any(text, principal, digest).ok()?;
        let is_other = self.owner.get() != Some(&owner);
        is_other.then(|| ReplicaId::from_bytes(owner.0))
    }

    /// Returns the owner, the call and the round.
    fn open_any(
        &self,
        text: &str,
        principal: &Principal,
        digest: Digest,
    ) -> Result<(Owner, Serial, u32), Refusal> {
        // Longer than any text of `seal`: refused before it is decoded.
        if text.len() > Sealer::max_text_len(CONTENT_BYTES) {
            return Err(Refusal::Foreign);
        }
        let bound = bound(principal, digest);
        let opened = self.keys.sealer().open(Purpose::ParkedCall, bound, text);
        let content = opened.map_err(|error| match error {
            SealError::Expired => Refusal::Expired,
            _ => Refusal::Foreign,
        })?;
        let (owner, rest) = content.split_first_chunk().ok_or(Refusal::Foreign)?;
        let (serial, rest) = rest.split_first_chunk().ok_or(Refusal::Foreign)?;
        let round = rest.try_into().map_err(|_| Refusal::Foreign)?;
        Ok((
            Owner(*owner),
            Serial(u64::from_be_bytes(*serial)),
            u32::from_be_bytes(round),
        ))
    }
}

impl StateSealer {
    fn owner(&self) -> Result<Owner, getrandom::Error> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        // Concurrent first calls may each generate one; all of them use the one that the cell keeps.
        let owner = Owner::random()?;
        Ok(*self.owner.get_or_init(|| owner))
    }
}

fn not_sealed(error: impl fmt::Display) -> Refusal {
    tracing::error!(%error, "failed to seal the state of a parked call");
    Refusal::NotSealed
}

fn bound(principal: &Principal, digest: Digest) -> Binding {
    Binding::new().principal(principal).bytes(digest.as_bytes())
}

/// Owner, serial and round.
const CONTENT_BYTES: usize = 8 + 8 + 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline::exchange::request_digest;
    use tokio::time::Instant;

    use super::*;

    fn keys() -> StateKeys {
        StateKeys::new(Sealer::new([1; 32]))
    }

    fn round() -> Round {
        Round {
            serial: Serial(7),
            number: 3,
            questions: Vec::new(),
            deadline: Instant::now(),
            seal_lifetime: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_state_opens_for_its_principal_and_request_only() {
        let states = StateSealer::new(keys());
        let (ada, bob) = (Principal::named("ada"), Principal::named("bob"));
        let (digest, other) = (
            request_digest("tools/call", None),
            request_digest("prompts/get", None),
        );

        let text = states.seal(&round(), &ada, digest).unwrap();

        assert_eq!(states.open(&text, &ada, digest), Ok((Serial(7), 3)));
        assert_eq!(states.open(&text, &bob, digest), Err(Refusal::Foreign));
        assert_eq!(states.open(&text, &ada, other), Err(Refusal::Foreign));
        assert_eq!(states.open("forged", &ada, digest), Err(Refusal::Foreign));
        let long = "A".repeat(1_000_000);
        assert_eq!(states.open(&long, &ada, digest), Err(Refusal::Foreign));
        assert!(text.len() <= 100, "{}", text.len());
    }

    #[test]
    fn a_state_of_another_process_is_a_lost_call() {
        let before = StateSealer::new(keys());
        let after = StateSealer::new(keys());
        let (ada, digest) = (Principal::named("ada"), request_digest("tools/call", None));
        let text = before.seal(&round(), &ada, digest).unwrap();

        assert_eq!(after.open(&text, &ada, digest), Err(Refusal::Lost));
        let own = after.seal(&round(), &ada, digest).unwrap();
        assert!(after.open(&own, &ada, digest).is_ok());
        assert_eq!(after.open(&text, &ada, digest), Err(Refusal::Lost));
        let bob = Principal::named("bob");
        assert_eq!(after.open(&text, &bob, digest), Err(Refusal::Foreign));
    }

    #[test]
    fn the_owner_of_a_state_is_known_to_who_may_use_it() {
        let (first, second) = (StateSealer::new(keys()), StateSealer::new(keys()));
        let [one, two] = [[1; 8], [2; 8]].map(ReplicaId::from_bytes);
        first.set_owner(one);
        second.set_owner(two);
        let (ada, digest) = (Principal::named("ada"), request_digest("tools/call", None));
        let text = first.seal(&round(), &ada, digest).unwrap();

        assert_eq!(second.other_owner(&text, &ada, digest), Some(one));
        assert_eq!(first.other_owner(&text, &ada, digest), None);
        let bob = Principal::named("bob");
        assert_eq!(second.other_owner(&text, &bob, digest), None);
    }
}
