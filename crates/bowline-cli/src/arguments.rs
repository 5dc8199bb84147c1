//! Arguments on the command line, `key=value`, as the JSON that the schema of a tool asks for.

use std::path::Path;

use serde_json::{Map, Value};

use crate::nearest::nearest;
use crate::ordered_json::OrderedJson;
use crate::output::visible_line;
use crate::signature::Schema;

/// One word: `key=value`, `key:=json`, `key=@file` or `key:=@file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) key: String,
    value: ArgumentValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ArgumentValue {
    /// Text that is converted as the schema asks for.
    Text(String),
    Json(String),
}

/// Reads files for `@file`, so that tests need none.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> std::io::Result<String>;

impl Argument {
    /// Parses a word, and reads the file that it names.
    ///
    /// # Errors
    ///
    /// If the word has no `=`, or the file cannot be read.
    pub(crate) fn parse(word: &str, read: ReadFile<'_>) -> Result<Self, String> {
        let Some((key, text)) = word.split_once('=') else {
            return Err(format!("expected key=value, got `{word}`"));
        };
        let (key, is_json) = match key.strip_suffix(':') {
            Some(key) => (key, true),
            None => (key, false),
        };
        if key.is_empty() {
            return Err(format!("expected key=value, got no key in `{word}`"));
        }
        let text = match text.strip_prefix('@') {
            // `@@` for text that begins with `@`.
            Some(literal) if literal.starts_with('@') => literal.to_owned(),
            Some(path) => read(Path::new(path))
                .map_err(|error| format!("`{key}`: failed to read {path}: {error}"))?,
            None => text.to_owned(),
        };
        Ok(Self {
            key: key.to_owned(),
            value: match is_json {
                true => ArgumentValue::Json(text),
                false => ArgumentValue::Text(text),
            },
        })
    }

    /// Returns the text of the value, for arguments that are always strings.
    pub(crate) fn into_text(self) -> (String, String) {
        match self.value {
            ArgumentValue::Text(text) | ArgumentValue::Json(text) => (self.key, text),
        }
    }
}

/// Adds arguments to an object, converted as `schema` asks for. Without a schema, `key=value` is text.
///
/// # Errors
///
/// That name the argument, what was expected, and the parameter that was probably meant.
pub(crate) fn add_arguments(
    object: &mut Map<String, Value>,
    arguments: Vec<Argument>,
    schema: Option<Schema<'_>>,
) -> Result<(), String> {
    let mut is_repeated: Vec<String> = Vec::new();
    for Argument { key, value } in arguments {
        let (path, property) = find_property(&key, schema)?;
        let value = match value {
            ArgumentValue::Json(text) => serde_json::from_str(&text)
                .map_err(|error| format!("`{key}`: expected JSON after `:=`: {error}"))?,
            ArgumentValue::Text(text) => match property {
                Some(property) => {
                    let item = property
                        .alternatives()
                        .into_iter()
                        .find(|it| it.types().contains(&"array"));
                    match item.filter(|_| is_repeated.contains(&key)) {
                        // `tag=a tag=b`: the second value is one more item.
                        Some(array) => {
                            array_item(array, &text).map_err(|why| format!("`{key}`: {why}"))?
                        }
                        None => coerce(property, &text).map_err(|why| format!("`{key}`: {why}"))?,
                    }
                }
                None => Value::String(text),
            },
        };
        insert(object, &path, value, is_repeated.contains(&key))?;
        is_repeated.push(key);
    }
    Ok(())
}

/// Returns the required parameters that `object` does not have.
pub(crate) fn missing<'a>(object: &Map<String, Value>, schema: Schema<'a>) -> Vec<&'a str> {
    let mut required = schema.required();
    required.retain(|name| !object.contains_key(*name));
    required
}

/// Finds the property that a key means: its own name, or a path of names with dots.
fn find_property<'k, 's>(
    key: &'k str,
    schema: Option<Schema<'s>>,
) -> Result<(Vec<&'k str>, Option<Schema<'s>>), String> {
    let Some(schema) = schema else {
        return Ok((vec![key], None));
    };
    let of = |schema: Schema<'s>, name: &str| {
        let found = schema
            .properties()
            .iter()
            .find(|(property, _)| property == name);
        found.map(|(_, property)| schema.child(property))
    };
    if let Some(property) = of(schema, key) {
        return Ok((vec![key], Some(property)));
    }
    let path: Vec<_> = key.split('.').collect();
    if path.len() > 1 && of(schema, path[0]).is_some() {
        let mut current = Some(schema);
        for name in &path {
            current = current.and_then(|schema| of(schema, name));
        }
        return Ok((path, current));
    }
    if schema.allows_more()
        || schema.properties().is_empty() && schema.keyword("properties").is_none()
    {
        return Ok((vec![key], None));
    }
    let names = schema.properties().iter().map(|(name, _)| name.as_str());
    let hint = match nearest(key, names) {
        Some(name) => format!("; did you mean `{}`?", visible_line(name)),
        None => String::new(),
    };
    Err(format!("no parameter `{key}`{hint}"))
}

fn insert(
    object: &mut Map<String, Value>,
    path: &[&str],
    value: Value,
    is_repeated: bool,
) -> Result<(), String> {
    let Some((name, parents)) = path.split_last() else {
        return Ok(());
    };
    let mut current = object;
    for parent in parents {
        let next = current
            .entry(*parent)
            .or_insert_with(|| Value::Object(Map::new()));
        current = next
            .as_object_mut()
            .ok_or_else(|| format!("`{parent}` is not an object"))?;
    }
    match current.get_mut(*name) {
        Some(Value::Array(items)) if is_repeated => match value {
            Value::Array(more) => items.extend(more),
            value => items.push(value),
        },
        Some(_) if is_repeated => return Err(format!("`{name}` is given twice")),
        _ => {
            current.insert((*name).to_owned(), value);
        }
    }
    Ok(())
}

/// Converts text to the type of a schema. Of a union, the first alternative that fits counts, text last.
///
/// # Errors
///
/// With the expected type.
pub(crate) fn coerce(schema: Schema<'_>, text: &str) -> Result<Value, String> {
    let expected = |schema: Schema<'_>| {
        format!(
            "expected {}, got `{}`",
            schema.type_text(),
            visible_line(text)
        )
    };
    if schema.is_deep() {
        return Err("nested too deeply; use `:=` with JSON".to_owned());
    }
    if let Some(values) = schema.keyword("enum").or_else(|| schema.keyword("const")) {
        let values = match values {
            OrderedJson::List(values) => values.clone(),
            value => vec![value.clone()],
        };
        let written = |value: &OrderedJson| match value {
            OrderedJson::Text(value) => value == text,
            value => serde_json::from_str::<Value>(text).is_ok_and(|it| it == value.to_value()),
        };
        let found = values.iter().find(|value| written(value));
        return found
            .map(OrderedJson::to_value)
            .ok_or_else(|| expected(schema));
    }
    let alternatives = schema.alternatives();
    let named: Vec<(Schema<'_>, &str)> = (alternatives.iter())
        .flat_map(|it| it.types().into_iter().map(|name| (*it, name)))
        .collect();
    let is_enum = |it: &Schema<'_>| it.keyword("enum").or_else(|| it.keyword("const")).is_some();
    let chosen = (alternatives
        .iter()
        .filter(|it| alternatives.len() > 1 && is_enum(it)))
    .find_map(|it| coerce(*it, text).ok());
    if let Some(value) = chosen {
        return Ok(value);
    }
    // More specific types first: `5` is a number where a number or a text may stand.
    for wanted in ["null", "boolean", "integer", "number", "array", "object"] {
        for (schema, _) in named.iter().filter(|(_, name)| *name == wanted) {
            if let Some(value) = coerce_named(*schema, wanted, text)? {
                return Ok(value);
            }
        }
    }
    match named.is_empty() || named.iter().any(|(_, name)| *name == "string") {
        true => Ok(Value::String(text.to_owned())),
        false => Err(expected(schema)),
    }
}

/// Returns `None` if the text is not of the type.
fn coerce_named(schema: Schema<'_>, name: &str, text: &str) -> Result<Option<Value>, String> {
    Ok(match name {
        "null" => (text == "null").then_some(Value::Null),
        "boolean" => match text {
            "true" | "yes" | "1" | "on" => Some(Value::Bool(true)),
            "false" | "no" | "0" | "off" => Some(Value::Bool(false)),
            _ => None,
        },
        "integer" => {
            let integer = text.parse::<i64>().map(Value::from);
            integer
                .or_else(|_| text.parse::<u64>().map(Value::from))
                .ok()
        }
        "number" => {
            let integer = text.parse::<i64>().map(Value::from).ok();
            integer.or_else(|| {
                let number = text.parse::<f64>().ok()?;
                serde_json::Number::from_f64(number).map(Value::Number)
            })
        }
        "array" => Some(array(schema, text)?),
        "object" => {
            let parsed = serde_json::from_str(text).ok();
            parsed.filter(Value::is_object)
        }
        _ => None,
    })
}

/// Reads a JSON array, or items with commas between them.
fn array(schema: Schema<'_>, text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('[')
        && let Ok(array @ Value::Array(_)) = serde_json::from_str(text)
    {
        return Ok(array);
    }
    if text.is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    let items = text.split(',').map(|item| array_item(schema, item));
    Ok(Value::Array(items.collect::<Result<_, _>>()?))
}

fn array_item(schema: Schema<'_>, text: &str) -> Result<Value, String> {
    match schema.keyword("items") {
        Some(items) => coerce(schema.child(items), text),
        None => Ok(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn built(words: &[&str], schema: &Value) -> Result<Value, String> {
        let read = |path: &Path| match path.to_str() {
            Some("note.txt") => Ok("from a file\n".to_owned()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        let arguments = words.iter().map(|word| Argument::parse(word, &read));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let schema = OrderedJson::parse(&schema.to_string());
        let mut object = Map::new();
        add_arguments(&mut object, arguments, Some(Schema::root(&schema)))?;
        Ok(Value::Object(object))
    }

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "loud": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
            "ids": {"type": "array", "items": {"type": "integer"}}, "size": {"enum": ["S", "M", 3]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "either": {"type": ["string", "number"]},
            "point": {"type": "object", "properties": {"x": {"type": "number"}}}, "any": {},
        }})
    }

    #[test]
    fn values_have_the_type_that_the_schema_asks_for() {
        for (word, expected) in [
            ("text=5", json!({"text": "5"})),
            ("text=a=b", json!({"text": "a=b"})),
            ("text=", json!({"text": ""})),
            ("text=@note.txt", json!({"text": "from a file\n"})),
            ("text=@@ada", json!({"text": "@ada"})),
            ("count=5", json!({"count": 5})),
            ("count=18446744073709551615", json!({"count": u64::MAX})),
            ("ratio=5", json!({"ratio": 5})),
            ("ratio=0.5", json!({"ratio": 0.5})),
            ("loud=yes", json!({"loud": true})),
            ("tags=a,b", json!({"tags": ["a", "b"]})),
            (r#"tags=["a,b"]"#, json!({"tags": ["a,b"]})),
            ("tags=", json!({"tags": []})),
            ("ids=1,2", json!({"ids": [1, 2]})),
            ("size=M", json!({"size": "M"})),
            ("size=3", json!({"size": 3})),
            ("maybe=null", json!({"maybe": null})),
            ("either=5", json!({"either": 5})),
            ("either=five", json!({"either": "five"})),
            ("any=5", json!({"any": "5"})),
            ("any:=5", json!({"any": 5})),
            (r#"point={"x": 1}"#, json!({"point": {"x": 1}})),
            ("point.x=1", json!({"point": {"x": 1}})),
        ] {
            assert_eq!(built(&[word], &schema()), Ok(expected), "{word}");
        }
        let repeated = built(&["tags=a", "tags=b,c", "ids=1", "ids=2"], &schema());
        assert_eq!(repeated, Ok(json!({"tags": ["a", "b,c"], "ids": [1, 2]})));
    }

    #[test]
    fn mistakes_are_named_with_what_was_expected() {
        for (words, expected) in [
            (&["count=five"][..], "`count`: expected integer, got `five`"),
            (&["loud=maybe"], "`loud`: expected boolean, got `maybe`"),
            (&["size=L"], r#"`size`: expected "S" | "M" | 3, got `L`"#),
            (&["ids=1,b"], "`ids`: expected integer, got `b`"),
            (&["cuont=5"], "no parameter `cuont`; did you mean `count`?"),
            (&["weather=5"], "no parameter `weather`"),
            (&["text"], "expected key=value, got `text`"),
            (&["=5"], "expected key=value, got no key in `=5`"),
            (&["any:={"], "`any`: expected JSON after `:=`"),
            (&["text=@missing"], "`text`: failed to read missing"),
            (&["text=a", "text=b"], "`text` is given twice"),
        ] {
            let why = built(words, &schema()).unwrap_err();
            assert!(why.starts_with(expected), "{words:?}: {why}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_has_an_end() {
        let tree = json!({"type": "object", "properties": {"t": {"$ref": "#/$defs/Tree"}},
            "$defs": {"Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}});

        assert!(built(&["t=a"], &tree).unwrap_err().contains("use `:=`"));
        assert_eq!(built(&["t:=[[]]"], &tree), Ok(json!({"t": [[]]})));
    }

    #[test]
    fn an_open_schema_accepts_any_parameter() {
        let open = json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true});

        assert_eq!(built(&["b=5"], &open), Ok(json!({"b": "5"})));
        assert_eq!(built(&["b=5"], &json!({})), Ok(json!({"b": "5"})));
        assert!(built(&["b=5"], &json!({"type": "object", "properties": {}})).is_err());
    }
}
