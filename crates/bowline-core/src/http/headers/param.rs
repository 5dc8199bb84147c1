//! `Mcp-Param-*`: arguments of a tool that its schema wants mirrored, by the keyword `x-mcp-header`.
//!
//! The schema is read once into a plan. A client that meets a bad annotation hides the tool; a server
//! refuses to register it.

use std::fmt;
use std::sync::Arc;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use bowline_types::Json;
use serde_json::{Map, Number, Value};

use super::{Mismatch, PARAM_PREFIX, Unmirrorable, decoded, encode_value, required, single};

/// Which arguments of a tool are mirrored, and where.
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
    /// Shared with its siblings: a name may be as long as the schema, and stand above all of them.
    path: Vec<Arc<str>>,
}

impl ParamHeaders {
    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    ///
    /// If one of them breaks the rules; the tool must not be used over HTTP then. A tool has at most
    /// [`MAX_PARAM_HEADERS`] of them, in a schema of at most [`MAX_ANNOTATED_SCHEMA`] bytes.
    pub fn read(input_schema: &Json) -> Result<Self, BadAnnotation> {
        // Most schemas have none, and need not be taken apart to see it.
        if !input_schema.as_str().contains("x-mcp-header") {
            return Ok(Self::default());
        }
        let unreadable = |why| BadAnnotation {
            property: String::new(),
            why,
        };
        // Decoded, it takes many times the memory of its text.
        if input_schema.as_bytes().len() > MAX_ANNOTATED_SCHEMA {
            return Err(unreadable(WhyBad::SchemaTooLong));
        }
        let schema: Value = input_schema
            .decode()
            .map_err(|_| unreadable(WhyBad::NotASchema))?;
        let mut scan = Scan::default();
        scan.schema(&schema, Reach::ByProperties)?;
        Ok(Self { params: scan.found })
    }

    /// Whether no argument is mirrored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// The headers of the plan, in the order of their properties.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.params.iter().map(|param| &param.header)
    }

    /// Adds the headers for a call with these arguments to `out`. An argument that is absent or `null`
    /// has none.
    ///
    /// # Errors
    ///
    /// If an argument has no form as a header: a fraction, an object, an array, or a number so large that
    /// not every reader keeps it exactly.
    pub fn mirror(
        &self,
        arguments: Option<&Json>,
        out: &mut HeaderMap,
    ) -> Result<(), Unmirrorable> {
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

    /// Checks that the headers say what the arguments say. Headers outside the plan do not count.
    ///
    /// # Errors
    ///
    /// If a header is missing, repeated, undecodable, says something else, or mirrors an argument that is
    /// not there.
    pub fn check(&self, arguments: Option<&Json>, headers: &HeaderMap) -> Result<(), Mismatch> {
        if self.is_empty() {
            return Ok(());
        }
        let arguments = read_arguments(arguments);
        for param in &self.params {
            match param.argument(&arguments) {
                Some(argument) => param.check(argument, headers)?,
                None if single(headers, &param.header)?.is_none() => {}
                None => {
                    let why = "mirrors an argument that the body does not have";
                    return Err(Mismatch::new(&param.header, why));
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

    fn value(&self, argument: &Value) -> Result<HeaderValue, Unmirrorable> {
        let unmirrorable = || Unmirrorable {
            header: self.header.clone(),
            value: argument.to_string(),
        };
        match argument {
            Value::String(text) => Ok(encode_value(text)),
            Value::Bool(flag) => Ok(encode_value(&flag.to_string())),
            Value::Number(number) => integer(number)
                .map(HeaderValue::from)
                .ok_or_else(unmirrorable),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(unmirrorable()),
        }
    }

    fn check(&self, argument: &Value, headers: &HeaderMap) -> Result<(), Mismatch> {
        let seen = decoded(&self.header, required(headers, &self.header)?)?;
        let agrees = match argument {
            Value::String(text) => seen == *text,
            Value::Bool(flag) => seen == flag.to_string(),
            // `42` and `42.0` are the same integer, on either side.
            Value::Number(number) => {
                let seen: Option<Number> = serde_json::from_str(&seen).ok();
                let body = integer(number);
                body.is_some() && seen.as_ref().and_then(integer) == body
            }
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        if !agrees {
            return Err(Mismatch::differs(
                &self.header,
                &seen,
                &argument.to_string(),
            ));
        }
        Ok(())
    }
}

/// An annotation that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x-mcp-header of property `{property}`: {why}")]
#[non_exhaustive]
pub struct BadAnnotation {
    /// The property, as a path from the root of the schema: `address.city`.
    pub property: String,
    /// Which rule it breaks.
    pub why: WhyBad,
}

/// The rule that an annotation breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyBad {
    /// The schema is no JSON that can be read.
    NotASchema,
    /// The annotation is not a string.
    NotAString,
    /// The name is empty or has characters that a header name cannot have.
    NotAToken(String),
    /// Another property has the same name, ignoring case.
    Repeated(String),
    /// The property's type is not exactly one of string, integer and boolean.
    WrongType,
    /// It does not stand on a property that is reached through `properties` alone.
    OutOfReach,
    /// The tool has more annotations than [`MAX_PARAM_HEADERS`].
    TooManyHeaders,
    /// The schema is longer than [`MAX_ANNOTATED_SCHEMA`].
    SchemaTooLong,
}

impl fmt::Display for WhyBad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASchema => f.write_str("the schema cannot be read"),
            Self::NotAString => f.write_str("it is not a string"),
            Self::NotAToken(name) => write!(f, "{name:?} is not a header name"),
            Self::Repeated(name) => write!(f, "{name:?} is taken by another property"),
            Self::WrongType => f.write_str("the type is not one of string, integer, boolean"),
            Self::OutOfReach => f.write_str("it is not reached through `properties` alone"),
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

/// A walk over a schema that knows where schemas stand in it, so that a *property* called `x-mcp-header`,
/// or the word in a default value, is not taken for an annotation.
#[derive(Default)]
struct Scan {
    path: Vec<Arc<str>>,
    found: Vec<ParamHeader>,
}

impl Scan {
    fn schema(&mut self, schema: &Value, reach: Reach) -> Result<(), BadAnnotation> {
        let Value::Object(schema) = schema else {
            return Ok(());
        };
        if let Some(annotation) = schema.get("x-mcp-header") {
            let param = self
                .annotation(annotation, schema, reach)
                .map_err(|why| self.bad(why))?;
            self.found.push(param);
        }
        for (keyword, value) in schema {
            match holds(keyword) {
                Holds::Properties => self.named(value, reach)?,
                Holds::NamedSchemas => self.named(value, Reach::Otherwise)?,
                Holds::Schemas => self.anonymous(keyword, value)?,
                Holds::NoSchema => {}
            }
        }
        Ok(())
    }

    fn named(&mut self, schemas: &Value, reach: Reach) -> Result<(), BadAnnotation> {
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

    fn anonymous(&mut self, keyword: &str, value: &Value) -> Result<(), BadAnnotation> {
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
    ) -> Result<ParamHeader, WhyBad> {
        if reach == Reach::Otherwise || self.path.is_empty() {
            return Err(WhyBad::OutOfReach);
        }
        let name = annotation.as_str().ok_or(WhyBad::NotAString)?;
        let header = Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| HeaderName::try_from(format!("{PARAM_PREFIX}{name}")).ok())
            .ok_or_else(|| WhyBad::NotAToken(name.to_owned()))?;
        if self.found.len() == MAX_PARAM_HEADERS {
            return Err(WhyBad::TooManyHeaders);
        }
        // Few enough by now to look through them.
        if self.found.iter().any(|param| param.header == header) {
            return Err(WhyBad::Repeated(name.to_owned()));
        }
        match property.get("type").and_then(Value::as_str) {
            Some("string" | "integer" | "boolean") => {}
            _ => return Err(WhyBad::WrongType),
        }
        let path = self.path.clone();
        Ok(ParamHeader { header, path })
    }

    fn bad(&self, why: WhyBad) -> BadAnnotation {
        BadAnnotation {
            property: self.path.join("."),
            why,
        }
    }
}

/// What the value of a keyword holds.
enum Holds {
    Properties,
    NamedSchemas,
    Schemas,
    NoSchema,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        "properties" => Holds::Properties,
        "$defs" | "definitions" | "patternProperties" | "dependentSchemas" | "dependencies" => {
            Holds::NamedSchemas
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
        | "contentSchema" => Holds::Schemas,
        _ => Holds::NoSchema,
    }
}

/// Arguments that are absent, or no JSON that can be read, have no members; others report the latter.
fn read_arguments(arguments: Option<&Json>) -> Value {
    arguments
        .and_then(|arguments| arguments.decode().ok())
        .unwrap_or(Value::Null)
}

/// The number as an integer that every reader of JSON keeps exactly, if it is one: `4.2e1` is 42.
fn integer(number: &Number) -> Option<i64> {
    if let Some(integer) = number.as_i64() {
        return Some(integer).filter(|integer| integer.unsigned_abs() <= LARGEST_EXACT);
    }
    let float = number.as_f64()?;
    let is_exact = float.fract() == 0.0 && float.abs() <= LARGEST_EXACT as f64;
    is_exact.then_some(float as i64)
}

/// How many arguments of one tool may be mirrored by headers: 64.
///
/// Many HTTP implementations accept 100 headers in all.
pub const MAX_PARAM_HEADERS: usize = 64;

/// How long a schema with `x-mcp-header` annotations may be, in bytes: 1 MiB. How deep it may be is up to
/// `serde_json`, which reads 127 levels.
pub const MAX_ANNOTATED_SCHEMA: usize = 1024 * 1024;

/// 2^53 − 1: the largest integer that readers which know only floating point tell from its neighbours.
const LARGEST_EXACT: u64 = (1 << 53) - 1;
