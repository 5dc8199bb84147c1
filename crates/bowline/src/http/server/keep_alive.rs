//! When a silent stream should say something, so that nothing on the way takes it for dead.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The time until a silent stream should say something.
///
/// Its timer is left alone when something is said, and set to what is left when it rings too early: a stream
/// speaks far more often than it is silent for so long.
pub(crate) struct KeepAlive {
    interval: Duration,
    silent_since: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            silent_since: Instant::now(),
            sleep: None,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let due = self.silent_since + self.interval;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        task::ready!(sleep.as_mut().poll(cx));
        if sleep.deadline() < due {
            sleep.as_mut().reset(due);
            return sleep.as_mut().poll(cx);
        }
        Poll::Ready(())
    }

    pub(crate) fn restart(&mut self) {
        self.silent_since = Instant::now();
    }
}
