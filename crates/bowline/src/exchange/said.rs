//! Notifications on their way from whatever carries on an exchange to its caller.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bowline_core::Notification;

/// What was said and not yet heard.
#[derive(Default)]
pub(crate) struct Said(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    notifications: VecDeque<Notification>,
    waker: Option<Waker>,
    closed: bool,
}

impl Said {
    pub(crate) fn push(&self, notification: Notification) {
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        // The caller's task also runs what speaks here, so this fills up only if that never awaits.
        if queue.notifications.len() == MOST_SAID {
            tracing::warn!("more was said than the caller took in; the oldest is dropped");
            queue.notifications.pop_front();
        }
        queue.notifications.push_back(notification);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    #[cfg(any(feature = "http-client", feature = "http-server"))]
    pub(crate) fn next(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    /// Wakes nobody until [`next_or_wake`](Self::next_or_wake): whoever would be woken is looking.
    pub(crate) fn attend(&self) {
        let old = self.lock().waker.take();
        drop(old);
    }

    /// What was said next, or else a wake-up once something is.
    pub(crate) fn next_or_wake(&self, waker: &Waker) -> Option<Notification> {
        let waker = waker.clone();
        let mut queue = self.lock();
        let next = queue.notifications.pop_front();
        if next.is_none() {
            let old = queue.waker.replace(waker);
            drop(queue);
            drop(old);
        }
        next
    }

    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let old = queue.waker.take();
        drop(queue);
        drop(old);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const MOST_SAID: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nobody_is_woken_who_is_looking_already() {
        let (said, woken) = (Said::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        assert_eq!(said.next_or_wake(&waker), None);

        said.attend();
        said.push(Notification::new("first", None));
        let first = said.next_or_wake(&waker);
        let nothing = said.next_or_wake(&waker);
        let before = woken.0.load(Ordering::Relaxed);
        said.push(Notification::new("second", None));

        assert_eq!(first, Some(Notification::new("first", None)));
        assert_eq!(nothing, None);
        assert_eq!(before, 0);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
