//! Tests of the header rules.

use super::*;
use serde_json::json;

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(
            HeaderName::try_from(*name).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

fn schema(properties: &serde_json::Value) -> Json {
    json!({"type": "object", "properties": properties}).into()
}

fn region_plan() -> ParamHeaders {
    let properties = json!({"region": {"type": "string", "x-mcp-header": "Region"}});
    ParamHeaders::read(&schema(&properties)).unwrap()
}

fn number_plan() -> ParamHeaders {
    let properties = json!({"n": {"type": "integer", "x-mcp-header": "N"}});
    ParamHeaders::read(&schema(&properties)).unwrap()
}

#[test]
fn values_that_are_not_plain_are_encoded_and_all_decode_to_themselves() {
    for (text, value) in [
        ("us west 1", "us west 1"),
        ("", ""),
        ("~!@#$%^&*()", "~!@#$%^&*()"),
        (
            "https://example.com/r?id=1%20",
            "https://example.com/r?id=1%20",
        ),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        ("a\tb", "=?base64?YQli?="),
        ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?BASE64?literal?=", "=?BASE64?literal?="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("SGVsbG8=", "SGVsbG8="),
    ] {
        assert_eq!(encode_value(text), value, "{text:?}");
        assert_eq!(decode_value(value.as_bytes()).unwrap(), text, "{value:?}");
    }
}

#[test]
fn only_both_delimiters_in_lower_case_mean_base64() {
    for literal in [
        "=?base64?=",
        "=?base64?",
        "?=",
        "=?Base64?SGVsbG8=?=",
        "x=?base64?SGVsbG8=?=",
    ] {
        assert_eq!(decode_value(literal.as_bytes()).unwrap(), literal);
    }
    assert_eq!(decode_value(b"=?base64??=").unwrap(), "");
}

#[test]
fn spaces_and_tabs_around_a_value_are_ignored() {
    assert_eq!(decode_value(b" \t add\t ").unwrap(), "add");
    assert_eq!(decode_value(b"  =?base64?SGVsbG8=?= ").unwrap(), "Hello");
    assert_eq!(decode_value(b" \t ").unwrap(), "");
}

#[test]
fn a_value_that_cannot_be_decoded_is_refused() {
    for (value, why) in [
        (&b"=?base64?SGVsbG8?="[..], UndecodableHeader::Base64),
        (b"=?base64?SGVs!!!bG8=?=", UndecodableHeader::Base64),
        (b"=?base64?SGVsbG9=?=", UndecodableHeader::Base64),
        (b"=?base64?SGVs bG8=?=", UndecodableHeader::Base64),
        (b"=?base64?_-8=?=", UndecodableHeader::Base64),
        (b"=?base64?/w==?=", UndecodableHeader::Utf8),
        (b"caf\xC3\xA9", UndecodableHeader::Characters),
        (b"a\tb", UndecodableHeader::Characters),
        (b"a\xFF", UndecodableHeader::Characters),
    ] {
        assert_eq!(decode_value(value), Err(why), "{value:?}");
    }
}

#[test]
fn each_method_with_a_name_has_a_name_member() {
    for (method, member) in [
        ("tools/call", Some("name")),
        ("prompts/get", Some("name")),
        ("resources/read", Some("uri")),
        ("tasks/get", Some("taskId")),
        ("tasks/update", Some("taskId")),
        ("tasks/cancel", Some("taskId")),
        ("tools/list", None),
        ("server/discover", None),
        ("TOOLS/CALL", None),
    ] {
        assert_eq!(name_member(method), member, "{method}");
    }
}

#[test]
fn a_message_is_mirrored_into_its_headers() {
    let params = json!({"name": "größe", "arguments": {"region": "eu", "q": "x"}}).into();
    let message = MirroredMessage {
        version: "2026-07-28",
        method: "tools/call",
        params: Some(&params),
        name_member: name_member("tools/call"),
    };
    let mut out = HeaderMap::new();

    mirror(message, Some(&region_plan()), &mut out).unwrap();

    let expected = headers(&[
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
        ("mcp-param-region", "eu"),
    ]);
    assert_eq!(out, expected);
}

#[test]
fn a_message_without_a_name_has_no_name_header() {
    for (method, params) in [
        ("tools/list", json!({"name": "add"})),
        ("tools/call", json!({})),
        ("tools/call", json!({"name": 7})),
    ] {
        let params = params.into();
        let message = MirroredMessage {
            version: "2026-07-28",
            method,
            params: Some(&params),
            name_member: name_member(method),
        };
        let mut out = HeaderMap::new();

        mirror(message, None, &mut out).unwrap();

        assert_eq!(out.len(), 2, "{method}: {out:?}");
    }
}

#[test]
fn a_method_that_cannot_be_encoded_is_an_error() {
    for method in ["a\nb", " a", "é"] {
        let message = MirroredMessage {
            version: "2026-07-28",
            method,
            params: None,
            name_member: None,
        };

        let error = mirror(message, None, &mut HeaderMap::new()).unwrap_err();

        assert_eq!(error.header, METHOD);
    }
}

#[test]
fn version_and_method_must_be_present_once_and_equal_the_body() {
    for (list, agrees) in [
        (&[("mcp-method", "tools/list")][..], true),
        (&[("MCP-METHOD", "  tools/list\t")], true),
        (&[("mcp-method", "TOOLS/LIST")], false),
        (&[("mcp-method", "prompts/list")], false),
        (&[("mcp-method", "=?base64?dG9vbHMvbGlzdA==?=")], false),
        (&[("mcp-method", "")], false),
        (
            &[("mcp-method", "tools/list"), ("mcp-method", "tools/list")],
            false,
        ),
        (&[], false),
    ] {
        assert_eq!(
            MirrorHeaders::read(&headers(list))
                .check_method("tools/list")
                .is_ok(),
            agrees,
            "{list:?}"
        );
    }
    for (list, agrees) in [
        (&[("mcp-protocol-version", "v1")][..], true),
        (&[("mcp-protocol-version", "v2")], false),
        (&[], false),
    ] {
        let headers = headers(list);
        let checked = MirrorHeaders::read(&headers).check_version("v1");
        assert_eq!(checked.is_ok(), agrees, "{list:?}");
    }
}

#[test]
fn a_name_is_decoded_and_compared_byte_for_byte() {
    for (list, name, agrees) in [
        (&[("mcp-name", "add")][..], "add", true),
        (&[("mcp-name", "  add  ")], "add", true),
        (&[("mcp-name", "=?base64?YWRk?=")], "add", true),
        (&[("mcp-name", "Add")], "add", false),
        (&[("mcp-name", "file:///a%20b")], "file:///a b", false),
        (&[("mcp-name", "=?base64?YWRk")], "add", false),
        (&[("mcp-name", "=?base64?YWR?=")], "add", false),
        (&[("mcp-name", "add"), ("mcp-name", "add")], "add", false),
        (&[("mcp-name", "")], "", true),
        (&[], "", false),
    ] {
        assert_eq!(
            MirrorHeaders::read(&headers(list)).check_name(name).is_ok(),
            agrees,
            "{list:?}"
        );
    }
}

#[test]
fn a_mismatch_names_the_header_and_both_values() {
    let headers = headers(&[("mcp-name", "foo")]);
    let mismatch = MirrorHeaders::read(&headers).check_name("bar").unwrap_err();

    let error = RpcError::from(mismatch);

    assert_eq!(error.code, ErrorCode::HEADER_MISMATCH);
    assert_eq!(error.message, r#"`mcp-name` is "foo", the body has "bar""#);
}

#[test]
fn annotations_are_found_at_any_depth_of_properties() {
    let plan = ParamHeaders::read(&schema(&json!({
        "a": {"type": "string", "x-mcp-header": "A"},
        "b": {"type": "object", "properties": {
            "c": {"type": "boolean", "x-mcp-header": "B-c"},
        }},
        "d": {"type": "string"},
    })))
    .unwrap();
    let mut out = HeaderMap::new();

    let arguments = json!({"a": "x", "b": {"c": true}, "d": "y"}).into();
    plan.mirror(Some(&arguments), &mut out).unwrap();

    assert_eq!(
        out,
        headers(&[("mcp-param-a", "x"), ("mcp-param-b-c", "true")])
    );
}

/// Asserts that a schema with these properties is rejected because of `property`.
fn assert_invalid(properties: &serde_json::Value, property: &str, why: &AnnotationDefect) {
    let invalid = ParamHeaders::read(&schema(properties)).unwrap_err();

    assert_eq!(
        (invalid.property.as_str(), &invalid.why),
        (property, why),
        "{properties}"
    );
}

fn annotated(name: &str) -> serde_json::Value {
    json!({"type": "string", "x-mcp-header": name})
}

#[test]
fn a_header_name_is_a_token_that_no_other_property_has() {
    for name in ["", "x y", "x:y", "x\r\n", "x\0", "é", "a/b"] {
        let why = AnnotationDefect::NotAToken(name.to_owned());
        assert_invalid(&json!({"a": annotated(name)}), "a", &why);
    }
    let number = json!({"a": {"type": "string", "x-mcp-header": 7}});
    assert_invalid(&number, "a", &AnnotationDefect::NotAString);
    let twice = json!({"a": annotated("X"), "b": annotated("x")});
    assert_invalid(&twice, "b", &AnnotationDefect::Repeated("x".to_owned()));
    for name in ["x", "!#$%&'*+-.^_`|~", "0"] {
        assert!(ParamHeaders::read(&schema(&json!({"a": annotated(name)}))).is_ok());
    }
}

fn annotated_properties(count: usize) -> serde_json::Value {
    let property = |at| (format!("p{at:06}"), annotated(&format!("P{at}")));
    serde_json::Value::Object((0..count).map(property).collect())
}

/// Regression test: comparing each annotation with all before it took 9 s for a schema of 2.1 MB.
#[test]
fn a_tool_has_at_most_max_param_headers() {
    let plan = ParamHeaders::read(&schema(&annotated_properties(MAX_PARAM_HEADERS))).unwrap();

    assert_eq!(plan.names().count(), MAX_PARAM_HEADERS);
    let too_many = annotated_properties(MAX_PARAM_HEADERS + 1);
    assert_invalid(&too_many, "p000064", &AnnotationDefect::TooManyHeaders);
}

#[test]
fn an_annotated_schema_that_is_too_long_is_not_read() {
    let mut properties = json!({"a": annotated("X")});
    properties["b"] = json!({"description": "x".repeat(MAX_ANNOTATED_SCHEMA)});

    assert_invalid(&properties, "", &AnnotationDefect::SchemaTooLong);
    let excess = schema(&properties).as_bytes().len() - MAX_ANNOTATED_SCHEMA;
    properties["b"] = json!({"description": "x".repeat(MAX_ANNOTATED_SCHEMA - excess)});
    let longest = ParamHeaders::read(&schema(&properties)).unwrap();
    assert_eq!(longest.names().count(), 1);
    properties["b"] = json!({"description": "x".repeat(MAX_ANNOTATED_SCHEMA)});
    properties["a"] = json!({"type": "string"});
    assert!(ParamHeaders::read(&schema(&properties)).unwrap().is_empty());
}

#[test]
fn an_annotated_property_is_a_string_an_integer_or_a_boolean() {
    for kind in [
        json!("number"),
        json!("object"),
        json!("array"),
        json!("null"),
        json!(["string", "null"]),
        json!(null),
    ] {
        let property = json!({"a": {"type": kind, "x-mcp-header": "X"}});
        assert_invalid(&property, "a", &AnnotationDefect::WrongType);
    }
    assert_invalid(
        &json!({"a": {"x-mcp-header": "X"}}),
        "a",
        &AnnotationDefect::WrongType,
    );
}

#[test]
fn an_annotated_property_is_reached_through_properties_alone() {
    let inside = json!({"properties": {"b": annotated("X")}});
    for (property, path) in [
        (json!({"items": annotated("X")}), "a.items"),
        (json!({"prefixItems": [annotated("X")]}), "a.prefixItems"),
        (json!({"anyOf": [true, annotated("X")]}), "a.anyOf"),
        (json!({"not": annotated("X")}), "a.not"),
        (json!({"then": annotated("X")}), "a.then"),
        (
            json!({"additionalProperties": annotated("X")}),
            "a.additionalProperties",
        ),
        (json!({"patternProperties": {"p": annotated("X")}}), "a.p"),
        (json!({"items": inside}), "a.items.b"),
    ] {
        assert_invalid(
            &json!({"a": property}),
            path,
            &AnnotationDefect::NotReachable,
        );
    }
}

#[test]
fn an_invalid_annotation_names_its_property_and_defect() {
    let properties = json!({"a": {"properties": {"b": annotated("x y")}}});

    let invalid = ParamHeaders::read(&schema(&properties)).unwrap_err();

    let expected = r#"x-mcp-header of property `a.b`: "x y" is not a valid header name"#;
    assert_eq!(invalid.to_string(), expected);
}

#[test]
fn an_annotation_on_the_root_or_in_definitions_is_invalid() {
    for schema in [
        json!({"type": "string", "x-mcp-header": "X"}),
        json!({"$defs": {"a": {"type": "string", "x-mcp-header": "X"}}}),
        json!({"allOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "X"}}}]}),
        json!({"if": {"properties": {"a": {"type": "string", "x-mcp-header": "X"}}}}),
    ] {
        let invalid = ParamHeaders::read(&schema.clone().into()).unwrap_err();

        assert_eq!(invalid.why, AnnotationDefect::NotReachable, "{schema}");
    }
}

#[test]
fn x_mcp_header_outside_of_a_schema_is_not_an_annotation() {
    for properties in [
        json!({"x-mcp-header": {"type": "string"}}),
        json!({"a": {"type": "object", "default": {"x-mcp-header": 1}}}),
        json!({"a": {"enum": [{"x-mcp-header": "X"}]}}),
        json!({"a": {"const": {"x-mcp-header": "X"}}}),
        json!({"a": {"examples": [{"x-mcp-header": "X"}]}}),
        json!({"a": {"description": "x-mcp-header"}}),
    ] {
        let plan = ParamHeaders::read(&schema(&properties)).unwrap();

        assert!(plan.is_empty(), "{properties}");
    }
}

#[test]
fn an_argument_is_encoded_by_its_type() {
    for (argument, value) in [
        (json!({"n": 42}), Some("42")),
        (json!({"n": 42.0}), Some("42")),
        (json!({"n": -7}), Some("-7")),
        (
            json!({"n": 9_007_199_254_740_991_i64}),
            Some("9007199254740991"),
        ),
        (json!({"n": true}), Some("true")),
        (json!({"n": ""}), Some("")),
        (json!({"n": "a\tb"}), Some("=?base64?YQli?=")),
        (json!({"n": null}), None),
        (json!({}), None),
        (json!([]), None),
    ] {
        let mut out = HeaderMap::new();

        number_plan()
            .mirror(Some(&argument.clone().into()), &mut out)
            .unwrap();

        let seen = out.get("mcp-param-n").map(|value| value.to_str().unwrap());
        assert_eq!(seen, value, "{argument}");
    }
}

#[test]
fn an_argument_that_cannot_be_encoded_is_an_error() {
    for argument in [
        "1.5",
        "9007199254740992",
        "-9007199254740992",
        "-9223372036854775808",
        "1e300",
        "[]",
        "{}",
    ] {
        let arguments = Json::parse(format!(r#"{{"n":{argument}}}"#)).unwrap();

        let mirrored = number_plan().mirror(Some(&arguments), &mut HeaderMap::new());

        assert!(mirrored.is_err(), "{argument}");
    }
}

#[test]
fn headers_are_checked_against_the_arguments() {
    for (list, argument, agrees) in [
        (
            &[("mcp-param-region", "=?base64?SGVsbG8=?=")][..],
            json!("Hello"),
            true,
        ),
        (
            &[("mcp-param-region", "=?base64?SGVsbG8?=")],
            json!("Hello"),
            false,
        ),
        (
            &[("mcp-param-region", "=?base64?SGVs!!!bG8=?=")],
            json!("Hello"),
            false,
        ),
        (&[("mcp-param-region", "SGVsbG8=")], json!("SGVsbG8="), true),
        (
            &[("mcp-param-region", "=?base64?SGVsbG8=")],
            json!("=?base64?SGVsbG8="),
            true,
        ),
        (&[("MCP-Param-REGION", "  eu ")], json!("eu"), true),
        (&[("mcp-param-region", "EU")], json!("eu"), false),
        (&[("mcp-param-region", "42.0")], json!("42"), false),
        (
            &[("mcp-param-region", "caf\u{e9}")],
            json!("caf\u{e9}"),
            false,
        ),
        (
            &[("mcp-param-region", "eu"), ("mcp-param-region", "eu")],
            json!("eu"),
            false,
        ),
        (&[("mcp-param-region", "")], json!(""), true),
        (&[], json!(""), false),
        (&[], json!("eu"), false),
        (&[], json!(["eu"]), false),
        (&[("mcp-param-region", "[\"eu\"]")], json!(["eu"]), false),
        (&[], json!(null), true),
        (&[("mcp-param-region", "eu")], json!(null), false),
        (
            &[("mcp-param-other", "\u{e9}"), ("mcp-param-region", "eu")],
            json!("eu"),
            true,
        ),
    ] {
        let arguments = json!({"region": argument}).into();

        let checked = region_plan().check(Some(&arguments), &headers(list));

        assert_eq!(checked.is_ok(), agrees, "{list:?} {argument}");
    }
}

#[test]
fn integers_are_compared_as_numbers() {
    for (value, argument, agrees) in [
        ("42", "42", true),
        ("42.0", "42", true),
        ("42", "42.0", true),
        ("4.2e1", "42", true),
        ("43", "42", false),
        ("042", "42", false),
        ("+42", "42", false),
        ("0x2a", "42", false),
        ("inf", "42", false),
        ("1.5", "1.5", false),
        ("9007199254740993", "9007199254740993", false),
        ("true", "true", true),
        ("True", "true", false),
    ] {
        let arguments = Json::parse(format!(r#"{{"n":{argument}}}"#)).unwrap();

        let checked = number_plan().check(Some(&arguments), &headers(&[("mcp-param-n", value)]));

        assert_eq!(checked.is_ok(), agrees, "{value} {argument}");
    }
}

#[test]
fn mirrored_headers_pass_the_check() {
    let plan = region_plan();
    for region in ["eu", "", " eu ", "世界", "=?base64?x?=", "=?base64?="] {
        let arguments = json!({"region": region}).into();
        let mut out = HeaderMap::new();

        plan.mirror(Some(&arguments), &mut out).unwrap();

        assert_eq!(plan.check(Some(&arguments), &out), Ok(()), "{region:?}");
    }
}
