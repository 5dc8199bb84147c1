//! [`UnavailableRetries`]: when a request is sent again that a server refused with status 503 and `Retry-After`.
//!
//! That is how a server that drains or is overloaded refuses a request that it did not execute. Behind a load balancer
//! the next attempt reaches another server.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::random;

/// The attempts of one request, without a clock.
#[derive(Debug)]
pub(super) struct UnavailableRetries {
    /// How long all attempts may wait together.
    remaining: Duration,
    /// What the server said last.
    retry_after: Option<Duration>,
}

impl UnavailableRetries {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            remaining: limit,
            retry_after: None,
        }
    }

    /// Returns how long to wait before the request is sent again, if the response says that the server is unavailable.
    pub(super) fn after_response(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Duration> {
        if status != StatusCode::SERVICE_UNAVAILABLE {
            return None;
        }
        self.retry_after = retry_after(headers);
        self.wait()
    }

    /// Returns how long to wait after the connection failed before anything was sent. Only for a server that has said
    /// that it goes away: it may be restarting.
    pub(super) fn after_failed_connection(&mut self) -> Option<Duration> {
        self.wait()
    }

    fn wait(&mut self) -> Option<Duration> {
        let random = random::bytes().map_or(0, u16::from_ne_bytes);
        let delay = jittered(self.retry_after?, random);
        self.remaining = self.remaining.checked_sub(delay)?;
        Some(delay)
    }
}

/// Returns the seconds of `Retry-After`. A date is not supported: it would depend on the clocks of both machines.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

/// Returns the delay and up to a half more, so that refused clients do not all come back at the same time. Not less than
/// [`MIN_DELAY`].
fn jittered(delay: Duration, random: u16) -> Duration {
    let delay = delay.max(MIN_DELAY);
    let more = u32::from(random) * 50 / u32::from(u16::MAX);
    delay.saturating_add((delay / 100).saturating_mul(more))
}

/// The delay after `Retry-After: 0`, which would otherwise be repeated without end.
const MIN_DELAY: Duration = Duration::from_millis(50);
/// How long a request is sent again, unless a client sets another limit. Less than the default idle timeout of a call.
pub(crate) const DEFAULT_RETRY_UNAVAILABLE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(retries: &mut UnavailableRetries, value: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        let delay = retries.after_response(StatusCode::SERVICE_UNAVAILABLE, &headers);
        delay.is_some()
    }

    #[test]
    fn only_a_refusal_that_says_when_to_come_back_is_retried() {
        let mut retries = UnavailableRetries::new(Duration::MAX);
        let mut headers = HeaderMap::new();
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;

        assert_eq!(retries.after_response(unavailable, &headers), None);
        assert!(refused(&mut retries, "1"));
        assert!(refused(&mut retries, "0"));
        assert!(!refused(&mut retries, "-1"));
        assert!(!refused(&mut retries, "Wed, 21 Oct 2026 07:28:00 GMT"));
        headers.insert(RETRY_AFTER, "1".parse().unwrap());
        for status in [StatusCode::OK, StatusCode::BAD_GATEWAY] {
            assert_eq!(retries.after_response(status, &headers), None, "{status}");
        }
    }

    #[test]
    fn the_waits_together_stay_within_the_limit() {
        let mut retries = UnavailableRetries::new(Duration::from_secs(10));
        let mut waited = Duration::ZERO;
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "2".parse().unwrap());

        while let Some(delay) = retries.after_response(StatusCode::SERVICE_UNAVAILABLE, &headers) {
            assert!((2..=3).contains(&delay.as_secs()), "{delay:?}");
            waited += delay;
        }

        assert!(waited > Duration::from_secs(6) && waited <= Duration::from_secs(10));
        let mut none = UnavailableRetries::new(Duration::ZERO);
        assert!(!refused(&mut none, "0"));
    }

    #[test]
    fn a_failed_connection_counts_only_after_a_refusal() {
        let mut retries = UnavailableRetries::new(Duration::from_secs(10));

        assert_eq!(retries.after_failed_connection(), None);
        assert!(refused(&mut retries, "1"));
        assert!(retries.after_failed_connection().is_some());
    }

    #[test]
    fn jitter_adds_up_to_a_half() {
        let second = Duration::from_secs(1);

        assert_eq!(jittered(second, 0), second);
        assert_eq!(jittered(second, u16::MAX), Duration::from_millis(1500));
        assert_eq!(jittered(Duration::ZERO, 0), MIN_DELAY);
        assert_eq!(jittered(Duration::MAX, u16::MAX), Duration::MAX);
    }
}
