//! [`UnreadQueue`], a queue of received notifications that is bounded by number and bytes.

use std::collections::VecDeque;

use bowline_core::Notification;

use crate::exchange::OverflowPolicy;
use crate::limits::{Account, Limit, ReadCharge};

/// A bounded queue of received notifications. An empty queue accepts a notification of any size, unless connections that
/// share a budget hold all of it.
#[derive(Default)]
pub(super) struct UnreadQueue {
    /// `None` is a reset; see [`UnreadQueue::push_reset`].
    queue: VecDeque<Option<Notification>>,
    bytes: usize,
    has_overflowed: bool,
    /// In the budget that connections share, if there is one.
    charge: ReadCharge,
}

impl UnreadQueue {
    /// Queues a notification. Returns whether the reader must be woken.
    ///
    /// `account` has the limits, and counts refused and dropped notifications.
    pub(super) fn push(
        &mut self,
        mut notification: Notification,
        overflow_policy: OverflowPolicy,
        account: &Account,
    ) -> bool {
        if self.has_overflowed {
            return false;
        }
        if self.bytes == 0 {
            self.charge = ReadCharge::new(account.read_budget().cloned());
        }
        while let Some((limit, max)) = self.exceeded_by(&notification, account) {
            account.counters().refuse(limit, max);
            if overflow_policy == OverflowPolicy::Lag {
                self.has_overflowed = true;
                return true;
            }
            self.pop();
        }
        while self
            .charge
            .try_set(self.bytes + notification.encoded_len())
            .is_err()
        {
            if overflow_policy == OverflowPolicy::Lag {
                self.has_overflowed = true;
                return true;
            }
            if self.pop().is_none() {
                return false; // others hold all of the budget
            }
        }
        self.bytes += notification.encoded_len();
        // The params share the read buffer, which may be far larger, and keep it alive. Beyond a few they are copied.
        if self.queue.len() >= MAX_SHARED_BUFFERS {
            notification.params = notification.params.map(|params| params.to_unshared());
        }
        self.queue.push_back(Some(notification));
        true
    }

    /// Returns the limit that one more notification would exceed.
    fn exceeded_by(&self, more: &Notification, account: &Account) -> Option<(Limit, usize)> {
        let limits = account.limits();
        if self.queue.is_empty() {
            None
        } else if self.queue.len() >= limits.unread_messages {
            Some((Limit::UnreadMessages, limits.unread_messages))
        } else if self.bytes + more.encoded_len() > limits.unread_bytes {
            Some((Limit::UnreadBytes, limits.unread_bytes))
        } else {
            None
        }
    }

    /// Queues a reset: the server restarted or lost its subscriptions. Separates earlier notifications from later ones.
    /// Consecutive resets are merged.
    pub(super) fn push_reset(&mut self) {
        if !self.has_overflowed && !matches!(self.queue.back(), Some(None)) {
            self.queue.push_back(None);
        }
    }

    /// Pops the next notification and the resets before it.
    pub(super) fn pop(&mut self) -> Option<Notification> {
        std::iter::from_fn(|| self.pop_or_reset()).flatten().next()
    }

    /// Pops the next notification, or `Some(None)` for a reset.
    pub(super) fn pop_or_reset(&mut self) -> Option<Option<Notification>> {
        let next = self.queue.pop_front()?;
        self.bytes -= next.as_ref().map_or(0, Notification::encoded_len);
        // Fewer bytes always fit.
        let _ = self.charge.try_set(self.bytes);
        Some(next)
    }

    /// Returns whether a notification was refused under [`OverflowPolicy::Lag`]. Those before it can still be popped.
    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }
}

/// The number of notifications that may keep their read buffers alive.
const MAX_SHARED_BUFFERS: usize = 16;

#[cfg(test)]
mod tests {
    use bowline_types::Json;

    use super::*;
    use crate::limits::{Limits, ReadBudget};

    fn account() -> std::sync::Arc<Account> {
        Account::total(Limits {
            unread_bytes: 1000,
            unread_messages: 3,
            ..Limits::default()
        })
    }

    fn long(name: &str) -> Notification {
        let text = format!("{name}{}", "x".repeat(400));
        Notification::new(name.to_owned(), Json::encode(&text).ok())
    }

    fn taken(unread: &mut UnreadQueue) -> Vec<String> {
        std::iter::from_fn(|| unread.pop())
            .map(|notification| notification.method.into_owned())
            .collect()
    }

    #[test]
    fn long_notifications_are_counted_by_their_bytes() {
        let (mut unread, account) = (UnreadQueue::default(), account());

        for name in ["a", "b", "c"] {
            unread.push(long(name), OverflowPolicy::DropOldest, &account);
        }

        assert_eq!(taken(&mut unread), ["b", "c"]);
        assert_eq!(account.usage().refused(Limit::UnreadBytes), 1);
        assert_eq!(unread.bytes, 0);
    }

    #[test]
    fn with_the_lag_policy_an_overflow_is_reported_to_the_reader() {
        let (mut unread, account) = (UnreadQueue::default(), account());

        for name in ["a", "b", "c", "d"] {
            unread.push(Notification::new(name, None), OverflowPolicy::Lag, &account);
        }

        assert!(unread.has_overflowed());
        assert_eq!(taken(&mut unread), ["a", "b", "c"]);
        assert_eq!(account.usage().refused(Limit::UnreadMessages), 1);
    }

    #[test]
    fn one_notification_fits_however_long_it_is() {
        let (mut unread, account) = (UnreadQueue::default(), account());
        let huge = Notification::new("huge", Json::encode(&"x".repeat(5000)).ok());

        unread.push(huge, OverflowPolicy::Lag, &account);

        assert!(!unread.has_overflowed());
        assert_eq!(taken(&mut unread), ["huge"]);
    }

    #[test]
    fn the_queues_of_connections_share_a_budget() {
        let budget = ReadBudget::new(1000);
        let accounts = [(); 2].map(|()| Account::of_client(Some(budget.clone())));
        let mut queues = [(); 3].map(|()| UnreadQueue::default());
        let [first, second, lagging] = &mut queues;

        for name in ["a", "b"] {
            first.push(long(name), OverflowPolicy::DropOldest, &accounts[0]);
        }
        assert!(!second.push(long("c"), OverflowPolicy::DropOldest, &accounts[1]));
        assert!(lagging.push(long("d"), OverflowPolicy::Lag, &accounts[1]));
        first.push(long("e"), OverflowPolicy::DropOldest, &accounts[0]);

        assert!(lagging.has_overflowed());
        assert!(budget.used() <= 1000 && budget.refused() > 0);
        assert_eq!(taken(second), [""; 0]);
        assert_eq!(taken(first), ["b", "e"]);
        assert_eq!(budget.used(), 0);
        assert!(second.push(long("f"), OverflowPolicy::DropOldest, &accounts[1]));
        drop(queues);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn notifications_after_a_reset_are_counted_in_the_budget() {
        let budget = ReadBudget::new(1000);
        let account = Account::of_client(Some(budget.clone()));
        let mut unread = UnreadQueue::default();
        unread.push_reset();

        unread.push(long("a"), OverflowPolicy::Lag, &account);

        assert!(budget.used() > 400);
        assert_eq!(taken(&mut unread), ["a"]);
        assert_eq!(budget.used(), 0);
    }
}
