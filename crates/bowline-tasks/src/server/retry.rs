//! [`Backoff`], the delays between attempts to reach a store that fails.

use std::time::Duration;

/// Delays that double from attempt to attempt.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) fn new(max: Duration) -> Self {
        Self {
            next: FIRST_DELAY,
            max,
        }
    }

    /// Returns the delay before the next attempt.
    pub(super) fn next_delay(&mut self) -> Duration {
        let delay = self.next.min(self.max);
        self.next = delay.saturating_mul(2);
        delay
    }

    /// Waits before the next attempt.
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }
}

const FIRST_DELAY: Duration = Duration::from_millis(100);
