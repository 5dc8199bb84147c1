//! What a server offers of one kind, by name.
//!
//! Requests read an immutable snapshot, which they share; a change makes a new one and swaps it in. The
//! lock is held for as long as it takes to copy a pointer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use super::page::KeptPages;
use crate::exchange::Extensions;

/// Everything of one kind.
#[derive(Debug)]
pub(super) struct Registry<T>(RwLock<Arc<Snapshot<T>>>);

/// Everything of one kind, at one moment.
#[derive(Debug)]
pub(super) struct Snapshot<T> {
    entries: BTreeMap<String, Arc<Offered<T>>>,
    is_advertised: bool,
    /// The list, encoded, once it was asked for.
    pub(super) pages: KeptPages,
}

/// One thing that is offered.
#[derive(Clone, Debug)]
pub(super) struct Offered<T> {
    pub(super) item: T,
    /// What the server it was mounted from shares with its handlers.
    pub(super) state: Extensions,
}

/// What is offered by the server itself, whose state its handler finds anyway.
impl<T> From<T> for Offered<T> {
    fn from(item: T) -> Self {
        let state = Extensions::default();
        Self { item, state }
    }
}

impl<T: Clone> Registry<T> {
    /// Everything as it is now.
    pub(super) fn now(&self) -> Arc<Snapshot<T>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Changes the entries of a registry that nobody else has yet.
    pub(super) fn building(&mut self) -> &mut Snapshot<T> {
        let current = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let snapshot = Arc::make_mut(current);
        snapshot.pages = KeptPages::default();
        snapshot
    }

    /// Changes the entries while requests are being answered.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Snapshot<T>) -> R) -> R {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Snapshot::clone(&current);
        next.pages = KeptPages::default();
        let returned = change(&mut next);
        let old = std::mem::replace(&mut *current, Arc::new(next));
        drop(current);
        drop(old); // it may be the last to hold a handler: not under the lock
        returned
    }
}

impl<T: Clone> Snapshot<T> {
    /// Whether clients are told that there is something of this kind, or may be.
    pub(super) fn is_advertised(&self) -> bool {
        self.is_advertised
    }

    pub(super) fn advertise(&mut self) {
        self.is_advertised = true;
    }

    pub(super) fn entries(&self) -> &BTreeMap<String, Arc<Offered<T>>> {
        &self.entries
    }

    /// The entries behind this name, or all.
    pub(super) fn after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (&String, &Arc<Offered<T>>)> + use<'_, T> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<str, _>((start, Bound::Unbounded))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<Offered<T>>> {
        self.entries.get(name)
    }

    /// Adds something, and returns what had the name before.
    pub(super) fn add(&mut self, name: String, item: T) -> Option<Arc<Offered<T>>> {
        self.is_advertised = true;
        self.entries.insert(name, Arc::new(item.into()))
    }

    /// Adds something, unless its name is taken; then it returns the name.
    pub(super) fn add_if_free(&mut self, name: String, it: Offered<T>) -> Option<String> {
        if self.entries.contains_key(&name) {
            return Some(name);
        }
        self.is_advertised = true;
        self.entries.insert(name, Arc::new(it));
        None
    }

    /// Takes something away. What was advertised stays so: a list may be empty, but it does not vanish.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Offered<T>>> {
        self.entries.remove(name)
    }
}

// By hand, because a derive would ask of `T` what only the pointer has to give.
impl<T> Default for Registry<T> {
    fn default() -> Self {
        let snapshot = Snapshot {
            entries: BTreeMap::new(),
            is_advertised: false,
            pages: KeptPages::default(),
        };
        Self(RwLock::new(Arc::new(snapshot)))
    }
}

/// The copy begins with the same entries, and changes on its own.
impl<T: Clone> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.now()))
    }
}

impl<T: Clone> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            is_advertised: self.is_advertised,
            pages: self.pages.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_does_not_change_under_its_reader() {
        let registry = Registry::default();
        registry.change(|entries| entries.add("a".into(), 1));
        let before = registry.now();

        registry.change(|entries| entries.remove("a"));

        assert_eq!(before.find("a").map(|offered| offered.item), Some(1));
        assert!(registry.now().find("a").is_none());
        assert!(registry.now().is_advertised());
    }

    #[test]
    fn a_copy_changes_on_its_own() {
        let mut registry = Registry::default();
        registry.building().add("a".into(), 1);
        let mut copy = registry.clone();

        copy.building().add("b".into(), 2);

        assert_eq!(registry.now().entries().len(), 1);
        assert_eq!(copy.now().entries().len(), 2);
    }
}
