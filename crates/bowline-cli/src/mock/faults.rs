//! The values of the options for faults.

use bowline::{ErrorCode, RpcError};
use bowline_recording::{DropAfter, InjectedFailure, Latency};

use crate::values::parse_duration;

/// Parses `recorded` or a time.
pub(super) fn parse_latency(text: &str) -> Result<Latency, String> {
    match text {
        "recorded" => Ok(Latency::Recorded),
        time => match parse_duration(time) {
            Ok(time) => Ok(Latency::Fixed(time)),
            Err(why) => Err(format!("{why}, or `recorded`")),
        },
    }
}

/// The value of `--fail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FailureSpec {
    method: Option<String>,
    /// Of a million requests.
    rate: u32,
    code: Option<i64>,
}

impl FailureSpec {
    /// Parses `RATE`, `METHOD` or `METHOD=RATE`, each with or without `:CODE`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (what, code) = match text.split_once(':') {
            Some((what, code)) => {
                let invalid = |_| format!("expected an error code such as -32603, got `{code}`");
                (what, Some(code.parse::<i64>().map_err(invalid)?))
            }
            None => (text, None),
        };
        let (method, rate) = match what.split_once('=') {
            Some((method, rate)) => (Some(method), parse_rate(rate)?),
            None if what.contains('/') => (Some(what), ALWAYS),
            None => (None, parse_rate(what)?),
        };
        let method = method.map(str::to_owned);
        Ok(Self { method, rate, code })
    }

    pub(super) fn failure(&self) -> InjectedFailure {
        let mut failure = InjectedFailure::rate(f64::from(self.rate) / f64::from(ALWAYS));
        if let Some(method) = &self.method {
            failure = failure.method(method);
        }
        match self.code {
            Some(code) => failure.error(RpcError::new(ErrorCode(code), "injected by the mock")),
            None => failure,
        }
    }
}

/// Parses a rate such as `10%` or `0.1`, as the part of a million.
fn parse_rate(text: &str) -> Result<u32, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let rate = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    let rate = rate.filter(|rate| (0.0..=1.0).contains(rate));
    let rate =
        rate.ok_or_else(|| format!("expected a rate such as `10%`, or a method, got `{text}`"))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a million"
    )]
    Ok((rate * f64::from(ALWAYS)).round() as u32)
}

/// Parses a number of answers, or of bytes with the unit `B`, `kB` or `MB`.
pub(super) fn parse_drop_after(text: &str) -> Result<DropAfter, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number = digits.trim_end().parse::<u64>().ok();
    let bytes = |unit: u64| number?.checked_mul(unit).map(DropAfter::Bytes);
    let drop_after = match &text[digits.len()..] {
        "" => number.map(DropAfter::Answers),
        "B" => bytes(1),
        "kB" => bytes(1000),
        "MB" => bytes(1_000_000),
        _ => None,
    };
    drop_after.ok_or_else(|| {
        format!("expected a number of answers, or of bytes such as `4096B` or `10kB`, got `{text}`")
    })
}

const ALWAYS: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_latency_is_that_of_the_recording_or_a_time() {
        let fixed = Latency::Fixed(Duration::from_millis(200));

        assert_eq!(parse_latency("recorded"), Ok(Latency::Recorded));
        assert_eq!(parse_latency("200ms"), Ok(fixed));
        assert!(parse_latency("soon").unwrap_err().contains("`recorded`"));
    }

    #[test]
    fn a_failure_has_a_rate_or_a_method_or_both_and_perhaps_a_code() {
        let spec = |method: Option<&str>, rate, code| {
            let method = method.map(str::to_owned);
            Ok(FailureSpec { method, rate, code })
        };

        assert_eq!(FailureSpec::parse("10%"), spec(None, 100_000, None));
        assert_eq!(
            FailureSpec::parse("tools/call"),
            spec(Some("tools/call"), ALWAYS, None)
        );
        assert_eq!(
            FailureSpec::parse("ping=0.5:-32000"),
            spec(Some("ping"), 500_000, Some(-32000))
        );
        for wrong in ["", "often", "110%", "-1", "tools/call=x", "10%:x", "NaN"] {
            assert!(FailureSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_connection_is_dropped_after_answers_or_bytes() {
        assert_eq!(parse_drop_after("3"), Ok(DropAfter::Answers(3)));
        assert_eq!(parse_drop_after("4096B"), Ok(DropAfter::Bytes(4096)));
        assert_eq!(parse_drop_after("10kB"), Ok(DropAfter::Bytes(10_000)));
        for wrong in ["", "B", "3 answers", "-1", "99999999999999999999MB", "1KiB"] {
            assert!(parse_drop_after(wrong).is_err(), "{wrong}");
        }
    }
}
