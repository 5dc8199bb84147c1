//! `KeepAliveMonitor`, the idle timeout of an SSE stream, learned from the interval of the server's keep-alive
//! comments.
//!
//! If several keep-alives are missing, the connection is dead. TCP would report that after many minutes, or never if
//! there is no data to send.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, Result};

/// The keep-alive interval of one SSE stream.
pub(super) struct KeepAliveMonitor {
    missed: Option<u32>,
    /// When the last comment arrived; `None` if an event has arrived since, or no comment has arrived yet.
    last_comment: Option<Instant>,
    comments: u64,
    /// The longest time between two comments without an event in between. The longest, because the network may deliver
    /// two of them together.
    interval: Option<Duration>,
}

impl KeepAliveMonitor {
    pub(super) fn new(missed: Option<u32>) -> Self {
        Self {
            missed,
            last_comment: None,
            comments: 0,
            interval: None,
        }
    }

    pub(super) fn on_event(&mut self) {
        self.last_comment = None;
    }

    /// Updates the interval. `comments` is the number of comments received so far.
    pub(super) fn on_comments(&mut self, comments: u64) {
        if comments == self.comments {
            return;
        }
        self.comments = comments;
        let now = Instant::now();
        // Measure between comments only: some servers send them on a fixed schedule, even right after an event.
        if let Some(since) = self.last_comment.replace(now) {
            self.interval = self.interval.max(Some(now - since));
        }
    }

    /// Awaits `reading` for as long as the stream may be idle; without a known interval there is no limit.
    pub(super) async fn limit<T>(&self, reading: impl Future<Output = Result<T>>) -> Result<T> {
        let (Some(interval), Some(missed)) = (self.interval, self.missed) else {
            return reading.await;
        };
        let limit = interval.max(MIN_INTERVAL).saturating_mul(missed);
        let read = tokio::time::timeout(limit, reading).await;
        read.unwrap_or_else(|_| {
            let what =
                format!("no keep-alive received for {limit:?}; expected one every {interval:?}");
            Err(Error::Transport { what, source: None })
        })
    }
}

/// Lower bound of the learned interval, so that network jitter does not fail a stream with frequent keep-alives.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    /// Returns the idle timeout, if there is one.
    async fn idle_timeout(monitor: &KeepAliveMonitor) -> Option<Duration> {
        let since = Instant::now();
        let waiting = monitor.limit(pending::<Result<()>>());
        let waited = tokio::time::timeout(Duration::from_secs(100_000), waiting).await;
        waited.ok().map(|_| since.elapsed())
    }

    async fn receive_comments(monitor: &mut KeepAliveMonitor, comments: u64, after: Duration) {
        tokio::time::advance(after).await;
        monitor.on_comments(comments);
    }

    #[tokio::test(start_paused = true)]
    async fn two_keep_alives_show_their_interval_and_one_does_not() {
        let mut monitor = KeepAliveMonitor::new(Some(3));

        receive_comments(&mut monitor, 1, INTERVAL).await;
        let after_one = idle_timeout(&monitor).await;
        let mut monitor = KeepAliveMonitor::new(Some(3));
        receive_comments(&mut monitor, 1, INTERVAL).await;
        receive_comments(&mut monitor, 2, INTERVAL).await;

        assert_eq!(after_one, None);
        let after_two = idle_timeout(&monitor).await.unwrap();
        assert_eq!(after_two.as_secs(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_soon_after_an_event_does_not_show_the_interval() {
        let mut monitor = KeepAliveMonitor::new(Some(3));
        receive_comments(&mut monitor, 1, INTERVAL).await;
        monitor.on_event();

        receive_comments(&mut monitor, 2, Duration::from_millis(10)).await;

        assert_eq!(idle_timeout(&monitor).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alives_that_arrive_together_do_not_shorten_the_interval() {
        let mut monitor = KeepAliveMonitor::new(Some(3));

        for (count, after) in [(1, INTERVAL), (2, INTERVAL), (3, Duration::from_millis(1))] {
            receive_comments(&mut monitor, count, after).await;
        }

        assert_eq!(idle_timeout(&monitor).await.unwrap().as_secs(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_an_idle_stream_never_fails() {
        let mut monitor = KeepAliveMonitor::new(None);

        receive_comments(&mut monitor, 1, INTERVAL).await;
        receive_comments(&mut monitor, 2, INTERVAL).await;

        assert_eq!(idle_timeout(&monitor).await, None);
    }
}
