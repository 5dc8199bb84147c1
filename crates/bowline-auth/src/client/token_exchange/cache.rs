//! [`ExchangeCache`]: the tokens of an exchange, by principal and subject token.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::SubjectToken;
use crate::client::Secret;

/// A token of an exchange.
#[derive(Debug)]
pub(super) struct ExchangedToken {
    pub(super) access: Secret,
    /// When to exchange again: shortly before the token expires.
    pub(super) renew_at: Instant,
    pub(super) expires_at: Instant,
}

/// The token of one principal. The lock is held during an exchange, so that there is one at a time.
pub(super) type TokenSlot = Arc<tokio::sync::Mutex<Option<ExchangedToken>>>;

/// The tokens of an exchange.
#[derive(Debug)]
pub(super) struct ExchangeCache {
    max: NonZeroUsize,
    entries: BTreeMap<CacheKey, CacheEntry>,
    uses: u64,
}

/// Contains the digest of the subject token: a later token of the same principal may grant less, and then must not be
/// answered with what the earlier one was exchanged for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CacheKey {
    principal: Arc<str>,
    digest: [u8; 32],
}

#[derive(Debug)]
struct CacheEntry {
    slot: TokenSlot,
    /// The number of the last use.
    used: u64,
}

impl ExchangeCache {
    pub(super) fn new(max: NonZeroUsize) -> Self {
        Self {
            max,
            entries: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Returns the slot for a subject token, which may be empty.
    pub(super) fn slot(&mut self, subject: &SubjectToken) -> TokenSlot {
        let key = CacheKey {
            principal: subject.principal.clone(),
            digest: Sha256::digest(subject.token.expose()).into(),
        };
        self.uses += 1;
        if !self.entries.contains_key(&key) {
            self.make_room();
        }
        let used = self.uses;
        let entry = self.entries.entry(key).or_insert_with(|| CacheEntry {
            slot: TokenSlot::default(),
            used,
        });
        entry.used = used;
        entry.slot.clone()
    }

    /// Removes expired tokens, and at the limit the least recently used one. A call that still waits for that has its
    /// own reference.
    fn make_room(&mut self) {
        let now = Instant::now();
        self.entries.retain(|_, entry| {
            let token = entry.slot.try_lock();
            // A slot that is locked is in use.
            token.is_ok_and(|token| token.as_ref().is_some_and(|token| now < token.expires_at))
                || Arc::strong_count(&entry.slot) > 1
        });
        if self.entries.len() >= self.max.get() {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
