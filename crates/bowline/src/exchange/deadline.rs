//! Timeouts that do not count pauses, for exchanges that are not managed by a `Mux`; and the time of those pauses.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task;
use std::time::Duration;

use bowline_core::Notification;
use bowline_types::{NotificationMethod, ProgressNotification};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

use super::CallOptions;

/// The idle and the total timeout of an exchange. Both start at the first poll.
pub(crate) struct Deadlines {
    idle: Option<Deadline>,
    total: Option<Deadline>,
}

impl Deadlines {
    pub(crate) fn new(options: &CallOptions) -> Self {
        Self {
            idle: options.idle_timeout.map(Deadline::from),
            total: options.timeout.map(Deadline::from),
        }
    }

    /// Returns the timeout that has elapsed, if one has. `paused` returns the total time of the pauses.
    pub(crate) fn poll_elapsed(
        &mut self,
        paused: impl Fn() -> Duration,
        cx: &mut task::Context<'_>,
    ) -> Option<Duration> {
        // The total timeout comes first: progress does not extend it.
        let deadlines = [self.total.as_mut(), self.idle.as_mut()];
        deadlines
            .into_iter()
            .flatten()
            .find_map(|deadline| deadline.poll_elapsed(&paused, cx))
    }

    /// Restarts the idle timeout: during a pause, in which it does not run, and after activity.
    pub(crate) fn restart_idle(&mut self) {
        self.idle.iter_mut().for_each(Deadline::restart);
    }

    /// Restarts the idle timeout on `notifications/progress`. Other notifications do not, as on every transport.
    pub(crate) fn on_notification(&mut self, notification: &Notification) {
        if notification.method == ProgressNotification::NAME {
            self.restart_idle();
        }
    }
}

/// A timeout that starts at the first poll and does not count pauses.
#[derive(Debug)]
pub(crate) struct Deadline {
    after: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The pauses before the start, and those that it was extended by.
    paused: Duration,
}

impl Deadline {
    /// Returns the timeout once it has elapsed. `paused` returns the total time of the pauses so far.
    pub(crate) fn poll_elapsed(
        &mut self,
        paused: impl Fn() -> Duration,
        cx: &mut task::Context<'_>,
    ) -> Option<Duration> {
        let sleep = self.sleep.get_or_insert_with(|| {
            self.paused = paused();
            Box::pin(tokio::time::sleep(self.after))
        });
        // Unconstrained: what is limited may have used up the budget of this poll, each time.
        while pin!(unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            let before = std::mem::replace(&mut self.paused, paused());
            if self.paused <= before {
                return Some(self.after);
            }
            let extended = sleep.deadline() + (self.paused - before);
            sleep.as_mut().reset(extended);
        }
        None
    }

    /// Starts again at the next poll.
    fn restart(&mut self) {
        self.sleep = None;
    }
}

impl From<Duration> for Deadline {
    fn from(after: Duration) -> Self {
        Self {
            after,
            sleep: None,
            paused: Duration::ZERO,
        }
    }
}

/// The total time of the pauses of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PausedTime {
    /// The start of the current pause.
    since: Option<Instant>,
    /// The total of the previous ones.
    before: Duration,
}

impl PausedTime {
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn end(&mut self, now: Instant) {
        self.before = self.total(now);
        self.since = None;
    }

    /// Returns whether there was no pause, in which case the current time need not be known.
    pub(crate) fn is_zero(&self) -> bool {
        self.since.is_none() && self.before.is_zero()
    }

    pub(crate) fn total(&self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.saturating_duration_since(since));
        self.before + current.unwrap_or_default()
    }
}
