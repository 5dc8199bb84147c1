//! When a silent stream should say something, so that nothing on the way takes it for dead.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{self, Poll};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::far_future::instant_after;

/// The time until a silent stream should say something.
///
/// Its timer is left alone when something is said, and set to what is left when it rings too early: a stream
/// speaks far more often than it is silent for so long.
pub(crate) struct KeepAlive {
    interval: Duration,
    silent_since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the timer rings, kept where looking at it costs nothing.
    rings_at: Option<Instant>,
}

impl KeepAlive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            silent_since: Instant::now(),
            timer: None,
            rings_at: None,
        }
    }

    /// Ready each time that something should be said. The timer is started again by that: a task that is woken
    /// by it need not poll before it is.
    pub(crate) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let due = instant_after(self.silent_since, self.interval);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        self.rings_at = Some(timer.deadline());
        task::ready!(poll_timer(timer, cx));
        let is_due = timer.deadline() >= due;
        if is_due {
            self.silent_since = Instant::now();
        }
        let next = instant_after(self.silent_since, self.interval);
        timer.as_mut().reset(next);
        self.rings_at = Some(next);
        if poll_timer(timer, cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        if is_due {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Whether the timer will wake whoever has polled it last.
    pub(crate) fn is_running(&self) -> bool {
        self.rings_at.is_some_and(|at| Instant::now() < at)
    }

    pub(crate) fn restart(&mut self) {
        self.silent_since = Instant::now();
    }
}

/// However much the task has done already: a timer that is put off would not be running.
fn poll_timer(timer: &mut Pin<Box<Sleep>>, cx: &mut task::Context<'_>) -> Poll<()> {
    pin!(unconstrained(timer.as_mut())).poll(cx)
}
