//! Adding durations that come from settings to an `Instant` without overflow.

use std::time::Duration;

use tokio::time::Instant;

/// Returns `start + delay`, with `delay` limited to [`FAR_FUTURE`].
///
/// `start + Duration::MAX` panics, and a panic in a connection's task closes the connection.
pub(crate) fn instant_after(start: Instant, delay: Duration) -> Instant {
    start + delay.min(FAR_FUTURE)
}

/// 30 years, the value that `tokio::time::sleep` uses when the deadline overflows.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
