//! `KeepAlive`, the timer of the SSE keep-alives that stop proxies from closing an idle stream.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{self, Poll};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::instant_after::instant_after;

/// The timer of the next keep-alive.
///
/// An event only sets `idle_since`. If the timer then fires too early, it is set again for the remaining time. Streams
/// send events far more often than keep-alives, so this saves most resets.
pub(crate) struct KeepAlive {
    interval: Duration,
    /// When the last event or keep-alive was sent.
    idle_since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            idle_since: Instant::now(),
            timer: None,
        }
    }

    /// Polls for the next keep-alive; ready each time one is due. In both cases the timer is running afterwards and has
    /// the waker of `cx`, so that the task is woken for the next one without another poll.
    pub(crate) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let due = instant_after(self.idle_since, self.interval);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        task::ready!(poll_timer(timer, cx));
        let is_due = timer.deadline() >= due;
        if is_due {
            self.idle_since = Instant::now();
        }
        let next = instant_after(self.idle_since, self.interval);
        timer.as_mut().reset(next);
        // Registers the waker. Ready only if the interval is so short that the next keep-alive is already due.
        if poll_timer(timer, cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        if is_due {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Returns whether the timer is armed and will wake the task that polled it last.
    pub(crate) fn is_running(&self) -> bool {
        let timer = self.timer.as_ref();
        timer.is_some_and(|timer| Instant::now() < timer.deadline())
    }

    /// Records that an event was sent: the next keep-alive is due one interval later.
    pub(crate) fn record_activity(&mut self) {
        self.idle_since = Instant::now();
    }
}

/// Polls outside of tokio's cooperative budget: with no budget left, the poll would not arm the timer.
fn poll_timer(timer: &mut Pin<Box<Sleep>>, cx: &mut task::Context<'_>) -> Poll<()> {
    pin!(unconstrained(timer.as_mut())).poll(cx)
}
