//! Points in time that a setting may place beyond what the clock can represent.

use std::time::Duration;

use tokio::time::Instant;

/// The instant `delay` after `start`, which is [`FAR_FUTURE`] away at most.
///
/// `start + Duration::MAX` panics, and a panic in the task of a connection ends it: "never" would mean "now".
pub(crate) fn instant_after(start: Instant, delay: Duration) -> Instant {
    start + delay.min(FAR_FUTURE)
}

/// 30 years, which is also how long `tokio::time::sleep` waits for a time that the clock cannot represent.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
