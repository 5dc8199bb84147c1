//! [`IgnoreRules`]: which differences between a recorded answer and a new one do not count.

use std::borrow::Cow;

use serde_json::Value;

use crate::Timestamp;

/// The differences that do not count.
#[derive(Clone, Debug)]
pub(super) struct IgnoreRules {
    rules: Vec<IgnoreRule>,
    has_defaults: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum IgnoreRule {
    /// A JSON pointer whose parts may be `*`.
    Path(Vec<String>),
    /// A member of this name, anywhere.
    Name(String),
}

impl Default for IgnoreRules {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            has_defaults: true,
        }
    }
}

impl IgnoreRules {
    /// Adds a JSON pointer, if `path` begins with a slash, or else the name of a member.
    pub(super) fn add(&mut self, path: &str) {
        let part = |part: &str| part.replace("~1", "/").replace("~0", "~");
        self.rules.push(match path.strip_prefix('/') {
            Some(path) => IgnoreRule::Path(path.split('/').map(part).collect()),
            None => IgnoreRule::Name(path.to_owned()),
        });
    }

    pub(super) fn remove_defaults(&mut self) {
        self.has_defaults = false;
    }

    pub(super) fn ignores(
        &self,
        path: &[Cow<'_, str>],
        recorded: Option<&Value>,
        actual: Option<&Value>,
    ) -> bool {
        let matches = |rule: &IgnoreRule| match rule {
            IgnoreRule::Path(parts) => {
                parts.len() == path.len()
                    && parts.iter().zip(path).all(|(part, name)| part == "*" || part == name)
            }
            IgnoreRule::Name(name) => path.last().is_some_and(|last| last == name),
        };
        if self.rules.iter().any(matches) {
            return true;
        }
        // Only the modern era has it, and its absence means the same.
        let is_complete = |value: Option<&Value>| value.is_none_or(|value| value == "complete");
        let name = path.last().map(|name| &**name).unwrap_or_default();
        if name == "resultType" && is_complete(recorded) && is_complete(actual) {
            return true;
        }
        self.has_defaults && is_ignored_by_default(name, recorded, actual)
    }
}

fn is_ignored_by_default(name: &str, recorded: Option<&Value>, actual: Option<&Value>) -> bool {
    if VARYING.contains(&name) {
        return true;
    }
    let (Some(recorded), Some(actual)) = (recorded, actual) else {
        return false;
    };
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
    lengths.eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
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
const OPAQUE: [&str; 5] = ["nextCursor", "taskId", "createdAt", "lastModified", "timestamp"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ignores(rules: &IgnoreRules, path: &str, recorded: Value, actual: Value) -> bool {
        let parts = path.split('/').skip(1).map(Cow::Borrowed);
        let parts: Vec<Cow<'_, str>> = parts.collect();
        rules.ignores(&parts, Some(&recorded), Some(&actual))
    }

    #[test]
    fn a_rule_is_a_path_or_the_name_of_a_member() {
        let mut rules = IgnoreRules::default();
        rules.add("/result/content/*/text");
        rules.add("weather");
        let ignored = |path| ignores(&rules, path, json!(1), json!(2));

        assert!(ignored("/result/content/0/text"));
        assert!(ignored("/result/content/12/text"));
        assert!(!ignored("/result/content/0"));
        assert!(!ignored("/result/content/0/text/more"));
        assert!(ignored("/result/structuredContent/weather"));
        assert!(!ignored("/result/structuredContent/weathers"));
    }

    #[test]
    fn ids_times_cursors_and_tokens_are_ignored_by_default() {
        let mut rules = IgnoreRules::default();
        let ignored = |rules: &IgnoreRules, path| ignores(rules, path, json!("a"), json!("b"));
        let (morning, noon) = (json!("2026-07-28T08:00:00Z"), json!("2026-07-28T12:00:00.5Z"));
        let uuid = |end: &str| json!(format!("67e55044-10b1-426f-9247-bb680e5fe0{end}"));

        assert!(ignored(&rules, "/result/nextCursor"));
        assert!(ignored(&rules, "/result/_meta"));
        assert!(ignores(&rules, "/result/content/0/text", morning.clone(), noon.clone()));
        assert!(ignores(&rules, "/result/order", uuid("c8"), uuid("c9")));
        assert!(!ignored(&rules, "/result/content/0/text"));
        rules.remove_defaults();
        assert!(!ignored(&rules, "/result/nextCursor"));
        assert!(!ignores(&rules, "/result/content/0/text", morning, noon));
    }

    #[test]
    fn a_cursor_on_one_side_only_is_a_difference() {
        let path = [Cow::Borrowed("result"), Cow::Borrowed("nextCursor")];

        let rules = IgnoreRules::default();

        assert!(!rules.ignores(&path, Some(&json!("a")), None));
        assert!(!rules.ignores(&path, None, Some(&json!("a"))));
    }

    #[test]
    fn a_complete_result_needs_no_type() {
        let path = [Cow::Borrowed("result"), Cow::Borrowed("resultType")];
        let mut rules = IgnoreRules::default();
        rules.remove_defaults();

        assert!(rules.ignores(&path, Some(&json!("complete")), None));
        assert!(!rules.ignores(&path, Some(&json!("task")), None));
    }
}
