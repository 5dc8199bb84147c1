//! Notifications on their way from whatever carries on an exchange to its caller, and a bell for the latter.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bowline_core::Notification;

/// What was said and not yet heard.
#[derive(Default)]
pub(crate) struct Said(Mutex<Queue>);

/// What somebody finds who looks.
#[derive(Debug, PartialEq)]
pub(crate) enum Look {
    /// This was said.
    Said(Notification),
    /// Somebody has rung, or nobody has looked yet, or somebody else did. Nobody is woken until
    /// [`Said::next_or_wake`].
    Rung,
    /// Nothing has happened since the same one looked last, who will be woken.
    Nothing,
}

#[derive(Default)]
struct Queue {
    notifications: VecDeque<Notification>,
    waker: Option<Waker>,
    /// Nobody has rung since somebody began to look.
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

    /// Has whoever waits look for more than what was said.
    pub(crate) fn ring(&self) {
        let mut queue = self.lock();
        queue.is_quiet = false;
        wake(queue);
    }

    pub(crate) fn next(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    /// Takes back what was handed out last, of whoever [attends](Self::attend) to the rest.
    pub(crate) fn put_back(&self, notification: Notification) {
        self.lock().notifications.push_front(notification);
    }

    /// What somebody finds who looks.
    pub(crate) fn look(&self, waker: &Waker) -> Look {
        let mut queue = self.lock();
        if let Some(notification) = queue.notifications.pop_front() {
            return Look::Said(notification);
        }
        // It was left when nothing else was there, and is taken by whoever says something or rings.
        if queue.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            return Look::Nothing;
        }
        attend(queue);
        Look::Rung
    }

    /// Wakes nobody until [`next_or_wake`](Self::next_or_wake): whoever would be woken is looking.
    pub(crate) fn attend(&self) {
        attend(self.lock());
    }

    /// What was said next. If that is all, whoever asks is woken when more is said, or somebody rings.
    pub(crate) fn next_or_wake(&self, waker: &Waker) -> Option<Notification> {
        let waker = waker.clone();
        let mut queue = self.lock();
        let next = queue.notifications.pop_front();
        if queue.notifications.is_empty() {
            // There may be thousands who wait for long: they keep nothing that they do not need meanwhile.
            queue.notifications = VecDeque::new();
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

fn attend(mut queue: MutexGuard<'_, Queue>) {
    queue.is_quiet = true;
    let old = queue.waker.take();
    drop(queue);
    drop(old);
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
    fn whoever_looks_finds_what_has_happened_since() {
        let (said, word) = (Said::default(), Notification::new("word", None));
        let [waker, another] = [(); 2].map(|()| Waker::from(Arc::new(Woken::default())));

        let first = said.look(&waker);
        said.next_or_wake(&waker);
        let again = [said.look(&waker), said.look(&waker), said.look(&another)];
        said.next_or_wake(&waker);
        said.push(word.clone());
        let spoken = said.look(&waker);
        said.next_or_wake(&waker);
        said.ring();
        let rung = said.look(&waker);

        assert_eq!(first, Look::Rung);
        assert_eq!(again, [Look::Nothing, Look::Nothing, Look::Rung]);
        assert_eq!(spoken, Look::Said(word));
        assert_eq!(rung, Look::Rung);
    }

    #[test]
    fn whoever_looks_is_woken_if_somebody_rings_meanwhile() {
        let (said, woken) = (Said::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());

        said.look(&waker);
        said.ring();
        said.next_or_wake(&waker);
        let meanwhile = woken.0.load(Ordering::Relaxed);
        let found = said.look(&waker);
        said.next_or_wake(&waker);
        said.ring();

        assert_eq!((meanwhile, found), (1, Look::Rung));
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
