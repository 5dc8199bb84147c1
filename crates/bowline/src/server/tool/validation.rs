//! Validation of arguments and output against the JSON Schemas of their tool.

use bowline_core::json::outline;
use bowline_core::shortened;
use bowline_types::Json;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// The compiled schemas of a tool.
#[derive(Debug)]
pub(super) struct SchemaValidators {
    input: SchemaValidator,
    output: Option<SchemaValidator>,
}

impl SchemaValidators {
    pub(super) fn compile(input: &Json, output: Option<&Json>) -> Result<Self, String> {
        let compile = |what: &str, schema: &Json| {
            SchemaValidator::compile(schema).map_err(|why| format!("invalid {what} schema: {why}"))
        };
        Ok(Self {
            input: compile("input", input)?,
            output: output.map(|schema| compile("output", schema)).transpose()?,
        })
    }

    pub(super) fn arguments(&self, arguments: &Json) -> Result<(), String> {
        self.input.validate(arguments)
    }

    pub(super) fn output(&self, output: &Json) -> Result<(), String> {
        self.output
            .as_ref()
            .map_or(Ok(()), |schema| schema.validate(output))
    }
}

#[derive(Debug)]
struct SchemaValidator {
    schema: Validator,
    /// Longer strings are validated as empty ones, which saves decoding them; `usize::MAX` if their text matters.
    max_string_len: usize,
}

impl SchemaValidator {
    fn compile(schema: &Json) -> Result<Self, String> {
        let schema: Value = schema.decode().map_err(|error| error.to_string())?;
        let mut options = jsonschema::options();
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        let compiled = options.build(&schema).map_err(|error| error_text(&error))?;
        Ok(Self {
            schema: compiled,
            max_string_len: if depends_on_strings(&schema) {
                usize::MAX
            } else {
                0
            },
        })
    }

    fn validate(&self, value: &Json) -> Result<(), String> {
        // The outline is cheap to decode, but its errors would show emptied strings.
        let outline = outline(value, self.max_string_len);
        if outline.is_some_and(|outline| self.schema.is_valid(&outline)) {
            return Ok(());
        }
        let value: Value = value.decode().map_err(|error| error.to_string())?;
        let errors: Vec<_> = self
            .schema
            .iter_errors(&value)
            .take(MAX_ERRORS)
            .map(|error| error_text(&error))
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(errors.join("\n"))
    }
}

/// Returns whether validation may depend on the text of a string, and not only on its type. Errs on the side of
/// `true`: a member with the name of a keyword need not be a keyword.
fn depends_on_strings(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            // `$ref`, `$dynamicRef` or `$recursiveRef` to another document, whose keywords are unknown here.
            let is_external_ref = name.starts_with('$')
                && name.ends_with("ef")
                && value.as_str().is_none_or(|target| !target.starts_with('#'));
            STRING_KEYWORDS.contains(&&**name) || is_external_ref || depends_on_strings(value)
        }),
        Value::Array(items) => items.iter().any(depends_on_strings),
        _ => false,
    }
}

fn error_text(error: &ValidationError<'_>) -> String {
    let mut text = error.to_string();
    // `jsonschema` quotes the whole value, which may be long.
    if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    match error.instance_path().as_str() {
        "" => text,
        path => format!("{}: {text}", shortened(path)),
    }
}

/// The keywords that read strings, or may introduce other keywords that do.
const STRING_KEYWORDS: [&str; 12] = [
    "$schema",
    "const",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "discriminator",
    "enum",
    "format",
    "maxLength",
    "minLength",
    "pattern",
    "uniqueItems",
];

const MAX_ERRORS: usize = 8;
const MAX_ERROR_CHARS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_string_is_validated_as_if_it_were_decoded() {
        let (text, other) = ("x".repeat(9), "y".repeat(9));
        let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
        for (schema, fits) in [
            (json!({"type": "string"}), true),
            (json!({"type": "integer"}), false),
            (json!({"maxLength": 8}), false),
            (json!({"maxLength": 9}), true),
            (json!({"minLength": 1}), true),
            (json!({"pattern": "y"}), false),
            (json!({"pattern": "x$"}), true),
            (json!({"const": text}), true),
            (json!({"const": ""}), false),
            (json!({"enum": ["", other]}), false),
            (json!({"not": {"const": ""}}), true),
            (
                json!({"anyOf": [{"type": "null"}, {"not": {"enum": [""]}}]}),
                true,
            ),
            (
                json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
                false,
            ),
        ] {
            let validator = SchemaValidator::compile(&of(schema.clone()).into()).unwrap();

            let result = validator.validate(&json!({"a": text}).into());

            assert_eq!(result.is_ok(), fits, "{schema}: {result:?}");
        }
    }

    #[test]
    fn unique_items_compares_the_text_of_strings() {
        let pair = |a: &str, b: &str| Json::from(json!({"a": [a.repeat(999), b.repeat(999)]}));
        let schema = json!({"type": "object", "properties": {"a": {"uniqueItems": true}}});

        let validator = SchemaValidator::compile(&schema.into()).unwrap();

        assert!(validator.validate(&pair("x", "y")).is_ok());
        assert!(validator.validate(&pair("x", "x")).is_err());
    }

    #[test]
    fn an_error_quotes_the_original_string() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let validator = SchemaValidator::compile(&schema.into()).unwrap();

        let errors = validator.validate(&json!({"a": "x".repeat(999)}).into());

        assert!(errors.unwrap_err().contains("xxx"));
    }
}
