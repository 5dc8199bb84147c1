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
/// An event does not reset the timer; when it fires early, it is set to the remaining time. Streams send events far
/// more often than keep-alives, so this saves most resets.
pub(crate) struct KeepAlive {
    interval: Duration,
    idle_since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// The deadline of the timer, stored inline because it is read at every poll.
    deadline: Option<Instant>,
}

impl KeepAlive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            idle_since: Instant::now(),
            timer: None,
            deadline: None,
        }
    }

    /// Ready each time a keep-alive is due. Rearms the timer with the waker of `cx`, so that the task need not poll
    /// again before it is woken.
    pub(crate) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let due = instant_after(self.idle_since, self.interval);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        self.deadline = Some(timer.deadline());
        task::ready!(poll_timer(timer, cx));
        let is_due = timer.deadline() >= due;
        if is_due {
            self.idle_since = Instant::now();
        }
        let next = instant_after(self.idle_since, self.interval);
        timer.as_mut().reset(next);
        self.deadline = Some(next);
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
        self.deadline.is_some_and(|at| Instant::now() < at)
    }

    pub(crate) fn restart(&mut self) {
        self.idle_since = Instant::now();
    }
}

/// Polls outside of tokio's cooperative budget: with no budget left, the poll would not arm the timer.
fn poll_timer(timer: &mut Pin<Box<Sleep>>, cx: &mut task::Context<'_>) -> Poll<()> {
    pin!(unconstrained(timer.as_mut())).poll(cx)
}
