//! [`ReadBudget`], a limit on the unfinished messages that clients receive, and [`ReadCharge`], a guard for its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A limit on the bytes that clients receive and cannot pass on yet: of lines, SSE events and JSON bodies that have begun
/// and not ended, and of notifications that are not read. Clones are the same budget.
///
/// Each message has a limit of its own ([`ResponseLimits`](crate::http::client::ResponseLimits),
/// [`Lines::max_line`](crate::wire::Lines::max_line)), but a server can begin many of them and finish none. A budget that
/// connections share limits them together. A message that does not fit is not read: its call fails with
/// [`Error::Transport`](crate::Error::Transport), and can be made again. The first chunk of a message, of at most some
/// hundred KiB, is not counted, so that short messages always fit. Notifications of calls over a wire or legacy HTTP that
/// the application does not read are dropped if they do not fit.
///
/// # Examples
///
/// ```
/// use bowline::Client;
/// use bowline::client::ReadBudget;
///
/// let budget = ReadBudget::new(64 * 1024 * 1024);
/// // One server leaves room for the others.
/// let connect = ["https://a.example/mcp", "https://b.example/mcp"]
///     .map(|url| Client::connect(url).read_budget(&budget.part(48 * 1024 * 1024)));
/// assert_eq!(budget.used(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct ReadBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    max: usize,
    used: AtomicUsize,
    refused: AtomicU64,
    /// The budget that this one is a part of.
    whole: Option<ReadBudget>,
}

impl ReadBudget {
    /// Creates a budget of this many bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self::within(None, max_bytes)
    }

    /// Returns a budget with a limit of its own whose bytes count here, too.
    #[must_use]
    pub fn part(&self, max_bytes: usize) -> Self {
        Self::within(Some(self.clone()), max_bytes)
    }

    /// Returns the bytes that are held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns how many messages were not read because they did not fit, here or in the whole that this is a part of.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    fn within(whole: Option<Self>, max: usize) -> Self {
        Self(Arc::new(BudgetState {
            max,
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            whole,
        }))
    }

    /// Returns this budget and those that it is a part of.
    fn levels(&self) -> impl Iterator<Item = &BudgetState> {
        std::iter::successors(Some(self), |level| level.0.whole.as_ref()).map(|level| &*level.0)
    }

    /// Adds bytes to all levels, or to none.
    fn add(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        for (added, level) in self.levels().enumerate() {
            let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= level.max);
            let update = level
                .used
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits);
            if update.is_err() {
                (self.levels().take(added)).for_each(|level| level.remove(bytes));
                for level in self.levels() {
                    level.refused.fetch_add(1, Ordering::Relaxed);
                }
                return Err(BudgetExceeded { max: level.max });
            }
        }
        Ok(())
    }

    fn remove(&self, bytes: usize) {
        self.levels().for_each(|level| level.remove(bytes));
    }
}

impl BudgetState {
    fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// A message does not fit into a [`ReadBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unfinished messages exceed the limit of {max} bytes in all")]
pub(crate) struct BudgetExceeded {
    max: usize,
}

/// The bytes of one unfinished message, returned to the budget when dropped.
#[derive(Debug, Default)]
pub(crate) struct ReadCharge {
    /// `None` without a limit.
    budget: Option<ReadBudget>,
    bytes: usize,
}

impl ReadCharge {
    pub(crate) fn new(budget: Option<ReadBudget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Sets the bytes that are held. On failure none are, since the message is not read on.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let set = self.try_set(bytes);
        if set.is_err() {
            self.clear();
        }
        set
    }

    /// Sets the bytes that are held. On failure they are those from before.
    pub(crate) fn try_set(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        if bytes <= self.bytes {
            if bytes < self.bytes {
                budget.remove(self.bytes - bytes);
            }
            self.bytes = bytes;
            return Ok(());
        }
        budget.add(bytes - self.bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Returns all bytes: the message has ended.
    pub(crate) fn clear(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            budget.remove(self.bytes);
        }
        self.bytes = 0;
    }
}

impl Drop for ReadCharge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_counted_at_every_level_and_returned() {
        let whole = ReadBudget::new(100);
        let part = whole.part(60);
        let mut charge = ReadCharge::new(Some(part.clone()));

        charge.set(50).unwrap();
        assert_eq!((whole.used(), part.used()), (50, 50));
        charge.set(20).unwrap();
        assert_eq!((whole.used(), part.used()), (20, 20));

        drop(charge);
        assert_eq!((whole.used(), part.used()), (0, 0));
    }

    #[test]
    fn a_part_that_is_full_leaves_room_for_another() {
        let whole = ReadBudget::new(100);
        let [first, second] = [(); 2].map(|()| whole.part(60));
        let [mut a, mut b] = [&first, &second].map(|it| ReadCharge::new(Some(it.clone())));

        a.set(60).unwrap();
        let mut more = ReadCharge::new(Some(first.clone()));
        assert_eq!(more.set(1), Err(BudgetExceeded { max: 60 }));
        b.set(40).unwrap();
        assert_eq!(b.set(41), Err(BudgetExceeded { max: 100 }));

        assert_eq!(whole.used(), 60, "a message that is not read holds nothing");
        assert_eq!(second.used(), 0);
        assert_eq!(
            (first.refused(), second.refused(), whole.refused()),
            (1, 1, 2)
        );
    }
}
