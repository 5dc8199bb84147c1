//! The registry of a server's tools, prompts, resources or resource templates, by name or URI.
//!
//! Requests share an immutable snapshot; a change replaces it by a new one. Readers hold the lock only to clone the
//! `Arc`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::pagination::CachedPages;
use crate::exchange::Extensions;
use crate::sync::Mutex;

/// All entries of one kind.
#[derive(Debug)]
pub(super) struct Registry<T>(Mutex<Arc<Snapshot<T>>>);

/// All entries of one kind at one moment.
#[derive(Debug)]
pub(super) struct Snapshot<T> {
    entries: BTreeMap<String, Arc<RegistryEntry<T>>>,
    is_advertised: bool,
    /// The encoded list, filled by the first request for it.
    pub(super) pages: CachedPages,
}

/// An entry of a registry.
#[derive(Clone, Debug)]
pub(super) struct RegistryEntry<T> {
    pub(super) item: T,
    /// The state of the mounted server that it comes from; empty unless it was mounted.
    pub(super) state: Extensions,
}

/// An entry of the server itself, whose state is added to every request anyway.
impl<T> From<T> for RegistryEntry<T> {
    fn from(item: T) -> Self {
        let state = Extensions::default();
        Self { item, state }
    }
}

impl<T: Clone> Registry<T> {
    /// Returns the current snapshot.
    pub(super) fn snapshot(&self) -> Arc<Snapshot<T>> {
        Arc::clone(&self.0.lock())
    }

    /// Returns the entries for a change while the server is built, without locking.
    pub(super) fn get_mut(&mut self) -> &mut Snapshot<T> {
        let snapshot = Arc::make_mut(self.0.get_mut());
        snapshot.pages = CachedPages::default();
        snapshot
    }

    /// Changes the entries while the server runs.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Snapshot<T>) -> R) -> R {
        let mut current = self.0.lock();
        let mut next = Snapshot::clone(&current);
        next.pages = CachedPages::default();
        let returned = change(&mut next);
        let old = std::mem::replace(&mut *current, Arc::new(next));
        drop(current);
        drop(old); // outside of the lock, because it may drop a handler, which runs foreign code
        returned
    }
}

impl<T: Clone> Snapshot<T> {
    /// Returns whether the capability for this kind is advertised.
    pub(super) fn is_advertised(&self) -> bool {
        self.is_advertised
    }

    pub(super) fn advertise(&mut self) {
        self.is_advertised = true;
    }

    pub(super) fn entries(&self) -> &BTreeMap<String, Arc<RegistryEntry<T>>> {
        &self.entries
    }

    /// Returns the entries after this name, or all.
    pub(super) fn entries_after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (&String, &Arc<RegistryEntry<T>>)> + use<'_, T> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<str, _>((start, Bound::Unbounded))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<RegistryEntry<T>>> {
        self.entries.get(name)
    }

    /// Adds an entry, and returns the one that it replaces.
    pub(super) fn add(&mut self, name: String, item: T) -> Option<Arc<RegistryEntry<T>>> {
        self.is_advertised = true;
        self.entries.insert(name, Arc::new(item.into()))
    }

    /// Adds an entry, or returns the name if it is a duplicate.
    pub(super) fn insert_unless_present(
        &mut self,
        name: String,
        entry: RegistryEntry<T>,
    ) -> Option<String> {
        if self.entries.contains_key(&name) {
            return Some(name);
        }
        self.is_advertised = true;
        self.entries.insert(name, Arc::new(entry));
        None
    }

    /// Removes an entry. The capability stays advertised even if the list is empty now.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<RegistryEntry<T>>> {
        self.entries.remove(name)
    }
}

// Not derived: the derive would require `T: Default`.
impl<T> Default for Registry<T> {
    fn default() -> Self {
        let snapshot = Snapshot {
            entries: BTreeMap::new(),
            is_advertised: false,
            pages: CachedPages::default(),
        };
        Self(Mutex::new(Arc::new(snapshot)))
    }
}

/// The clone starts with the same entries; later changes to one do not affect the other.
impl<T: Clone> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.snapshot()))
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
        let before = registry.snapshot();

        registry.change(|entries| entries.remove("a"));

        assert_eq!(before.find("a").map(|entry| entry.item), Some(1));
        assert!(registry.snapshot().find("a").is_none());
        assert!(registry.snapshot().is_advertised());
    }

    #[test]
    fn a_clone_changes_independently() {
        let mut registry = Registry::default();
        registry.get_mut().add("a".into(), 1);
        let mut copy = registry.clone();

        copy.get_mut().add("b".into(), 2);

        assert_eq!(registry.snapshot().entries().len(), 1);
        assert_eq!(copy.snapshot().entries().len(), 2);
    }
}
