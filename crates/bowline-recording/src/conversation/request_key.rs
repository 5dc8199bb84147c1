//! [`RequestKey`]: what makes two requests equal, whatever client sent them in whatever version.

use std::fmt::Write as _;

use bowline_core::json::Object;
use bowline_types::Json;
use serde_json::{Map, Value};

/// A method with its params as canonical JSON: sorted members, no white space, integers without a fraction.
///
/// Members that differ between two sendings of one request are not part of it: `_meta`, the answers and the state of a
/// round, and the `task` with which a client asks for a task. Absent, `null` and empty arguments are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestKey {
    method: String,
    params: String,
}

impl RequestKey {
    pub(crate) fn new(method: &str, params: &Json) -> Self {
        let mut text = String::new();
        push_canonical(&mut text, &comparable_params(params));
        Self {
            method: method.to_owned(),
            params: text,
        }
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Returns the params as canonical JSON.
    pub(crate) fn params(&self) -> &str {
        &self.params
    }
}

/// Returns the params without the members that are added to each sending of a request.
pub(crate) fn bare_params(params: &Json) -> Json {
    match Object::read(params) {
        Ok(object) => Json::object(object.iter().filter(|(name, _)| !SENDING.contains(name))),
        Err(_) => Json::empty_object(),
    }
}

fn comparable_params(params: &Json) -> Value {
    let mut params: Map<String, Value> = params.decode().unwrap_or_default();
    params.retain(|name, value| {
        let is_empty = matches!(value, Value::Object(members) if members.is_empty());
        let is_sending = name == "task" || SENDING.contains(&name.as_str());
        let is_left_out = is_empty && OPTIONAL_OBJECTS.contains(&name.as_str());
        !(is_sending || is_left_out || value.is_null())
    });
    Value::Object(params)
}

/// Appends the canonical form. The depth is limited by the parser that made the value.
fn push_canonical(out: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|&(name, _)| name);
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                push_canonical(out, value);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                push_canonical(out, item);
            }
            out.push(']');
        }
        Value::Number(number) => match number.as_f64() {
            // `2.0` and `2` are the same number. Beyond 2⁵³ a float may not be the number that was meant.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < MAX_EXACT => {
                let _ = write!(out, "{float:.0}");
            }
            _ => {
                let _ = write!(out, "{number}");
            }
        },
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// The members that are added to each sending of a request.
const SENDING: [&str; 3] = ["_meta", "inputResponses", "requestState"];
/// The members for which an empty object means the same as none.
const OPTIONAL_OBJECTS: [&str; 2] = ["arguments", "context"];
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(params: Value) -> RequestKey {
        RequestKey::new("tools/call", &params.into())
    }

    #[test]
    fn the_order_of_members_and_what_each_sending_adds_make_no_difference() {
        let first = key(json!({"name": "pay", "arguments": {"to": "x", "sum": 1}}));
        let again = key(json!({
            "arguments": {"sum": 1.0, "to": "x"}, "name": "pay", "cursor": null, "task": {"ttl": 1},
            "_meta": {"progressToken": 7}, "requestState": "s", "inputResponses": {"a": {}},
        }));

        assert_eq!(first, again);
        assert_eq!(
            first.params(),
            r#"{"arguments":{"sum":1,"to":"x"},"name":"pay"}"#
        );
    }

    #[test]
    fn no_arguments_are_empty_arguments() {
        let none = key(json!({"name": "now"}));

        assert_eq!(none, key(json!({"name": "now", "arguments": {}})));
        assert_eq!(none, key(json!({"name": "now", "arguments": null})));
        assert_ne!(none, key(json!({"name": "now", "arguments": {"a": {}}})));
    }

    #[test]
    fn other_values_are_other_requests() {
        let one = |value: Value| key(json!({"name": "f", "arguments": {"x": value}}));

        assert_ne!(one(json!("1")), one(json!(1)));
        assert_ne!(one(json!(1.5)), one(json!(1)));
        assert_ne!(one(json!([1, 2])), one(json!([2, 1])));
        assert_ne!(one(json!(null)), key(json!({"name": "f"})));
        assert_ne!(one(json!(1e300)), one(json!(1e301)));
    }

    #[test]
    fn params_that_are_no_object_have_a_key_too() {
        assert_eq!(key(json!([1])), key(json!({})));
    }

    #[test]
    fn bare_params_keep_the_order_of_members() {
        let params = json!({"z": 1, "_meta": {}, "a": 2, "requestState": "s"});

        let bare = bare_params(&Json::from(params));

        let bare: Value = bare.decode().unwrap();
        assert_eq!(bare, json!({"z": 1, "a": 2}));
    }
}
