//! [`JsonDifference`]: where two JSON values differ, as paths.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// A place at which two JSON values differ.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct JsonDifference {
    /// A JSON pointer, such as `/content/0/text`. Empty for the whole value.
    pub path: String,
    /// The value on the one side; `None` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// The value on the other side; `None` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<Value>,
}

impl fmt::Display for JsonDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        match (&self.expected, &self.actual) {
            (Some(expected), Some(actual)) => {
                write!(f, "{path}: expected {expected}, got {actual}")
            }
            (Some(expected), None) => write!(f, "{path}: expected {expected}, got nothing"),
            (None, Some(actual)) => write!(f, "{path}: expected nothing, got {actual}"),
            (None, None) => f.write_str(path),
        }
    }
}

/// Returns the differences of two values, at most `max`. `is_ignored` gets the path of each difference and both values.
pub(crate) fn json_differences(
    expected: &Value,
    actual: &Value,
    max: usize,
    is_ignored: &IsIgnored<'_>,
) -> Vec<JsonDifference> {
    let mut comparison = Comparison {
        max,
        is_ignored,
        found: Vec::new(),
    };
    comparison.compare(&mut Vec::new(), Some(expected), Some(actual));
    comparison.found
}

type IsIgnored<'a> = dyn Fn(&[Cow<'_, str>], Option<&Value>, Option<&Value>) -> bool + 'a;

struct Comparison<'a> {
    max: usize,
    is_ignored: &'a IsIgnored<'a>,
    found: Vec<JsonDifference>,
}

impl Comparison<'_> {
    /// Compares one place. The depth is limited by the parser that made the values.
    fn compare<'v>(
        &mut self,
        path: &mut Vec<Cow<'v, str>>,
        expected: Option<&'v Value>,
        actual: Option<&'v Value>,
    ) {
        if self.found.len() >= self.max || is_same(expected, actual) {
            return;
        }
        if (self.is_ignored)(path, expected, actual) {
            return;
        }
        match (expected, actual) {
            (Some(Value::Object(expected)), Some(Value::Object(actual))) => {
                for name in names(expected, actual) {
                    path.push(Cow::Borrowed(name));
                    self.compare(path, expected.get(name), actual.get(name));
                    path.pop();
                }
            }
            (Some(Value::Array(expected)), Some(Value::Array(actual))) => {
                for at in 0..expected.len().max(actual.len()) {
                    path.push(Cow::Owned(at.to_string()));
                    self.compare(path, expected.get(at), actual.get(at));
                    path.pop();
                }
            }
            _ => self.found.push(JsonDifference {
                path: pointer(path),
                expected: expected.cloned(),
                actual: actual.cloned(),
            }),
        }
    }
}

fn names<'v>(one: &'v Map<String, Value>, other: &'v Map<String, Value>) -> BTreeSet<&'v str> {
    one.keys().chain(other.keys()).map(String::as_str).collect()
}

/// Returns whether two values are equal; `2` and `2.0` are.
fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one == other || (one.as_f64() == other.as_f64() && (one.is_f64() || other.is_f64()))
        }
        _ => one == other,
    }
}

/// Returns a JSON pointer.
fn pointer(path: &[Cow<'_, str>]) -> String {
    path.iter().fold(String::new(), |mut text, name| {
        text.push('/');
        text.push_str(&name.replace('~', "~0").replace('/', "~1"));
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(expected: Value, actual: Value) -> Vec<String> {
        let found = json_differences(&expected, &actual, 100, &|_, _, _| false);
        found.into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn each_place_that_differs_has_a_path() {
        let expected = json!({"a": [1, {"b": 2}], "c": 3, "d/e": "x", "same": [1, 2]});
        let actual = json!({"a": [1, {"b": 3}, 4], "d/e": "y", "f": null, "same": [1.0, 2]});

        assert_eq!(
            paths(expected, actual),
            ["/a/1/b", "/a/2", "/c", "/d~1e", "/f"]
        );
    }

    #[test]
    fn values_of_other_types_differ_as_a_whole() {
        assert_eq!(paths(json!([1]), json!({"0": 1})), [""]);
        assert_eq!(paths(json!("1"), json!(1)), [""]);
    }

    #[test]
    fn ignored_places_are_not_compared_further() {
        let ignored = |path: &[Cow<'_, str>], _: Option<&Value>, _: Option<&Value>| {
            path.last().is_some_and(|name| name == "time")
        };

        let found = json_differences(
            &json!({"time": {"h": 1}, "x": 1}),
            &json!({"time": 7, "x": 2}),
            100,
            &ignored,
        );

        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "/x: expected 1, got 2");
    }

    #[test]
    fn the_number_of_differences_is_limited() {
        let found = json_differences(&json!([1, 2, 3]), &json!([]), 2, &|_, _, _| false);

        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_string(), "/0: expected 1, got nothing");
    }
}
