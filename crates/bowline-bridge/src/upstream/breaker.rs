//! [`Breaker`]: how long an upstream that failed is left alone.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the failures of an upstream's transport in a row, and says when the next connection may be tried.
///
/// The first failure has no consequence, because a process that was killed is started again at once. From the second
/// on, requests fail immediately for a time that doubles, so that each of them does not wait for its own timeout.
/// Errors that the server itself sends are answers: they end the row.
///
/// Many requests fail when one process ends. They are one failure: a request counts only if no other has failed since it
/// began.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// How many failures were counted, ever.
    counted: u64,
    retry_at: Option<Instant>,
    last_error: String,
}

/// The beginning of a request, with the number of failures that were counted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt(u64);

/// The refusal of a connection that would be tried too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooEarly {
    pub(crate) retry_in: Duration,
    pub(crate) last_error: String,
}

impl Breaker {
    /// Begins a request.
    pub(crate) fn begin(&self) -> Attempt {
        Attempt(self.counted)
    }

    /// Checks whether a connection may be tried. Not by a request that waited while another one tried in vain: if each
    /// of them tried again, the last would wait for the timeouts of all.
    pub(crate) fn check(&self, attempt: Attempt, now: Instant) -> Result<(), TooEarly> {
        let wait = self.retry_at.map(|at| at.saturating_duration_since(now));
        let retry_in = wait.unwrap_or_default();
        if retry_in.is_zero() && (attempt == self.begin() || self.failures == 0) {
            return Ok(());
        }
        Err(TooEarly {
            retry_in,
            last_error: self.last_error.clone(),
        })
    }

    /// Checks whether a request may be sent on a connection that is open, as far as is known. After the delay one request
    /// tries, and the others are refused until it has succeeded, or the same delay has passed again.
    pub(crate) fn check_open(&mut self, now: Instant) -> Result<(), TooEarly> {
        let Some(retry_at) = self.retry_at else {
            return Ok(());
        };
        let retry_in = retry_at.saturating_duration_since(now);
        if retry_in.is_zero() {
            self.retry_at = now.checked_add(self.delay());
            return Ok(());
        }
        Err(TooEarly {
            retry_in,
            last_error: self.last_error.clone(),
        })
    }

    /// Records that the transport failed.
    pub(crate) fn failed(&mut self, attempt: Attempt, now: Instant, error: String) {
        if attempt != self.begin() {
            return;
        }
        self.counted += 1;
        self.failures = self.failures.saturating_add(1);
        self.last_error = error;
        if self.failures > 1 {
            self.retry_at = now.checked_add(self.delay());
        }
    }

    /// Returns the delay after the last failure.
    fn delay(&self) -> Duration {
        let doublings = self.failures.saturating_sub(2).min(16);
        MIN_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY)
    }

    /// Records an answer of the server.
    pub(crate) fn succeeded(&mut self) {
        if self.failures > 0 {
            *self = Self {
                counted: self.counted,
                ..Self::default()
            };
        }
    }
}

const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(breaker: &Breaker, now: Instant) -> Duration {
        breaker
            .check(breaker.begin(), now)
            .map_or_else(|early| early.retry_in, |()| Duration::ZERO)
    }

    #[test]
    fn the_first_failure_has_no_delay_and_later_ones_double_it_up_to_a_maximum() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let mut waits = Vec::new();

        for _ in 0..10 {
            breaker.failed(breaker.begin(), now, "gone".into());
            waits.push(wait(&breaker, now).as_millis());
        }

        let doubled = [
            0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000,
        ];
        assert_eq!(waits, doubled);
    }

    #[test]
    fn an_answer_ends_the_row_and_the_delay_passes() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(breaker.begin(), now, "first".into());
        breaker.failed(breaker.begin(), now, "second".into());
        let refused = breaker.check(breaker.begin(), now);
        assert_eq!(refused.unwrap_err().last_error, "second");
        assert_eq!(
            wait(&breaker, now + Duration::from_millis(500)),
            Duration::ZERO
        );

        breaker.succeeded();
        breaker.failed(breaker.begin(), now, "third".into());

        assert_eq!(wait(&breaker, now), Duration::ZERO);
    }

    #[test]
    fn after_the_delay_one_request_tries_an_open_connection() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(breaker.begin(), now, "first".into());
        assert_eq!(breaker.check_open(now), Ok(()));
        breaker.failed(breaker.begin(), now, "second".into());
        assert!(breaker.check_open(now).is_err());

        let later = now + MIN_DELAY;
        assert_eq!(breaker.check_open(later), Ok(()));
        assert!(breaker.check_open(later).is_err());
        // The request was dropped before it had an answer.
        assert_eq!(breaker.check_open(later + MIN_DELAY), Ok(()));

        breaker.succeeded();
        assert_eq!(breaker.check_open(later), Ok(()));
    }

    #[test]
    fn requests_that_fail_together_are_one_failure_and_do_not_try_again() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let together = [breaker.begin(); 20];

        for attempt in together {
            breaker.failed(attempt, now, "gone".into());
        }

        assert_eq!(breaker.check(breaker.begin(), now), Ok(()));
        assert_eq!(
            breaker.check(together[0], now).unwrap_err().last_error,
            "gone"
        );
        breaker.succeeded();
        assert_eq!(breaker.check(together[0], now), Ok(()));
    }
}
