//! [`TimeAndRandomness`]: the clock and randomness of a flow, passed in so that flows are deterministic in tests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A timestamp with fresh random bytes, which must not be used for two purposes.
#[derive(Clone, Copy)]
pub(crate) struct TimeAndRandomness {
    /// Seconds since 1970.
    now: u64,
    random: [[u8; 32]; 2],
}

impl TimeAndRandomness {
    /// Reads the system clock and random generator.
    pub(crate) fn now() -> std::io::Result<Self> {
        let mut random = [[0; 32]; 2];
        for part in &mut random {
            getrandom::fill(part).map_err(std::io::Error::other)?;
        }
        Ok(Self::new(Self::seconds_now(), random))
    }

    /// Returns the current time, in seconds since 1970.
    pub(crate) fn seconds_now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }

    /// Creates a value with this time and these bytes.
    pub(crate) fn new(now: u64, random: [[u8; 32]; 2]) -> Self {
        Self { now, random }
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now
    }

    /// Returns a random part of a duration.
    pub(crate) fn random_fraction_of(&self, whole: Duration) -> Duration {
        let [a, b, ..] = self.random[0];
        whole * u32::from(u16::from_be_bytes([a, b])) / u32::from(u16::MAX)
    }

    /// Returns the first random value, as 43 characters of base64url.
    pub(crate) fn random_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.random[0])
    }

    /// Returns the second random value, as 43 characters of base64url.
    pub(crate) fn second_random_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.random[1])
    }
}

impl std::fmt::Debug for TimeAndRandomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimeAndRandomness")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
