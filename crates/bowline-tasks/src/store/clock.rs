//! [`Timestamp`], and the [`Clock`] that a store reads it from.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A time in milliseconds since 1970-01-01 UTC. Displays as RFC 3339, such as `2026-07-28T12:00:00.000Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Creates a time; one that is later than the year 9999 becomes its end.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis > LAST_MILLIS {
            Self(LAST_MILLIS)
        } else {
            Self(millis)
        }
    }

    /// Returns the milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time `duration` later, at most the end of the year 9999.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(duration_millis(duration)))
    }

    /// Returns the text in RFC 3339, which is ASCII.
    pub(crate) fn to_text(self) -> [u8; 24] {
        let (days, of_day) = (self.0 / DAY, self.0 % DAY);
        let (year, month, day) = civil_date(days);
        let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
        // Each padded number of a `write!` costs as much as all of this, and every state that is sent has two times.
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (start, end, number) in [
            (0, 4, year),
            (5, 7, month),
            (8, 10, day),
            (11, 13, hours),
            (14, 16, minutes),
            (17, 19, seconds),
            (20, 23, millis),
        ] {
            put_digits(&mut text[start..end], number);
        }
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_text()).map_err(|_| fmt::Error)?)
    }
}

/// Writes the last decimal digits of a number, as many as fit.
fn put_digits(text: &mut [u8], mut number: u64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The clock of a store.
///
/// All processes that share a store must see the same time, as the processes of one machine do: it decides when a
/// lease has expired. A closure is a clock, for tests.
///
/// # Examples
///
/// ```
/// use bowline_tasks::store::{MemoryStore, Timestamp};
///
/// let store = MemoryStore::new().clock(|| Timestamp::from_millis(1_785_240_000_000));
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::default().after(since_epoch.unwrap_or_default())
    }
}

/// Returns a duration in whole milliseconds.
pub(super) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns year, month and day of the Gregorian calendar, for days since 1970-01-01.
///
/// Counts in eras of 400 years that start on 1 March, so that a leap day is the last day of its year; see Howard
/// Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next_year) = match month_from_march {
        0..10 => (month_from_march + 3, 0),
        _ => (month_from_march - 9, 1),
    };
    (era * 400 + year_of_era + next_year, month, day)
}

const DAY: u64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write.
const LAST_MILLIS: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_displays_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_785_240_001_020, "2026-07-28T12:00:01.020Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
    }

    #[test]
    fn a_duration_that_is_too_long_ends_at_the_last_time() {
        let end = Timestamp::from_millis(u64::MAX);

        assert_eq!(Timestamp::from_millis(5).after(Duration::MAX), end);
        assert_eq!(end.after(Duration::from_secs(1)), end);
    }
}
