//! The schemas of tools.

use bowline::types::Json;
use bowline_core::http::headers::ParamHeaders;
use serde_json::Value;

use super::super::codes;
use super::super::report::Finding;
use super::names;

/// Judges the schemas of all tools.
pub(crate) fn schemas(tools: &[Value]) -> Vec<Finding> {
    let mut faults = Faults::default();
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or("(without a name)");
        faults.look_at(name, &tool["inputSchema"], Role::Input);
        if let Some(output) = tool.get("outputSchema") {
            faults.look_at(name, output, Role::Output);
        }
    }
    faults.findings()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Output,
}

/// What is wrong, by kind, with the names of tools and the first reason.
#[derive(Debug, Default)]
struct Faults {
    root: Vec<String>,
    broken: Vec<(String, String)>,
    external: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Faults {
    fn look_at(&mut self, name: &str, schema: &Value, role: Role) {
        let is_object = schema["type"] == "object";
        if role == Role::Input && !is_object {
            self.root.push(name.to_owned());
        }
        if let Err(why) = check(schema) {
            let which = match role {
                Role::Input => name.to_owned(),
                Role::Output => format!("{name} (output)"),
            };
            self.broken.push((which, why));
        } else if let Some(url) = external_reference(schema) {
            self.external.push((name.to_owned(), url));
        }
        if role == Role::Input && is_object {
            let headers = ParamHeaders::read(&Json::from(schema.clone()));
            if let Err(why) = headers {
                self.headers.push((name.to_owned(), why.to_string()));
            }
        }
    }

    fn findings(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.root.is_empty() {
            let what = format!(
                "The input schema of {} is not of type object.",
                names(&self.root)
            );
            findings.push(Finding::new(&codes::SCHEMA_ROOT, what));
        }
        for (faults, code, subject) in [
            (
                self.broken,
                &codes::BROKEN_SCHEMA,
                "is not a valid JSON Schema",
            ),
            (
                self.external,
                &codes::SCHEMA_EXTERNAL_REF,
                "refers to another document",
            ),
            (
                self.headers,
                &codes::SCHEMA_HEADER,
                "has an invalid `x-mcp-header`",
            ),
        ] {
            if let Some((_, why)) = faults.first() {
                let tools: Vec<_> = faults.iter().map(|(name, _)| name.clone()).collect();
                let what = format!("The schema of {} {subject}: {why}.", names(&tools));
                findings.push(Finding::new(code, what));
            }
        }
        findings
    }
}

/// Checks a schema against the meta-schema, and its references within the document.
fn check(schema: &Value) -> Result<(), String> {
    if !schema.is_object() {
        return Err("it is not an object".to_owned());
    }
    let is_other_draft = schema.get("$schema").is_some_and(|it| {
        it.as_str()
            .is_some_and(|it| !it.contains("/draft/2020-12/"))
    });
    // A schema that names an older draft is judged by that.
    let judged = match is_other_draft {
        true => jsonschema::meta::validate(schema),
        false => jsonschema::draft202012::meta::validate(schema),
    };
    judged.map_err(|error| {
        let path = error.instance_path().to_string();
        let text: String = error.to_string().chars().take(MAX_QUOTED).collect();
        match path.is_empty() {
            true => text,
            false => format!("{text} at {path}"),
        }
    })?;
    match dangling_reference(schema, schema) {
        Some(reference) => Err(format!("`{reference}` leads nowhere")),
        None => Ok(()),
    }
}

/// Returns a `$ref` to a place in this document that does not exist.
fn dangling_reference(value: &Value, root: &Value) -> Option<String> {
    if let Some(reference) = value["$ref"].as_str()
        && let Some(pointer) = reference.strip_prefix('#')
        && (pointer.is_empty() || pointer.starts_with('/'))
        && root.pointer(&pointer.replace("%25", "%")).is_none()
    {
        return Some(reference.to_owned());
    }
    children(value).find_map(|child| dangling_reference(child, root))
}

/// Returns a `$ref` that needs the network.
fn external_reference(value: &Value) -> Option<String> {
    let reference = value["$ref"]
        .as_str()
        .or_else(|| value["$dynamicRef"].as_str());
    if let Some(reference) = reference.filter(|it| it.contains("://")) {
        return Some(reference.chars().take(MAX_QUOTED).collect());
    }
    children(value).find_map(external_reference)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        // Values that look like schemas and are data.
        Value::Object(members) => Box::new(
            (members.iter())
                .filter(|(name, _)| {
                    !["const", "default", "enum", "examples"].contains(&name.as_str())
                })
                .map(|(_, value)| value),
        ),
        Value::Array(items) => Box::new(items.iter()),
        _ => Box::new(std::iter::empty()),
    }
}

const MAX_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codes(schema: &Value) -> Vec<&'static str> {
        let tool = json!({"name": "a", "inputSchema": schema});
        schemas(&[tool]).iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn valid_schemas_are_healthy() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
            json!({"type": "object", "default": {"$ref": "http://x.example"}}),
        ] {
            assert!(codes(&schema).is_empty(), "{schema}");
        }
    }

    #[test]
    fn each_fault_of_a_schema_is_named() {
        assert_eq!(codes(&json!({"type": "string"})), ["schema-root"]);
        assert_eq!(
            codes(&json!({"type": "object", "properties": {"a": {"type": "text"}}})),
            ["broken-schema"]
        );
        assert_eq!(
            codes(&json!({"type": "object", "required": "a"})),
            ["broken-schema"]
        );
        assert_eq!(
            codes(&json!({"type": "object", "$ref": "#/$defs/none"})),
            ["broken-schema"]
        );
        assert_eq!(codes(&json!(true)), ["schema-root", "broken-schema"]);
        let external =
            json!({"type": "object", "properties": {"a": {"$ref": "https://x.example/a.json"}}});
        assert_eq!(codes(&external), ["schema-external-ref"]);
        let header =
            json!({"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}});
        assert_eq!(codes(&header), ["schema-header"]);
    }

    #[test]
    fn an_output_schema_may_be_of_any_type_and_must_be_valid() {
        let with_output = |schema: &Value| {
            let tool =
                json!({"name": "a", "inputSchema": {"type": "object"}, "outputSchema": schema});
            schemas(&[tool])
                .iter()
                .map(|it| it.code.name)
                .collect::<Vec<_>>()
        };

        assert!(with_output(&json!({"type": "integer"})).is_empty());
        assert_eq!(with_output(&json!({"type": 3})), ["broken-schema"]);
    }
}
