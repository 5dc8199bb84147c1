//! Valid and invalid elicitation content.

use serde_json::json;

use super::*;

/// Returns the error for a value in a field of this schema.
fn form_error(field: &Value, value: &Value) -> Option<String> {
    let form = json!({"type": "object", "properties": {"f": field}});
    let form: ElicitSchema = serde_json::from_value(form).unwrap();
    let invalid = check_form(&form, &json!({"f": value}).into()).err()?;
    Some(invalid.to_string().replace("the field `f` ", ""))
}

#[test]
fn texts_numbers_and_booleans_are_validated_against_their_schemas() {
    for (field, value, expected) in [
        (json!({"type": "string"}), json!("x"), None),
        (
            json!({"type": "string"}),
            json!(1),
            Some("must be a string"),
        ),
        (
            json!({"type": "string"}),
            json!(null),
            Some("must be a string"),
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("ä"),
            Some("must have at least 2 characters"),
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            Some("must have at most 2 characters"),
        ),
        (
            json!({"type": "string", "maxLength": 3}),
            json!("äöü"),
            None,
        ),
        (
            json!({"type": "string", "format": "email"}),
            json!("no-at-sign"),
            Some("must have the format `email`"),
        ),
        (
            json!({"type": "string", "format": "color"}),
            json!("no such format"),
            None,
        ),
        (json!({"type": "number"}), json!(1.5), None),
        (
            json!({"type": "number"}),
            json!("1.5"),
            Some("must be a number"),
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            Some("must be an integer"),
        ),
        (json!({"type": "integer"}), json!(2.0), None),
        (
            json!({"type": "number", "minimum": 1}),
            json!(0.5),
            Some("must be at least 1"),
        ),
        (
            json!({"type": "number", "maximum": 1.5}),
            json!(2),
            Some("must be at most 1.5"),
        ),
        (
            json!({"type": "integer", "maximum": 9_007_199_254_740_992_u64}),
            json!(9_007_199_254_740_993_u64),
            Some("must be at most 9007199254740992"),
        ),
        (json!({"type": "boolean"}), json!(true), None),
        (
            json!({"type": "boolean"}),
            json!("yes"),
            Some("must be a boolean"),
        ),
    ] {
        assert_eq!(
            form_error(&field, &value).as_deref(),
            expected,
            "{field} {value}"
        );
    }
}

#[test]
fn choices_are_validated_against_their_schemas() {
    let choice = json!({"type": "string", "enum": ["a", "b"]});
    let titled = json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}]});
    let several = json!({
        "type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2,
    });
    let several_titled =
        json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}});
    let named = json!({"type": "string", "enum": ["a"], "enumNames": ["A"]});
    for (field, value, expected) in [
        (choice.clone(), json!("b"), None),
        (
            choice.clone(),
            json!("c"),
            Some("must be one of the allowed values"),
        ),
        (
            choice,
            json!(["a"]),
            Some("must be one of the allowed values"),
        ),
        (titled.clone(), json!("a"), None),
        (
            titled,
            json!("A"),
            Some("must be one of the allowed values"),
        ),
        (named.clone(), json!("a"), None),
        (named, json!("A"), Some("must be one of the allowed values")),
        (several.clone(), json!(["a", "b"]), None),
        (
            several.clone(),
            json!([]),
            Some("must have at least 1 items"),
        ),
        (
            several.clone(),
            json!(["a", "b", "a"]),
            Some("must have at most 2 items"),
        ),
        (
            several.clone(),
            json!(["c"]),
            Some("must be a list of allowed values"),
        ),
        (
            several,
            json!("a"),
            Some("must be a list of allowed values"),
        ),
        (several_titled.clone(), json!(["a"]), None),
        (
            several_titled,
            json!(["A"]),
            Some("must be a list of allowed values"),
        ),
    ] {
        assert_eq!(
            form_error(&field, &value).as_deref(),
            expected,
            "{field} {value}"
        );
    }
}

#[test]
fn a_value_at_its_limit_is_valid() {
    let choices = json!({"type": "string", "enum": ["a", "b"]});
    for (field, value) in [
        (
            json!({"type": "string", "minLength": 2, "maxLength": 2}),
            json!("äö"),
        ),
        (
            json!({"type": "integer", "minimum": 7, "maximum": 7}),
            json!(7),
        ),
        (
            json!({"type": "number", "minimum": 1.5, "maximum": 1.5}),
            json!(1.5),
        ),
        (json!({"type": "integer"}), json!(u64::MAX)),
        (json!({"type": "integer"}), json!(i64::MIN)),
        (
            json!({"type": "array", "items": choices, "minItems": 1, "maxItems": 1}),
            json!(["b"]),
        ),
    ] {
        assert_eq!(form_error(&field, &value), None, "{field} {value}");
    }
}

#[test]
fn required_fields_must_be_present_and_unknown_fields_are_allowed() {
    let form =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let form: ElicitSchema = serde_json::from_value(form).unwrap();
    let check = |content: Value| check_form(&form, &content.into());

    assert!(check(json!({"a": "x", "more": 1})).is_ok());
    assert_eq!(
        check(json!({"more": 1})).unwrap_err().to_string(),
        "the field `a` is required"
    );
    for other in [json!([]), json!("a"), json!(null)] {
        assert_eq!(check(other), Err(InvalidFormContent::NotAnObject));
    }
}

#[test]
fn texts_are_validated_against_their_format() {
    for (format, fitting, unfitting) in [
        (
            "email",
            &["a@b", "ada.lovelace+x@example.com", "ö@exämple.org"][..],
            &[
                "", "@", "a@", "@b", "a b@c", "a@b c", "a@@b..c", ".a@b", "a\n@b",
            ][..],
        ),
        (
            "uri",
            &[
                "https://example.com/?q=1#f",
                "urn:isbn:1",
                "mailto:a@b",
                "file:///x",
            ],
            &[
                "",
                "example.com",
                "https:",
                "1a:b",
                "http://a b",
                "/x",
                "a:\u{7f}",
                "a:<b>",
            ],
        ),
        (
            "date",
            &["2024-02-29", "2000-02-29", "1999-12-31"],
            &[
                "2023-02-29",
                "1900-02-29",
                "2024-13-01",
                "2024-00-01",
                "2024-1-1",
                "2024-04-31",
                "+024-01-01",
                "2024-01-01-",
            ],
        ),
        (
            "date-time",
            &[
                "2024-02-29T23:59:60Z",
                "2024-01-01t00:00:00.5z",
                "2024-01-01T00:00:00+05:30",
            ],
            &[
                "2024-01-01",
                "2024-01-01T24:00:00Z",
                "2024-01-01T00:60:00Z",
                "2024-01-01T00:00:61Z",
                "2024-01-01T00:00:00+24:00",
                "2024-01-01T00:00:00-00:60",
                "2024-01-01T00:00Z",
                "2024-01-01T00:00:00",
                "2024-01-01T00:00:00.Z",
                "2024-01-01T00:00:00+5:30",
                "2024-01-01T00:00:00Zx",
                "2024-01-01 00:00:00Z",
            ],
        ),
    ] {
        let field = json!({"type": "string", "format": format});
        for text in fitting {
            assert_eq!(form_error(&field, &json!(text)), None, "{format} {text}");
        }
        for text in unfitting {
            assert!(
                form_error(&field, &json!(text)).is_some(),
                "{format} {text}"
            );
        }
    }
}
