//! Proofs that were used already, and how many each key may use.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Counts the proofs of each key, so that one client cannot take the room of all others.
///
/// Counted by the windows of [`dpop::USABLE_FOR`](super::dpop::USABLE_FOR) seconds: those of this window and of the
/// one before are what may still be remembered.
#[derive(Debug)]
pub(super) struct ProofQuota {
    max_per_key: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    window: u64,
    current: BTreeMap<String, usize>,
    previous: BTreeMap<String, usize>,
}

impl ProofQuota {
    pub(super) fn new(max_per_key: usize) -> Self {
        Self {
            max_per_key,
            counts: Mutex::default(),
        }
    }

    /// Counts a proof by the key with this thumbprint; `false` if there were too many.
    pub(super) fn count(&self, thumbprint: &str, now: u64, window: u64) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.turn_to(now / window.max(1));
        let before = counts.previous.get(thumbprint).copied().unwrap_or(0);
        let known = counts.current.len();
        let is_new = !counts.current.contains_key(thumbprint);
        if is_new && known >= MAX_KEYS {
            return false;
        }
        let count = counts.current.entry(thumbprint.to_owned()).or_default();
        if before + *count >= self.max_per_key {
            return false;
        }
        *count += 1;
        true
    }
}

impl Counts {
    fn turn_to(&mut self, window: u64) {
        if window == self.window {
            return;
        }
        let last = std::mem::take(&mut self.current);
        self.previous = match self.window.checked_add(1) {
            Some(next) if next == window => last,
            _ => BTreeMap::new(),
        };
        self.window = window;
    }
}

/// How many keys are counted: each of them is one that an issuer has bound a token to.
const MAX_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_used_its_quota_takes_none_of_the_others() {
        let quota = ProofQuota::new(2);

        assert!(quota.count("a", 100, 60));
        assert!(quota.count("a", 110, 60));
        assert!(!quota.count("a", 110, 60));
        assert!(quota.count("b", 110, 60));
        // Those of the last window may still be remembered.
        assert!(!quota.count("a", 121, 60));
        assert!(quota.count("a", 180, 60));
        assert!(quota.count("a", 600, 60));
    }
}
