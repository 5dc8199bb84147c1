//! Notifications that arrived and were not taken yet, bounded by number and by bytes.

use std::collections::VecDeque;

use bowline_core::Notification;

use crate::limits::{Account, Limit};

/// A queue of notifications. One always fits, however long it is.
#[derive(Default)]
pub(super) struct Unread {
    /// `None` is a mark.
    queue: VecDeque<Option<Notification>>,
    bytes: usize,
    has_lost: bool,
}

/// What happens to a notification that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// The oldest is dropped: progress is overtaken by progress.
    DropOldest,
    /// Nothing more is taken in, and the reader is told: every notification counts.
    Lag,
}

impl Unread {
    /// Takes in a notification. Whether there is something new for the reader.
    pub(super) fn push(
        &mut self,
        mut notification: Notification,
        when_full: WhenFull,
        account: &Account,
    ) -> bool {
        if self.has_lost {
            return false;
        }
        while let Some((limit, max)) = self.exceeded_by(&notification, account) {
            account.meters().refuse(limit, max);
            if when_full == WhenFull::Lag {
                self.has_lost = true;
                return true;
            }
            self.pop();
        }
        self.bytes += notification.size();
        // The params are a part of what was read at once, which may be far longer. A few do not matter.
        if self.queue.len() >= FEW {
            notification.params = notification.params.map(|params| params.to_unshared());
        }
        self.queue.push_back(Some(notification));
        true
    }

    /// Which limit one more notification would exceed.
    fn exceeded_by(&self, more: &Notification, account: &Account) -> Option<(Limit, usize)> {
        let limits = account.limits();
        if self.queue.is_empty() {
            None
        } else if self.queue.len() >= limits.unread_messages {
            Some((Limit::UnreadMessages, limits.unread_messages))
        } else if self.bytes + more.size() > limits.unread_bytes {
            Some((Limit::UnreadBytes, limits.unread_bytes))
        } else {
            None
        }
    }

    /// Marks this place, for a reader that tells what came before from what comes after. Nothing is marked twice.
    pub(super) fn mark(&mut self) {
        if !self.has_lost && !matches!(self.queue.back(), Some(None)) {
            self.queue.push_back(None);
        }
    }

    /// The next notification, whatever was marked before it.
    pub(super) fn pop(&mut self) -> Option<Notification> {
        std::iter::from_fn(|| self.pop_or_mark()).flatten().next()
    }

    /// The next notification, or `None` for a mark.
    pub(super) fn pop_or_mark(&mut self) -> Option<Option<Notification>> {
        let next = self.queue.pop_front()?;
        self.bytes -= next.as_ref().map_or(0, Notification::size);
        Some(next)
    }

    /// Whether a notification that counts did not fit. Those before it can still be taken.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }
}

/// How many notifications may keep alive what they were read with.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use bowline_types::Json;

    use super::*;
    use crate::limits::Limits;

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

    fn taken(unread: &mut Unread) -> Vec<String> {
        std::iter::from_fn(|| unread.pop())
            .map(|notification| notification.method.into_owned())
            .collect()
    }

    #[test]
    fn long_notifications_are_counted_by_their_bytes() {
        let (mut unread, account) = (Unread::default(), account());

        for name in ["a", "b", "c"] {
            unread.push(long(name), WhenFull::DropOldest, &account);
        }

        assert_eq!(taken(&mut unread), ["b", "c"]);
        assert_eq!(account.usage().refused(Limit::UnreadBytes), 1);
        assert_eq!(unread.bytes, 0);
    }

    #[test]
    fn where_every_notification_counts_the_reader_is_told_that_one_was_lost() {
        let (mut unread, account) = (Unread::default(), account());

        for name in ["a", "b", "c", "d"] {
            unread.push(Notification::new(name, None), WhenFull::Lag, &account);
        }

        assert!(unread.has_lost());
        assert_eq!(taken(&mut unread), ["a", "b", "c"]);
        assert_eq!(account.usage().refused(Limit::UnreadMessages), 1);
    }

    #[test]
    fn one_notification_fits_however_long_it_is() {
        let (mut unread, account) = (Unread::default(), account());
        let huge = Notification::new("huge", Json::encode(&"x".repeat(5000)).ok());

        unread.push(huge, WhenFull::Lag, &account);

        assert!(!unread.has_lost());
        assert_eq!(taken(&mut unread), ["huge"]);
    }
}
