//! Time that does not count against a request, because a person decides.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::BoxFuture;
use super::deadline::Deadline;
use crate::{Error, Result};

/// Whoever counts the time of a request that is under way.
pub(crate) trait Stopwatch: Send + Sync {
    /// Counts no further.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Counts on.
    fn go_on(&self) -> BoxFuture<'_, ()>;
}

/// Tells whoever polls a future whether its time counts. The future itself turns it on and off.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    is_on: AtomicBool,
    /// When it was last turned on, and how long it was on before that.
    spent: Mutex<(Option<Instant>, Duration)>,
}

impl Pause {
    pub(crate) fn is_on(&self) -> bool {
        // Only the task that polls the future reads and writes it.
        self.is_on.load(Ordering::Relaxed)
    }

    /// How long it has been on.
    pub(crate) fn total(&self) -> Duration {
        let (since, before) = *self.lock();
        before + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn set(&self, on: bool) -> BoxFuture<'_, ()> {
        self.is_on.store(on, Ordering::Relaxed);
        let mut spent = self.lock();
        let (since, before) = *spent;
        *spent = match (on, since) {
            (true, None) => (Some(Instant::now()), before),
            (false, Some(since)) => (None, before + since.elapsed()),
            _ => *spent,
        };
        Box::pin(std::future::ready(()))
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Instant>, Duration)> {
        // No code that could panic runs under this lock.
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stopwatch for Pause {
    fn stop(&self) -> BoxFuture<'_, ()> {
        self.set(true)
    }

    fn go_on(&self) -> BoxFuture<'_, ()> {
        self.set(false)
    }
}

/// Drops `future` when it has taken longer than `limit`, not counting the time in which `pause` is on.
pub(crate) async fn within<T>(
    limit: Duration,
    pause: &Pause,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut future = pin!(future);
    let mut deadline = Deadline::from(limit);
    poll_fn(|cx| {
        // The future is asked first, for that is what turns the pause on and off.
        if let Poll::Ready(result) = future.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        if pause.is_on() {
            deadline.pause();
            return Poll::Pending;
        }
        match deadline.poll_overdue(cx) {
            Some(after) => Poll::Ready(Err(Error::Timeout { after })),
            None => Poll::Pending,
        }
    })
    .await
}

impl Deadline {
    /// Stands still until the next poll.
    pub(super) fn pause(&mut self) {
        if let Some(sleep) = self.sleep.take() {
            let now = Instant::now();
            self.left = Some(sleep.deadline().saturating_duration_since(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn time_that_is_paused_does_not_count() {
        let pause = Pause::default();
        let work = async {
            sleep(SECOND).await;
            pause.stop().await;
            sleep(100 * SECOND).await;
            pause.go_on().await;
            sleep(SECOND).await;
            Ok(())
        };

        assert!(within(3 * SECOND, &pause, work).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn time_before_and_after_a_pause_adds_up() {
        let pause = Pause::default();
        let begun = Instant::now();
        let work = async {
            sleep(SECOND).await;
            pause.stop().await;
            sleep(100 * SECOND).await;
            pause.go_on().await;
            sleep(100 * SECOND).await;
            Ok(())
        };

        let outcome = within(3 * SECOND, &pause, work).await;

        assert!(matches!(outcome, Err(Error::Timeout { after }) if after == 3 * SECOND));
        assert_eq!(begun.elapsed().as_secs(), 103);
    }
}
