//! Validation of arguments and output against the JSON Schemas of their tool.

mod choices;

use bowline_core::json::outline;
use bowline_core::shortened;
use bowline_types::Json;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

use super::argument_names::ArgumentNames;

/// The compiled schemas of a tool.
#[derive(Debug)]
pub(super) struct SchemaValidators {
    input: SchemaValidator,
    names: ArgumentNames,
    output: Option<SchemaValidator>,
}

impl SchemaValidators {
    pub(super) fn compile(input: &Json, output: Option<&Json>) -> Result<Self, String> {
        let compile = |what: &str, schema: &Json| {
            SchemaValidator::compile(schema).map_err(|why| format!("invalid {what} schema: {why}"))
        };
        let input = compile("input", input)?;
        Ok(Self {
            names: ArgumentNames::of(&input.schema),
            input,
            output: output.map(|schema| compile("output", schema)).transpose()?,
        })
    }

    pub(super) fn arguments(&self, arguments: &Json) -> Result<(), String> {
        self.input.validate(arguments, Some(&self.names))
    }

    pub(super) fn output(&self, output: &Json) -> Result<(), String> {
        self.output
            .as_ref()
            .map_or(Ok(()), |schema| schema.validate(output, None))
    }
}

#[derive(Debug)]
struct SchemaValidator {
    validator: Validator,
    /// Explains errors.
    schema: Value,
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
            validator: compiled,
            max_string_len: if depends_on_strings(&schema) {
                usize::MAX
            } else {
                0
            },
            schema,
        })
    }

    /// Validates the value, whose members are arguments if there are `names`.
    fn validate(&self, value: &Json, names: Option<&ArgumentNames>) -> Result<(), String> {
        // The outline is cheap to decode, but its errors would show emptied strings.
        let outline = outline(value, self.max_string_len);
        if outline.is_some_and(|outline| self.validator.is_valid(&outline)) {
            return Ok(());
        }
        let value: Value = value.decode().map_err(|error| error.to_string())?;
        let errors: Vec<_> = self
            .validator
            .iter_errors(&value)
            .take(MAX_ERRORS)
            .flat_map(|error| self.error_texts(&error, names))
            .take(MAX_ERRORS)
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(errors.join("\n"))
    }

    fn error_texts(
        &self,
        error: &ValidationError<'_>,
        names: Option<&ArgumentNames>,
    ) -> Vec<String> {
        let names = names.filter(|_| error.instance_path().as_str().is_empty());
        match (error.kind(), names) {
            (
                ValidationErrorKind::AdditionalProperties { unexpected }
                | ValidationErrorKind::UnevaluatedProperties { unexpected },
                Some(names),
            ) => {
                let unknown = unexpected.iter().take(MAX_ERRORS);
                unknown.map(|name| names.unknown(name)).collect()
            }
            (ValidationErrorKind::Required { property }, Some(names)) => {
                let missing = property.as_str().unwrap_or_default();
                let given = error.instance().as_object().into_iter().flatten();
                let given = given.map(|(name, _)| name.as_str());
                let text = error_text(error);
                vec![match names.misspelled(missing, given) {
                    Some(unknown) => {
                        let unknown = shortened(unknown);
                        format!("{text}; did you mean it by `{unknown}`, which is unknown?")
                    }
                    None => text,
                }]
            }
            _ => {
                let choices = choices::describe(&self.schema, error);
                choices.unwrap_or_else(|| vec![error_text(error)])
            }
        }
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
    // `jsonschema` quotes the whole value, which may be megabytes long.
    located(error, shortened(error).to_string())
}

/// Returns the text with the path of the invalid value.
fn located(error: &ValidationError<'_>, mut text: String) -> String {
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

            let result = validator.validate(&json!({"a": text}).into(), None);

            assert_eq!(result.is_ok(), fits, "{schema}: {result:?}");
        }
    }

    #[test]
    fn unique_items_compares_the_text_of_strings() {
        let pair = |a: &str, b: &str| Json::from(json!({"a": [a.repeat(999), b.repeat(999)]}));
        let schema = json!({"type": "object", "properties": {"a": {"uniqueItems": true}}});

        let validator = SchemaValidator::compile(&schema.into()).unwrap();

        assert!(validator.validate(&pair("x", "y"), None).is_ok());
        assert!(validator.validate(&pair("x", "x"), None).is_err());
    }

    #[test]
    fn an_error_quotes_the_original_string() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let validator = SchemaValidator::compile(&schema.into()).unwrap();

        let errors = validator.validate(&json!({"a": "x".repeat(999)}).into(), None);

        assert!(errors.unwrap_err().contains("xxx"));
    }

    fn refused(schema: Value, arguments: Value) -> String {
        let validators = SchemaValidators::compile(&schema.into(), None).unwrap();
        validators.arguments(&arguments.into()).unwrap_err()
    }

    #[test]
    fn an_unknown_argument_is_named_with_the_one_that_was_meant() {
        let closed = json!({
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {}},
            "required": ["city"],
            "additionalProperties": false,
        });
        let open = json!({"type": "object", "properties": {"city": {}}, "required": ["city"]});

        assert_eq!(
            refused(closed.clone(), json!({"city": "Oslo", "unti": 1})),
            "unknown argument `unti`; did you mean `unit`?"
        );
        assert_eq!(
            refused(open.clone(), json!({"cty": "Oslo"})),
            "\"city\" is a required property; did you mean it by `cty`, which is unknown?"
        );
        assert_eq!(
            refused(open, json!({"a": 1})),
            "\"city\" is a required property"
        );
        let many: Value = (0..99_999).map(|n| (n.to_string(), json!(1))).collect();
        assert!(refused(closed, many).lines().count() <= MAX_ERRORS);
    }

    #[test]
    fn members_of_a_choice_are_known_arguments() {
        let schema = json!({
            "type": "object",
            "oneOf": [
                {"type": "object", "properties": {"path": {}}, "required": ["path"]},
                {"type": "object", "properties": {"url": {}}, "required": ["url"]},
            ],
            "unevaluatedProperties": false,
        });

        assert_eq!(
            refused(schema, json!({"path": "/", "ulr": 1})),
            "unknown argument `ulr`; did you mean `url`?"
        );
    }

    /// Returns the errors of an argument `shape` of the type `T`.
    fn wrong_shape<T: schemars::JsonSchema>(shape: &Value) -> String {
        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Draw<T> {
            shape: Option<T>,
        }

        let schema = crate::server::schema::of_input::<Draw<T>>();
        let schema = crate::server::schema::accepting_null(&schema);
        refused(schema.decode().unwrap(), json!({"shape": shape}))
    }

    #[test]
    fn a_wrong_variant_is_answered_with_the_variants_in_every_representation() {
        #[derive(schemars::JsonSchema)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Tagged {
            Circle { radius: f64 },
            Square { side: f64 },
        }
        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum External {
            Dot,
            Line,
            Circle { radius: f64 },
        }
        #[derive(schemars::JsonSchema)]
        #[serde(untagged)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Untagged {
            Name(String),
            Circle { radius: f64 },
        }
        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Documented {
            /// the first
            Near,
            /// the second
            Far,
        }

        for (errors, expected) in [
            (
                wrong_shape::<Tagged>(&json!({"kind": "circl", "radius": 1})),
                "/shape: expected `kind` to be one of `circle`, `square`; got \"circl\"",
            ),
            (
                wrong_shape::<Tagged>(&json!({"radius": 1})),
                "/shape: expected `kind` to be one of `circle`, `square`; it is missing",
            ),
            (
                wrong_shape::<Tagged>(&json!("circle")),
                "/shape: expected `kind` to be one of `circle`, `square`; got \"circle\"",
            ),
            (
                wrong_shape::<Tagged>(&json!({"kind": "square"})),
                "/shape: \"side\" is a required property",
            ),
            (
                wrong_shape::<External>(&json!("Cirle")),
                "/shape: expected one of `\"Dot\"`, `\"Line\"`, `{\"Circle\": …}`; got \"Cirle\"",
            ),
            (
                wrong_shape::<External>(&json!({"Circle": {"radius": "1"}})),
                "/shape/Circle/radius: \"1\" is not of type \"number\"",
            ),
            (
                wrong_shape::<Untagged>(&json!(1)),
                "/shape: expected one of a string, an object with `radius`; got 1",
            ),
            (
                wrong_shape::<Documented>(&json!("Afar")),
                "/shape: expected one of `\"Near\"`, `\"Far\"`; got \"Afar\"",
            ),
        ] {
            assert_eq!(errors, expected);
        }
    }

    #[test]
    fn choices_are_bounded_in_number_and_length() {
        let names: Vec<String> = (0..500)
            .map(|n| format!("{n}{}", "x".repeat(999)))
            .collect();
        let choices: Vec<Value> = names.iter().map(|name| json!({"const": name})).collect();
        let schema = json!({"type": "object", "properties": {"a": {"oneOf": choices}}});

        let error = refused(schema, json!({"a": "y".repeat(9999)}));

        assert!(error.len() < 2 * MAX_ERROR_CHARS, "{}", error.len());
    }
}
