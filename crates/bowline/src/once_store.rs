//! [`OnceStore`], a set-if-absent store for effects that must happen at most once, and [`MemoryOnceStore`].
//!
//! ```text
//! mark(key) ──▶ First ──▶ perform the effect ──▶ store_value(key, result)
//!          └──▶ Again(Some(result)): performed; Again(None): being performed, or its result was lost
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::BoxFuture;
use crate::instant_after::instant_after;
use crate::sync::{Mutex, MutexGuard};

/// A store of marks: keys that are set if absent and that expire.
///
/// Used for `DPoP` proofs, which are valid once, and for [`Context::once`](crate::Context::once).
/// [`MemoryOnceStore`], the default, covers one process. Replicas must share a store, such as a table with a unique key
/// or `SET key value NX PX lifetime` in Redis.
///
/// A store must not evict a mark before its lifetime ends, or the effect can happen again. A stored value may be lost
/// at any time.
///
/// # Cancel safety
///
/// A dropped future may have set its mark. Callers treat the mark as set, so that an effect happens at most once.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{OnceOutcome, OnceStore, MemoryOnceStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline::OnceStoreError> {
/// let store = MemoryOnceStore::new();
/// let hour = Duration::from_secs(3600);
///
/// assert_eq!(store.mark("order 7", hour).await?, OnceOutcome::First);
/// assert_eq!(store.mark("order 7", hour).await?, OnceOutcome::Again(None));
/// store.store_value("order 7", "shipped".into()).await?;
/// assert_eq!(store.mark("order 7", hour).await?, OnceOutcome::Again(Some("shipped".into())));
/// # Ok(()) }
/// ```
pub trait OnceStore: Send + Sync + 'static {
    /// Sets the mark `key` for `lifetime` if it is absent. Atomic: exactly one caller gets [`OnceOutcome::First`].
    /// An existing mark keeps its lifetime.
    ///
    /// Keys are printable ASCII of at most 256 bytes. They are not secret.
    ///
    /// # Errors
    ///
    /// If the store is full or the outcome is unknown. Callers then refuse the request.
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<OnceOutcome, OnceStoreError>>;

    /// Stores a value with a mark until the mark expires. Does nothing if the mark is absent.
    ///
    /// # Errors
    ///
    /// If the value was not stored. The mark stays set.
    fn store_value<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<(), OnceStoreError>>;
}

impl<M: OnceStore + ?Sized> OnceStore for Arc<M> {
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<OnceOutcome, OnceStoreError>> {
        (**self).mark(key, lifetime)
    }

    fn store_value<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<(), OnceStoreError>> {
        (**self).store_value(key, value)
    }
}

/// The outcome of [`OnceStore::mark`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "callers must handle both cases")]
pub enum OnceOutcome {
    /// The mark was absent and is now set.
    First,
    /// The mark was already set. Contains the value that was stored with it, if any.
    Again(Option<Bytes>),
}

/// The error of a [`OnceStore`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceStoreError {
    /// The store has no capacity for another mark or value.
    #[error("once store is full")]
    Full,
    /// The store failed.
    #[error("failed to access the once store")]
    Unavailable {
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// A bounded in-memory store of marks, for one process. When full it refuses new marks; it never evicts.
///
/// # Examples
///
/// ```
/// use bowline::MemoryOnceStore;
///
/// let store = MemoryOnceStore::new().max_marks(10_000).max_value_bytes(1024 * 1024);
/// ```
#[derive(Debug)]
pub struct MemoryOnceStore {
    max_marks: usize,
    max_value_bytes: usize,
    table: Mutex<MarkTable>,
}

#[derive(Debug, Default)]
struct MarkTable {
    /// The marks and the values that were stored with them.
    marks: BTreeMap<Arc<str>, Option<Bytes>>,
    /// Ordered by expiry.
    expiries: BTreeSet<(Instant, Arc<str>)>,
    value_bytes: usize,
}

impl MemoryOnceStore {
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

    fn set(&self, key: &str, lifetime: Duration) -> Result<OnceOutcome, OnceStoreError> {
        let mut table = self.current();
        if let Some(value) = table.marks.get(key) {
            return Ok(OnceOutcome::Again(value.clone()));
        }
        if table.marks.len() >= self.max_marks {
            return Err(OnceStoreError::Full);
        }
        let until = instant_after(Instant::now(), lifetime);
        let key: Arc<str> = key.into();
        table.expiries.insert((until, key.clone()));
        table.marks.insert(key, None);
        Ok(OnceOutcome::First)
    }

    fn put_value(&self, key: &str, value: Bytes) -> Result<(), OnceStoreError> {
        let mut table = self.current();
        let table = &mut *table;
        let Some(stored) = table.marks.get_mut(key) else {
            return Ok(());
        };
        let others = table.value_bytes - bytes_of(stored);
        let value_bytes = others.saturating_add(value.len());
        if value_bytes > self.max_value_bytes {
            return Err(OnceStoreError::Full);
        }
        table.value_bytes = value_bytes;
        *stored = Some(value);
        Ok(())
    }
}

impl Default for MemoryOnceStore {
    fn default() -> Self {
        Self::new()
    }
}

impl OnceStore for MemoryOnceStore {
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<OnceOutcome, OnceStoreError>> {
        Box::pin(async move { self.set(key, lifetime) })
    }

    fn store_value<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<(), OnceStoreError>> {
        Box::pin(async move { self.put_value(key, value) })
    }
}

impl MarkTable {
    fn expire(&mut self, now: Instant) {
        while let Some((until, key)) = self.expiries.first().filter(|(until, _)| *until <= now) {
            let expiry = (*until, key.clone());
            if let Some(value) = self.marks.remove(&expiry.1) {
                self.value_bytes -= bytes_of(&value);
            }
            self.expiries.remove(&expiry);
        }
    }
}

fn bytes_of(value: &Option<Bytes>) -> usize {
    value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_set_once_until_it_ends() {
        let store = MemoryOnceStore::new();

        assert_eq!(store.mark("a", MINUTE).await.unwrap(), OnceOutcome::First);
        tokio::time::advance(MINUTE - Duration::from_secs(1)).await;
        // Marking again does not extend the lifetime.
        assert_eq!(
            store.mark("a", MINUTE).await.unwrap(),
            OnceOutcome::Again(None)
        );
        assert_eq!(store.mark("b", MINUTE).await.unwrap(), OnceOutcome::First);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(store.len(), 1);
        assert_eq!(store.mark("a", MINUTE).await.unwrap(), OnceOutcome::First);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stored_value_lives_as_long_as_its_mark() {
        let store = MemoryOnceStore::new();
        store.mark("a", MINUTE).await.unwrap();

        store.store_value("a", "1".into()).await.unwrap();
        store.store_value("unknown", "2".into()).await.unwrap();
        let before = store.mark("a", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let after = store.mark("a", MINUTE).await.unwrap();

        assert_eq!(before, OnceOutcome::Again(Some("1".into())));
        assert_eq!(after, OnceOutcome::First);
        assert_eq!(
            store.mark("a", MINUTE).await.unwrap(),
            OnceOutcome::Again(None)
        );
        assert_eq!(
            store.mark("unknown", MINUTE).await.unwrap(),
            OnceOutcome::First,
            "a value sets no mark"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_refuses_new_marks_and_forgets_none_early() {
        let store = MemoryOnceStore::new().max_marks(2);
        store.mark("a", MINUTE).await.unwrap();
        store.mark("b", MINUTE * 2).await.unwrap();

        let full = store.mark("c", MINUTE).await;
        let known = store.mark("a", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let room = store.mark("c", MINUTE).await.unwrap();

        assert!(matches!(full, Err(OnceStoreError::Full)));
        assert_eq!(known, OnceOutcome::Again(None));
        assert_eq!(room, OnceOutcome::First);
    }

    #[tokio::test(start_paused = true)]
    async fn stored_values_have_a_limit_and_expired_marks_free_their_bytes() {
        let store = MemoryOnceStore::new().max_value_bytes(4);
        store.mark("a", MINUTE).await.unwrap();
        store.mark("b", MINUTE * 2).await.unwrap();
        store.store_value("a", "123".into()).await.unwrap();

        let too_much = store.store_value("b", "12".into()).await;
        // A value that replaces another is charged for the difference.
        let replaced = store.store_value("a", "1234".into()).await;
        let unchanged = store.mark("b", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let fits = store.store_value("b", "1234".into()).await;

        assert!(matches!(too_much, Err(OnceStoreError::Full)));
        assert_eq!(unchanged, OnceOutcome::Again(None));
        assert!(replaced.is_ok() && fits.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_that_no_clock_can_represent_is_a_long_one() {
        let store = MemoryOnceStore::new();

        store.mark("a", Duration::MAX).await.unwrap();

        assert_eq!(
            store.mark("a", MINUTE).await.unwrap(),
            OnceOutcome::Again(None)
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn exactly_one_of_many_concurrent_marks_is_first() {
        let store = Arc::new(MemoryOnceStore::new());
        let marking = (0..64).map(|_| {
            let store: Arc<dyn OnceStore> = store.clone();
            tokio::spawn(
                async move { store.mark("a", MINUTE).await.unwrap() == OnceOutcome::First },
            )
        });

        let marking: Vec<_> = marking.collect();
        let mut first = 0;
        for marked in marking {
            first += usize::from(marked.await.unwrap());
        }

        assert_eq!(first, 1);
    }
}
