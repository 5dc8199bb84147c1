//! [`ExpiringMap`]: a bounded map whose entries expire.

use std::collections::BTreeMap;

/// A bounded map whose entries expire.
#[derive(Debug)]
pub(crate) struct ExpiringMap<T> {
    max: usize,
    entries: BTreeMap<String, (u64, T)>,
}

impl<T> ExpiringMap<T> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            entries: BTreeMap::new(),
        }
    }

    /// Adds an entry that expires at `end`. Returns whether there was room.
    pub(crate) fn add(&mut self, name: String, value: T, now: u64, end: u64) -> bool {
        if self.entries.len() >= self.max {
            self.entries.retain(|_, (end, _)| *end > now);
        }
        let has_room = self.entries.len() < self.max;
        if has_room {
            self.entries.insert(name, (end, value));
        }
        has_room
    }

    pub(crate) fn find(&mut self, name: &str, now: u64) -> Option<&mut T> {
        let (end, value) = self.entries.get_mut(name)?;
        (*end > now).then_some(value)
    }

    /// Returns when an entry expires.
    pub(crate) fn expiry_of(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|(end, _)| *end)
    }

    pub(crate) fn take(&mut self, name: &str, now: u64) -> Option<T> {
        let (end, value) = self.entries.remove(name)?;
        (end > now).then_some(value)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|_, (_, value)| keep(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_entries_make_room() {
        let mut map = ExpiringMap::new(1);

        assert!(map.add("a".into(), 1, 0, 10));
        assert!(!map.add("b".into(), 2, 9, 20));
        assert_eq!(map.find("a", 9), Some(&mut 1));
        assert_eq!(map.find("a", 10), None);
        assert!(map.add("b".into(), 2, 10, 20));
        assert_eq!(map.take("b", 19), Some(2));
        assert_eq!(map.take("b", 19), None);
    }
}
