//! The values of options: addresses, durations, headers and variables.

use std::env;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use bowline::exchange::{Dialect, Dialects};

/// A header or an environment variable. `Debug` omits the value, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NamedValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl NamedValue {
    /// Parses headers, and replaces `${NAME}` in their values by environment variables.
    pub(crate) fn parse_headers(headers: &[String]) -> Result<Vec<Self>, String> {
        let parse = |header: &String| {
            let (name, value) = header.split_once(':').ok_or(
                "expected --header 'Name: value', got no colon; use the form `Name: value`",
            )?;
            let value = expand(value.trim(), |name| env::var(name).ok());
            let value = value.map_err(|why| format!("--header {name}: {why}"))?;
            if !is_header_name(name.trim()) || value.chars().any(char::is_control) {
                return Err(format!("--header {name}: expected a valid name and value"));
            }
            Ok(Self {
                name: name.trim().to_owned(),
                value,
            })
        };
        headers.iter().map(parse).collect()
    }

    /// Parses `NAME=VALUE`, and `NAME` for the variable of this process.
    pub(crate) fn parse_variables(variables: &[String]) -> Result<Vec<Self>, String> {
        let parse = |variable: &String| {
            let (name, value) = match variable.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let missing = |_| {
                        format!("--env {variable}: the variable is not set; use `{variable}=VALUE`")
                    };
                    (variable.as_str(), env::var(variable).map_err(missing)?)
                }
            };
            if name.is_empty() {
                return Err("expected --env NAME=VALUE, got no name".to_owned());
            }
            Ok(Self {
                name: name.to_owned(),
                value,
            })
        };
        variables.iter().map(parse).collect()
    }

    /// Returns whether the name is this one, in lower case.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl fmt::Debug for NamedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedValue")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn is_header_name(name: &str) -> bool {
    let is_token = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Replaces `${NAME}` by the value of a variable, and `${NAME:-default}` by the default if the variable is not set.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = after.split_once('}').ok_or("expected `}` after `${`")?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        let value = variable(name).or(default);
        let value = value.ok_or_else(|| format!("the environment variable `{name}` is not set"))?;
        expanded.push_str(before);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Parses an address, or a port on the loopback address.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    match port.parse::<u16>() {
        Ok(port) => Ok(format!("{host}:{port}")),
        Err(_) => Err(format!("expected ADDRESS:PORT or a port, got `{text}`")),
    }
}

pub(crate) fn parse_url(text: &str) -> Result<String, String> {
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.to_owned()),
        false => Err("expected http:// or https://; put a command after `--`".to_owned()),
    }
}

pub(crate) fn parse_path(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("a path must start with `/`".to_owned()),
    }
}

/// Parses a number of at least 1.
pub(crate) fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse::<NonZeroUsize>();
    count.map_err(|_| format!("expected a number of at least 1, got `{text}`"))
}

/// Parses a protocol version that this program has.
pub(crate) fn parse_version(text: &str) -> Result<String, String> {
    if Dialect::of(text).is_some() {
        return Ok(text.to_owned());
    }
    let all = Dialects::all();
    let known: Vec<&str> = all.iter().map(|dialect| dialect.version).collect();
    Err(format!(
        "expected one of {}, got `{text}`",
        known.join(", ")
    ))
}

/// Parses seconds, or a number with the unit `ms`, `s`, `m` or `h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number = digits.parse::<u64>().ok();
    let duration = number.and_then(|number| match &text[digits.len()..] {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(60 * 60).map(Duration::from_secs),
        _ => None,
    });
    match duration {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!(
            "expected a time such as `90s`, `5m` or `1h`, got `{text}`"
        )),
    }
}

/// Parses a time that may be zero.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_may_be_zero_and_a_duration_not() {
        assert_eq!(parse_delay("0"), Ok(Duration::ZERO));
        assert_eq!(parse_delay("5s"), Ok(Duration::from_secs(5)));
        assert!(parse_delay("soon").is_err());
        assert!(parse_duration("0").is_err());
    }

    #[test]
    fn variables_are_replaced_and_missing_ones_are_named() {
        let variable = |name: &str| (name == "TOKEN").then(|| "t0 ${X}".to_owned());

        assert_eq!(
            expand("Bearer ${TOKEN}!", variable).unwrap(),
            "Bearer t0 ${X}!"
        );
        assert_eq!(
            expand("${NONE:-b}${TOKEN:-b}", variable).unwrap(),
            "bt0 ${X}"
        );
        assert_eq!(expand("$TOKEN", variable).unwrap(), "$TOKEN");
        assert!(expand("${NONE}", variable).unwrap_err().contains("`NONE`"));
        assert!(expand("${TOKEN", variable).is_err());
    }

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        let parsed = ["250ms", "7", "7s", "2m", "1h"].map(|text| parse_duration(text).unwrap());

        assert_eq!(
            parsed.map(|duration| duration.as_millis()),
            [250, 7_000, 7_000, 120_000, 3_600_000]
        );
        for wrong in ["", "0", "-1s", "1 day", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_have_a_port() {
        assert_eq!(parse_address("8000").unwrap(), "127.0.0.1:8000");
        assert_eq!(parse_address(":8000").unwrap(), "127.0.0.1:8000");
        assert_eq!(parse_address("[::1]:0").unwrap(), "[::1]:0");
        assert!(parse_address("localhost").is_err());
        assert!(parse_address("localhost:70000").is_err());
    }
}
