//! The time, and fresh randomness: what a flow needs from outside besides responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A point in time, with randomness that is used there and nowhere else.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// Seconds since 1970.
    now: u64,
    random: [[u8; 32]; 2],
}

impl Moment {
    /// Now, as the operating system has it.
    pub(crate) fn now() -> std::io::Result<Self> {
        let mut random = [[0; 32]; 2];
        for part in &mut random {
            getrandom::fill(part).map_err(std::io::Error::other)?;
        }
        Ok(Self::new(Self::seconds_now(), random))
    }

    /// Only the time.
    pub(crate) fn seconds_now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }

    /// A point in time that a test has chosen.
    pub(crate) fn new(now: u64, random: [[u8; 32]; 2]) -> Self {
        Self { now, random }
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now
    }

    /// A random part of a duration.
    pub(crate) fn part_of(&self, whole: Duration) -> Duration {
        let [a, b, ..] = self.random[0];
        whole * u32::from(u16::from_be_bytes([a, b])) / u32::from(u16::MAX)
    }

    /// One word of 43 characters that nobody can guess.
    pub(crate) fn word(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.random[0])
    }

    /// Another one.
    pub(crate) fn other_word(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.random[1])
    }
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moment")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
