//! [`ParkSettings`]: how long calls stay parked, and how much memory they may use.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ParkedCallForm;

/// How long calls stay parked, and how much memory they may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkSettings {
    /// How long a call waits for the retry. Starts again whenever the call is parked.
    pub(crate) park_timeout: Duration,
    /// The time from the first parking of a call to its last timeout.
    pub(crate) max_parked_time: Duration,
    /// How long a request for roots waits for the answer of the call before it parks the call: many servers request
    /// roots whenever a connection starts, and do not need them for the call that happens to run.
    pub(crate) roots_delay: Duration,
    /// What a client that declared tasks gets.
    pub(crate) form: ParkedCallForm,
    /// The parked calls of all principals.
    pub(crate) max_calls: usize,
    /// The parked calls of one principal.
    pub(crate) max_calls_each: usize,
    /// The bytes of the parked calls of all principals.
    pub(crate) max_bytes: usize,
    /// The bytes of the parked calls of one principal.
    pub(crate) max_bytes_each: usize,
}

impl Default for ParkSettings {
    fn default() -> Self {
        Self {
            park_timeout: Duration::from_secs(5 * 60),
            max_parked_time: Duration::from_secs(60 * 60),
            roots_delay: Duration::from_millis(200),
            form: ParkedCallForm::default(),
            max_calls: 4_096,
            max_calls_each: 1_024,
            max_bytes: 128 * 1024 * 1024,
            max_bytes_each: 32 * 1024 * 1024,
        }
    }
}

/// Returns `start + delay`, with `delay` limited to 30 years: an `Instant` overflows by a panic.
pub(super) fn instant_after(start: Instant, delay: Duration) -> Instant {
    start + delay.min(Duration::from_secs(30 * 365 * 24 * 60 * 60))
}

/// How long a sealed state opens after the call's deadline. The timer of the table decides; the later expiry of the
/// seal lets a tombstone answer a retry that is a little late.
pub(super) const SEAL_GRACE: Duration = Duration::from_secs(60);
