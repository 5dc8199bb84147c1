//! [`NotificationHub`], which dispatches the peer's notifications that belong to no call to listeners and callbacks.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll, Waker};

use bowline_core::Notification;

use super::unread_queue::UnreadQueue;
use crate::Error;
use crate::exchange::OverflowPolicy;
use crate::limits::Account;
use crate::sync::Mutex;

/// Dispatches notifications and errors that belong to no call.
#[derive(Clone)]
pub(crate) struct NotificationHub {
    listeners: Arc<Mutex<Listeners>>,
    account: Arc<Account>,
    callback: Arc<OnceLock<NotificationCallback>>,
    error_callback: Arc<OnceLock<ErrorCallback>>,
}

/// A callback for every notification, called before listeners and calls receive it.
pub(crate) type NotificationCallback = Box<dyn Fn(&Notification) + Send + Sync>;
/// A callback for errors that belong to no call.
pub(crate) type ErrorCallback = Box<dyn Fn(&Error) + Send + Sync>;

/// An item that a [`NotificationListener`] yields.
#[derive(Debug)]
pub(crate) enum ListenerEvent {
    Notification(Notification),
    /// The server was reset and lost its subscriptions.
    Reset,
    /// The queue of the listener overflowed. It is the last item, unless the listener is resumed.
    Lagged,
    /// Notifications are no longer received, with the cause.
    Lost(Arc<Error>),
}

#[derive(Default)]
struct Listeners {
    next: u64,
    queues: BTreeMap<u64, ListenerQueue>,
    /// Why notifications are no longer received.
    lost: Option<Arc<Error>>,
    ended: bool,
}

#[derive(Default)]
struct ListenerQueue {
    notifications: UnreadQueue,
    waker: Option<Waker>,
    lost: Option<Arc<Error>>,
    /// Whether the server was reset after the queue had overflowed.
    missed_reset: bool,
    ended: bool,
}

/// A registered listener with its own queue.
#[must_use = "dropping a listener unregisters it"]
pub(crate) struct NotificationListener {
    hub: NotificationHub,
    key: u64,
}

impl NotificationHub {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self {
            listeners: Arc::default(),
            account,
            callback: Arc::default(),
            error_callback: Arc::default(),
        }
    }

    pub(crate) fn listen(&self) -> NotificationListener {
        let mut listeners = self.listeners.lock();
        listeners.next += 1;
        let key = listeners.next;
        let queue = ListenerQueue {
            lost: listeners.lost.clone(),
            ended: listeners.ended,
            ..ListenerQueue::default()
        };
        listeners.queues.insert(key, queue);
        drop(listeners);
        NotificationListener {
            hub: self.clone(),
            key,
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.listeners.lock().queues.is_empty()
    }

    /// Sets the callback for every notification, including those that belong to calls. Only the first one is kept.
    pub(crate) fn set_callback(&self, callback: NotificationCallback) {
        let _ = self.callback.set(callback);
    }

    /// Sets the callback for errors that belong to no call. Only the first one is kept.
    pub(crate) fn set_error_callback(&self, callback: ErrorCallback) {
        let _ = self.error_callback.set(callback);
    }

    /// Calls the callback for errors.
    pub(super) fn run_error_callback(&self, error: &Error) {
        if let Some(callback) = self.error_callback.get() {
            callback(error);
        }
    }

    /// Calls the callback for notifications, but no listener.
    pub(crate) fn run_callback(&self, notification: &Notification) {
        if let Some(callback) = self.callback.get() {
            callback(notification);
        }
    }

    pub(crate) fn publish(&self, notification: &Notification) {
        self.run_callback(notification);
        self.for_each(|queue| {
            let notification = notification.clone();
            queue
                .notifications
                .push(notification, OverflowPolicy::Lag, &self.account);
        });
    }

    /// Reports a reset of the server to the listeners, and clears `lost`.
    pub(crate) fn reset(&self) {
        let recovered = self.listeners.lock().lost.take();
        drop(recovered); // not under the lock
        self.for_each(|queue| {
            queue.missed_reset |= queue.notifications.has_overflowed();
            queue.notifications.push_reset();
        });
    }

    /// Reports to current and future listeners that notifications are no longer received.
    pub(crate) fn report_loss(&self, error: Error) {
        let error = Arc::new(error);
        let earlier = self.listeners.lock().lost.replace(error.clone());
        drop(earlier); // not under the lock
        self.for_each(|queue| {
            queue.lost.get_or_insert(error.clone());
        });
    }

    /// Returns why notifications are no longer received.
    pub(super) fn lost(&self) -> Option<Arc<Error>> {
        self.listeners.lock().lost.clone()
    }

    /// Ends current and future listeners.
    pub(crate) fn end(&self) {
        self.listeners.lock().ended = true;
        self.for_each(|queue| queue.ended = true);
    }

    fn for_each(&self, mut change: impl FnMut(&mut ListenerQueue)) {
        let mut listeners = self.listeners.lock();
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
}

impl NotificationListener {
    /// Polls for the next item; `None` when the wire has ended.
    pub(crate) fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<ListenerEvent>> {
        let waker = cx.waker().clone();
        let mut listeners = self.hub.listeners.lock();
        let Some(queue) = listeners.queues.get_mut(&self.key) else {
            return Poll::Ready(None);
        };
        if let Some(notification) = queue.notifications.pop_or_reset() {
            let event = notification.map_or(ListenerEvent::Reset, ListenerEvent::Notification);
            return Poll::Ready(Some(event));
        }
        if queue.notifications.has_overflowed() {
            return Poll::Ready(Some(ListenerEvent::Lagged));
        }
        if let Some(error) = &queue.lost {
            return Poll::Ready(Some(ListenerEvent::Lost(error.clone())));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        let old = queue.waker.replace(waker);
        drop(listeners);
        drop(old);
        Poll::Pending
    }

    /// Listens again after [`ListenerEvent::Lagged`] or [`ListenerEvent::Lost`], which are repeated otherwise.
    pub(crate) fn resume(&mut self) {
        let mut listeners = self.hub.listeners.lock();
        let Some(queue) = listeners.queues.get_mut(&self.key) else {
            return;
        };
        let replaced = if queue.notifications.has_overflowed() {
            let overflowed = std::mem::take(&mut queue.notifications);
            if std::mem::take(&mut queue.missed_reset) {
                queue.notifications.push_reset();
            }
            (overflowed, None)
        } else {
            (UnreadQueue::default(), queue.lost.take())
        };
        drop(listeners);
        drop(replaced); // not under the lock
    }
}

impl Drop for NotificationListener {
    fn drop(&mut self) {
        let queue = self.hub.listeners.lock().queues.remove(&self.key);
        drop(queue); // contains a waker, which must not be dropped under the lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn hub() -> NotificationHub {
        NotificationHub::new(Account::total(Limits {
            unread_messages: 2,
            ..Limits::default()
        }))
    }

    fn next(listener: &mut NotificationListener) -> Poll<Option<ListenerEvent>> {
        listener.poll_next(&mut task::Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_listener_that_is_resumed_after_a_loss_receives_the_next_reset() {
        let hub = hub();
        hub.report_loss(Error::Closed);
        let mut listener = hub.listen();
        assert!(matches!(
            next(&mut listener),
            Poll::Ready(Some(ListenerEvent::Lost(_)))
        ));

        listener.resume();
        assert!(next(&mut listener).is_pending());

        hub.reset();
        assert!(matches!(
            next(&mut listener),
            Poll::Ready(Some(ListenerEvent::Reset))
        ));
    }

    #[test]
    fn a_listener_that_is_resumed_after_an_overflow_receives_later_notifications_and_a_loss() {
        let hub = hub();
        let mut listener = hub.listen();
        let publish = |method| hub.publish(&Notification::new(method, None));
        ["a", "b", "c"].into_iter().for_each(publish);
        for _ in 0..2 {
            let event = next(&mut listener);
            assert!(matches!(
                event,
                Poll::Ready(Some(ListenerEvent::Notification(_)))
            ));
        }
        assert!(matches!(
            next(&mut listener),
            Poll::Ready(Some(ListenerEvent::Lagged))
        ));
        hub.report_loss(Error::Closed);

        listener.resume();
        publish("d");

        let event = next(&mut listener);
        assert!(
            matches!(&event, Poll::Ready(Some(ListenerEvent::Notification(it))) if it.method == "d")
        );
        let event = next(&mut listener);
        assert!(matches!(event, Poll::Ready(Some(ListenerEvent::Lost(_)))));
    }

    #[test]
    fn a_reset_after_an_overflow_is_received_when_the_listener_is_resumed() {
        let hub = hub();
        let mut listener = hub.listen();
        let publish = |method| hub.publish(&Notification::new(method, None));
        ["a", "b", "c"].into_iter().for_each(publish);
        hub.reset();
        publish("d");
        while !matches!(
            next(&mut listener),
            Poll::Ready(Some(ListenerEvent::Lagged))
        ) {}

        listener.resume();
        publish("e");

        assert!(matches!(
            next(&mut listener),
            Poll::Ready(Some(ListenerEvent::Reset))
        ));
        let event = next(&mut listener);
        assert!(
            matches!(&event, Poll::Ready(Some(ListenerEvent::Notification(it))) if it.method == "e")
        );
    }

    #[test]
    fn a_listener_of_a_wire_that_has_ended_ends() {
        let hub = hub();

        hub.end();

        assert!(matches!(next(&mut hub.listen()), Poll::Ready(None)));
    }
}
