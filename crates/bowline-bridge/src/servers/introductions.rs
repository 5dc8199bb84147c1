//! [`Introductions`]: what a server said about itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Json;
use bowline::exchange::Dialect;

/// What a server said about itself, and in which version. Clones share the text.
#[derive(Clone)]
pub(super) struct Introduction {
    pub(super) result: Json,
    pub(super) dialect: &'static Dialect,
}

/// What a server last said about itself, to each owner of connections: all clients, or one principal if connections carry
/// its credentials. What one principal was told is never shown to another. Clones are the same introductions.
#[derive(Clone, Default)]
pub(super) struct Introductions(Arc<Mutex<ByOwner>>);

#[derive(Default)]
struct ByOwner {
    introductions: BTreeMap<String, Recorded>,
    /// The size of all of them.
    bytes: usize,
    /// Counts records, as a clock.
    now: u64,
}

struct Recorded {
    introduction: Introduction,
    at: u64,
}

impl Introductions {
    pub(super) fn get(&self, owner: &str) -> Option<Introduction> {
        let by_owner = self.lock();
        let recorded = by_owner.introductions.get(owner);
        recorded.map(|it| it.introduction.clone())
    }

    /// Records what a server said to an owner. If there are too many, those that were not recorded for the longest time
    /// are removed.
    pub(super) fn set(&self, owner: &str, result: &Json, dialect: &'static Dialect) {
        let mut by_owner = self.lock();
        by_owner.now += 1;
        let now = by_owner.now;
        let known = by_owner.introductions.get_mut(owner);
        if let Some(known) = known.filter(|it| it.introduction.result == *result) {
            known.at = now;
            known.introduction.dialect = dialect;
            return;
        }
        let introduction = Introduction {
            result: result.to_unshared(),
            dialect,
        };
        by_owner.bytes += size(&introduction);
        let recorded = Recorded {
            introduction,
            at: now,
        };
        let before = by_owner.introductions.insert(owner.to_owned(), recorded);
        by_owner.bytes -= before.map_or(0, |it| size(&it.introduction));
        // The last one stays, because it is in use: the limit of one message bounds it.
        while by_owner.introductions.len() > 1
            && (by_owner.introductions.len() > MAX_OWNERS || by_owner.bytes > MAX_BYTES)
        {
            by_owner.remove_oldest();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByOwner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ByOwner {
    fn remove_oldest(&mut self) {
        let oldest = self.introductions.iter().min_by_key(|(_, it)| it.at);
        let oldest = oldest.map(|(owner, _)| owner.clone());
        let removed = oldest.and_then(|owner| self.introductions.remove(&owner));
        self.bytes -= removed.map_or(0, |it| size(&it.introduction));
    }
}

fn size(introduction: &Introduction) -> usize {
    introduction.result.as_bytes().len()
}

/// Principals of one server. One whose introduction was removed is told what a server may have that was never reached,
/// and only while the server cannot be reached.
const MAX_OWNERS: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Json {
        Json::from(serde_json::Value::from("x".repeat(bytes)))
    }

    #[test]
    fn the_oldest_of_too_many_introductions_are_removed() {
        let introductions = Introductions::default();

        for owner in 0..=MAX_OWNERS {
            introductions.set(&owner.to_string(), &text(1), Dialect::LATEST);
            introductions.set("0", &text(1), Dialect::LATEST);
        }

        assert!(introductions.get("0").is_some());
        assert!(introductions.get("1").is_none());
        assert!(introductions.get(&MAX_OWNERS.to_string()).is_some());
        assert_eq!(introductions.lock().introductions.len(), MAX_OWNERS);
    }

    #[test]
    fn large_introductions_leave_room_for_fewer_others() {
        let introductions = Introductions::default();

        for owner in ["a", "b", "c"] {
            introductions.set(owner, &text(MAX_BYTES / 2), Dialect::LATEST);
        }

        assert!(introductions.get("a").is_none() && introductions.get("c").is_some());
        introductions.set("d", &text(2 * MAX_BYTES), Dialect::LATEST);
        assert!(introductions.get("d").is_some());
        let by_owner = introductions.lock();
        let (count, bytes) = (by_owner.introductions.len(), by_owner.bytes);
        assert_eq!((count, bytes), (1, 2 * MAX_BYTES + 2));
    }
}
