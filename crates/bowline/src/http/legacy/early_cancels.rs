//! Early cancels: `notifications/cancelled` that arrive before their request.
//!
//! The POSTs of a session use several connections, so a cancel can overtake its request. It is kept for
//! [`EARLY_CANCEL_TTL`], and the request is ended on arrival, before its handler starts.
//!
//! A cancel of an answered request looks the same, but keeping it would end a later request that reuses the id. So a
//! cancel is kept only if its id was **never** used in this session. Used ids are stored as ranges of numbers and as
//! hashes of texts. Excess ranges are merged, and then a cancel for an id between them is ignored. Only a text id that
//! is reused after [`MAX_TEXTS`] others could be cancelled wrongly, and ids must not be reused within a session.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bowline_types::RequestId;
use tokio::time::Instant;

use crate::limits::{Account, Charge, ChargeKind};

/// The early cancels of one session, and the ids used in it.
#[derive(Debug, Default)]
pub(super) struct EarlyCancels {
    /// Oldest first.
    cancels: VecDeque<EarlyCancel>,
    used: UsedIds,
}

#[derive(Debug)]
struct EarlyCancel {
    id: RequestId,
    until: Instant,
    charge: Charge,
}

impl EarlyCancels {
    /// Keeps the cancel of a request that is not in flight, and returns whether it did.
    pub(super) fn keep(&mut self, now: Instant, id: &RequestId, account: &Arc<Account>) -> bool {
        if self.used.contains(id) {
            return false;
        }
        if self.cancels.iter().any(|cancel| cancel.id == *id) {
            return true;
        }
        let length = match id {
            RequestId::Number(_) => 0,
            RequestId::Text(text) => text.len(),
        };
        let mut charge = account.empty_charge(ChargeKind::Request);
        if self.cancels.len() >= MAX_CANCELS
            || length > MAX_ID_BYTES
            || !charge.try_grow(PER_CANCEL)
        {
            return false;
        }
        self.cancels.push_back(EarlyCancel {
            id: id.clone(),
            until: now + EARLY_CANCEL_TTL,
            charge,
        });
        true
    }

    /// Records the id of a request that arrived. If it was cancelled early, returns the charge of that cancel.
    pub(super) fn record_request(&mut self, id: &RequestId) -> Option<Charge> {
        self.used.insert(id);
        let at = self.cancels.iter().position(|cancel| cancel.id == *id)?;
        self.cancels.remove(at).map(|cancel| cancel.charge)
    }

    /// Drops expired cancels, and returns their charges.
    pub(super) fn expire(&mut self, now: Instant) -> impl Iterator<Item = Charge> + '_ {
        std::iter::from_fn(move || {
            let is_expired = self
                .cancels
                .front()
                .is_some_and(|cancel| cancel.until <= now);
            let expired = is_expired.then(|| self.cancels.pop_front()).flatten();
            expired.map(|cancel| cancel.charge)
        })
    }

    /// Returns when the oldest cancel expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.cancels.front().map(|cancel| cancel.until)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cancels.len()
    }

    /// Drops all cancels, and returns their charges.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Charge> {
        std::mem::take(&mut self.cancels)
            .into_iter()
            .map(|cancel| cancel.charge)
    }
}

/// The used ids. May contain numbers that were not used, and drops the oldest texts.
#[derive(Debug, Default)]
struct UsedIds {
    /// First and last of each range, in order, with gaps in between.
    numbers: Vec<(i64, i64)>,
    /// Hashes, oldest first.
    texts: VecDeque<u64>,
}

impl UsedIds {
    fn contains(&self, id: &RequestId) -> bool {
        match id {
            RequestId::Number(number) => {
                let at = self.numbers.partition_point(|(_, last)| last < number);
                self.numbers
                    .get(at)
                    .is_some_and(|(first, _)| first <= number)
            }
            RequestId::Text(text) => self.texts.contains(&hash(text)),
        }
    }

    fn insert(&mut self, id: &RequestId) {
        // Most clients count upwards.
        if let (RequestId::Number(number), Some((_, last))) = (id, self.numbers.last_mut())
            && last.checked_add(1) == Some(*number)
        {
            *last = *number;
            return;
        }
        if self.contains(id) {
            return;
        }
        match id {
            RequestId::Number(number) => self.insert_number(*number),
            RequestId::Text(text) => {
                if self.texts.len() >= MAX_TEXTS {
                    self.texts.pop_front();
                }
                self.texts.push_back(hash(text));
            }
        }
    }

    fn insert_number(&mut self, number: i64) {
        let at = self.numbers.partition_point(|(_, last)| *last < number);
        self.numbers.insert(at, (number, number));
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
        if self.numbers.len() > MAX_RANGES {
            // Merges the two lowest ranges: a late request is least likely to have an id between them.
            self.numbers[1].0 = self.numbers[0].0;
            self.numbers.remove(0);
        }
    }

    /// Merges a range with the next one if there is no gap between them.
    fn join(&mut self, at: usize) {
        if let Some([(_, last), (next, end)]) = self.numbers.get(at..).and_then(<[_]>::first_chunk)
            && last.checked_add(1) == Some(*next)
        {
            self.numbers[at].1 = *end;
            self.numbers.remove(at + 1);
        }
    }
}

/// Deterministic, so that a seed reproduces its schedule.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Longer than a network delays a request without losing it, and shorter than a client takes to reuse an id.
const EARLY_CANCEL_TTL: Duration = Duration::from_secs(10);
const MAX_CANCELS: usize = 256;
/// The maximum length of the id of an early cancel, in bytes.
const MAX_ID_BYTES: usize = 128;
/// Estimated bytes of an early cancel.
const PER_CANCEL: usize = 256;
const MAX_RANGES: usize = 32;
const MAX_TEXTS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn number(id: i64) -> RequestId {
        id.into()
    }

    #[test]
    fn a_used_id_is_never_cancelled_early() {
        let account = Account::total(Limits::default());
        let now = Instant::now();
        let mut early = EarlyCancels::default();
        for id in [number(7), "seven".into()] {
            assert!(early.record_request(&id).is_none());

            assert!(!early.keep(now, &id, &account));

            assert!(early.record_request(&id).is_none());
        }
        assert!(early.keep(now, &"7".into(), &account), "a different id");
    }

    #[test]
    fn early_cancels_are_bounded_in_number_and_time() {
        let account = Account::total(Limits::default());
        let now = Instant::now();
        let mut early = EarlyCancels::default();

        let kept = (0..1000).filter(|id| early.keep(now, &number(*id), &account));

        assert_eq!(kept.count(), MAX_CANCELS);
        assert!(!early.keep(now, &"x".repeat(MAX_ID_BYTES + 1).into(), &account));
        assert_eq!(account.usage().request_bytes, MAX_CANCELS * PER_CANCEL);
        assert_eq!(early.next_expiry(), Some(now + EARLY_CANCEL_TTL));
        assert_eq!(early.expire(now).count(), 0);
        assert_eq!(early.expire(now + EARLY_CANCEL_TTL).count(), MAX_CANCELS);
        assert_eq!(account.usage().request_bytes, 0);
    }

    #[test]
    fn numbers_that_follow_each_other_take_up_one_range() {
        let mut used = UsedIds::default();

        for id in [5, 3, 4, 1, i64::MAX, i64::MIN, 2, i64::MAX - 1] {
            used.insert(&number(id));
        }

        let ranges = [(i64::MIN, i64::MIN), (1, 5), (i64::MAX - 1, i64::MAX)];
        assert_eq!(used.numbers, ranges);
        assert!(!used.contains(&number(0)) && !used.contains(&number(6)));
    }

    #[test]
    fn used_numbers_are_remembered_in_bounded_memory() {
        let mut used = UsedIds::default();

        for id in 0..1000 {
            used.insert(&number(id * 10));
            used.insert(&id.to_string().as_str().into());
        }

        assert!((0..1000).all(|id| used.contains(&number(id * 10))));
        assert!(!used.contains(&number(9985)), "a high gap remains");
        assert_eq!(used.numbers.len(), MAX_RANGES);
        assert_eq!(used.texts.len(), MAX_TEXTS);
    }
}
