//! How numbers are read and written.
//!
//! JSON does not tell `1` from `1.0`, other implementations write either, and few of them can read a
//! `1.0` where the schema says integer. So: whole numbers are accepted in both spellings and written
//! without a fraction.

use serde::de::{Deserialize, Deserializer, Error as _, Unexpected};
use serde::ser::{self, Serialize, Serializer};
use serde_json::Number;

/// A measure such as progress or a priority: any finite number, `f64` in Rust.
pub(crate) mod measure {
    use super::{Deserialize, Deserializer, Measure, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Measure(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        f64::deserialize(deserializer)
    }
}

/// A measure that may be absent.
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

/// Reads a count: a whole number, not negative, with or without a fraction of zero.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Count::deserialize(deserializer).map(|count| count.0)
}

/// Reads a count that may be absent.
pub(crate) fn optional_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Count>::deserialize(deserializer)?.map(|count| count.0))
}

/// Reads how long something stays fresh, where a negative number means not at all.
pub(crate) fn optional_lifetime<'de, D: Deserializer<'de>>(
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
            return Err(ser::Error::custom("JSON has no infinity and no NaN"));
        }
        if value.fract() == 0.0 && value.abs() <= LARGEST_EXACT {
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
            Some(value) if value.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(&value) => {
                Ok(Self(value as u64))
            }
            value => Err(D::Error::invalid_value(
                Unexpected::Float(value.unwrap_or(f64::NAN)),
                &"a whole number that is not negative",
            )),
        }
    }
}

/// The largest whole number up to which an `f64` holds every whole number: 2^53 - 1.
const LARGEST_EXACT: f64 = 9_007_199_254_740_991.0;

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
    fn what_is_no_number_is_not_written() {
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
