//! How long a stream may be silent, learnt from its keep-alives.
//!
//! A server that sends comments to keep a stream alive shows by them how long it lets the stream be silent. A longer silence
//! means that the path is dead, which TCP would report after many minutes, or never where there is nothing to send.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, Result};

/// The keep-alives of one stream.
pub(super) struct Silence {
    missed: Option<u32>,
    /// Since when there was nothing but comments: the stream's first byte, or its last comment.
    quiet_since: Option<Instant>,
    comments: u64,
    /// The longest time between two comments with nothing in between. The longest, because the network may deliver
    /// two of them at once.
    interval: Option<Duration>,
}

impl Silence {
    pub(super) fn new(missed: Option<u32>) -> Self {
        Self {
            missed,
            quiet_since: None,
            comments: 0,
            interval: None,
        }
    }

    pub(super) fn heard_event(&mut self) {
        self.quiet_since = None;
    }

    /// Takes note of how many comments there were by now.
    pub(super) fn heard_comments(&mut self, comments: u64) {
        if comments == self.comments {
            return;
        }
        self.comments = comments;
        let now = Instant::now();
        // The time since an event says nothing: some servers send comments whether or not there were events.
        if let Some(since) = self.quiet_since.replace(now) {
            self.interval = self.interval.max(Some(now - since));
        }
    }

    /// Waits for the next bytes, for as long as the stream may be silent.
    pub(super) async fn limit<T>(&self, reading: impl Future<Output = Result<T>>) -> Result<T> {
        let (Some(interval), Some(missed)) = (self.interval, self.missed) else {
            return reading.await;
        };
        let limit = interval.max(SHORTEST_INTERVAL).saturating_mul(missed);
        let heard = tokio::time::timeout(limit, reading).await;
        heard.unwrap_or_else(|_| {
            let what =
                format!("no keep-alive for {limit:?} on a stream that had one every {interval:?}");
            Err(Error::Transport { what, source: None })
        })
    }
}

/// Keep-alives that follow each other more closely promise no more than this.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    /// How long a silence is borne, if not for ever.
    async fn borne(silence: &Silence) -> Option<Duration> {
        let since = Instant::now();
        let waiting = silence.limit(pending::<Result<()>>());
        let waited = tokio::time::timeout(Duration::from_secs(100_000), waiting).await;
        waited.ok().map(|_| since.elapsed())
    }

    async fn heard(silence: &mut Silence, comments: u64, after: Duration) {
        tokio::time::advance(after).await;
        silence.heard_comments(comments);
    }

    #[tokio::test(start_paused = true)]
    async fn two_keep_alives_show_their_interval_and_one_does_not() {
        let mut silence = Silence::new(Some(3));

        heard(&mut silence, 1, INTERVAL).await;
        let after_one = borne(&silence).await;
        let mut silence = Silence::new(Some(3));
        heard(&mut silence, 1, INTERVAL).await;
        heard(&mut silence, 2, INTERVAL).await;

        assert_eq!(after_one, None);
        let after_two = borne(&silence).await.unwrap();
        assert_eq!(after_two.as_secs(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_soon_after_an_event_does_not_show_the_interval() {
        let mut silence = Silence::new(Some(3));
        heard(&mut silence, 1, INTERVAL).await;
        silence.heard_event();

        heard(&mut silence, 2, Duration::from_millis(10)).await;

        assert_eq!(borne(&silence).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alives_that_arrive_together_do_not_shorten_the_interval() {
        let mut silence = Silence::new(Some(3));

        for (count, after) in [(1, INTERVAL), (2, INTERVAL), (3, Duration::from_millis(1))] {
            heard(&mut silence, count, after).await;
        }

        assert_eq!(borne(&silence).await.unwrap().as_secs(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_borne_for_ever_where_the_limit_is_taken_away() {
        let mut silence = Silence::new(None);

        heard(&mut silence, 1, INTERVAL).await;
        heard(&mut silence, 2, INTERVAL).await;

        assert_eq!(borne(&silence).await, None);
    }
}
