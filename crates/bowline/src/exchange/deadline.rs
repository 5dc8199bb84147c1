//! The timeouts of an exchange that is not managed by a `Mux`, and the time for which any exchange was paused.

use std::future::Future;
use std::pin::Pin;
use std::task;
use std::time::Duration;

use bowline_core::Notification;
use bowline_types::{NotificationMethod, ProgressNotification};
use tokio::time::{Instant, Sleep};

use super::CallOptions;

/// The idle and the total timeout of an exchange. Both start at the first poll.
pub(super) struct Deadlines {
    idle: Option<Deadline>,
    total: Option<Deadline>,
}

/// Whether the timeouts of an exchange run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutState {
    Running,
    /// The server waits for this client's host, so it cannot report progress.
    IdlePaused,
    /// The user decides, such as on a consent screen.
    Paused,
}

impl Deadlines {
    pub(super) fn new(options: &CallOptions) -> Self {
        Self {
            idle: options.idle_timeout.map(Deadline::from),
            total: options.timeout.map(Deadline::from),
        }
    }

    /// Returns the timeout that has elapsed, if one has. Applies `state` until the next call.
    pub(super) fn poll_elapsed(
        &mut self,
        state: TimeoutState,
        cx: &mut task::Context<'_>,
    ) -> Option<Duration> {
        if state != TimeoutState::Running {
            self.idle.iter_mut().for_each(Deadline::restart);
        }
        if state == TimeoutState::Paused {
            self.total.iter_mut().for_each(Deadline::pause);
            return None;
        }
        // The total timeout comes first: nothing extends it.
        let idle = self.idle.as_mut();
        let idle = idle.filter(|_| state == TimeoutState::Running);
        let deadlines = [self.total.as_mut(), idle];
        deadlines
            .into_iter()
            .flatten()
            .find_map(|deadline| deadline.poll_elapsed(cx))
    }

    /// Restarts the idle timeout on `notifications/progress`. Other notifications do not, as on every transport.
    pub(super) fn on_notification(&mut self, notification: &Notification) {
        if notification.method == ProgressNotification::NAME {
            self.idle.iter_mut().for_each(Deadline::restart);
        }
    }
}

/// A timeout that starts at the first poll.
pub(super) struct Deadline {
    after: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The remaining time while it is paused.
    left: Option<Duration>,
}

impl Deadline {
    /// Returns the timeout once it has elapsed.
    pub(super) fn poll_elapsed(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
        let sleep = self.sleep.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep(self.left.take().unwrap_or(self.after)))
        });
        sleep.as_mut().poll(cx).is_ready().then_some(self.after)
    }

    /// Stops the timeout until the next poll.
    pub(super) fn pause(&mut self) {
        if let Some(sleep) = self.sleep.take() {
            let now = Instant::now();
            self.left = Some(sleep.deadline().saturating_duration_since(now));
        }
    }

    /// Starts again at the next poll.
    fn restart(&mut self) {
        self.sleep = None;
        self.left = None;
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

/// The total time of the pauses of one request.
#[derive(Debug, Default)]
pub(crate) struct PausedTime {
    /// The start of the current pause.
    since: Option<Instant>,
    /// The total of the previous ones.
    before: Duration,
}

impl PausedTime {
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn end(&mut self) {
        self.before = self.total();
        self.since = None;
    }

    pub(crate) fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
