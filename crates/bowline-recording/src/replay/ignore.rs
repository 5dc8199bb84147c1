//! [`IgnoreRules`]: which differences between a recorded answer and a new one do not count.

use serde_json::Value;

use crate::{JsonChange, PathPattern, Timestamp, json_diff};

/// The differences that do not count.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoreRules {
    paths: Vec<PathPattern>,
    is_strict: bool,
}

impl IgnoreRules {
    pub(super) fn add(&mut self, path: PathPattern) {
        self.paths.push(path);
    }

    /// Counts also what is ignored by default.
    pub(super) fn set_strict(&mut self) {
        self.is_strict = true;
    }

    /// Returns the differences that count.
    pub(super) fn differences(&self, recorded: &Value, actual: &Value) -> Vec<JsonChange> {
        let mut changes = json_diff(recorded, actual, &self.paths);
        changes.retain(|change| !self.ignores(change));
        changes
    }

    fn ignores(&self, change: &JsonChange) -> bool {
        let (recorded, actual) = (change.left.as_ref(), change.right.as_ref());
        let name = change.path.rsplit('.').next().unwrap_or_default();
        // Only the modern era has it, and its absence means the same.
        let is_complete = |value: Option<&Value>| value.is_none_or(|value| value == "complete");
        if name == "resultType" && is_complete(recorded) && is_complete(actual) {
            return true;
        }
        if let (Some(Value::Number(recorded)), Some(Value::Number(actual))) = (recorded, actual) {
            return recorded.as_f64() == actual.as_f64(); // `2` and `2.0`
        }
        !self.is_strict && is_ignored_by_default(&change.path, recorded, actual)
    }
}

fn is_ignored_by_default(path: &str, recorded: Option<&Value>, actual: Option<&Value>) -> bool {
    let mut names = path.split(['.', '[', ']']);
    if names.any(|name| VARYING.contains(&name)) {
        return true;
    }
    let (Some(recorded), Some(actual)) = (recorded, actual) else {
        return false;
    };
    let name = path.rsplit('.').next().unwrap_or_default();
    if OPAQUE.contains(&name) {
        return true;
    }
    let (Some(recorded), Some(actual)) = (recorded.as_str(), actual.as_str()) else {
        return false;
    };
    (is_time(recorded) && is_time(actual)) || (is_uuid(recorded) && is_uuid(actual))
}

fn is_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok()
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    let is_digit = |byte: u8| byte == b'-' || byte.is_ascii_hexdigit();
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(is_digit)
}

/// The members that differ between two sendings, or between the eras.
const VARYING: [&str; 6] = [
    "_meta",
    "ttlMs",
    "cacheScope",
    "requestState",
    "elicitationId",
    "lastUpdatedAt",
];
/// The members whose value has no meaning, if both sides have one.
const OPAQUE: [&str; 5] = [
    "nextCursor",
    "taskId",
    "createdAt",
    "lastModified",
    "timestamp",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(
        clippy::needless_pass_by_value,
        reason = "the tests pass values that they make in the call"
    )]
    fn paths(rules: &IgnoreRules, recorded: Value, actual: Value) -> Vec<String> {
        let found = rules.differences(&recorded, &actual);
        found.into_iter().map(|change| change.path).collect()
    }

    #[test]
    fn ignored_paths_do_not_count() {
        let mut rules = IgnoreRules::default();
        rules.add("result.content[*].text".parse().unwrap());
        let content = |text: &str| json!({"result": {"content": [{"type": text, "text": text}]}});

        assert_eq!(
            paths(&rules, content("a"), content("b")),
            ["result.content[0].type"]
        );
    }

    #[test]
    fn ids_times_cursors_and_states_are_ignored_by_default() {
        let answer = |letter: &str, time: &str| {
            json!({"result": {
                "nextCursor": letter, "requestState": letter, "_meta": {"deep": [letter]},
                "started": time, "order": format!("67e55044-10b1-426f-9247-bb680e5fe0c{letter}"),
                "count": 2,
            }})
        };
        let (morning, noon) = ("2026-07-28T08:00:00Z", "2026-07-28T12:00:00.5Z");

        let mut rules = IgnoreRules::default();
        let lenient = paths(&rules, answer("a", morning), answer("b", noon));
        rules.set_strict();
        let strict = paths(&rules, answer("a", morning), answer("b", noon));

        assert!(lenient.is_empty(), "{lenient:?}");
        assert_eq!(strict.len(), 5, "{strict:?}");
    }

    #[test]
    fn other_texts_count() {
        let rules = IgnoreRules::default();

        let found = paths(
            &rules,
            json!({"a": "noon", "b": 1}),
            json!({"a": "2026-07-28T12:00:00Z", "b": 1.5}),
        );

        assert_eq!(found, ["a", "b"]);
    }

    #[test]
    fn a_cursor_on_one_side_only_is_a_difference() {
        let rules = IgnoreRules::default();
        let cursor = json!({"result": {"nextCursor": "a"}});

        assert_eq!(
            paths(&rules, cursor.clone(), json!({"result": {}})),
            ["result.nextCursor"]
        );
        assert_eq!(
            paths(&rules, json!({"result": {}}), cursor),
            ["result.nextCursor"]
        );
    }

    #[test]
    fn a_complete_result_needs_no_type_and_numbers_no_fraction() {
        let mut rules = IgnoreRules::default();
        rules.set_strict();

        assert!(
            paths(
                &rules,
                json!({"resultType": "complete", "n": 2}),
                json!({"n": 2.0})
            )
            .is_empty()
        );
        assert_eq!(
            paths(&rules, json!({"resultType": "task"}), json!({})),
            ["resultType"]
        );
    }
}
