//! What the other side says that belongs to no call, passed on to whoever listens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{self, Poll, Waker};

use bowline_core::Notification;

use super::unread::{Unread, WhenFull};
use crate::Error;
use crate::limits::Account;

/// The place where such notifications arrive.
#[derive(Clone)]
pub(crate) struct Notices {
    listeners: Arc<Mutex<Listeners>>,
    account: Arc<Account>,
    tap: Arc<OnceLock<Tap>>,
    error_tap: Arc<OnceLock<ErrorTap>>,
}

/// Hears what the other side says before anybody else does.
pub(crate) type Tap = Box<dyn Fn(&Notification) + Send + Sync>;
/// A callback for errors that belong to no call.
pub(crate) type ErrorTap = Box<dyn Fn(&Error) + Send + Sync>;

/// What a listener receives.
#[derive(Debug)]
pub(crate) enum Heard {
    Notification(Notification),
    /// The other side has forgotten its subscriptions.
    Reset,
    /// More was sent than the listener took in. It is at its end.
    Lagged,
    /// Nothing is received any more; why.
    Lost(Arc<Error>),
}

#[derive(Default)]
struct Listeners {
    next: u64,
    queues: BTreeMap<u64, Queue>,
    /// Why nothing is received any more.
    lost: Option<Arc<Error>>,
}

#[derive(Default)]
struct Queue {
    notifications: Unread,
    waker: Option<Waker>,
    lost: Option<Arc<Error>>,
    ended: bool,
}

/// One who listens; stops when dropped.
#[must_use = "it stops listening when dropped"]
pub(crate) struct Listener {
    notices: Notices,
    key: u64,
}

impl Notices {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self {
            listeners: Arc::default(),
            account,
            tap: Arc::default(),
            error_tap: Arc::default(),
        }
    }

    pub(crate) fn listen(&self) -> Listener {
        let mut listeners = self.lock();
        listeners.next += 1;
        let key = listeners.next;
        let lost = listeners.lost.clone();
        let queue = Queue {
            lost,
            ..Queue::default()
        };
        listeners.queues.insert(key, queue);
        drop(listeners);
        Listener {
            notices: self.clone(),
            key,
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.lock().queues.is_empty()
    }

    /// Has `tap` hear everything first, that which belongs to calls included. The first tap stays.
    pub(crate) fn tap(&self, tap: Tap) {
        let _ = self.tap.set(tap);
    }

    /// Sets the callback for errors that belong to no call. The first one stays.
    pub(crate) fn tap_errors(&self, tap: ErrorTap) {
        let _ = self.error_tap.set(tap);
    }

    /// Passes an error that belongs to no call to the callback.
    pub(super) fn overhear_error(&self, error: &Error) {
        if let Some(tap) = self.error_tap.get() {
            tap(error);
        }
    }

    /// Tells the tap, and nobody else.
    pub(crate) fn overhear(&self, notification: &Notification) {
        if let Some(tap) = self.tap.get() {
            tap(notification);
        }
    }

    pub(crate) fn publish(&self, notification: &Notification) {
        self.overhear(notification);
        self.for_each(|queue| {
            let notification = notification.clone();
            queue
                .notifications
                .push(notification, WhenFull::Lag, &self.account);
        });
    }

    /// Tells the listeners that the other side has forgotten them. It is listened to again from now on.
    pub(crate) fn reset(&self) {
        let recovered = self.lock().lost.take();
        drop(recovered); // not under the lock
        self.for_each(|queue| queue.notifications.mark());
    }

    /// Tells the listeners, and those that are still to come, that nothing will be received.
    pub(crate) fn lose(&self, error: Error) {
        let error = Arc::new(error);
        let earlier = self.lock().lost.replace(error.clone());
        drop(earlier); // not under the lock
        self.for_each(|queue| {
            queue.lost.get_or_insert(error.clone());
        });
    }

    /// Why nothing is received any more, if that is so.
    pub(super) fn lost(&self) -> Option<Arc<Error>> {
        self.lock().lost.clone()
    }

    pub(crate) fn end(&self) {
        self.for_each(|queue| queue.ended = true);
    }

    fn for_each(&self, mut change: impl FnMut(&mut Queue)) {
        let mut listeners = self.lock();
        let wakers: Vec<_> = listeners
            .queues
            .values_mut()
            .filter_map(|queue| {
                change(queue);
                queue.waker.take()
            })
            .collect();
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// What comes next; `None` when the wire is at its end.
    pub(crate) fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Heard>> {
        let waker = cx.waker().clone();
        let mut listeners = self.notices.lock();
        let Some(queue) = listeners.queues.get_mut(&self.key) else {
            return Poll::Ready(None);
        };
        if let Some(notification) = queue.notifications.pop_or_mark() {
            let heard = notification.map_or(Heard::Reset, Heard::Notification);
            return Poll::Ready(Some(heard));
        }
        if queue.notifications.has_lost() {
            return Poll::Ready(Some(Heard::Lagged));
        }
        if let Some(error) = &queue.lost {
            return Poll::Ready(Some(Heard::Lost(error.clone())));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        let old = queue.waker.replace(waker);
        drop(listeners);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let queue = self.notices.lock().queues.remove(&self.key);
        drop(queue); // it holds a waker: not under the lock
    }
}
