//! [`NotificationQueue`], a queue of notifications from a handler or an HTTP response to the task that polls its
//! exchange.
//!
//! It also stores that task's waker, but not while the task is polling: a wake would cause a needless second poll.
//!
//! ```text
//!        begin_poll, or push and wake, which wake it
//! waker stored ──────────────────────────────────▶ no waker
//!      ▲                                              │
//!      └── next_or_register, if the queue is empty ◀──┘   wakes immediately if `wake` was called since `begin_poll`
//! ```

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use bowline_core::Notification;
use bowline_types::{Method, SubscriptionsListenRequest};

use crate::sync::{Mutex, MutexGuard};

/// A bounded queue of notifications with one consumer.
#[derive(Default)]
pub(crate) struct NotificationQueue(Mutex<QueueState>);

/// The result of [`NotificationQueue::poll_queue`].
#[derive(Debug, PartialEq)]
pub(crate) enum QueuePoll {
    /// The next notification.
    Notification(Notification),
    /// The consumer must poll: it was [woken](NotificationQueue::wake), or this waker is not stored. No waker is
    /// stored until [`NotificationQueue::next_or_register`].
    MustPoll,
    /// The queue is empty, the consumer was not woken, and this waker is still stored.
    Idle,
}

/// What an exchange does if its notifications arrive faster than its caller reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowPolicy {
    /// Drops the oldest notification; for progress, which later progress supersedes.
    DropOldest,
    /// Fails with [`Error::Lagged`](crate::Error::Lagged); for subscriptions, which must not miss any.
    Lag,
}

impl OverflowPolicy {
    /// Returns the policy of a request.
    pub(crate) fn of(method: &str) -> Self {
        match method == SubscriptionsListenRequest::NAME {
            true => Self::Lag,
            false => Self::DropOldest,
        }
    }
}

#[derive(Default)]
struct QueueState {
    notifications: VecDeque<Notification>,
    /// The total size of `notifications`.
    bytes: usize,
    /// Whether notifications were dropped because the queue was full.
    has_overflowed: bool,
    waker: Option<Waker>,
    /// `wake` was not called since the last `begin_poll`.
    no_wake_requested: bool,
    closed: bool,
}

impl NotificationQueue {
    /// Queues a notification. If the queue is full it drops the oldest, because a slow caller must not block a handler.
    /// A producer that can wait should await [`wait_for_capacity`](Self::wait_for_capacity) before the next push.
    pub(crate) fn push(&self, notification: Notification) {
        let mut queue = self.0.lock();
        if queue.closed {
            return;
        }
        let mut dropped = VecDeque::new();
        let bytes = size(&notification);
        while !queue.notifications.is_empty()
            && (queue.notifications.len() >= MAX_NOTIFICATIONS || queue.bytes + bytes > MAX_BYTES)
        {
            dropped.extend(queue.pop());
        }
        queue.has_overflowed |= !dropped.is_empty();
        queue.bytes += bytes;
        queue.notifications.push_back(notification);
        unlock_and_wake(queue);
        if !dropped.is_empty() {
            tracing::warn!("notification queue full; dropped the oldest");
        }
    }

    /// Returns whether notifications were dropped because the queue was full.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.0.lock().has_overflowed
    }

    /// Waits until the queue is below [`BACKPRESSURE_NOTIFICATIONS`] and [`BACKPRESSURE_BYTES`], well below the limits
    /// at which `push` drops.
    ///
    /// It registers no waker: the consumer polls the producer's future itself, once it has emptied the queue.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads the queue.
    pub(crate) async fn wait_for_capacity(&self) {
        std::future::poll_fn(|_| {
            let queue = self.0.lock();
            let is_full = queue.notifications.len() >= BACKPRESSURE_NOTIFICATIONS
                || queue.bytes >= BACKPRESSURE_BYTES;
            match is_full && !queue.closed {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Wakes the consumer for another reason than a notification.
    pub(crate) fn wake(&self) {
        let mut queue = self.0.lock();
        queue.no_wake_requested = false;
        unlock_and_wake(queue);
    }

    pub(crate) fn next(&self) -> Option<Notification> {
        self.0.lock().pop()
    }

    /// Puts the notification that was popped last back to the front. The consumer must be
    /// [polling](Self::begin_poll), since it is not woken.
    pub(crate) fn push_front(&self, notification: Notification) {
        let mut queue = self.0.lock();
        queue.bytes += size(&notification);
        queue.notifications.push_front(notification);
    }

    /// Pops a notification, or returns whether the consumer has to poll its future.
    pub(crate) fn poll_queue(&self, waker: &Waker) -> QueuePoll {
        let mut queue = self.0.lock();
        if let Some(notification) = queue.pop() {
            return QueuePoll::Notification(notification);
        }
        // `push` and `wake` take the waker, so a stored one means that neither was called since `next_or_register`.
        if queue.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            return QueuePoll::Idle;
        }
        unlock_for_poll(queue);
        QueuePoll::MustPoll
    }

    /// Marks the consumer as polling: it is not woken until [`next_or_register`](Self::next_or_register).
    pub(crate) fn begin_poll(&self) {
        unlock_for_poll(self.0.lock());
    }

    /// Pops a notification. If the queue is then empty, stores the waker for the next `push` or `wake`.
    pub(crate) fn next_or_register(&self, waker: &Waker) -> Option<Notification> {
        let waker = waker.clone();
        let mut queue = self.0.lock();
        let next = queue.pop();
        if queue.notifications.is_empty() {
            // Frees the buffer: there may be thousands of idle exchanges.
            queue.notifications = VecDeque::new();
            let old = queue.waker.replace(waker);
            if queue.no_wake_requested {
                drop(queue);
            } else {
                // `wake` was called while no waker was stored, so the wake would be lost.
                unlock_and_wake(queue);
            }
            drop(old);
        }
        next
    }

    pub(crate) fn close(&self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        let old = queue.waker.take();
        drop(queue);
        drop(old);
    }
}

impl QueueState {
    fn pop(&mut self) -> Option<Notification> {
        let next = self.notifications.pop_front()?;
        self.bytes -= size(&next);
        Some(next)
    }
}

/// Returns the approximate size of a notification in bytes.
fn size(notification: &Notification) -> usize {
    let params = notification.params.as_ref();
    notification.method.len() + params.map_or(0, |params| params.as_bytes().len())
}

fn unlock_for_poll(mut queue: MutexGuard<'_, QueueState>) {
    queue.no_wake_requested = true;
    let old = queue.waker.take();
    drop(queue);
    drop(old);
}

/// Wakes the consumer after releasing the lock.
fn unlock_and_wake(mut queue: MutexGuard<'_, QueueState>) {
    let waker = queue.waker.take();
    drop(queue);
    waker.into_iter().for_each(Waker::wake);
}

/// Beyond these limits `push` drops the oldest notification.
const MAX_NOTIFICATIONS: usize = 1_024;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// From these limits on `wait_for_capacity` waits.
const BACKPRESSURE_NOTIFICATIONS: usize = 256;
const BACKPRESSURE_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_poll_returns_what_happened_since_the_last_one() {
        let (queue, notification) = (
            NotificationQueue::default(),
            Notification::new("word", None),
        );
        let [waker, another] = [(); 2].map(|()| Waker::from(Arc::new(WakeCounter::default())));

        let first = queue.poll_queue(&waker);
        queue.next_or_register(&waker);
        let again = [
            queue.poll_queue(&waker),
            queue.poll_queue(&waker),
            queue.poll_queue(&another),
        ];
        queue.next_or_register(&waker);
        queue.push(notification.clone());
        let queued = queue.poll_queue(&waker);
        queue.next_or_register(&waker);
        queue.wake();
        let woken = queue.poll_queue(&waker);

        assert_eq!(first, QueuePoll::MustPoll);
        assert_eq!(
            again,
            [QueuePoll::Idle, QueuePoll::Idle, QueuePoll::MustPoll]
        );
        assert_eq!(queued, QueuePoll::Notification(notification));
        assert_eq!(woken, QueuePoll::MustPoll);
    }

    #[test]
    fn a_wake_during_a_poll_wakes_the_consumer_when_it_registers() {
        let (queue, woken) = (
            NotificationQueue::default(),
            Arc::new(WakeCounter::default()),
        );
        let waker = Waker::from(woken.clone());

        queue.poll_queue(&waker);
        queue.wake();
        queue.next_or_register(&waker);
        let meanwhile = woken.0.load(Ordering::Relaxed);
        let found = queue.poll_queue(&waker);
        queue.next_or_register(&waker);
        queue.wake();

        assert_eq!((meanwhile, found), (1, QueuePoll::MustPoll));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_queue_is_bounded_by_items_and_by_bytes_and_reports_an_overflow() {
        let large = || {
            let text = format!("{:?}", "x".repeat(MAX_BYTES / 3));
            Notification::new("large", Some(bowline_types::Json::parse(text).unwrap()))
        };
        let (by_items, by_bytes) = (NotificationQueue::default(), NotificationQueue::default());

        for _ in 0..MAX_NOTIFICATIONS {
            by_items.push(Notification::new("small", None));
        }
        by_bytes.push(large());
        by_bytes.push(large());
        let before = (by_items.has_overflowed(), by_bytes.has_overflowed());
        by_items.push(Notification::new("small", None));
        by_bytes.push(large());

        let left = |queue: &NotificationQueue| std::iter::from_fn(|| queue.next()).count();
        assert_eq!(before, (false, false));
        assert_eq!(
            (by_items.has_overflowed(), by_bytes.has_overflowed()),
            (true, true)
        );
        assert_eq!((left(&by_items), left(&by_bytes)), (MAX_NOTIFICATIONS, 2));
        assert_eq!(by_bytes.0.lock().bytes, 0);
    }

    #[test]
    fn a_push_during_a_poll_does_not_wake() {
        let (queue, woken) = (
            NotificationQueue::default(),
            Arc::new(WakeCounter::default()),
        );
        let waker = Waker::from(woken.clone());
        queue.begin_poll();
        assert_eq!(queue.next_or_register(&waker), None);

        queue.begin_poll();
        queue.push(Notification::new("first", None));
        let first = queue.next_or_register(&waker);
        let nothing = queue.next_or_register(&waker);
        let before = woken.0.load(Ordering::Relaxed);
        queue.push(Notification::new("second", None));

        assert_eq!(first, Some(Notification::new("first", None)));
        assert_eq!(nothing, None);
        assert_eq!(before, 0);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
