//! `Mcp-Param-*` headers: tool arguments whose schema has the keyword `x-mcp-header`.
//!
//! The input schema is read once into [`ParamHeaders`]. A client hides a tool with an invalid annotation; a server
//! refuses to register it.

use std::fmt;
use std::sync::Arc;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use bowline_types::Json;
use serde_json::{Map, Number, Value};

use super::{
    HeaderMismatch, PARAM_PREFIX, UnencodableHeader, decoded, encode_value, required, single_value,
};

/// The mirrored arguments of a tool and their headers.
///
/// # Examples
///
/// ```
/// use bowline_core::http::headers::ParamHeaders;
/// use bowline_types::Json;
///
/// let schema = Json::parse(
///     r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#,
/// )?;
/// let plan = ParamHeaders::read(&schema)?;
/// let mut headers = http::HeaderMap::new();
/// plan.mirror(Some(&Json::parse(r#"{"region":"us-west1"}"#)?), &mut headers)?;
/// assert_eq!(headers["mcp-param-region"], "us-west1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    params: Vec<ParamHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParamHeader {
    header: HeaderName,
    /// `Arc`, because the name of a parent may be as long as the schema and would be copied for each of its properties.
    path: Vec<Arc<str>>,
}

impl ParamHeaders {
    /// Reads the `x-mcp-header` annotations of a tool's input schema.
    ///
    /// # Errors
    ///
    /// If an annotation is invalid, there are more than [`MAX_PARAM_HEADERS`], or an annotated schema exceeds
    /// [`MAX_ANNOTATED_SCHEMA`] bytes. The tool must not be used over HTTP then.
    pub fn read(input_schema: &Json) -> Result<Self, InvalidAnnotation> {
        // Most schemas have no annotations and need not be decoded.
        if !input_schema.as_str().contains("x-mcp-header") {
            return Ok(Self::default());
        }
        let invalid = |why| InvalidAnnotation {
            property: String::new(),
            why,
        };
        // A decoded `Value` takes many times the memory of its text.
        if input_schema.as_bytes().len() > MAX_ANNOTATED_SCHEMA {
            return Err(invalid(AnnotationDefect::SchemaTooLong));
        }
        let schema: Value = input_schema
            .decode()
            .map_err(|_| invalid(AnnotationDefect::NotASchema))?;
        let mut scan = SchemaScan::default();
        scan.schema(&schema, Reach::ByProperties)?;
        Ok(Self { params: scan.found })
    }

    /// Returns whether no argument is mirrored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// Returns the headers in the order of their properties.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.params.iter().map(|param| &param.header)
    }

    /// Adds the headers of a call with these arguments to `out`. Absent and `null` arguments have no header.
    ///
    /// # Errors
    ///
    /// If an argument cannot be encoded: a fraction, an object, an array, or an integer beyond ±(2^53 − 1).
    pub fn mirror(
        &self,
        arguments: Option<&Json>,
        out: &mut HeaderMap,
    ) -> Result<(), UnencodableHeader> {
        if self.is_empty() {
            return Ok(());
        }
        let arguments = read_arguments(arguments);
        for param in &self.params {
            if let Some(argument) = param.argument(&arguments) {
                out.insert(param.header.clone(), param.value(argument)?);
            }
        }
        Ok(())
    }

    /// Checks that the headers equal the arguments. Other `Mcp-Param-*` headers are ignored.
    ///
    /// # Errors
    ///
    /// If a header is missing, repeated, undecodable or different, or its argument is absent.
    pub fn check(
        &self,
        arguments: Option<&Json>,
        headers: &HeaderMap,
    ) -> Result<(), HeaderMismatch> {
        if self.is_empty() {
            return Ok(());
        }
        let arguments = read_arguments(arguments);
        for param in &self.params {
            match param.argument(&arguments) {
                Some(argument) => param.check(argument, headers)?,
                None if single_value(headers, &param.header)?.is_none() => {}
                None => {
                    let why = "mirrors an argument that is absent from the body";
                    return Err(HeaderMismatch::new(&param.header, why));
                }
            }
        }
        Ok(())
    }
}

impl ParamHeader {
    fn argument<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path
            .iter()
            .try_fold(arguments, |value, name| value.get(&**name))
            .filter(|value| !value.is_null())
    }

    fn value(&self, argument: &Value) -> Result<HeaderValue, UnencodableHeader> {
        let unencodable = || UnencodableHeader {
            header: self.header.clone(),
            value: argument.to_string(),
        };
        match argument {
            Value::String(text) => Ok(encode_value(text)),
            Value::Bool(flag) => Ok(encode_value(&flag.to_string())),
            Value::Number(number) => integer(number)
                .map(HeaderValue::from)
                .ok_or_else(unencodable),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(unencodable()),
        }
    }

    fn check(&self, argument: &Value, headers: &HeaderMap) -> Result<(), HeaderMismatch> {
        let seen = decoded(&self.header, required(headers, &self.header)?)?;
        let agrees = match argument {
            Value::String(text) => seen == *text,
            Value::Bool(flag) => seen == flag.to_string(),
            // `42` and `42.0` are equal, in the header and in the body.
            Value::Number(number) => {
                let seen: Option<Number> = serde_json::from_str(&seen).ok();
                let body = integer(number);
                body.is_some() && seen.as_ref().and_then(integer) == body
            }
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        if !agrees {
            return Err(HeaderMismatch::differs(
                &self.header,
                &seen,
                &argument.to_string(),
            ));
        }
        Ok(())
    }
}

/// An invalid `x-mcp-header` annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x-mcp-header of property `{property}`: {why}")]
#[non_exhaustive]
pub struct InvalidAnnotation {
    /// The path of the property from the root of the schema, such as `address.city`.
    pub property: String,
    /// The rule that it breaks.
    pub why: AnnotationDefect,
}

/// The rule that an annotation breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnnotationDefect {
    /// The schema could not be decoded.
    NotASchema,
    /// The annotation is not a string.
    NotAString,
    /// The name is empty or not a valid header name.
    NotAToken(String),
    /// Another property has the same header name, ignoring case.
    Repeated(String),
    /// The property's `type` is not `string`, `integer` or `boolean`.
    WrongType,
    /// It is not on a property that is reachable through `properties` alone.
    NotReachable,
    /// The tool has more than [`MAX_PARAM_HEADERS`] annotations.
    TooManyHeaders,
    /// The schema exceeds [`MAX_ANNOTATED_SCHEMA`] bytes.
    SchemaTooLong,
}

impl fmt::Display for AnnotationDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASchema => f.write_str("failed to decode the schema"),
            Self::NotAString => f.write_str("expected a string"),
            Self::NotAToken(name) => write!(f, "{name:?} is not a valid header name"),
            Self::Repeated(name) => write!(f, "duplicate header name {name:?}"),
            Self::WrongType => f.write_str("expected type string, integer or boolean"),
            Self::NotReachable => f.write_str("not reachable through `properties` alone"),
            Self::TooManyHeaders => {
                write!(
                    f,
                    "the tool exceeds the limit of {MAX_PARAM_HEADERS} headers"
                )
            }
            Self::SchemaTooLong => {
                write!(
                    f,
                    "the schema exceeds the limit of {MAX_ANNOTATED_SCHEMA} bytes"
                )
            }
        }
    }
}

/// How a schema was reached from the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    ByProperties,
    Otherwise,
}

/// A traversal of the subschemas of a schema. It skips other values, so that a *property* named `x-mcp-header`, or the
/// word in a default value, is not mistaken for an annotation.
#[derive(Default)]
struct SchemaScan {
    path: Vec<Arc<str>>,
    found: Vec<ParamHeader>,
}

impl SchemaScan {
    fn schema(&mut self, schema: &Value, reach: Reach) -> Result<(), InvalidAnnotation> {
        let Value::Object(schema) = schema else {
            return Ok(());
        };
        if let Some(annotation) = schema.get("x-mcp-header") {
            let param = self
                .annotation(annotation, schema, reach)
                .map_err(|defect| self.invalid(defect))?;
            self.found.push(param);
        }
        for (keyword, value) in schema {
            match keyword_content(keyword) {
                KeywordContent::Properties => self.named(value, reach)?,
                KeywordContent::NamedSchemas => self.named(value, Reach::Otherwise)?,
                KeywordContent::Schemas => self.anonymous(keyword, value)?,
                KeywordContent::NoSchema => {}
            }
        }
        Ok(())
    }

    fn named(&mut self, schemas: &Value, reach: Reach) -> Result<(), InvalidAnnotation> {
        let Value::Object(schemas) = schemas else {
            return Ok(());
        };
        for (name, schema) in schemas {
            self.path.push(name.as_str().into());
            self.schema(schema, reach)?;
            self.path.pop();
        }
        Ok(())
    }

    fn anonymous(&mut self, keyword: &str, value: &Value) -> Result<(), InvalidAnnotation> {
        self.path.push(keyword.into());
        match value {
            Value::Array(schemas) => schemas
                .iter()
                .try_for_each(|schema| self.schema(schema, Reach::Otherwise))?,
            schema => self.schema(schema, Reach::Otherwise)?,
        }
        self.path.pop();
        Ok(())
    }

    fn annotation(
        &self,
        annotation: &Value,
        property: &Map<String, Value>,
        reach: Reach,
    ) -> Result<ParamHeader, AnnotationDefect> {
        if reach == Reach::Otherwise || self.path.is_empty() {
            return Err(AnnotationDefect::NotReachable);
        }
        let name = annotation.as_str().ok_or(AnnotationDefect::NotAString)?;
        let header = Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| HeaderName::try_from(format!("{PARAM_PREFIX}{name}")).ok())
            .ok_or_else(|| AnnotationDefect::NotAToken(name.to_owned()))?;
        if self.found.len() == MAX_PARAM_HEADERS {
            return Err(AnnotationDefect::TooManyHeaders);
        }
        // A linear scan: `MAX_PARAM_HEADERS` bounds it.
        if self.found.iter().any(|param| param.header == header) {
            return Err(AnnotationDefect::Repeated(name.to_owned()));
        }
        match property.get("type").and_then(Value::as_str) {
            Some("string" | "integer" | "boolean") => {}
            _ => return Err(AnnotationDefect::WrongType),
        }
        let path = self.path.clone();
        Ok(ParamHeader { header, path })
    }

    fn invalid(&self, why: AnnotationDefect) -> InvalidAnnotation {
        InvalidAnnotation {
            property: self.path.join("."),
            why,
        }
    }
}

/// What the value of a schema keyword contains.
enum KeywordContent {
    Properties,
    NamedSchemas,
    Schemas,
    NoSchema,
}

fn keyword_content(keyword: &str) -> KeywordContent {
    match keyword {
        "properties" => KeywordContent::Properties,
        "$defs" | "definitions" | "patternProperties" | "dependentSchemas" | "dependencies" => {
            KeywordContent::NamedSchemas
        }
        "allOf"
        | "anyOf"
        | "oneOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "items"
        | "prefixItems"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "contentSchema" => KeywordContent::Schemas,
        _ => KeywordContent::NoSchema,
    }
}

/// Decodes the arguments. Absent and undecodable arguments have no members; the latter are reported elsewhere.
fn read_arguments(arguments: Option<&Json>) -> Value {
    arguments
        .and_then(|arguments| arguments.decode().ok())
        .unwrap_or(Value::Null)
}

/// Returns the number if it is an integer that every JSON parser represents exactly; `4.2e1` is 42.
fn integer(number: &Number) -> Option<i64> {
    if let Some(integer) = number.as_i64() {
        return Some(integer).filter(|integer| integer.unsigned_abs() <= MAX_SAFE_INTEGER);
    }
    let float = number.as_f64()?;
    let is_exact = float.fract() == 0.0 && float.abs() <= MAX_SAFE_INTEGER as f64;
    is_exact.then_some(float as i64)
}

/// The maximum number of mirrored arguments of one tool: 64.
///
/// Many HTTP implementations accept at most 100 headers in total.
pub const MAX_PARAM_HEADERS: usize = 64;

/// The maximum length of a schema with `x-mcp-header` annotations: 1 MiB. `serde_json` limits its depth to 127.
pub const MAX_ANNOTATED_SCHEMA: usize = 1024 * 1024;

/// 2^53 − 1: the largest integer that an `f64` distinguishes from its neighbours.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
