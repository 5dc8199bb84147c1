//! Arguments and output against the schemas of their tool.

use bowline_core::json::outline;
use bowline_core::shortened;
use bowline_types::Json;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// The schemas of a tool, compiled.
#[derive(Debug)]
pub(super) struct Checks {
    input: Check,
    output: Option<Check>,
}

impl Checks {
    pub(super) fn compile(input: &Json, output: Option<&Json>) -> Result<Self, String> {
        let compile = |what: &str, schema: &Json| {
            Check::compile(schema).map_err(|why| format!("its {what} schema is not valid: {why}"))
        };
        Ok(Self {
            input: compile("input", input)?,
            output: output.map(|schema| compile("output", schema)).transpose()?,
        })
    }

    pub(super) fn arguments(&self, arguments: &Json) -> Result<(), String> {
        self.input.complaints(arguments)
    }

    pub(super) fn output(&self, output: &Json) -> Result<(), String> {
        self.output
            .as_ref()
            .map_or(Ok(()), |schema| schema.complaints(output))
    }
}

#[derive(Debug)]
struct Check {
    schema: Validator,
    /// How long a string may be to be shown to the schema.
    longest: usize,
}

impl Check {
    fn compile(schema: &Json) -> Result<Self, String> {
        let schema: Value = schema.decode().map_err(|error| error.to_string())?;
        let mut options = jsonschema::options();
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        let compiled = options.build(&schema).map_err(|error| complaint(&error))?;
        Ok(Self {
            schema: compiled,
            longest: if may_read_strings(&schema) {
                usize::MAX
            } else {
                0
            },
        })
    }

    fn complaints(&self, value: &Json) -> Result<(), String> {
        let outline = outline(value, self.longest);
        if outline.is_some_and(|outline| self.schema.is_valid(&outline)) {
            return Ok(());
        }
        let value: Value = value.decode().map_err(|error| error.to_string())?;
        let complaints: Vec<_> = self
            .schema
            .iter_errors(&value)
            .take(MOST_COMPLAINTS)
            .map(|error| complaint(&error))
            .collect();
        if complaints.is_empty() {
            return Ok(());
        }
        Err(complaints.join("\n"))
    }
}

/// Whether it may matter to a schema what a string says, rather than that it is one. A member of that name
/// need not be a keyword, so this is true too often rather than too rarely.
fn may_read_strings(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let leads_elsewhere = name.starts_with('$')
                && name.ends_with("ef")
                && value.as_str().is_none_or(|target| !target.starts_with('#'));
            READERS.contains(&&**name) || leads_elsewhere || may_read_strings(value)
        }),
        Value::Array(items) => items.iter().any(may_read_strings),
        _ => false,
    }
}

fn complaint(error: &ValidationError<'_>) -> String {
    let mut text = error.to_string();
    // The value is quoted in full, however long it is.
    if let Some((end, _)) = text.char_indices().nth(LONGEST_COMPLAINT) {
        text.truncate(end);
        text.push('…');
    }
    match error.instance_path().as_str() {
        "" => text,
        path => format!("{}: {text}", shortened(path)),
    }
}

/// The keywords that read strings, and what may bring others with it.
const READERS: [&str; 12] = [
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

const MOST_COMPLAINTS: usize = 8;
const LONGEST_COMPLAINT: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_string_is_judged_as_if_it_were_read() {
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
            let check = Check::compile(&of(schema.clone()).into()).unwrap();

            let judged = check.complaints(&json!({"a": text}).into());

            assert_eq!(judged.is_ok(), fits, "{schema}: {judged:?}");
        }
    }

    #[test]
    fn strings_are_told_apart_where_a_schema_asks_for_it() {
        let pair = |a: &str, b: &str| Json::from(json!({"a": [a.repeat(999), b.repeat(999)]}));
        let schema = json!({"type": "object", "properties": {"a": {"uniqueItems": true}}});

        let check = Check::compile(&schema.into()).unwrap();

        assert!(check.complaints(&pair("x", "y")).is_ok());
        assert!(check.complaints(&pair("x", "x")).is_err());
    }

    #[test]
    fn what_is_wrong_with_a_string_is_said_in_its_own_words() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let check = Check::compile(&schema.into()).unwrap();

        let complaints = check.complaints(&json!({"a": "x".repeat(999)}).into());

        assert!(complaints.unwrap_err().contains("xxx"));
    }
}
