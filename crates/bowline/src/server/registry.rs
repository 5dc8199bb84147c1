//! The registry of a server's tools, prompts, resources, resource templates or completers, by name, URI or target.
//!
//! All clones of a server share its registries. Requests share an immutable snapshot; a change replaces it by a new one
//! if a request holds it. Readers hold the lock only to clone the `Arc`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use super::pagination::CachedPages;
use super::visibility::Visible;
use crate::exchange::{Context, Extensions};
use crate::sync::Mutex;

/// All entries of one kind.
#[derive(Debug)]
pub(super) struct Registry<T, K = String>(Mutex<Arc<Snapshot<T, K>>>);

/// All entries of one kind at one moment.
#[derive(Debug)]
pub(super) struct Snapshot<T, K = String> {
    entries: BTreeMap<K, Arc<RegistryEntry<T>>>,
    is_advertised: bool,
    /// The encoded list, filled by the first request for it.
    pub(super) pages: CachedPages,
    /// Whether every caller sees every entry, computed by the first request that depends on it.
    is_public: OnceLock<bool>,
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

impl<T: Visible> RegistryEntry<T> {
    /// Returns whether the caller of this request sees the entry.
    pub(super) fn is_visible_to(&self, cx: &Context) -> bool {
        self.item.visibility().includes(cx, &self.state)
    }
}

impl<T, K: Clone + Ord> Registry<T, K> {
    /// Returns the current snapshot.
    pub(super) fn snapshot(&self) -> Arc<Snapshot<T, K>> {
        Arc::clone(&self.0.lock())
    }

    /// Changes the entries, and discards the encoded pages.
    ///
    /// `change` must return the entries that it removes or rejects: to drop a handler runs foreign code, which must not
    /// happen under the lock. A replaced snapshot contains no other entries than its successor.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Snapshot<T, K>) -> R) -> R {
        let mut current = self.0.lock();
        let snapshot = Arc::make_mut(&mut current);
        snapshot.pages = CachedPages::for_revision(snapshot.pages.revision());
        snapshot.is_public = OnceLock::new();
        change(snapshot)
    }

    /// Discards the encoded pages, because the settings that they contain have changed.
    pub(super) fn discard_pages(&self, revision: u64) {
        self.change(|snapshot| snapshot.pages = CachedPages::for_revision(revision));
    }
}

impl<T, K: Ord> Snapshot<T, K> {
    /// Returns whether the capability for this kind is advertised.
    pub(super) fn is_advertised(&self) -> bool {
        self.is_advertised
    }

    pub(super) fn advertise(&mut self) {
        self.is_advertised = true;
    }

    pub(super) fn entries(&self) -> &BTreeMap<K, Arc<RegistryEntry<T>>> {
        &self.entries
    }

    pub(super) fn find<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&Arc<RegistryEntry<T>>>
    where
        K: Borrow<Q>,
    {
        self.entries.get(name)
    }

    /// Adds an entry, and returns the one that it replaces.
    pub(super) fn add(&mut self, name: K, item: T) -> Option<Arc<RegistryEntry<T>>> {
        self.is_advertised = true;
        self.entries.insert(name, Arc::new(item.into()))
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// Returns the name and the entry if the name is a duplicate.
    pub(super) fn insert_unless_present(
        &mut self,
        name: K,
        entry: Arc<RegistryEntry<T>>,
    ) -> Result<(), (K, Arc<RegistryEntry<T>>)> {
        if self.entries.contains_key(&name) {
            return Err((name, entry));
        }
        self.is_advertised = true;
        self.entries.insert(name, entry);
        Ok(())
    }

    /// Removes an entry. The capability stays advertised even if the list is empty now.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, name: &Q) -> Option<Arc<RegistryEntry<T>>>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(name)
    }
}

impl<T: Visible, K: Ord> Snapshot<T, K> {
    /// Returns whether every caller sees every entry.
    pub(super) fn is_public(&self) -> bool {
        *self.is_public.get_or_init(|| {
            let mut entries = self.entries.values();
            entries.all(|entry| entry.item.visibility().is_public())
        })
    }
}

impl<T> Snapshot<T> {
    /// Returns the entries after this name, or all.
    pub(super) fn entries_after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (&String, &Arc<RegistryEntry<T>>)> + use<'_, T> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<str, _>((start, Bound::Unbounded))
    }
}

// Not derived: the derives would require `T: Default` and `T: Clone`.
impl<T, K> Default for Registry<T, K> {
    fn default() -> Self {
        let snapshot = Snapshot {
            entries: BTreeMap::new(),
            is_advertised: false,
            pages: CachedPages::for_revision(0),
            is_public: OnceLock::new(),
        };
        Self(Mutex::new(Arc::new(snapshot)))
    }
}

impl<T, K: Clone> Clone for Snapshot<T, K> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            is_advertised: self.is_advertised,
            pages: self.pages.clone(),
            is_public: self.is_public.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_does_not_change_under_its_reader() {
        let registry = Registry::<i32>::default();
        registry.change(|entries| entries.add("a".into(), 1));
        let before = registry.snapshot();

        registry.change(|entries| entries.remove("a"));

        assert_eq!(before.find("a").map(|entry| entry.item), Some(1));
        assert!(registry.snapshot().find("a").is_none());
        assert!(registry.snapshot().is_advertised());
    }

    #[test]
    fn a_duplicate_is_returned_and_not_dropped_under_the_lock() {
        let registry = Registry::<i32>::default();
        let insert = |item: i32| {
            registry
                .change(|entries| entries.insert_unless_present("a".into(), Arc::new(item.into())))
        };

        assert!(insert(1).is_ok());
        let (name, entry) = insert(2).unwrap_err();

        assert_eq!((&*name, entry.item), ("a", 2));
        assert_eq!(registry.snapshot().find("a").unwrap().item, 1);
    }
}
