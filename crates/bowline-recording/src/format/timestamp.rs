//! [`Timestamp`]: a moment in UTC with microseconds, in RFC 3339.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in UTC between the years 1970 and 9999, with microseconds.
///
/// # Examples
///
/// ```
/// use bowline_recording::Timestamp;
///
/// let noon: Timestamp = "2026-07-28T14:00:00.5+02:00".parse()?;
/// assert_eq!(noon.to_string(), "2026-07-28T12:00:00.500000Z");
/// # Ok::<(), bowline_recording::ParseTimestampError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Microseconds since 1970, at most [`MAX_MICROS`].
    micros: u64,
}

/// The text is not a timestamp in RFC 3339 between the years 1970 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a timestamp in RFC 3339 between the years 1970 and 9999")]
#[non_exhaustive]
pub struct ParseTimestampError;

impl Timestamp {
    /// Returns the time of the system's clock.
    #[must_use]
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::from_unix(since_1970.unwrap_or_default())
    }

    /// Returns the moment this long after the start of 1970, or the last one of the year 9999.
    #[must_use]
    pub fn from_unix(since_1970: Duration) -> Self {
        let micros = u64::try_from(since_1970.as_micros()).unwrap_or(MAX_MICROS);
        Self {
            micros: micros.min(MAX_MICROS),
        }
    }

    /// Returns the time since the start of 1970.
    #[must_use]
    pub fn since_unix(self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns the moment that is `duration` later, at most the last one of the year 9999.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self::from_unix(self.since_unix().saturating_add(duration))
    }
}

/// Formats as RFC 3339 with six digits for microseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        let (days, time) = (seconds / DAY, seconds % DAY);
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        parse(text).ok_or(ParseTimestampError)
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4)?;
    expect(&mut rest, b"-")?;
    let month = digits(&mut rest, 2)?;
    expect(&mut rest, b"-")?;
    let day = digits(&mut rest, 2)?;
    expect(&mut rest, b"Tt ")?;
    let hour = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let minute = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let second = digits(&mut rest, 2)?;
    let micros = match expect(&mut rest, b".") {
        Some(_) => fraction(&mut rest)?,
        None => 0,
    };
    let offset = offset(&mut rest)?;
    let is_date = year >= 1970 && (1..=12).contains(&month) && day >= 1;
    // A leap second is read as the second after it.
    if !is_date || day > days_of_month(year, month) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_before(year)
        + (1..month)
            .map(|month| days_of_month(year, month))
            .sum::<u64>();
    let seconds = (days + day - 1) * DAY + hour * 3600 + minute * 60 + second;
    let seconds = seconds.checked_add_signed(-offset)?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    let is_last = rest.is_empty() && micros <= MAX_MICROS;
    is_last.then_some(Timestamp { micros })
}

fn digits(rest: &mut &[u8], count: usize) -> Option<u64> {
    let (digits, after) = rest.split_at_checked(count)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    *rest = after;
    let number = digits.iter().fold(0, |number, digit| {
        number * 10 + u64::from(digit.wrapping_sub(b'0'))
    });
    Some(number)
}

/// Takes one of these bytes.
fn expect(rest: &mut &[u8], bytes: &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    if !bytes.contains(first) {
        return None;
    }
    *rest = after;
    Some(*first)
}

/// Reads the digits of a fraction of a second, of which microseconds count.
fn fraction(rest: &mut &[u8]) -> Option<u64> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = rest.split_at_checked(count)?;
    *rest = after;
    let micros = (0..6).fold(0, |micros, at| {
        let digit = digits.get(at).map_or(0, |digit| digit.wrapping_sub(b'0'));
        micros * 10 + u64::from(digit)
    });
    (count > 0).then_some(micros)
}

/// Reads `Z` or an offset from UTC, in seconds.
fn offset(rest: &mut &[u8]) -> Option<i64> {
    let sign = match expect(rest, b"Zz+-")? {
        b'+' => 1,
        b'-' => -1,
        _ => return Some(0),
    };
    let hours = digits(rest, 2)?;
    expect(rest, b":")?;
    let minutes = digits(rest, 2)?;
    let seconds = i64::try_from(hours * 3600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(sign * seconds)
}

/// Returns the days between 1970-01-01 and the start of this year.
fn days_before(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

/// Returns year, month and day of this many days after 1970-01-01.
fn date_of(days: u64) -> (u64, u64, u64) {
    // The estimate is never too small, because a year has at least 365 days.
    let mut year = 1970 + days / 365;
    while days_before(year) > days {
        year -= 1;
    }
    let mut days = days - days_before(year);
    let mut month = 1;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

fn days_of_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

const DAY: u64 = 24 * 60 * 60;

/// 9999-12-31T23:59:59.999999Z.
const MAX_MICROS: u64 = 253_402_300_799_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_as_it_was_written() {
        for text in [
            "1970-01-01T00:00:00.000000Z",
            "2000-02-28T23:59:59.000001Z",
            "2000-02-29T00:00:00.999999Z",
            "2026-07-28T12:00:01.123456Z",
            "2100-03-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_day_of_eight_thousand_years_reads_as_it_was_written() {
        for day in (0..MAX_MICROS / 1_000_000 / DAY).step_by(7) {
            let noon = Timestamp::from_unix(Duration::from_secs(day * DAY + DAY / 2));
            assert_eq!(noon.to_string().parse(), Ok(noon));
        }
    }

    #[test]
    fn offsets_and_fractions_of_any_length_are_read() {
        let noon: Timestamp = "2026-07-28T12:00:00Z".parse().unwrap();
        for text in [
            "2026-07-28T12:00:00.0000001Z",
            "2026-07-28t14:00:00+02:00",
            "2026-07-28 06:30:00-05:30",
            "2026-07-28T11:59:60Z",
        ] {
            assert_eq!(text.parse(), Ok(noon), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "2026-07-28",
            "2026-07-28T12:00:00",
            "2026-07-28T12:00:00.Z",
            "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-07-00T12:00:00Z",
            "2026-07-28T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2026-07-28T12:00:00Zx",
            "２026-07-28T12:00:00Z",
        ] {
            assert_eq!(
                text.parse::<Timestamp>(),
                Err(ParseTimestampError),
                "{text}"
            );
        }
    }

    #[test]
    fn sums_saturate() {
        let last = Timestamp { micros: MAX_MICROS };
        assert_eq!(Timestamp::now().saturating_add(Duration::MAX), last);
    }
}
