//! [`MemoryMarks`]: marks in the memory of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::marks::check_mark_size;
use super::{MarkError, MarkFuture, Marks};
use crate::instant_after::instant_after;
use crate::sync::{Mutex, MutexGuard};

/// A bounded store of marks in memory, for one process. When full it refuses new marks; it never evicts.
///
/// # Examples
///
/// ```
/// use bowline::cluster::MemoryMarks;
///
/// let marks = MemoryMarks::new().max_marks(10_000).max_value_bytes(1024 * 1024);
/// ```
#[derive(Debug)]
pub struct MemoryMarks {
    max_marks: usize,
    max_value_bytes: usize,
    table: Mutex<MarkTable>,
}

#[derive(Debug, Default)]
struct MarkTable {
    marks: BTreeMap<Arc<[u8]>, Mark>,
    /// Ordered by expiry.
    expiries: BTreeSet<(Instant, Arc<[u8]>)>,
    value_bytes: usize,
}

#[derive(Debug)]
struct Mark {
    value: Bytes,
    until: Instant,
}

impl MemoryMarks {
    /// Creates an empty store for at most 100,000 marks (about 20 MB) and 16 MiB of values.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_marks: 100_000,
            max_value_bytes: 16 * 1024 * 1024,
            table: Mutex::default(),
        }
    }

    /// Sets the maximum number of marks.
    #[must_use]
    pub fn max_marks(mut self, max: usize) -> Self {
        self.max_marks = max;
        self
    }

    /// Sets the maximum number of bytes of all values together.
    #[must_use]
    pub fn max_value_bytes(mut self, max: usize) -> Self {
        self.max_value_bytes = max;
        self
    }

    /// Returns the number of marks that have not expired.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current().marks.len()
    }

    /// Returns whether the store contains no unexpired mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the table and removes expired marks.
    fn current(&self) -> MutexGuard<'_, MarkTable> {
        let mut table = self.table.lock();
        table.expire(Instant::now());
        table
    }

    /// Sets a mark if `condition` accepts its value; returns the value that it had.
    fn set_if(
        &self,
        key: &[u8],
        value: &[u8],
        lifetime: Duration,
        condition: impl FnOnce(Option<&Bytes>) -> bool,
    ) -> Result<Option<Bytes>, MarkError> {
        check_mark_size(key, value)?;
        let mut table = self.current();
        let before = table.marks.get(key).map(|mark| mark.value.clone());
        if !condition(before.as_ref()) {
            return Ok(before);
        }
        let others = table.value_bytes - before.as_ref().map_or(0, Bytes::len);
        let is_full = before.is_none() && table.marks.len() >= self.max_marks;
        if is_full || others.saturating_add(value.len()) > self.max_value_bytes {
            return Err(MarkError::Full);
        }
        table.put(key, Bytes::copy_from_slice(value), lifetime);
        Ok(before)
    }
}

impl Default for MemoryMarks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks for MemoryMarks {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move { self.set_if(key, value, lifetime, |before| before.is_none()) })
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()> {
        Box::pin(async move { self.set_if(key, value, lifetime, |_| true).map(drop) })
    }

    fn replace<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            let is_expected =
                |before: Option<&Bytes>| before.is_some_and(|value| value == expected);
            let before = self.set_if(key, value, lifetime, is_expected)?;
            Ok(is_expected(before.as_ref()))
        })
    }

    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, b"")?;
            Ok(self.current().marks.get(key).map(|mark| mark.value.clone()))
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, expected)?;
            let mut table = self.current();
            let mark = table.marks.get(key);
            let is_expected = mark.is_some_and(|mark| mark.value == expected);
            if is_expected {
                table.take(key);
            }
            Ok(is_expected)
        })
    }
}

impl MarkTable {
    fn put(&mut self, key: &[u8], value: Bytes, lifetime: Duration) {
        self.take(key);
        let until = instant_after(Instant::now(), lifetime);
        let key: Arc<[u8]> = key.into();
        self.value_bytes += value.len();
        self.expiries.insert((until, key.clone()));
        self.marks.insert(key, Mark { value, until });
    }

    fn take(&mut self, key: &[u8]) {
        if let Some((key, mark)) = self.marks.remove_entry(key) {
            self.value_bytes -= mark.value.len();
            self.expiries.remove(&(mark.until, key));
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((_, key)) = self.expiries.first().filter(|(until, _)| *until <= now) {
            let key = key.clone();
            self.take(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_set_once_until_it_ends() {
        let marks = MemoryMarks::new();
        let set = |key: &'static [u8]| marks.set_if_absent(key, b"", MINUTE);

        assert_eq!(set(b"a").await.unwrap(), None);
        tokio::time::advance(MINUTE - Duration::from_secs(1)).await;
        // Setting it again does not extend the lifetime.
        assert_eq!(set(b"a").await.unwrap(), Some(Bytes::new()));
        assert_eq!(set(b"b").await.unwrap(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(marks.len(), 1);
        assert_eq!(set(b"a").await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_value_has_its_own_lifetime() {
        let marks = MemoryMarks::new();
        marks.set(b"a", b"1", MINUTE).await.unwrap();

        assert!(marks.replace(b"a", b"1", b"2", MINUTE * 2).await.unwrap());
        tokio::time::advance(MINUTE).await;
        assert_eq!(marks.read(b"a").await.unwrap().unwrap(), "2");
        tokio::time::advance(MINUTE).await;

        assert_eq!(marks.read(b"a").await.unwrap(), None);
        assert!(!marks.renew(b"a", b"2", MINUTE).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_refuses_new_marks_and_forgets_none_early() {
        let marks = MemoryMarks::new().max_marks(2);
        marks.set(b"a", b"", MINUTE).await.unwrap();
        marks.set(b"b", b"", MINUTE * 2).await.unwrap();

        let full = marks.set_if_absent(b"c", b"", MINUTE).await;
        let known = marks.set_if_absent(b"a", b"", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let room = marks.set_if_absent(b"c", b"", MINUTE).await.unwrap();

        assert!(matches!(full, Err(MarkError::Full)));
        assert!(known.is_some() && room.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn values_have_a_limit_and_expired_marks_free_their_bytes() {
        let marks = MemoryMarks::new().max_value_bytes(4);
        marks.set(b"a", b"123", MINUTE).await.unwrap();
        marks.set(b"b", b"", MINUTE * 2).await.unwrap();

        let too_much = marks.replace(b"b", b"", b"12", MINUTE * 2).await;
        // A value that replaces another is charged for the difference.
        let replaced = marks.set(b"a", b"1234", MINUTE).await;
        let unchanged = marks.read(b"b").await.unwrap();
        tokio::time::advance(MINUTE).await;
        let fits = marks.set(b"b", b"1234", MINUTE).await;

        assert!(matches!(too_much, Err(MarkError::Full)));
        assert_eq!(unchanged, Some(Bytes::new()));
        assert!(replaced.is_ok() && fits.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_that_no_clock_can_represent_is_a_long_one() {
        let marks = MemoryMarks::new();

        marks.set(b"a", b"", Duration::MAX).await.unwrap();

        assert_eq!(marks.read(b"a").await.unwrap(), Some(Bytes::new()));
    }
}
