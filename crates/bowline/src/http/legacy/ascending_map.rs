//! A map for keys that are assigned in ascending order: the streams of a session.

use std::collections::VecDeque;

/// A map that is small while it has one value: there are thousands of sessions with one stream each, and a `BTreeMap`
/// allocates room for eleven.
#[derive(Debug)]
pub(super) struct AscendingMap<T> {
    /// In the order of their keys.
    entries: VecDeque<(u64, T)>,
}

impl<T> AscendingMap<T> {
    /// Creates a map of one value.
    pub(super) fn with_entry(key: u64, value: T) -> Self {
        let mut entries = VecDeque::with_capacity(1);
        entries.push_back((key, value));
        Self { entries }
    }

    /// Adds a value whose key is greater than all others.
    pub(super) fn insert(&mut self, key: u64, value: T) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < key));
        self.entries.push_back((key, value));
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        let at = self.find(key)?;
        self.entries.get(at).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let at = self.find(key)?;
        self.entries.get_mut(at).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let at = self.find(key)?;
        let removed = self.entries.remove(at).map(|(_, value)| value);
        if self.entries.capacity() > MIN_SHRUNK_CAPACITY
            && self.entries.len() < self.entries.capacity() / 4
        {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|(key, _)| *key)
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.entries
            .binary_search_by_key(&key, |(own, _)| *own)
            .ok()
    }
}

/// A capacity up to this is not shrunk.
const MIN_SHRUNK_CAPACITY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_keys_until_they_are_removed() {
        let mut map = AscendingMap::with_entry(0, "zero");
        map.insert(3, "three");
        map.insert(7, "seven");

        assert_eq!(map.remove(3), Some("three"));
        assert_eq!(map.remove(3), None);
        *map.get_mut(7).unwrap() = "sieben";

        assert_eq!((map.get(0), map.get(3)), (Some(&"zero"), None));
        assert_eq!(map.get(7), Some(&"sieben"));
        assert_eq!((map.keys().collect::<Vec<_>>(), map.len()), (vec![0, 7], 2));
    }

    #[test]
    fn capacity_shrinks_after_removals() {
        let mut map = AscendingMap::with_entry(0, 0);
        (1..1000).for_each(|key| map.insert(key, key));
        (1..1000).for_each(|key| assert_eq!(map.remove(key), Some(key)));

        assert_eq!((map.len(), map.get(0)), (1, Some(&0)));
        assert!(map.entries.capacity() <= MIN_SHRUNK_CAPACITY);
    }
}
