//! How often, and after which pauses, a stream that ended or could not be opened is opened again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Counts the streams in a row that were of no use: they ended soon, and said nothing.
///
/// That a stream was closed in good order proves nothing: some servers close every stream at once.
#[derive(Debug)]
pub(super) struct Attempts {
    useless: u32,
    /// Attempts in a row that did not lead to a stream. Their number has no limit: a server may be away for long.
    failures: u32,
    begun: Instant,
    has_heard: bool,
}

impl Attempts {
    pub(super) fn new() -> Self {
        Self {
            useless: 0,
            failures: 0,
            begun: Instant::now(),
            has_heard: false,
        }
    }

    /// A stream could not be opened.
    pub(super) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// A stream is open.
    pub(super) fn begin(&mut self) {
        self.failures = 0;
        self.begun = Instant::now();
        self.has_heard = false;
    }

    /// The stream said something.
    pub(super) fn hear(&mut self) {
        self.has_heard = true;
    }

    /// The stream is at its end. Whether there may be another.
    pub(super) fn end(&mut self) -> bool {
        let was_of_use = self.has_heard || self.begun.elapsed() >= LONG;
        self.useless = if was_of_use { 0 } else { self.useless + 1 };
        self.useless < MOST_USELESS
    }

    /// How long to wait before the next stream is asked for: as long as the server said (`retry`, in milliseconds), or
    /// longer each time.
    pub(super) fn wait(&self, retry: Option<u64>) -> Duration {
        let grown = FIRST_PAUSE * 2_u32.saturating_pow(self.useless.max(self.failures).min(7));
        let asked = retry.map(Duration::from_millis);
        asked.unwrap_or(grown.min(LONGEST_PAUSE))
    }

    pub(super) async fn pause(&self, retry: Option<u64>) {
        sleep(self.wait(retry)).await;
    }
}

const MOST_USELESS: u32 = 5;
/// A stream that was open for so long was of use, even if there was nothing to say.
const LONG: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Of those that we choose ourselves.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_asked_for_earlier_than_the_server_said() {
        let attempts = Attempts::new();

        for retry in [0, 700, 90_000, 86_400_000] {
            let before = Instant::now();
            attempts.pause(Some(retry)).await;
            assert_eq!(before.elapsed(), Duration::from_millis(retry));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_that_nobody_asked_for_grow_up_to_a_limit() {
        let mut attempts = Attempts::new();

        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(attempts.wait(None).as_millis());
            attempts.fail();
        }

        assert_eq!(
            waits,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        );
    }
}
