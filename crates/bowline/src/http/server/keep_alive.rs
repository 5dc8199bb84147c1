//! When a silent stream should say something, so that nothing on the way takes it for dead.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The time until a silent stream should say something.
pub(crate) struct KeepAlive {
    interval: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            sleep: None,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let interval = self.interval;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(interval)));
        sleep.as_mut().poll(cx)
    }

    pub(crate) fn restart(&mut self) {
        if let Some(sleep) = &mut self.sleep {
            sleep.as_mut().reset(Instant::now() + self.interval);
        }
    }
}
