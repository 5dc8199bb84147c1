//! Durations as people write them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// Parses one or more whole numbers, each with the unit `ms`, `s`, `m`, `h` or `d`.
///
/// A number without a unit is rejected: hosts write seconds as well as milliseconds.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let end = after
            .find(|it: char| !it.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let part = match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(60 * 60)?),
            "d" => Duration::from_secs(number.checked_mul(24 * 60 * 60)?),
            _ => return None,
        };
        sum = sum.checked_add(part)?;
        rest = after.trim_start();
    }
    // Timers are added to the clock; a hundred years never overflow it.
    (sum <= MAX_DURATION).then_some(sum)
}

const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs_f64());

        assert_eq!(seconds("500ms"), Some(0.5));
        assert_eq!(seconds("30s"), Some(30.0));
        assert_eq!(seconds("1h30m"), Some(5400.0));
        assert_eq!(seconds(" 1d 1s "), Some(86401.0));
        for wrong in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1w",
            "1s5",
            "99999999999999999999s",
        ] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
        assert_eq!(parse_duration(&format!("{}d", u64::MAX)), None);
        assert_eq!(parse_duration(&format!("{}s", u64::MAX)), None);
    }
}
