//! Pausing the timeouts of an HTTP request while the user decides, such as on a consent screen.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::BoxFuture;
use super::deadline::{Deadline, PausedTime};
use crate::sync::Mutex;
use crate::{Error, Result};

/// Pauses and resumes the timeouts of a request in progress.
pub(crate) trait TimeoutControl: Send + Sync {
    /// Pauses the timeouts.
    fn pause(&self) -> BoxFuture<'_, ()>;

    /// Resumes the timeouts.
    fn resume(&self) -> BoxFuture<'_, ()>;
}

/// Whether the timeouts of a future are paused. The future sets it, and the code that polls the future reads it.
#[derive(Debug, Default)]
pub(crate) struct TimeoutPause {
    is_paused: AtomicBool,
    time: Mutex<PausedTime>,
}

impl TimeoutPause {
    pub(crate) fn is_paused(&self) -> bool {
        // Relaxed: it is read and written by the task that polls the future only.
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Returns the total time of all pauses.
    pub(crate) fn total(&self) -> Duration {
        let time = self.time.lock();
        match time.is_zero() {
            true => Duration::ZERO,
            false => time.total(Instant::now()),
        }
    }
}

impl TimeoutControl for TimeoutPause {
    fn pause(&self) -> BoxFuture<'_, ()> {
        self.is_paused.store(true, Ordering::Relaxed);
        self.time.lock().begin(Instant::now());
        Box::pin(std::future::ready(()))
    }

    fn resume(&self) -> BoxFuture<'_, ()> {
        self.is_paused.store(false, Ordering::Relaxed);
        self.time.lock().end(Instant::now());
        Box::pin(std::future::ready(()))
    }
}

/// Fails with [`Error::Timeout`] when `future` has taken longer than `limit`, not counting the time of pauses.
pub(crate) async fn timeout_with_pauses<T>(
    limit: Duration,
    pause: &TimeoutPause,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut future = pin!(future);
    let mut deadline = Deadline::from(limit);
    poll_fn(|cx| {
        // The future is polled first, because it sets the pause.
        if let Poll::Ready(result) = future.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        if pause.is_paused() {
            return Poll::Pending;
        }
        match deadline.poll_elapsed(|| pause.total(), cx) {
            Some(after) => Poll::Ready(Err(Error::Timeout { after })),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_count() {
        let pause = TimeoutPause::default();
        let work = async {
            sleep(SECOND).await;
            pause.pause().await;
            sleep(100 * SECOND).await;
            pause.resume().await;
            sleep(SECOND).await;
            Ok(())
        };

        assert!(timeout_with_pauses(3 * SECOND, &pause, work).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn time_before_and_after_a_pause_adds_up() {
        let pause = TimeoutPause::default();
        let begun = Instant::now();
        let work = async {
            sleep(SECOND).await;
            pause.pause().await;
            sleep(100 * SECOND).await;
            pause.resume().await;
            sleep(100 * SECOND).await;
            Ok(())
        };

        let outcome = timeout_with_pauses(3 * SECOND, &pause, work).await;

        assert!(matches!(outcome, Err(Error::Timeout { after }) if after == 3 * SECOND));
        assert_eq!(begun.elapsed().as_secs(), 103);
    }
}
