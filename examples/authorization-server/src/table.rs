//! A table whose entries expire, and that never grows beyond its bound.

use std::collections::BTreeMap;

/// Entries by name, each until its time is over.
#[derive(Debug)]
pub(crate) struct Table<T> {
    most: usize,
    entries: BTreeMap<String, (u64, T)>,
}

impl<T> Table<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            entries: BTreeMap::new(),
        }
    }

    /// Adds an entry that is there until `end`. Whether there was room.
    pub(crate) fn add(&mut self, name: String, value: T, now: u64, end: u64) -> bool {
        if self.entries.len() >= self.most {
            self.entries.retain(|_, (end, _)| *end > now);
        }
        let has_room = self.entries.len() < self.most;
        if has_room {
            self.entries.insert(name, (end, value));
        }
        has_room
    }

    pub(crate) fn find(&mut self, name: &str, now: u64) -> Option<&mut T> {
        let (end, value) = self.entries.get_mut(name)?;
        (*end > now).then_some(value)
    }

    /// When an entry ends.
    pub(crate) fn end_of(&self, name: &str) -> Option<u64> {
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
    fn entries_end_and_make_room() {
        let mut table = Table::new(1);

        assert!(table.add("a".into(), 1, 0, 10));
        assert!(!table.add("b".into(), 2, 9, 20));
        assert_eq!(table.find("a", 9), Some(&mut 1));
        assert_eq!(table.find("a", 10), None);
        assert!(table.add("b".into(), 2, 10, 20));
        assert_eq!(table.take("b", 19), Some(2));
        assert_eq!(table.take("b", 19), None);
    }
}
