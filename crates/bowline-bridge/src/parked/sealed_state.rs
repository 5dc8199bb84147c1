//! The `requestState` of a parked call: who owns the call, its serial and its round, sealed.
//!
//! It is bound to the principal and the digest of the request. It contains no question, answer or argument.

use std::fmt;
use std::sync::OnceLock;

use bowline::exchange::{Digest, Principal};
use bowline::seal::{Binding, Purpose, SealError, Sealer};

use super::entry::{Round, Serial};
use super::refusal::Refusal;

/// Seals and opens the states of one process.
#[derive(Debug)]
pub(super) struct StateSealer {
    sealer: Sealer,
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
    pub(super) fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            owner: OnceLock::new(),
        }
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
        self.sealer
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
        // Longer than any text of `seal`: refused before it is decoded.
        if text.len() > Sealer::max_text_len(CONTENT_BYTES) {
            return Err(Refusal::Foreign);
        }
        let bound = bound(principal, digest);
        let opened = self.sealer.open(Purpose::ParkedCall, bound, text);
        let content = opened.map_err(|error| match error {
            SealError::Expired => Refusal::Expired,
            _ => Refusal::Foreign,
        })?;
        let (owner, rest) = content.split_first_chunk().ok_or(Refusal::Foreign)?;
        let (serial, rest) = rest.split_first_chunk().ok_or(Refusal::Foreign)?;
        let round = rest.try_into().map_err(|_| Refusal::Foreign)?;
        if self.owner.get() != Some(&Owner(*owner)) {
            return Err(Refusal::Lost);
        }
        Ok((
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
        let states = StateSealer::new(Sealer::new([1; 32]));
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
        let before = StateSealer::new(Sealer::new([1; 32]));
        let after = StateSealer::new(Sealer::new([1; 32]));
        let (ada, digest) = (Principal::named("ada"), request_digest("tools/call", None));
        let text = before.seal(&round(), &ada, digest).unwrap();

        assert_eq!(after.open(&text, &ada, digest), Err(Refusal::Lost));
        let own = after.seal(&round(), &ada, digest).unwrap();
        assert!(after.open(&own, &ada, digest).is_ok());
        assert_eq!(after.open(&text, &ada, digest), Err(Refusal::Lost));
        let bob = Principal::named("bob");
        assert_eq!(after.open(&text, &bob, digest), Err(Refusal::Foreign));
    }
}
