//! [`Backoff`], the delays between attempts: exponential, with jitter.

use std::time::Duration;

use crate::random;

/// The range of delays between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// Returns the delay before an attempt, which is counted from 1.
    ///
    /// It is random, so that the clients of a restarted server do not all come back at the same time.
    pub(crate) fn delay(&self, attempt: u32) -> Duration {
        let random = random::bytes().map_or(u16::MAX, u16::from_ne_bytes);
        self.jittered(attempt, random)
    }

    /// Returns between one and two halves of the full delay, which doubles with each attempt up to the maximum.
    fn jittered(&self, attempt: u32, random: u16) -> Duration {
        let factor = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let half = self.min.saturating_mul(factor).min(self.max) / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        min: Duration::from_secs(1),
        max: Duration::from_secs(30),
    };

    #[test]
    fn a_delay_doubles_up_to_the_maximum() {
        let delays = [1, 2, 3, 5, 6, 7, u32::MAX];

        let delays = delays.map(|attempt| BACKOFF.jittered(attempt, u16::MAX).as_secs());

        assert_eq!(delays, [1, 2, 4, 16, 30, 30, 30]);
    }

    #[test]
    fn jitter_takes_up_to_a_half_of_the_delay() {
        let delays = [0, u16::MAX / 2, u16::MAX];

        let delays = delays.map(|random| BACKOFF.jittered(3, random).as_millis());

        assert_eq!(delays, [2_000, 2_999, 4_000]);
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        let extreme = Backoff {
            min: Duration::MAX,
            max: Duration::MAX,
        };

        assert!(extreme.delay(u32::MAX) > Duration::from_secs(1));
        let none = Backoff {
            min: Duration::ZERO,
            max: Duration::ZERO,
        };
        assert_eq!(none.delay(3), Duration::ZERO);
    }
}
