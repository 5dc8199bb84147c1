//! A time limit of an exchange that no engine keeps.

use std::future::Future;
use std::pin::Pin;
use std::task;
use std::time::Duration;

use bowline_core::Notification;
use bowline_types::{Notice, ProgressNotification};
use tokio::time::Sleep;

/// A time limit that starts at the first poll.
pub(crate) struct Deadline {
    after: Duration,
    pub(super) sleep: Option<Pin<Box<Sleep>>>,
    /// How much of it is left, if it stands still.
    pub(super) left: Option<Duration>,
}

impl Deadline {
    /// How long it was, once it has passed.
    pub(crate) fn poll_overdue(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
        let sleep = self.sleep.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep(self.left.take().unwrap_or(self.after)))
        });
        sleep.as_mut().poll(cx).is_ready().then_some(self.after)
    }

    /// Starts again at the next poll.
    pub(crate) fn restart(&mut self) {
        self.sleep = None;
        self.left = None;
    }

    /// Starts again if the notification is progress; nothing else moves an idle deadline, on any channel.
    pub(crate) fn hear(&mut self, notification: &Notification) {
        if notification.method == ProgressNotification::NAME {
            self.restart();
        }
    }
}

impl From<Duration> for Deadline {
    fn from(after: Duration) -> Self {
        Self {
            after,
            sleep: None,
            left: None,
        }
    }
}
