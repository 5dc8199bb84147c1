//! [`MemberReader`]: reads the members of one of our objects, and rejects those that are unknown.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::{Map, Value};

use super::duration::parse_duration;
use super::error::{ConfigError, shortened};
use super::pattern::NamePattern;

/// The members of an object, each of which is taken at most once.
///
/// [`finish`](Self::finish) rejects members that were not asked for. The readers thereby are the list of known members,
/// and none can be documented, but not read.
pub(super) struct MemberReader<'a> {
    object: &'a Map<String, Value>,
    /// Where the object is, such as `bridge.oauth`.
    path: String,
    known: Vec<&'static str>,
}

impl<'a> MemberReader<'a> {
    pub(super) fn new(value: &'a Value, path: impl Into<String>) -> Result<Self, ConfigError> {
        let path = path.into();
        let Value::Object(object) = value else {
            return Err(expected("an object", value).in_member(path));
        };
        Ok(Self {
            object,
            path,
            known: Vec::new(),
        })
    }

    /// Returns the value of a member, which is known from now on. `null` counts as absent, as it does for hosts.
    pub(super) fn value(&mut self, member: &'static str) -> Option<&'a Value> {
        self.known.push(member);
        self.object.get(member).filter(|value| !value.is_null())
    }

    /// Reads a member with a function whose errors do not name it.
    pub(super) fn read<T>(
        &mut self,
        member: &'static str,
        read: impl FnOnce(&'a Value) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let value = self.value(member).map(read).transpose();
        value.map_err(|error| match error.member() {
            Some(_) => error,
            None => error.in_member(self.path_of(member)),
        })
    }

    /// Reads a member that is one of our objects itself.
    pub(super) fn object<T>(
        &mut self,
        member: &'static str,
        read: impl FnOnce(Self) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let path = self.path_of(member);
        let Some(value) = self.value(member) else {
            return Ok(None);
        };
        Self::new(value, path).and_then(read).map(Some)
    }

    pub(super) fn text(&mut self, member: &'static str) -> Result<Option<String>, ConfigError> {
        self.read(member, text)
    }

    pub(super) fn texts(&mut self, member: &'static str) -> Result<Vec<String>, ConfigError> {
        Ok(self.read(member, texts)?.unwrap_or_default())
    }

    pub(super) fn patterns(
        &mut self,
        member: &'static str,
    ) -> Result<Option<Vec<NamePattern>>, ConfigError> {
        self.read(member, patterns)
    }

    pub(super) fn flag(&mut self, member: &'static str) -> Result<Option<bool>, ConfigError> {
        self.read(member, |value| {
            value
                .as_bool()
                .ok_or_else(|| expected("true or false", value))
        })
    }

    pub(super) fn count(
        &mut self,
        member: &'static str,
    ) -> Result<Option<NonZeroUsize>, ConfigError> {
        self.read(member, |value| {
            let number = value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok());
            let count = number.and_then(NonZeroUsize::new);
            count.ok_or_else(|| expected("a whole number of at least 1", value))
        })
    }

    pub(super) fn duration(
        &mut self,
        member: &'static str,
    ) -> Result<Option<Duration>, ConfigError> {
        self.read(member, duration)
    }

    /// Reads a duration that may be `"never"`, which is `Some(None)`.
    pub(super) fn duration_or_never(
        &mut self,
        member: &'static str,
    ) -> Result<Option<Option<Duration>>, ConfigError> {
        self.read(member, |value| match value.as_str() {
            Some("never") => Ok(None),
            _ => duration(value).map(Some),
        })
    }

    pub(super) fn address(
        &mut self,
        member: &'static str,
    ) -> Result<Option<SocketAddr>, ConfigError> {
        self.read(member, |value| {
            let address = value.as_str().and_then(|text| text.parse().ok());
            address.ok_or_else(|| expected("an address such as \"127.0.0.1:8000\"", value))
        })
    }

    /// Rejects members that are not known.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let is_unknown = |member: &&String| !self.known.contains(&member.as_str());
        let Some(unknown) = self.object.keys().find(is_unknown) else {
            return Ok(());
        };
        let problem = match nearest(unknown, &self.known) {
            Some(meant) => format!("unknown member; did you mean `{meant}`?"),
            None => format!("unknown member; expected one of {}", listed(&self.known)),
        };
        Err(ConfigError::new(problem).in_member(self.path_of(unknown)))
    }

    pub(super) fn path_of(&self, member: &str) -> String {
        match self.path.as_str() {
            "" => member.to_owned(),
            path => format!("{path}.{member}"),
        }
    }
}

pub(super) fn text(value: &Value) -> Result<String, ConfigError> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| expected("a string", value))
}

pub(super) fn texts(value: &Value) -> Result<Vec<String>, ConfigError> {
    let wrong = || expected("an array of strings", value);
    let items = value.as_array().ok_or_else(wrong)?;
    let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(wrong)
}

pub(super) fn patterns(value: &Value) -> Result<Vec<NamePattern>, ConfigError> {
    Ok(texts(value)?.into_iter().map(NamePattern::new).collect())
}

fn duration(value: &Value) -> Result<Duration, ConfigError> {
    let duration = value.as_str().and_then(parse_duration);
    duration.ok_or_else(|| expected("a duration with a unit, such as \"30s\" or \"5m\"", value))
}

/// Returns the error for a value of the wrong kind. Texts and objects may be secrets and are not shown.
pub(super) fn expected(what: &str, value: &Value) -> ConfigError {
    let got = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(_) => "another string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    ConfigError::new(format!("expected {what}, got {got}"))
}

/// Returns the error for a text that is not one of these.
pub(super) fn expected_one_of(known: &[&str], text: &str) -> ConfigError {
    let got = shortened(text);
    ConfigError::new(format!("expected one of {}, got `{got}`", listed(known)))
}

fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Returns the known name that a misspelled one probably means.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // All our names are short, and comparing a long one would only cost time.
    if name.len() > MAX_COMPARED {
        return None;
    }
    let plain = plain(name);
    let distances = known.iter().map(|known| {
        let distance = edit_distance(&plain, &self::plain(known));
        (distance, *known)
    });
    let (distance, meant) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= plain.len() / 3).then_some(meant)
}

/// `idle_timeout`, `idle-timeout` and `IdleTimeout` are meant as `idleTimeout`.
fn plain(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns how many letters must be inserted, removed, replaced or swapped with their neighbour.
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, b) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(a != b);
            let mut least = replaced.min(last[column + 1] + 1).min(next[column] + 1);
            let is_swap = row > 0 && column > 0 && from[row - 1] == *b && to[column - 1] == *a;
            if is_swap {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[to.len()]
}

const MAX_COMPARED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_member_is_recognized() {
        let known = ["prefix", "idleTimeout", "maxConnections", "pin"];

        for (written, meant) in [
            ("prefx", Some("prefix")),
            ("perfix", Some("prefix")),
            ("idle_timeout", Some("idleTimeout")),
            ("MAX-CONNECTIONS", Some("maxConnections")),
            ("maxConections", Some("maxConnections")),
            ("pni", Some("pin")),
            ("command", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
    }

    #[test]
    fn a_swap_counts_once() {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        for (a, b, distance) in [
            ("", "", 0),
            ("ab", "ba", 1),
            ("abc", "axcd", 2),
            ("", "abc", 3),
        ] {
            assert_eq!(edit_distance(&letters(a), &letters(b)), distance, "{a} {b}");
        }
    }
}
