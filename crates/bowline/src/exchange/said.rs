//! Notifications on their way from whatever carries on an exchange to its caller, and a bell for the latter.

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
    /// Nobody has rung since somebody last looked.
    is_quiet: bool,
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
        wake(queue);
    }

    /// Has somebody look again, who finds by that that there is more to do than to take in what was said.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only a response has more to do")
    )]
    pub(crate) fn ring(&self) {
        let mut queue = self.lock();
        queue.is_quiet = false;
        wake(queue);
    }

    #[cfg_attr(
        not(any(feature = "http-client", feature = "http-server")),
        allow(dead_code, reason = "only an exchange over HTTP has something at hand")
    )]
    pub(crate) fn next(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    /// Wakes nobody until [`next_or_wake`](Self::next_or_wake): whoever would be woken is looking. Whether
    /// somebody has [rung](Self::ring) since the last time; at first, somebody has.
    pub(crate) fn attend(&self) -> bool {
        let mut queue = self.lock();
        let was_quiet = std::mem::replace(&mut queue.is_quiet, true);
        let old = queue.waker.take();
        drop(queue);
        drop(old);
        !was_quiet
    }

    /// What was said next. If that is all, whoever asks is woken when more is said, or somebody rings.
    pub(crate) fn next_or_wake(&self, waker: &Waker) -> Option<Notification> {
        let waker = waker.clone();
        let mut queue = self.lock();
        let next = queue.notifications.pop_front();
        if queue.notifications.is_empty() {
            let old = queue.waker.replace(waker);
            if queue.is_quiet {
                drop(queue);
            } else {
                wake(queue);
            }
            drop(old);
        }
        next
    }

    /// Whether this is who will be woken: nothing was said, and nobody has rung, since it asked for that.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only a response has more to do")
    )]
    pub(crate) fn is_awaited_by(&self, waker: &Waker) -> bool {
        let queue = self.lock();
        queue.waker.as_ref().is_some_and(|it| it.will_wake(waker))
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

/// Wakes whoever waits, once the lock is given back.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.waker.take();
    drop(queue);
    waker.into_iter().for_each(Waker::wake);
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
    fn who_looks_finds_that_somebody_rang_and_is_woken_if_it_was_meanwhile() {
        let (said, woken) = (Said::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());

        let looks = [said.attend(), said.attend()];
        said.ring();
        said.next_or_wake(&waker);
        let meanwhile = woken.0.load(Ordering::Relaxed);
        let looks_again = [said.attend(), said.attend()];
        said.next_or_wake(&waker);
        let quiet = woken.0.load(Ordering::Relaxed);
        said.ring();

        assert_eq!((looks, looks_again), ([true, false], [true, false]));
        assert_eq!((meanwhile, quiet), (1, 1));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nobody_is_woken_who_is_looking_already() {
        let (said, woken) = (Said::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        said.attend();
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
