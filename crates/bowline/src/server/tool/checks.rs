//! Arguments and output against the schemas of their tool.

use bowline_types::Json;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// The schemas of a tool, compiled.
#[derive(Debug)]
pub(super) struct Checks {
    input: Validator,
    output: Option<Validator>,
}

impl Checks {
    /// Compiles the schemas. Nothing is fetched: a reference must lead to a place in the same schema.
    pub(super) fn compile(input: &Json, output: Option<&Json>) -> Result<Self, String> {
        let compile = |what: &str, schema: &Json| {
            compile(schema).map_err(|why| format!("its {what} schema is not valid: {why}"))
        };
        Ok(Self {
            input: compile("input", input)?,
            output: output.map(|schema| compile("output", schema)).transpose()?,
        })
    }

    /// What is wrong with these arguments, one line for each complaint.
    pub(super) fn arguments(&self, arguments: &Json) -> Result<(), String> {
        complaints(&self.input, arguments)
    }

    /// What is wrong with this output.
    pub(super) fn output(&self, output: &Json) -> Result<(), String> {
        self.output
            .as_ref()
            .map_or(Ok(()), |schema| complaints(schema, output))
    }
}

fn compile(schema: &Json) -> Result<Validator, String> {
    let schema: Value = schema.decode().map_err(|error| error.to_string())?;
    let mut options = jsonschema::options();
    if schema.get("$schema").is_none() {
        options = options.with_draft(Draft::Draft202012);
    }
    options.build(&schema).map_err(|error| complaint(&error))
}

fn complaints(schema: &Validator, value: &Json) -> Result<(), String> {
    let value: Value = value.decode().map_err(|error| error.to_string())?;
    if schema.is_valid(&value) {
        return Ok(());
    }
    let complaints: Vec<_> = schema
        .iter_errors(&value)
        .take(MOST_COMPLAINTS)
        .map(|error| complaint(&error))
        .collect();
    Err(complaints.join("\n"))
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
        path => format!("{path}: {text}"),
    }
}

const MOST_COMPLAINTS: usize = 8;
const LONGEST_COMPLAINT: usize = 300;
