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

    pub(crate) fn next(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    pub(crate) fn wake_on_next(&self, waker: &Waker) {
        let waker = waker.clone();
        let old = self.lock().waker.replace(waker);
        drop(old);
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
