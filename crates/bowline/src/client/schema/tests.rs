//! Validation of hostile and of ordinary schemas.

use serde_json::{Map, json};

use super::*;

fn schema(schema: Value) -> Result<CompiledSchema, String> {
    CompiledSchema::read(&schema.into())
}

fn check(of: Value, value: &Value) -> Result<(), String> {
    schema(of).unwrap().check(&value.to_string())
}

/// Returns whether validation fails because of the limit on its steps.
fn takes_too_long(of: Value, value: &Value) -> bool {
    check(of, value) == Err("the validation exceeds the limit of 1000000 steps".to_owned())
}

/// Returns a schema with definitions that each apply the next one twice.
fn doubling(keyword: &str, count: usize, last: Value) -> Value {
    let mut definitions = Map::new();
    for at in 0..count {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        definitions.insert(format!("d{at}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("d{count}"), last);
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

/// Without the limit, each of these validations would take years.
#[test]
fn a_schema_that_doubles_the_work_with_each_definition_is_not_applied_and_that_is_an_error() {
    let text = json!({"type": "string"});
    for (keyword, value) in [
        ("allOf", json!("x")),
        ("anyOf", json!({})),
        ("oneOf", json!(1)),
    ] {
        let schema = doubling(keyword, 60, text.clone());

        assert!(takes_too_long(schema, &value), "{keyword} of {value}");
    }
}

#[test]
fn a_schema_that_doubles_the_work_with_each_level_of_a_value_is_not_applied() {
    let mut value = json!(1);
    for _ in 0..60 {
        value = json!({ "x": value });
    }
    let level = json!({"type": "object", "properties": {"x": {"$ref": "#"}}});

    assert!(takes_too_long(json!({"anyOf": [level, level]}), &value));
    assert!(takes_too_long(json!({"allOf": [level, level]}), &value));
}

#[test]
fn a_schema_that_compares_everything_with_everything_is_not_applied() {
    let values: Vec<_> = (0..20_000).map(|at| json!({ "a": at })).collect();
    let missing = json!(vec![json!({"a": -1}); 20_000]);

    let few = json!({"items": {"enum": values[..10]}});
    let many = json!({"items": {"enum": values[..2_000]}});

    assert!(check(few, &missing).is_err());
    assert!(takes_too_long(many, &missing));
}

#[test]
fn a_reference_to_itself_is_not_followed_for_ever() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}]}),
    ] {
        assert!(takes_too_long(schema, &json!(1)));
    }
}

#[test]
fn a_recursive_schema_is_applied_to_all_levels() {
    let tree = json!({
        "$defs": {"tree": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}},
        }},
        "$ref": "#/$defs/tree",
    });
    let of_depth =
        |depth, leaf: Value| (0..depth).fold(leaf, |below, _| json!({"left": below, "right": {}}));

    assert_eq!(check(tree.clone(), &of_depth(50, json!({}))), Ok(()));
    assert!(check(tree, &of_depth(50, json!(1))).is_err());
}

#[test]
fn a_large_output_of_an_ordinary_tool_is_checked() {
    let row = json!({
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string", "pattern": "^row"}},
        "required": ["id", "name"],
        "additionalProperties": false,
    });
    let schema =
        json!({"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}, "$defs": {"row": row}});
    let rows = |last: Value| {
        let mut rows: Vec<_> = (0..10_000)
            .map(|id| json!({"id": id, "name": "row"}))
            .collect();
        rows.push(last);
        json!({ "rows": rows })
    };

    assert_eq!(
        check(schema.clone(), &rows(json!({"id": 1, "name": "row"}))),
        Ok(())
    );
    assert!(check(schema, &rows(json!({"id": "1", "name": "row"}))).is_err());
}

#[test]
fn a_schema_beyond_its_limits_is_not_compiled() {
    let long = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
    let chain: Map<_, _> = (0..=MAX_REFERENCES)
        .map(|at| {
            (
                format!("d{at}"),
                json!({"$ref": format!("#/$defs/d{}", at + 1)}),
            )
        })
        .collect();
    let renamed = json!({"$defs": {"a": {"$id": "https://else.where/"}}});

    let elsewhere = json!({"$ref": "https://else.where/schema"});
    let wide: Vec<_> = (0..MAX_PARTS).map(|_| json!({})).collect();
    for (unusable, why) in [
        (long, "it exceeds the limit of 262144 bytes"),
        (
            json!({ "$defs": chain }),
            "it exceeds the limit of 256 references",
        ),
        (
            json!({ "anyOf": wide }),
            "it exceeds the limit of 20000 parts",
        ),
        (renamed, "it has an `$id` below its root"),
        (elsewhere, "it has a `$ref` to another document"),
    ] {
        assert_eq!(schema(unusable).err().as_deref(), Some(why));
    }
    for usable in [
        json!({"$id": "https://some.where/", "properties": {"id": {}}}),
        json!({"properties": {"a": {"examples": [{"id": "an id in an example"}]}}}),
    ] {
        assert!(schema(usable).is_ok());
    }
}

#[test]
fn an_error_does_not_quote_the_whole_value() {
    let error = check(json!({"type": "string"}), &json!(vec![1; 100_000])).unwrap_err();

    assert!(error.chars().count() <= MAX_ERROR_CHARS + 1);
}

#[test]
fn count_values_includes_nested_values() {
    assert_eq!(count_values(&json!({"a": [1, 2], "b": {}})), 5);
}
