//! JSON Schema 2020-12 of Rust types, in the form that models read best: inlined instead of with `$ref`, without names
//! of Rust types. In input, an optional member has one type: an `Option<T>` is an optional `T`, and `null` is still
//! accepted; arguments use no keyword that common model APIs refuse, if there is another one (see `lint.rs`).

use bowline_types::Json;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Returns the schema of values that deserialize into `T`. `null` is no value of an optional member; see
/// [`accepting_null`].
pub(super) fn of_input<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let settings = settings
        .with_transform(RecursiveTransform(remove_nulls))
        .with_transform(RecursiveTransform(replace_refused_keywords));
    generate::<T>(settings).into()
}

/// Returns the same schema with `null` as another value of every optional member, for validation: models send it.
/// Serde reads it as an omitted member only if the member is an `Option`. Others, such as an `i64` with
/// `#[serde(default)]`, fail when they are decoded.
pub(super) fn accepting_null(schema: &Json) -> Json {
    let decoded = schema.decode::<Value>().ok();
    let Some(mut schema) = decoded.and_then(|value| Schema::try_from(value).ok()) else {
        return schema.clone();
    };
    RecursiveTransform(add_nulls).transform(&mut schema);
    schema.to_value().into()
}

/// Returns the schema of the same objects without members that it does not define.
pub(super) fn closed(schema: &Json) -> Json {
    let Ok(Value::Object(mut members)) = schema.decode() else {
        return schema.clone();
    };
    // `additionalProperties` does not see the members that other keywords define.
    let others = [
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "$dynamicRef",
        "if",
        "dependentSchemas",
    ];
    let keyword = match others.iter().any(|keyword| members.contains_key(*keyword)) {
        true => "unevaluatedProperties",
        false => "additionalProperties",
    };
    members.entry(keyword).or_insert(false.into());
    Value::Object(members).into()
}

/// Returns the schema of serialized values of `T`.
pub(super) fn of_output<T: JsonSchema>() -> Json {
    generate::<T>(SchemaSettings::draft2020_12().for_serialize()).into()
}

/// Returns the schema of a handler without arguments.
pub(super) fn empty_object() -> Json {
    json!({"type": "object", "properties": {}}).into()
}

/// Returns whether the schema allows values that are not objects. For revisions until 2025-11-25 such output is wrapped
/// in an object with the member `result`.
pub(super) fn needs_wrapping(schema: &Json) -> bool {
    schema.decode().is_ok_and(|value| !is_object_schema(&value))
}

/// Returns the schema of the same output as an object, wrapped if necessary.
pub(super) fn to_object_schema(schema: &Json) -> Json {
    match schema.decode::<Value>() {
        Ok(mut value) if is_object_schema(&value) => {
            // `oneOf` and `anyOf` of objects have no `type`, which legacy revisions require.
            if value.get("type").is_none() {
                value["type"] = "object".into();
                return value.into();
            }
            schema.clone()
        }
        Ok(value) => wrapped(value).into(),
        Err(_) => schema.clone(),
    }
}

/// Returns whether every valid value is an object.
fn is_object_schema(schema: &Value) -> bool {
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        return true;
    }
    let choices = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    choices
        .and_then(Value::as_array)
        .is_some_and(|choices| !choices.is_empty() && choices.iter().all(is_object_schema))
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        // Without `$schema`, MCP assumes 2020-12.
        settings.meta_schema = None;
        settings
            .transforms
            .push(Box::new(RecursiveTransform(normalize_subschema)));
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The title is the name of the Rust type.
    schema.remove("title");
    schema.to_value()
}

fn wrapped(mut schema: Value) -> Value {
    let mut definitions = None;
    // References are relative to the schema with an `$id`, so that one can be moved as it is.
    if let Some(schema) = schema.as_object_mut()
        && !schema.contains_key("$id")
    {
        // A recursive type refers to `#/$defs/…`, which must stay at the root, or to itself.
        definitions = schema.remove("$defs");
        schema.values_mut().for_each(redirect_references);
        definitions.iter_mut().for_each(redirect_references);
    }
    let mut wrapped = json!({
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
    });
    if let Some(definitions) = definitions {
        wrapped["$defs"] = definitions;
    }
    wrapped
}

/// Changes references to a part of the schema that is now the member `result` of another one.
fn redirect_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get_mut("$ref")
                && (target == "#" || target.starts_with("#/") && !target.starts_with("#/$defs/"))
            {
                target.insert_str(1, "/properties/result");
            }
            members.values_mut().for_each(redirect_references);
        }
        Value::Array(items) => items.iter_mut().for_each(redirect_references),
        _ => {}
    }
}

fn normalize_subschema(schema: &mut Schema) {
    // Formats such as `int64` are not part of JSON Schema, and some clients reject them.
    if let Some(Value::String(format)) = schema.get("format")
        && NUMBER_FORMATS.contains(&format.as_str())
    {
        schema.remove("format");
    }
}

/// Replaces `oneOf`, `const` and `true`, which some model APIs refuse. The variants of an enum exclude each other, so
/// that `anyOf` has the same meaning.
fn replace_refused_keywords(schema: &mut Schema) {
    if schema.get("anyOf").is_none()
        && let Some(choices) = schema.remove("oneOf")
    {
        schema.insert("anyOf".to_owned(), choices);
    }
    if let Some(Value::String(_)) = schema.get("const")
        && let Some(value) = schema.remove("const")
    {
        schema.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        members.values_mut().for_each(replace_true);
    }
    if let Some(items) = schema.get_mut("items") {
        replace_true(items);
    }
}

fn replace_true(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
}

fn remove_nulls(schema: &mut Schema) {
    for member in optional_members(schema) {
        remove_null(member);
    }
}

fn remove_null(member: &mut Value) {
    let Some(schema) = member.as_object_mut() else {
        return;
    };
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = &mut types[..] {
            let one = one.take();
            schema.insert("type".to_owned(), one);
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(choices)) = schema.get_mut(keyword) else {
            continue;
        };
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let [Value::Object(one)] = &mut choices[..] {
            let one = std::mem::take(one);
            schema.remove(keyword);
            // The description of the member is more specific than that of its type.
            for (keyword, value) in one {
                schema.entry(keyword).or_insert(value);
            }
        }
    }
}

fn add_nulls(schema: &mut Schema) {
    for member in optional_members(schema) {
        add_null(member);
    }
}

fn add_null(member: &mut Value) {
    if let Some(schema) = member.as_object_mut()
        && !schema.contains_key("const")
        && let Some(Value::String(name)) = schema.get_mut("type")
    {
        // Not `anyOf`, whose errors do not say what is wrong with a value.
        let types = json!([name, "null"]);
        schema.insert("type".to_owned(), types);
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.push(Value::Null);
        }
    } else {
        let one = member.take();
        *member = json!({"anyOf": [one, {"type": "null"}]});
    }
}

/// Returns the schemas of the members that `required` does not name.
fn optional_members(schema: &mut Schema) -> impl Iterator<Item = &mut Value> {
    let required = schema.get("required").and_then(Value::as_array).cloned();
    let required = required.unwrap_or_default();
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    let members = members.into_iter().flatten();
    members
        .filter(move |(name, _)| !required.iter().any(|required| required == name.as_str()))
        .map(|(_, member)| member)
}

const NUMBER_FORMATS: &[&str] = &[
    "int", "int8", "int16", "int32", "int64", "int128", "uint", "uint8", "uint16", "uint32",
    "uint64", "uint128", "float", "double",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A place.
    #[derive(JsonSchema, serde::Deserialize)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct City {
        /// its name
        name: String,
        at: Option<Point>,
        #[serde(default)]
        zoom: u8,
    }

    #[derive(JsonSchema, serde::Deserialize)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Point {
        x: i64,
        y: f64,
    }

    #[derive(JsonSchema, serde::Serialize)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Tree(Vec<Self>);

    #[test]
    fn an_input_schema_is_inlined_and_without_rust_formats() {
        let schema: Value = of_input::<City>().decode().unwrap();

        assert_eq!(
            schema,
            json!({
                "type": "object",
                "description": "A place.",
                "properties": {
                    "name": {"type": "string", "description": "its name"},
                    "at": {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
                        "required": ["x", "y"],
                    },
                    "zoom": {"type": "integer", "minimum": 0, "maximum": 255, "default": 0},
                },
                "required": ["name"],
            })
        );
    }

    #[test]
    fn optional_members_have_one_type_and_keep_their_description() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Unit {
            Celsius,
            Kelvin,
        }
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Query {
            /// how many
            limit: Option<u32>,
            /// which unit
            unit: Option<Unit>,
            nested: Vec<Nested>,
        }
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Nested {
            #[serde(default)]
            tree: Option<Box<Self>>,
        }

        let schema: Value = of_input::<Query>().decode().unwrap();

        let text = schema.to_string();
        assert!(!text.contains("null"), "{text}");
        let limit = json!({"type": "integer", "minimum": 0, "description": "how many"});
        let mut found = schema["properties"]["limit"].clone();
        found.as_object_mut().unwrap().remove("maximum");
        assert_eq!(found, limit);
        let unit =
            json!({"type": "string", "enum": ["Celsius", "Kelvin"], "description": "which unit"});
        assert_eq!(schema["properties"]["unit"], unit);
    }

    #[test]
    fn shared_types_are_inlined_with_the_description_of_each_use_and_recursive_ones_are_not() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Route {
            /// where it starts
            from: Point,
            /// where it ends
            to: Option<Point>,
            by: Vec<Option<Kind>>,
            /// detours
            detour: Option<Box<Self>>,
            anything: Option<Value>,
            /// any JSON
            data: Value,
        }
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Kind {
            /// with legs
            Foot,
            /// on wheels
            Car { seats: u8 },
        }

        let schema: Value = of_input::<Route>().decode().unwrap();

        let members = &schema["properties"];
        assert_eq!(members["from"]["description"], "where it starts");
        assert_eq!(members["from"]["properties"]["x"]["type"], "integer");
        assert_eq!(members["to"]["description"], "where it ends");
        assert_eq!(members["to"]["type"], "object");
        let kinds = members["by"]["items"]["anyOf"].to_string();
        assert!(
            kinds.contains("with legs") && kinds.contains("on wheels"),
            "{kinds}"
        );
        assert_eq!(members["detour"]["description"], "detours");
        assert_eq!(members["detour"]["$ref"], "#");
        assert_eq!(members["anything"], json!({}));
        assert_eq!(members["data"], json!({"description": "any JSON"}));
        assert_eq!(schema["required"], json!(["from", "by", "data"]));
        let text = schema.to_string();
        assert_eq!(text.matches("$ref").count(), 1, "{text}");
        assert!(!text.contains("oneOf") && !text.contains("const"), "{text}");
    }

    #[test]
    fn a_closed_schema_refuses_other_members_than_its_own() {
        let close = |schema: Value| closed(&schema.into()).decode::<Value>().unwrap();

        assert_eq!(
            close(json!({"type": "object"})),
            json!({"type": "object", "additionalProperties": false})
        );
        assert_eq!(
            close(json!({"type": "object", "oneOf": []})),
            json!({"type": "object", "oneOf": [], "unevaluatedProperties": false})
        );
        let open = json!({"type": "object", "additionalProperties": {"type": "string"}});
        assert_eq!(close(open.clone()), open);
    }

    #[test]
    fn output_that_is_not_an_object_is_wrapped_in_one() {
        let schema = of_output::<Vec<i64>>();

        assert!(needs_wrapping(&schema));
        assert_eq!(
            to_object_schema(&schema).decode::<Value>().unwrap(),
            json!({
                "type": "object",
                "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
                "required": ["result"],
            })
        );
    }

    #[test]
    fn the_references_of_a_recursive_type_lead_to_it_when_it_is_wrapped() {
        #[derive(JsonSchema, serde::Serialize)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Grove(Vec<Branch>);
        #[derive(JsonSchema, serde::Serialize)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Branch {
            branches: Vec<Self>,
        }

        let tree: Value = to_object_schema(&of_output::<Tree>()).decode().unwrap();
        let grove: Value = to_object_schema(&of_output::<Grove>()).decode().unwrap();

        for (schema, reference, kind) in [
            (&tree, "/properties/result/items/$ref", "array"),
            (
                &grove,
                "/properties/result/items/properties/branches/items/$ref",
                "object",
            ),
        ] {
            let reference = schema.pointer(reference).and_then(Value::as_str);
            let target = reference.and_then(|reference| schema.pointer(&reference[1..]));
            assert_eq!(target.unwrap()["type"], kind, "{schema:#}");
        }
    }

    #[test]
    fn a_choice_between_objects_is_an_object_and_one_with_null_is_not() {
        #[derive(JsonSchema, serde::Serialize)]
        #[serde(tag = "kind")]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Shape {
            Circle { radius: f64 },
            Square { side: f64 },
        }

        let shape = of_output::<Shape>();

        assert!(!needs_wrapping(&shape));
        assert_eq!(
            to_object_schema(&shape).decode::<Value>().unwrap()["type"],
            "object"
        );
        assert!(needs_wrapping(&of_output::<Option<Shape>>()));
        assert!(needs_wrapping(&of_output::<Value>()));
    }

    #[test]
    fn a_mirrored_argument_that_may_be_left_out_has_one_type() {
        #[derive(JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct RegionQuery {
            #[schemars(extend("x-mcp-header" = "Region"))]
            region: Option<String>,
        }

        let schema: Value = of_input::<RegionQuery>().decode().unwrap();

        assert_eq!(
            schema["properties"]["region"],
            json!({"type": "string", "x-mcp-header": "Region"})
        );
    }
}
