//! The fields of a form: their text on the terminal, and what a typed answer means.

use bowline::Json;
use bowline::types::{ElicitSchema, EnumSchema, NumberKind, PrimitiveSchemaDefinition};
use bowline_core::input::check_form;
use serde_json::{Map, Value};

use crate::output::visible_line;

/// One field of a form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    schema: &'a PrimitiveSchemaDefinition,
    pub(crate) is_required: bool,
}

/// The values to choose from, with their titles.
struct Choices {
    values: Vec<(String, String)>,
    is_multiple: bool,
}

/// Returns the fields of a form, in its order.
pub(crate) fn fields(form: &ElicitSchema) -> Vec<Field<'_>> {
    let is_required = |name: &String| form.required.iter().flatten().any(|it| it == name);
    let fields = form.properties.0.iter().map(|(name, schema)| Field {
        name,
        schema,
        is_required: is_required(name),
    });
    fields.collect()
}

impl Field<'_> {
    /// Returns what a person must know to answer: title, description, choices, limits and default.
    pub(crate) fn describe(self) -> Vec<String> {
        let json = serde_json::to_value(self.schema).unwrap_or_default();
        let text = |key: &str| json.get(key).and_then(Value::as_str).map(visible_line);
        let title = text("title").unwrap_or_else(|| visible_line(self.name));
        let mark = if self.is_required { "" } else { " (optional)" };
        let mut lines = vec![format!("{title}{mark}")];
        lines.extend(text("description").map(|it| format!("  {it}")));
        match self.choices() {
            Some(choices) => {
                for (at, (value, title)) in choices.values.iter().enumerate() {
                    let title = if title == value {
                        String::new()
                    } else {
                        format!("  {}", visible_line(title))
                    };
                    lines.push(format!("  {}) {}{title}", at + 1, visible_line(value)));
                }
                if choices.is_multiple {
                    lines.push("  several with commas between them".to_owned());
                }
            }
            None => lines.push(format!("  {}", self.kind_text(&json))),
        }
        lines
    }

    fn kind_text(self, json: &Value) -> String {
        let number = |key: &str| {
            json.get(key)
                .filter(|it| it.is_number())
                .map(ToString::to_string)
        };
        let limits = match (
            number("minimum").or_else(|| number("minLength")),
            number("maximum").or_else(|| number("maxLength")),
        ) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(" of at least {min}"),
            (None, Some(max)) => format!(" of at most {max}"),
            (None, None) => String::new(),
        };
        let format = json.get("format").and_then(Value::as_str);
        let format = format.map_or(String::new(), |it| format!(", {}", visible_line(it)));
        match self.schema {
            PrimitiveSchemaDefinition::Boolean(_) => "yes or no".to_owned(),
            PrimitiveSchemaDefinition::Number(it) if it.kind == NumberKind::Integer => {
                format!("integer{limits}")
            }
            PrimitiveSchemaDefinition::Number(_) => format!("number{limits}"),
            PrimitiveSchemaDefinition::String(_) if limits.is_empty() => format!("text{format}"),
            PrimitiveSchemaDefinition::String(_) => format!("text{format}, length{limits}"),
            _ => "JSON".to_owned(),
        }
    }

    /// Returns the default.
    pub(crate) fn default(self) -> Option<Value> {
        let json = serde_json::to_value(self.schema).ok()?;
        json.get("default").cloned()
    }

    /// Returns the value that a person typed, or a script gave.
    ///
    /// # Errors
    ///
    /// With what is expected.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let value = match (self.choices(), self.schema) {
            (Some(choices), _) => choices.parse(text)?,
            (None, PrimitiveSchemaDefinition::Boolean(_)) => match text.to_lowercase().as_str() {
                "y" | "yes" | "true" | "1" | "on" => Value::Bool(true),
                "n" | "no" | "false" | "0" | "off" => Value::Bool(false),
                _ => return Err("expected yes or no".to_owned()),
            },
            (None, PrimitiveSchemaDefinition::Number(_)) => {
                let integer = text.parse::<i64>().ok().map(Value::from);
                let number = || {
                    text.parse::<f64>()
                        .ok()
                        .and_then(serde_json::Number::from_f64)
                };
                let value = integer.or_else(|| number().map(Value::Number));
                value.ok_or_else(|| format!("expected a number, got `{text}`"))?
            }
            (None, PrimitiveSchemaDefinition::String(_)) => Value::String(text.to_owned()),
            (None, _) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
            }
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Checks a value against the limits of the field.
    fn check(self, value: &Value) -> Result<(), String> {
        let form = ElicitSchema::new().with_optional(self.name, self.schema.clone());
        let mut content = Map::new();
        content.insert(self.name.to_owned(), value.clone());
        let checked = check_form(&form, &Json::from(Value::Object(content)));
        checked.map_err(|invalid| invalid.to_string())
    }

    fn choices(self) -> Option<Choices> {
        let PrimitiveSchemaDefinition::Enum(schema) = self.schema else {
            return None;
        };
        let untitled =
            |values: &[String]| values.iter().map(|it| (it.clone(), it.clone())).collect();
        let (values, is_multiple) = match schema {
            EnumSchema::UntitledSingleSelect(it) => (untitled(&it.values), false),
            EnumSchema::UntitledMultiSelect(it) => (untitled(&it.items.values), true),
            EnumSchema::TitledSingleSelect(it) => {
                let values = it
                    .one_of
                    .iter()
                    .map(|it| (it.value.clone(), it.title.clone()));
                (values.collect(), false)
            }
            EnumSchema::TitledMultiSelect(it) => {
                let values = it
                    .items
                    .any_of
                    .iter()
                    .map(|it| (it.value.clone(), it.title.clone()));
                (values.collect(), true)
            }
            EnumSchema::LegacyTitled(it) => {
                let names = it.enum_names.as_deref().unwrap_or_default();
                let title = |at: usize, value: &String| names.get(at).unwrap_or(value).clone();
                let values = it.values.iter().enumerate();
                (
                    values
                        .map(|(at, value)| (value.clone(), title(at, value)))
                        .collect(),
                    false,
                )
            }
            _ => return None,
        };
        Some(Choices {
            values,
            is_multiple,
        })
    }
}

impl Choices {
    /// Accepts values, titles and numbers from 1.
    fn parse(&self, text: &str) -> Result<Value, String> {
        if !self.is_multiple {
            return self.parse_one(text).map(Value::String);
        }
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let values = items.map(|item| self.parse_one(item).map(Value::String));
        values.collect::<Result<_, _>>().map(Value::Array)
    }

    fn parse_one(&self, text: &str) -> Result<String, String> {
        let exact = self.values.iter().find(|(value, _)| value == text);
        let loose = || {
            let is_same = |it: &str| it.to_lowercase() == text.to_lowercase();
            (self.values.iter()).find(|(value, title)| is_same(value) || is_same(title))
        };
        let by_number = || {
            let number = text.parse::<usize>().ok()?;
            self.values.get(number.checked_sub(1)?)
        };
        let found = exact.or_else(loose).or_else(by_number);
        found.map(|(value, _)| value.clone()).ok_or_else(|| {
            let values: Vec<_> = self
                .values
                .iter()
                .map(|(value, _)| visible_line(value))
                .collect();
            format!("expected one of {}, got `{text}`", values.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form() -> ElicitSchema {
        serde_json::from_value(json!({"type": "object", "properties": {
            "name": {"type": "string", "minLength": 2},
            "email": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "ratio": {"type": "number", "default": 0.5},
            "vegan": {"type": "boolean", "default": false},
            "size": {"type": "string", "enum": ["S", "M"]},
            "colour": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 2},
            "old": {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]},
        }, "required": ["name", "age"]}))
        .unwrap()
    }

    fn parse(name: &str, text: &str) -> Result<Value, String> {
        let form = form();
        let field = fields(&form).into_iter().find(|field| field.name == name);
        field.unwrap().parse(text)
    }

    #[test]
    fn answers_have_the_type_of_their_field() {
        for (name, text, expected) in [
            ("name", " Ada ", json!("Ada")),
            ("email", "ada@example.com", json!("ada@example.com")),
            ("age", "36", json!(36)),
            ("ratio", "0.25", json!(0.25)),
            ("vegan", "Y", json!(true)),
            ("size", "m", json!("M")),
            ("size", "1", json!("S")),
            ("colour", "green", json!("#0f0")),
            ("colour", "#f00", json!("#f00")),
            ("tags", "a, 3", json!(["a", "c"])),
            ("old", "Two", json!("2")),
            ("old", "1", json!("1")),
        ] {
            assert_eq!(parse(name, text), Ok(expected), "{name}: {text}");
        }
    }

    #[test]
    fn answers_that_do_not_fit_are_refused_with_the_reason() {
        for (name, text, reason) in [
            ("name", "A", "name"),
            ("email", "ada", "email"),
            ("age", "-1", "at least 0"),
            ("age", "old", "expected a number"),
            ("age", "1.5", "age"),
            ("vegan", "perhaps", "yes or no"),
            ("size", "L", "expected one of S, M"),
            ("tags", "a,b,c", "tags"),
        ] {
            let why = parse(name, text).unwrap_err();
            assert!(why.contains(reason), "{name}: {why}");
        }
    }

    #[test]
    fn fields_say_what_they_expect() {
        let form = form();
        let describe = |name: &str| {
            let field = fields(&form).into_iter().find(|field| field.name == name);
            field.unwrap().describe().join("\n")
        };

        assert_eq!(describe("age"), "age\n  integer from 0 to 150");
        assert_eq!(describe("vegan"), "vegan (optional)\n  yes or no");
        assert_eq!(
            describe("colour"),
            "colour (optional)\n  1) #f00  Red\n  2) #0f0  Green"
        );
        assert!(describe("tags").ends_with("several with commas between them"));
        assert_eq!(describe("name"), "name\n  text, length of at least 2");
    }
}
