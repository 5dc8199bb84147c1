//! [`Lint`]: what the APIs of common models refuse in the definition of a tool, although MCP allows it.

use std::fmt;

use bowline_core::shortened;
use serde_json::Value;

use super::{Server, Tool};

/// Something in the definition of a tool that an API of a model is known to refuse. MCP allows it.
///
/// A host passes name, description and input schema of a tool to the API of its model. Many hosts pass them unchanged,
/// and one tool that the API refuses can make all tools of a server unusable. See
/// [`Server::lint`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lint {
    /// The name of the tool.
    pub tool: String,
    /// The place in `inputSchema`, as a JSON Pointer; `None` if it is not in the schema.
    pub schema_path: Option<String>,
    /// What is refused.
    pub message: String,
    /// The APIs that refuse it.
    pub apis: &'static [ModelApi],
}

impl Server {
    /// Returns what the APIs of common models refuse in the definitions of the tools, such as a dot in a name, or a
    /// schema with `$ref`.
    ///
    /// This is advice: MCP allows all of it, [`check`](Self::check) does not fail, and hosts may convert definitions
    /// for their model. A test can assert that the list is empty. Registering a tool logs its lints at the level
    /// `debug`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Server, Tool};
    ///
    /// let server = Server::new("files", "1.0.0").tool(Tool::new("files.read", async || "text"));
    /// assert_eq!(
    ///     server.lint()[0].to_string(),
    ///     "tool `files.read`: a name may contain only ASCII letters, digits, `_` and `-` (refused by Anthropic, OpenAI)"
    /// );
    /// ```
    #[must_use]
    pub fn lint(&self) -> Vec<Lint> {
        let tools = self.definition().tools.snapshot();
        let entries = tools.entries().iter();
        entries
            .flat_map(|(name, entry)| lint(name, &entry.item))
            .collect()
    }
}

/// The API of a model vendor that hosts pass tools to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelApi {
    /// The Messages API of Anthropic.
    Anthropic,
    /// The function calling of the Gemini API.
    Gemini,
    /// The function calling of the OpenAI API.
    OpenAi,
    /// The same with `strict: true`.
    OpenAiStrict,
}

use ModelApi::{Anthropic, Gemini, OpenAi, OpenAiStrict};

impl fmt::Display for ModelApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::OpenAi => "OpenAI",
            Self::OpenAiStrict => "OpenAI in strict mode",
        })
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}`: ", self.tool)?;
        if let Some(path) = &self.schema_path {
            write!(f, "`inputSchema` at `{path}`: ")?;
        }
        let apis: Vec<String> = self.apis.iter().map(ToString::to_string).collect();
        write!(f, "{} (refused by {})", self.message, apis.join(", "))
    }
}

/// Returns what model APIs refuse in the definition of the tool, which is registered with this name.
pub(super) fn lint(name: &str, tool: &Tool) -> Vec<Lint> {
    let mut linter = Linter {
        tool: name,
        lints: Vec::new(),
        properties: 0,
    };
    linter.name();
    let description = tool.definition().description.as_deref().unwrap_or_default();
    if description.chars().count() > MAX_DESCRIPTION {
        let message = format!("the description exceeds {MAX_DESCRIPTION} characters");
        linter.push(None, message, &[OpenAi]);
    }
    let schema: Value = tool.definition().input_schema.decode().unwrap_or_default();
    linter.root(&schema);
    linter.schema(&schema, "", 0);
    if linter.properties > MAX_PROPERTIES {
        let message = format!("the schema has more than {MAX_PROPERTIES} properties");
        linter.push(None, message, &[OpenAiStrict]);
    }
    linter.lints
}

struct Linter<'a> {
    tool: &'a str,
    lints: Vec<Lint>,
    properties: usize,
}

impl Linter<'_> {
    fn push(&mut self, path: Option<&str>, message: impl Into<String>, apis: &'static [ModelApi]) {
        self.lints.push(Lint {
            tool: self.tool.to_owned(),
            schema_path: path.map(|path| match path {
                "" => "/".to_owned(),
                path => path.to_owned(),
            }),
            message: message.into(),
            apis,
        });
    }

    fn name(&mut self) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !self.tool.bytes().all(is_plain) {
            let message = "a name may contain only ASCII letters, digits, `_` and `-`";
            self.push(None, message, &[Anthropic, OpenAi]);
        }
        if self
            .tool
            .starts_with(|first: char| !first.is_ascii_alphabetic() && first != '_')
        {
            let message = "a name must start with an ASCII letter or `_`";
            self.push(None, message, &[Gemini]);
        }
        match self.tool.len() {
            0..=64 => {}
            65..=128 => self.push(None, "a name has at most 64 characters", &[Gemini, OpenAi]),
            _ => {
                let message = "a name has at most 64 characters (Anthropic: 128)";
                self.push(None, message, &[Anthropic, Gemini, OpenAi]);
            }
        }
    }

    fn root(&mut self, schema: &Value) {
        for (keyword, apis) in [
            ("allOf", &[Anthropic, OpenAi] as &[_]),
            ("anyOf", &[Anthropic, OpenAi]),
            ("oneOf", &[Anthropic, OpenAi]),
            ("enum", &[OpenAi]),
            ("not", &[OpenAi]),
        ] {
            if schema.get(keyword).is_some() {
                self.push(Some(""), format!("`{keyword}` at the root"), apis);
            }
        }
        let Some(members) = schema.get("properties").and_then(Value::as_object) else {
            self.push(Some(""), "an object without `properties`", &[OpenAi]);
            return;
        };
        let is_plain = |name: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
        };
        for name in members.keys().filter(|name| !is_plain(name)) {
            let message = format!(
                "argument `{}`: a name has 1 to 64 ASCII letters, digits, `_`, `.` and `-`",
                shortened(name)
            );
            self.push(Some(&member("/properties", name)), message, &[Anthropic]);
        }
    }

    /// Checks the schema and all schemas in it. `depth` is the number of objects around it.
    fn schema(&mut self, schema: &Value, path: &str, depth: usize) {
        let Some(keywords) = schema.as_object() else {
            if schema.is_boolean() {
                let message = format!("the schema `{schema}` is not an object");
                self.push(Some(path), message, &[Gemini, OpenAi]);
            }
            return;
        };
        for (keyword, apis) in REFUSED_KEYWORDS {
            // At the root, they are refused by more APIs.
            if keywords.contains_key(*keyword) && (!path.is_empty() || *keyword == "$ref") {
                self.push(Some(path), format!("`{keyword}`"), apis);
            }
        }
        if keywords.get("type").is_some_and(Value::is_array) {
            self.push(Some(path), "`type` is an array", &[Gemini]);
        }
        if keywords.get("type").is_some_and(|name| name == "array")
            && !keywords.get("items").is_some_and(Value::is_object)
        {
            self.push(
                Some(path),
                "an array without an `items` schema",
                &[Gemini, OpenAi],
            );
        }
        let members = keywords.get("properties").and_then(Value::as_object);
        self.properties += members.map_or(0, serde_json::Map::len);
        let depth = depth + usize::from(members.is_some());
        if depth > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} levels of nested objects");
            self.push(Some(path), message, &[OpenAiStrict]);
            return;
        }
        for keyword in ["properties", "$defs"] {
            let members = keywords.get(keyword).and_then(Value::as_object);
            for (name, schema) in members.into_iter().flatten() {
                self.schema(schema, &member(&format!("{path}/{keyword}"), name), depth);
            }
        }
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            let choices = keywords.get(keyword).and_then(Value::as_array);
            for (position, schema) in choices.into_iter().flatten().enumerate() {
                self.schema(schema, &format!("{path}/{keyword}/{position}"), depth);
            }
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(schema @ Value::Object(_)) = keywords.get(keyword) {
                self.schema(schema, &format!("{path}/{keyword}"), depth);
            }
        }
    }
}

/// Returns the JSON Pointer of a member.
fn member(path: &str, name: &str) -> String {
    let name = shortened(name).to_string();
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The keywords that are refused below the root.
const REFUSED_KEYWORDS: &[(&str, &[ModelApi])] = &[
    ("$ref", &[Gemini]),
    ("allOf", &[Gemini, OpenAiStrict]),
    ("const", &[Gemini]),
    ("if", &[Gemini, OpenAiStrict]),
    ("not", &[Gemini, OpenAiStrict]),
    ("oneOf", &[Gemini, OpenAiStrict]),
    ("patternProperties", &[Gemini, OpenAiStrict]),
    ("prefixItems", &[Gemini, OpenAiStrict]),
];

const MAX_DEPTH: usize = 10;
const MAX_DESCRIPTION: usize = 1024;
const MAX_PROPERTIES: usize = 5000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Args, CallToolResult, Server};
    use schemars::JsonSchema;
    use serde_json::json;

    fn lints_of(name: &str, schema: Value) -> Vec<String> {
        let tool = Tool::raw(name, schema, async |_, _| Ok(CallToolResult::default()));
        lint(name, &tool).iter().map(ToString::to_string).collect()
    }

    fn object(member: &Value) -> Value {
        json!({"type": "object", "properties": {"a": member}})
    }

    #[test]
    fn a_derived_schema_of_common_types_has_no_lints() {
        #[derive(JsonSchema, serde::Deserialize)]
        #[allow(dead_code, reason = "only its schema is used")]
        struct Draw {
            /// the color
            color: Option<Color>,
            shape: Shape,
            more: Vec<Option<Shape>>,
            extra: Value,
            labels: std::collections::BTreeMap<String, String>,
        }
        #[derive(JsonSchema, serde::Deserialize)]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Color {
            /// like blood
            Red,
            /// like grass
            Green,
        }
        #[derive(JsonSchema, serde::Deserialize)]
        #[serde(tag = "kind")]
        #[allow(dead_code, reason = "only its schema is used")]
        enum Shape {
            Circle { radius: f64 },
            Named { name: Option<String> },
        }

        let tool = Tool::new("draw", async |_: Args<Draw>| "drawn").description("Draws a shape.");

        assert_eq!(lint("draw", &tool), []);
    }

    #[test]
    fn each_refusal_names_the_place_and_the_api() {
        let fine = json!({"type": "object", "properties": {}});
        let deep = (0..11).fold(json!({"type": "string"}), |schema, _| object(&schema));
        for (name, schema, expected) in [
            (
                "files.read",
                fine.clone(),
                "tool `files.read`: a name may contain only ASCII letters, digits, `_` and `-` \
                 (refused by Anthropic, OpenAI)",
            ),
            (
                "7zip",
                fine.clone(),
                "tool `7zip`: a name must start with an ASCII letter or `_` (refused by Gemini)",
            ),
            (
                "x",
                json!({"type": "object"}),
                "tool `x`: `inputSchema` at `/`: an object without `properties` (refused by OpenAI)",
            ),
            (
                "x",
                json!({"type": "object", "properties": {}, "oneOf": []}),
                "tool `x`: `inputSchema` at `/`: `oneOf` at the root (refused by Anthropic, OpenAI)",
            ),
            (
                "x",
                json!({"type": "object", "properties": {"a/b": {}}}),
                "tool `x`: `inputSchema` at `/properties/a~1b`: argument `a/b`: a name has 1 to 64 ASCII letters, \
                 digits, `_`, `.` and `-` (refused by Anthropic)",
            ),
            (
                "x",
                object(&json!({"type": "array", "items": {"$ref": "#"}})),
                "tool `x`: `inputSchema` at `/properties/a/items`: `$ref` (refused by Gemini)",
            ),
            (
                "x",
                object(&json!({"type": "array"})),
                "tool `x`: `inputSchema` at `/properties/a`: an array without an `items` schema \
                 (refused by Gemini, OpenAI)",
            ),
            (
                "x",
                object(&json!({"type": ["string", "null"]})),
                "tool `x`: `inputSchema` at `/properties/a`: `type` is an array (refused by Gemini)",
            ),
            (
                "x",
                object(&json!(true)),
                "tool `x`: `inputSchema` at `/properties/a`: the schema `true` is not an object \
                 (refused by Gemini, OpenAI)",
            ),
            (
                "x",
                deep,
                "tool `x`: `inputSchema` at `/properties/a/properties/a/properties/a/properties/a/properties/a\
                 /properties/a/properties/a/properties/a/properties/a/properties/a`: more than 10 levels of nested \
                 objects (refused by OpenAI in strict mode)",
            ),
        ] {
            assert_eq!(lints_of(name, schema), [expected]);
        }
        assert_eq!(lints_of(&"x".repeat(65), fine.clone()).len(), 1);
        let tool = Tool::new("x", async || "y").description("d".repeat(1025));
        assert_eq!(lint("x", &tool)[0].apis, [OpenAi]);
    }

    #[test]
    fn a_server_reports_lints_but_is_valid() {
        let server = Server::new("s", "1").tool(Tool::new("a.b", async || "c"));

        assert!(server.check().is_ok());
        assert_eq!(server.lint().len(), 1);
    }
}
