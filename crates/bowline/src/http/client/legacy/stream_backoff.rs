//! `StreamBackoff`, which decides how often and after which delays an SSE stream is reopened.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Counts consecutive useless streams: those that ended soon and without a message.
///
/// A clean close does not reset the count: some servers close every stream immediately.
#[derive(Debug)]
pub(super) struct StreamBackoff {
    useless: u32,
    /// Consecutive failures to open a stream. Not limited: a server may be down for long.
    failures: u32,
    begun: Instant,
    has_message: bool,
}

impl StreamBackoff {
    pub(super) fn new() -> Self {
        Self {
            useless: 0,
            failures: 0,
            begun: Instant::now(),
            has_message: false,
        }
    }

    /// Records that a stream could not be opened.
    pub(super) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Records that a stream was opened.
    pub(super) fn begin(&mut self) {
        self.failures = 0;
        self.begun = Instant::now();
        self.has_message = false;
    }

    /// Records a message on the stream.
    pub(super) fn record_message(&mut self) {
        self.has_message = true;
    }

    /// Records the end of the stream. Returns whether to open another.
    pub(super) fn end(&mut self) -> bool {
        let was_useful = self.has_message || self.begun.elapsed() >= USEFUL_AFTER;
        self.useless = if was_useful { 0 } else { self.useless + 1 };
        self.useless < MAX_USELESS
    }

    /// Returns the delay before the next attempt: the server's `retry` field, in milliseconds, or else an exponential
    /// backoff.
    pub(super) fn wait(&self, retry: Option<u64>) -> Duration {
        let grown = MIN_DELAY * 2_u32.saturating_pow(self.useless.max(self.failures).min(7));
        let requested = retry.map(Duration::from_millis);
        requested.unwrap_or(grown.min(MAX_DELAY))
    }

    pub(super) async fn pause(&self, retry: Option<u64>) {
        sleep(self.wait(retry)).await;
    }
}

const MAX_USELESS: u32 = 5;
/// A stream that was open for this long is useful even without a message.
const USEFUL_AFTER: Duration = Duration::from_secs(1);
const MIN_DELAY: Duration = Duration::from_millis(250);
/// Upper bound of the backoff; a `retry` of the server may be longer.
const MAX_DELAY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_reopened_before_the_servers_retry() {
        let backoff = StreamBackoff::new();

        for retry in [0, 700, 90_000, 86_400_000] {
            let before = Instant::now();
            backoff.pause(Some(retry)).await;
            assert_eq!(before.elapsed(), Duration::from_millis(retry));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_backoff_grows_up_to_a_limit() {
        let mut backoff = StreamBackoff::new();

        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(backoff.wait(None).as_millis());
            backoff.fail();
        }

        assert_eq!(
            waits,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        );
    }
}
