//! Serde helpers for numbers.
//!
//! JSON does not distinguish `1` from `1.0`. Implementations write either, and few of them accept `1.0` where
//! the schema requires an integer. So integers are read in both spellings and written without a fraction.

use serde::de::{Deserialize, Deserializer, Error as _, Unexpected};
use serde::ser::{self, Serialize, Serializer};
use serde_json::Number;

/// A measure such as progress or a priority: any finite number, as `f64`.
pub(crate) mod measure {
    use super::{Deserialize, Deserializer, Measure, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Measure(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        f64::deserialize(deserializer)
    }
}

/// An optional measure.
pub(crate) mod optional_measure {
    use super::{Deserialize, Deserializer, Measure, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Measure).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<f64>, D::Error> {
        Option::deserialize(deserializer)
    }
}

/// Deserializes a count: a non-negative integer, also if written with a zero fraction.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Count::deserialize(deserializer).map(|count| count.0)
}

/// Deserializes an optional count.
pub(crate) fn optional_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Count>::deserialize(deserializer)?.map(|count| count.0))
}

/// Deserializes an optional `ttlMs`, where a negative number means 0.
pub(crate) fn optional_ttl<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    if number.as_f64().is_some_and(|value| value < 0.0) {
        return Ok(Some(0));
    }
    count(number).map(Some).map_err(D::Error::custom)
}

struct Measure(f64);

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value) = *self;
        if !value.is_finite() {
            return Err(ser::Error::custom("JSON cannot encode infinity or NaN"));
        }
        if value.fract() == 0.0 && value.abs() <= MAX_SAFE_INTEGER {
            return serializer.serialize_i64(value as i64);
        }
        serializer.serialize_f64(value)
    }
}

struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        if let Some(count) = number.as_u64() {
            return Ok(Self(count));
        }
        match number.as_f64() {
            Some(value) if value.fract() == 0.0 && (0.0..=MAX_SAFE_INTEGER).contains(&value) => {
                Ok(Self(value as u64))
            }
            value => Err(D::Error::invalid_value(
                Unexpected::Float(value.unwrap_or(f64::NAN)),
                &"a non-negative integer",
            )),
        }
    }
}

/// The largest integer up to which `f64` represents every integer: 2^53 - 1.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_measure_is_written_without_a_fraction() {
        for (value, text) in [(1.0, "1"), (0.0, "0"), (-3.0, "-3"), (0.25, "0.25")] {
            assert_eq!(serde_json::to_string(&Measure(value)).unwrap(), text);
        }
    }

    #[test]
    fn infinity_and_nan_are_not_encoded() {
        assert!(serde_json::to_string(&Measure(f64::NAN)).is_err());
        assert!(serde_json::to_string(&Measure(f64::INFINITY)).is_err());
    }

    #[test]
    fn a_count_is_read_in_both_spellings() {
        for (text, expected) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("6e4", Some(60_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("7.5", None),
            ("-1", None),
            ("1e300", None),
            ("\"7\"", None),
        ] {
            let count = serde_json::from_str::<Count>(text)
                .ok()
                .map(|count| count.0);

            assert_eq!(count, expected, "{text}");
        }
    }
}
