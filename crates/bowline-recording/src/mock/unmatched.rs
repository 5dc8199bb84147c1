//! [`Unmatched`]: a request that the recording does not have, and the nearest one that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bowline_core::shortened;
use bowline_types::{ErrorCode, RpcError};
use serde_json::Value;

use crate::conversation::RequestKey;
use crate::json_diff;

/// A request that a [`Mock`](super::Mock) got and its recording does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmatched {
    /// The method.
    pub method: String,
    /// The params, as JSON without `_meta`; shortened if they are long.
    pub params: String,
    /// What the client was answered: which recorded request is nearest, and where it differs.
    pub message: String,
    code: ErrorCode,
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Unmatched {
    /// Describes a request that has none of the recorded keys.
    pub(super) fn request(key: &RequestKey, recorded: &BTreeMap<RequestKey, Vec<usize>>) -> Self {
        let same_method = recorded.keys().filter(|it| it.method() == key.method());
        let nearest = same_method
            .take(MAX_COMPARED)
            .map(|other| (Distance::between(key, other), other))
            .min_by(|(one, _), (other, _)| one.cmp(other));
        let (code, message) = match nearest {
            Some((distance, nearest)) => {
                let message = format!(
                    "the recording has no `{}` with {}; the nearest has {}, which differs in {}",
                    shortened(key.method()),
                    shortened(key.params()),
                    shortened(nearest.params()),
                    distance.paths()
                );
                (ErrorCode::INVALID_PARAMS, message)
            }
            None => {
                let methods: BTreeSet<&str> = recorded.keys().map(RequestKey::method).collect();
                let methods: Vec<&str> = methods.into_iter().collect();
                let has = match methods.is_empty() {
                    true => "which has no requests".to_owned(),
                    false => format!("which has {}", shortened(methods.join(", "))),
                };
                let method = shortened(key.method());
                let message = format!("`{method}` is not in the recording, {has}");
                (ErrorCode::METHOD_NOT_FOUND, message)
            }
        };
        Self::new(key, code, message)
    }

    /// Describes an answer of the client after which the recording does not go on.
    pub(super) fn answer(key: &RequestKey, message: String) -> Self {
        Self::new(key, ErrorCode::INVALID_PARAMS, message)
    }

    fn new(key: &RequestKey, code: ErrorCode, message: String) -> Self {
        let params = match key.params().len() > MAX_KEPT {
            true => shortened(key.params()).to_string(),
            false => key.params().to_owned(),
        };
        Self {
            method: shortened(key.method()).to_string(),
            params,
            message,
            code,
        }
    }

    pub(super) fn to_rpc_error(&self) -> RpcError {
        RpcError::new(self.code, self.message.clone())
    }
}

/// How far two requests of one method are apart: first by what they name, then by the number of differences.
#[derive(Debug, PartialEq, Eq)]
struct Distance {
    name: usize,
    paths: Vec<String>,
}

impl Distance {
    fn between(one: &RequestKey, other: &RequestKey) -> Self {
        let one: Value = serde_json::from_str(one.params()).unwrap_or_default();
        let other: Value = serde_json::from_str(other.params()).unwrap_or_default();
        let found = json_diff(&one, &other, &[]);
        Self {
            name: edit_distance(name_of(&one), name_of(&other)),
            paths: found.into_iter().map(|change| change.path).collect(),
        }
    }

    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.name, self.paths.len()).cmp(&(other.name, other.paths.len()))
    }

    fn paths(&self) -> String {
        let shown = self.paths.iter().take(5).map(String::as_str);
        let text = shown.collect::<Vec<_>>().join(", ");
        match self.paths.len() > 5 {
            true => format!("{text}, …"),
            false => text,
        }
    }
}

/// Returns the name of the tool or prompt, the URI or the task, that a request is about.
fn name_of(params: &Value) -> &str {
    let names = ["name", "uri", "taskId"];
    let mut names = names.iter().filter_map(|name| params[name].as_str());
    names.next().unwrap_or_default()
}

/// Returns how many characters must be inserted, removed or replaced.
fn edit_distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(MAX_NAME).collect();
    let other: Vec<char> = other.chars().take(MAX_NAME).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// With how many recorded requests one is compared.
const MAX_COMPARED: usize = 1000;
const MAX_NAME: usize = 100;
/// The most bytes of params that are kept.
const MAX_KEPT: usize = 10_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(method: &str, params: Value) -> RequestKey {
        RequestKey::new(method, &params.into())
    }

    fn unmatched(method: &str, params: Value) -> Unmatched {
        let call = |name: &str, arguments: Value| {
            key("tools/call", json!({"name": name, "arguments": arguments}))
        };
        let recorded = [
            call("add", json!({"a": 1, "b": 2})),
            call("add", json!({"a": 9, "b": 9})),
            call("subtract", json!({"a": 1, "b": 3})),
            key("tools/list", json!({})),
        ];
        let recorded = recorded.into_iter().map(|key| (key, vec![0])).collect();
        Unmatched::request(&key(method, params), &recorded)
    }

    #[test]
    fn the_nearest_request_names_the_same_tool_and_differs_least() {
        let unmatched = unmatched(
            "tools/call",
            json!({"name": "add", "arguments": {"a": 1, "b": 3}}),
        );

        assert_eq!(
            unmatched.message,
            r#"the recording has no `tools/call` with {"arguments":{"a":1,"b":3},"name":"add"}; the nearest has {"arguments":{"a":1,"b":2},"name":"add"}, which differs in arguments.b"#
        );
        assert_eq!(unmatched.to_rpc_error().code, ErrorCode::INVALID_PARAMS);
    }

    #[test]
    fn a_misspelt_tool_is_near_its_own_name() {
        let unmatched = unmatched("tools/call", json!({"name": "subtracted"}));

        assert!(
            unmatched.message.contains(r#""name":"subtract"}"#),
            "{unmatched}"
        );
    }

    #[test]
    fn an_unknown_method_is_refused_with_the_recorded_ones() {
        let unmatched = unmatched("prompts/list", json!({}));

        assert_eq!(
            unmatched.message,
            "`prompts/list` is not in the recording, which has tools/call, tools/list"
        );
        assert_eq!(unmatched.to_rpc_error().code, ErrorCode::METHOD_NOT_FOUND);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }
}
