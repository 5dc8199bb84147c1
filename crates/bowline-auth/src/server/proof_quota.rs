//! [`ProofQuota`]: limits the DPoP proofs of each key.

use std::collections::BTreeMap;

use crate::sync::Mutex;

/// Counts the proofs of each key, so that one client cannot fill the store of used proofs.
///
/// Counts per window of [`dpop::PROOF_LIFETIME`](super::dpop::PROOF_LIFETIME) seconds; the proofs of this window and
/// the previous one may still be in the store.
#[derive(Debug)]
pub(super) struct ProofQuota {
    max_per_key: usize,
    counts: Mutex<ProofCounts>,
}

#[derive(Debug, Default)]
struct ProofCounts {
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

    /// Counts a proof by the key with this thumbprint; `false` if it exceeds the limit.
    pub(super) fn count(&self, thumbprint: &str, now: u64, window: u64) -> bool {
        let mut counts = self.counts.lock();
        counts.roll_window(now / window.max(1));
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

impl ProofCounts {
    fn roll_window(&mut self, window: u64) {
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

/// How many keys are counted per window. Only keys that an issuer has bound a token to get this far.
const MAX_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_separate_quotas() {
        let quota = ProofQuota::new(2);

        assert!(quota.count("a", 100, 60));
        assert!(quota.count("a", 110, 60));
        assert!(!quota.count("a", 110, 60));
        assert!(quota.count("b", 110, 60));
        // The proofs of the previous window still count.
        assert!(!quota.count("a", 121, 60));
        assert!(quota.count("a", 180, 60));
        assert!(quota.count("a", 600, 60));
    }
}
