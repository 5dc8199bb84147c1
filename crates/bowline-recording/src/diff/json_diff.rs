//! [`json_diff`]: the paths at which two JSON values differ.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path_pattern::{PathPattern, PathStep};

/// A difference between two JSON values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JsonChange {
    /// Where, such as `result.content[0].text`.
    pub path: String,
    /// The first value; `None` if it was added.
    pub left: Option<Value>,
    /// The second value; `None` if it was removed.
    pub right: Option<Value>,
}

/// Returns the differences between two values, except at and below the ignored paths.
///
/// # Examples
///
/// ```
/// use bowline_recording::json_diff;
/// use serde_json::json;
///
/// let changes = json_diff(&json!({"a": [1, 2]}), &json!({"a": [1, 3], "b": 0}), &["b".parse().unwrap()]);
/// assert_eq!(changes.len(), 1);
/// assert_eq!(changes[0].path, "a[1]");
/// ```
#[must_use]
pub fn json_diff(left: &Value, right: &Value, ignored: &[PathPattern]) -> Vec<JsonChange> {
    let mut comparison = Comparison {
        path: Vec::new(),
        ignored,
        changes: Vec::new(),
    };
    comparison.compare(Some(left), Some(right));
    comparison.changes
}

struct Comparison<'a> {
    path: Vec<PathStep>,
    ignored: &'a [PathPattern],
    changes: Vec<JsonChange>,
}

impl Comparison<'_> {
    /// Compares two values at the current path. Recursion is bounded by the depth that the JSON parser allows.
    fn compare(&mut self, left: Option<&Value>, right: Option<&Value>) {
        if left == right || self.ignored.iter().any(|it| it.matches(&self.path)) {
            return;
        }
        match (left, right) {
            (Some(Value::Object(one)), Some(Value::Object(other))) => {
                let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                for name in names {
                    self.path.push(PathStep::Name(name.clone()));
                    self.compare(one.get(name), other.get(name));
                    self.path.pop();
                }
            }
            (Some(Value::Array(one)), Some(Value::Array(other))) => {
                for at in 0..one.len().max(other.len()) {
                    self.path.push(PathStep::Index(at));
                    self.compare(one.get(at), other.get(at));
                    self.path.pop();
                }
            }
            _ => self.changes.push(JsonChange {
                path: PathStep::join(&self.path),
                left: left.cloned(),
                right: right.cloned(),
            }),
        }
    }
}
