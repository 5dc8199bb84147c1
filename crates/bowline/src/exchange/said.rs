//! Notifications on their way from whatever carries on an exchange to its caller, and a bell for the latter.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

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
    /// What they take up, together.
    bytes: usize,
    /// Whether some were dropped for want of room.
    has_lost: bool,
    waker: Option<Waker>,
    /// Nobody has rung since somebody began to look.
    is_quiet: bool,
    closed: bool,
}

impl Said {
    /// A queue that drops whatever is pushed.
    pub(crate) fn closed() -> Self {
        let said = Self::default();
        said.close();
        said
    }

    /// Queues a notification. A producer that can wait should await [`has_room`](Self::has_room) before the next one: if
    /// there is no room the oldest is dropped, for a handler must not be held up by a caller that does not listen.
    pub(crate) fn push(&self, notification: Notification) {
        let mut queue = self.lock();
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
        queue.has_lost |= !dropped.is_empty();
        queue.bytes += bytes;
        queue.notifications.push_back(notification);
        wake(queue);
        if !dropped.is_empty() {
            tracing::warn!("notification queue full; dropped the oldest");
        }
    }

    /// Whether notifications were dropped for want of room.
    pub(crate) fn has_lost(&self) -> bool {
        self.lock().has_lost
    }

    /// Waits until there is room for another notification, well below where any is dropped.
    ///
    /// It wakes nobody: the future that awaits this is polled by whoever takes notifications out, once none is left.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub(crate) async fn has_room(&self) {
        std::future::poll_fn(|_| {
            let queue = self.lock();
            let is_full = queue.notifications.len() >= FULL || queue.bytes >= FULL_BYTES;
            match is_full && !queue.closed {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Has whoever waits look for more than what was said.
    pub(crate) fn ring(&self) {
        let mut queue = self.lock();
        queue.is_quiet = false;
        wake(queue);
    }

    pub(crate) fn next(&self) -> Option<Notification> {
        self.lock().pop()
    }

    /// Takes back what was handed out last, of whoever [attends](Self::attend) to the rest.
    pub(crate) fn put_back(&self, notification: Notification) {
        let mut queue = self.lock();
        queue.bytes += size(&notification);
        queue.notifications.push_front(notification);
    }

    /// What somebody finds who looks.
    pub(crate) fn look(&self, waker: &Waker) -> Look {
        let mut queue = self.lock();
        if let Some(notification) = queue.pop() {
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
        let next = queue.pop();
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

impl Queue {
    fn pop(&mut self) -> Option<Notification> {
        let next = self.notifications.pop_front()?;
        self.bytes -= size(&next);
        Some(next)
    }
}

/// What a notification takes up, about.
fn size(notification: &Notification) -> usize {
    let params = notification.params.as_ref();
    notification.method.len() + params.map_or(0, |params| params.as_bytes().len())
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

/// Beyond these the oldest notification is dropped.
const MAX_NOTIFICATIONS: usize = 1_024;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// From these on a producer that can wait does.
const FULL: usize = 256;
const FULL_BYTES: usize = 1024 * 1024;

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
    fn the_queue_is_bounded_by_items_and_by_bytes_and_knows_when_it_lost_some() {
        let large = || {
            let text = format!("{:?}", "x".repeat(MAX_BYTES / 3));
            Notification::new("large", Some(bowline_types::Json::parse(text).unwrap()))
        };
        let (by_items, by_bytes) = (Said::default(), Said::default());

        for _ in 0..MAX_NOTIFICATIONS {
            by_items.push(Notification::new("small", None));
        }
        by_bytes.push(large());
        by_bytes.push(large());
        let before = (by_items.has_lost(), by_bytes.has_lost());
        by_items.push(Notification::new("small", None));
        by_bytes.push(large());

        let left = |said: &Said| std::iter::from_fn(|| said.next()).count();
        assert_eq!(before, (false, false));
        assert_eq!((by_items.has_lost(), by_bytes.has_lost()), (true, true));
        assert_eq!((left(&by_items), left(&by_bytes)), (MAX_NOTIFICATIONS, 2));
        assert_eq!(by_bytes.lock().bytes, 0);
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
