//! Decodes the structured output of a tool, in every form that protocol versions and servers have for it.

use std::any::type_name;

use bowline_core::shortened;
use bowline_types::{CallToolResult, ContentBlock, Json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Result};

/// Decodes the structured output of the tool as `T`.
pub(super) fn decode<T: DeserializeOwned>(result: &CallToolResult) -> Result<T> {
    let Some(output) = structured_output(result) else {
        return Err(unexpected::<T>(describe_content(result), None));
    };
    let inner = unwrapped(&output);
    let is_wrapped = inner.as_ref().is_some_and(|inner| is_text(result, inner));
    let decoded = match (&inner, is_wrapped) {
        // A `T` whose members are all optional, or a `Value`, can be decoded from both.
        (Some(inner), true) => inner.decode().or_else(|_| output.decode()),
        (Some(inner), false) => output
            .decode()
            .or_else(|error| inner.decode().map_err(|_| error)),
        (None, _) => output.decode(),
    };
    decoded.map_err(|error| unexpected::<T>(shortened(&output).to_string(), Some(error)))
}

/// Returns `structuredContent`, or the first text that is JSON: a protocol version may not have the former.
fn structured_output(result: &CallToolResult) -> Option<Json> {
    let structured = result.structured_content.clone();
    structured.or_else(|| texts(result).find_map(|text| Json::parse(text.to_owned()).ok()))
}

/// Returns the value of an object whose only member is `result`.
fn unwrapped(output: &Json) -> Option<Json> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wrapped {
        result: Json,
    }

    output.decode().ok().map(|Wrapped { result }| result)
}

/// Returns whether the result has this value as a text. A server that wraps a value sends the text of the value, and
/// not of the object, so this tells a wrapped value from an object that has a member `result`.
fn is_text(result: &CallToolResult, value: &Json) -> bool {
    let Ok(value) = value.decode::<Value>() else {
        return false;
    };
    texts(result).any(|text| {
        value.as_str() == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|text| text == value)
    })
}

fn texts(result: &CallToolResult) -> impl Iterator<Item = &str> {
    result.content.iter().filter_map(ContentBlock::as_text)
}

fn describe_content(result: &CallToolResult) -> String {
    let text = texts(result).collect::<Vec<_>>().join("\n");
    match result.is_error {
        Some(true) => format!("an error of the tool: {}", shortened(text)),
        _ if text.is_empty() => "no structured output and no text".to_owned(),
        _ => format!("only the text `{}`", shortened(text)),
    }
}

fn unexpected<T>(got: String, source: Option<serde_json::Error>) -> Error {
    Error::UnexpectedType {
        expected: type_name::<T>(),
        got,
        source: source.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::error::Error as _;

    fn result(text: &str, structured: Option<Value>) -> CallToolResult {
        let mut result = CallToolResult::text(text);
        result.structured_content = structured.map(Json::from);
        result
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct AllOptional {
        a: i64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outcome {
        result: i64,
    }

    #[test]
    fn a_wrapped_value_is_unwrapped_for_every_type_that_fits_it() {
        let three = result("3", Some(json!({"result": 3})));
        let named = result(r#"{"a":1}"#, Some(json!({"result": {"a": 1}})));
        let word = result("hi", Some(json!({"result": "hi"})));
        let null = result("null", Some(json!({"result": null})));

        assert_eq!(decode::<i64>(&three).unwrap(), 3);
        assert_eq!(decode::<Value>(&three).unwrap(), json!(3));
        assert_eq!(decode::<AllOptional>(&named).unwrap(), AllOptional { a: 1 });
        assert_eq!(
            decode::<Option<AllOptional>>(&named).unwrap(),
            Some(AllOptional { a: 1 })
        );
        assert_eq!(decode::<Option<AllOptional>>(&null).unwrap(), None);
        assert_eq!(decode::<String>(&word).unwrap(), "hi");
        // Without the text, a type that does not fit the object still gets the value.
        assert_eq!(
            decode::<i64>(&result("", three.structured_content.unwrap().decode().ok())).unwrap(),
            3
        );
    }

    #[test]
    fn an_object_with_the_member_result_stays_an_object() {
        for text in ["3", r#"{"result":3}"#, "three"] {
            let outcome = result(text, Some(json!({"result": 3})));

            assert_eq!(decode::<Outcome>(&outcome).unwrap(), Outcome { result: 3 });
            let map: BTreeMap<String, i64> = decode(&outcome).unwrap();
            assert_eq!(map["result"], 3);
        }
        let outcome = result(r#"{"result":3}"#, Some(json!({"result": 3})));
        assert_eq!(decode::<Value>(&outcome).unwrap(), json!({"result": 3}));
        let more = result("3", Some(json!({"result": 3, "unit": "m"})));
        assert_eq!(
            decode::<Value>(&more).unwrap(),
            json!({"result": 3, "unit": "m"})
        );
    }

    #[test]
    fn without_structured_content_the_first_json_text_is_decoded() {
        let mut prose = result("The answer:", None);
        prose.content.push(ContentBlock::text("[1, 2]"));

        assert_eq!(decode::<Vec<i64>>(&prose).unwrap(), [1, 2]);
        assert_eq!(decode::<String>(&result("\"hi\"", None)).unwrap(), "hi");
    }

    #[test]
    fn a_wrong_type_is_reported_with_both_sides_and_the_cause() {
        let error =
            decode::<Vec<i64>>(&result("", Some(json!({"a": "x".repeat(9999)})))).unwrap_err();

        let text = error.to_string();
        assert!(matches!(error, Error::UnexpectedType { .. }), "{error:?}");
        assert!(
            text.starts_with(
                "expected structured output of type `alloc::vec::Vec<i64>`, got {\"a\":\"xx"
            ),
            "{text}"
        );
        assert!(text.len() < 400, "{text}");
        assert!(
            error
                .source()
                .unwrap()
                .to_string()
                .starts_with("invalid type: map")
        );
    }

    #[test]
    fn output_without_structure_is_reported_as_what_it_is() {
        let told = |result: &CallToolResult| decode::<i64>(result).unwrap_err().to_string();

        assert_eq!(
            told(&CallToolResult::error("division by zero")),
            "expected structured output of type `i64`, got an error of the tool: division by zero"
        );
        assert_eq!(
            told(&result("hi", None)),
            "expected structured output of type `i64`, got only the text `hi`"
        );
        assert_eq!(
            told(&CallToolResult::default()),
            "expected structured output of type `i64`, got no structured output and no text"
        );
    }
}
