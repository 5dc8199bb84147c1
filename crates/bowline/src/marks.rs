//! Marks: names that can be claimed once, for things that must not happen twice.
//!
//! ```text
//! mark(key) ──▶ First ──▶ do it ──▶ keep(key, result)
//!          └──▶ Again(Some(result)) or Again(None): it was done, or somebody is doing it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::BoxFuture;
use crate::far_future::instant_after;

/// A store of marks: sets a mark if it is absent, and forgets it after a while.
///
/// A proof that counts once and an effect that happens once are both a mark. [`MemoryMarks`], the default,
/// knows the marks of one process; replicas that share work share a store, such as a table with a unique key
/// or `SET key value NX PX lifetime`.
///
/// What may be lost: a store that loses a mark before its lifetime ends lets the marked thing happen again,
/// so that marks belong in a store that does not evict. A kept value may be lost at any time.
///
/// # Cancel safety
///
/// A future that is dropped may have set its mark. Callers count that as set: nothing happens twice, and
/// something may not happen at all.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{Marked, Marks, MemoryMarks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline::MarksError> {
/// let marks = MemoryMarks::new();
/// let hour = Duration::from_secs(3600);
///
/// assert_eq!(marks.mark("order 7", hour).await?, Marked::First);
/// assert_eq!(marks.mark("order 7", hour).await?, Marked::Again(None));
/// marks.keep("order 7", "shipped".into()).await?;
/// assert_eq!(marks.mark("order 7", hour).await?, Marked::Again(Some("shipped".into())));
/// # Ok(()) }
/// ```
pub trait Marks: Send + Sync + 'static {
    /// Sets the mark `key` for `lifetime` if it is absent, atomically: of all callers that use the store, one
    /// gets [`Marked::First`]. A mark that is there already keeps its lifetime.
    ///
    /// Keys are printable ASCII of at most 256 bytes. They are not secret.
    ///
    /// # Errors
    ///
    /// If it is not known whether the mark was set, or there is no room for it. Callers refuse then.
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Marked, MarksError>>;

    /// Keeps a value with a mark for as long as the mark is there; does nothing if the mark is gone.
    ///
    /// # Errors
    ///
    /// If the value is not kept. The mark stays.
    fn keep<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), MarksError>>;
}

impl<M: Marks + ?Sized> Marks for Arc<M> {
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Marked, MarksError>> {
        (**self).mark(key, lifetime)
    }

    fn keep<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), MarksError>> {
        (**self).keep(key, value)
    }
}

/// The outcome of [`Marks::mark`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a mark was absent or it was not; callers must decide in both cases"
)]
pub enum Marked {
    /// The mark was absent, and is set now.
    First,
    /// The mark was set before. Carries the value that was kept with it, if there is one.
    Again(Option<Bytes>),
}

/// The error of a store of marks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarksError {
    /// There is no room for another mark or value.
    #[error("the store of marks is full")]
    Full,
    /// The store failed.
    #[error("failed to access the store of marks")]
    Unavailable {
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// Marks in the memory of one process. Bounded: when it is full it refuses new marks and forgets none early.
///
/// # Examples
///
/// ```
/// use bowline::MemoryMarks;
///
/// let marks = MemoryMarks::new().max_marks(10_000).max_value_bytes(1024 * 1024);
/// ```
#[derive(Debug)]
pub struct MemoryMarks {
    max_marks: usize,
    max_value_bytes: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    marks: BTreeMap<Arc<str>, Mark>,
    /// In the order in which they end.
    ends: BTreeSet<(Instant, Arc<str>)>,
    value_bytes: usize,
}

#[derive(Debug, Default)]
struct Mark {
    value: Option<Bytes>,
}

impl MemoryMarks {
    /// An empty store with room for 100,000 marks, some 20 MB, and for 16 MiB of kept values.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_marks: 100_000,
            max_value_bytes: 16 * 1024 * 1024,
            table: Mutex::default(),
        }
    }

    /// Sets how many marks there may be at a time.
    #[must_use]
    pub fn max_marks(mut self, max: usize) -> Self {
        self.max_marks = max;
        self
    }

    /// Sets how many bytes all kept values may have together.
    #[must_use]
    pub fn max_value_bytes(mut self, max: usize) -> Self {
        self.max_value_bytes = max;
        self
    }

    /// Returns the number of marks that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current().marks.len()
    }

    /// Returns whether there is no mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table without the marks that have ended.
    fn current(&self) -> MutexGuard<'_, Table> {
        // No code that could panic runs under this lock.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.expire(Instant::now());
        table
    }

    fn set(&self, key: &str, lifetime: Duration) -> Result<Marked, MarksError> {
        let mut table = self.current();
        if let Some(mark) = table.marks.get(key) {
            return Ok(Marked::Again(mark.value.clone()));
        }
        if table.marks.len() >= self.max_marks {
            return Err(MarksError::Full);
        }
        let until = instant_after(Instant::now(), lifetime);
        let key: Arc<str> = key.into();
        table.ends.insert((until, key.clone()));
        table.marks.insert(key, Mark::default());
        Ok(Marked::First)
    }

    fn fill(&self, key: &str, value: Bytes) -> Result<(), MarksError> {
        let mut table = self.current();
        let Some(mark) = table.marks.get(key) else {
            return Ok(());
        };
        let others = table.value_bytes - mark.value_bytes();
        let value_bytes = others.saturating_add(value.len());
        if value_bytes > self.max_value_bytes {
            return Err(MarksError::Full);
        }
        table.value_bytes = value_bytes;
        if let Some(mark) = table.marks.get_mut(key) {
            mark.value = Some(value);
        }
        Ok(())
    }
}

impl Default for MemoryMarks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks for MemoryMarks {
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Marked, MarksError>> {
        Box::pin(async move { self.set(key, lifetime) })
    }

    fn keep<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), MarksError>> {
        Box::pin(async move { self.fill(key, value) })
    }
}

impl Table {
    fn expire(&mut self, now: Instant) {
        while let Some((until, key)) = self.ends.first().filter(|(until, _)| *until <= now) {
            let end = (*until, key.clone());
            if let Some(mark) = self.marks.remove(&end.1) {
                self.value_bytes -= mark.value_bytes();
            }
            self.ends.remove(&end);
        }
    }
}

impl Mark {
    fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_set_once_until_it_ends() {
        let marks = MemoryMarks::new();

        assert_eq!(marks.mark("a", MINUTE).await.unwrap(), Marked::First);
        tokio::time::advance(MINUTE - Duration::from_secs(1)).await;
        // Asking again does not prolong it.
        assert_eq!(marks.mark("a", MINUTE).await.unwrap(), Marked::Again(None));
        assert_eq!(marks.mark("b", MINUTE).await.unwrap(), Marked::First);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(marks.len(), 1);
        assert_eq!(marks.mark("a", MINUTE).await.unwrap(), Marked::First);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_value_is_there_as_long_as_its_mark() {
        let marks = MemoryMarks::new();
        marks.mark("a", MINUTE).await.unwrap();

        marks.keep("a", "1".into()).await.unwrap();
        marks.keep("unknown", "2".into()).await.unwrap();
        let before = marks.mark("a", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let after = marks.mark("a", MINUTE).await.unwrap();

        assert_eq!(before, Marked::Again(Some("1".into())));
        assert_eq!(after, Marked::First);
        assert_eq!(marks.mark("a", MINUTE).await.unwrap(), Marked::Again(None));
        assert_eq!(
            marks.mark("unknown", MINUTE).await.unwrap(),
            Marked::First,
            "a value sets no mark"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_refuses_new_marks_and_forgets_none_early() {
        let marks = MemoryMarks::new().max_marks(2);
        marks.mark("a", MINUTE).await.unwrap();
        marks.mark("b", MINUTE * 2).await.unwrap();

        let full = marks.mark("c", MINUTE).await;
        let known = marks.mark("a", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let room = marks.mark("c", MINUTE).await.unwrap();

        assert!(matches!(full, Err(MarksError::Full)));
        assert_eq!(known, Marked::Again(None));
        assert_eq!(room, Marked::First);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_values_have_a_limit_that_ended_marks_give_back() {
        let marks = MemoryMarks::new().max_value_bytes(4);
        marks.mark("a", MINUTE).await.unwrap();
        marks.mark("b", MINUTE * 2).await.unwrap();
        marks.keep("a", "123".into()).await.unwrap();

        let too_much = marks.keep("b", "12".into()).await;
        // A value that replaces another is charged for the difference.
        let replaced = marks.keep("a", "1234".into()).await;
        let unkept = marks.mark("b", MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        let fits = marks.keep("b", "1234".into()).await;

        assert!(matches!(too_much, Err(MarksError::Full)));
        assert_eq!(unkept, Marked::Again(None));
        assert!(replaced.is_ok() && fits.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_that_no_clock_can_represent_is_a_long_one() {
        let marks = MemoryMarks::new();

        marks.mark("a", Duration::MAX).await.unwrap();

        assert_eq!(marks.mark("a", MINUTE).await.unwrap(), Marked::Again(None));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_all_who_mark_at_the_same_time_one_is_first() {
        let marks = Arc::new(MemoryMarks::new());
        let marking = (0..64).map(|_| {
            let marks: Arc<dyn Marks> = marks.clone();
            tokio::spawn(async move { marks.mark("a", MINUTE).await.unwrap() == Marked::First })
        });

        let marking: Vec<_> = marking.collect();
        let mut first = 0;
        for marked in marking {
            first += usize::from(marked.await.unwrap());
        }

        assert_eq!(first, 1);
    }
}
