//! Tools and prompts as signatures: `add(a: integer, b: integer, note?: string) -> {sum: number}`.

use bowline::types::{Prompt, Tool};

use crate::ordered_json::OrderedJson;
use crate::output::{display_width, visible_line, wrap_hanging};

/// A parameter of a tool or prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) type_text: String,
    pub(crate) is_required: bool,
    /// As JSON.
    pub(crate) default: Option<String>,
    pub(crate) description: Option<String>,
}

/// The name, the parameters and the result of a tool or prompt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) output: Option<String>,
}

impl Signature {
    pub(crate) fn of_tool(tool: &Tool) -> Self {
        let input = OrderedJson::parse(tool.input_schema.as_str());
        let schema = Schema::root(&input);
        let required = schema.required();
        let parameters = schema.properties().iter().map(|(name, property)| {
            let property = schema.child(property);
            Parameter {
                name: visible_line(name).into_owned(),
                type_text: property.type_text(),
                is_required: required.contains(&name.as_str()),
                default: property
                    .keyword("default")
                    .map(|value| value.to_value().to_string()),
                description: property
                    .keyword("description")
                    .and_then(OrderedJson::as_text)
                    .map(str::to_owned),
            }
        });
        let output = tool.output_schema.as_ref().map(|output| {
            let output = OrderedJson::parse(output.as_str());
            Schema::root(&output).type_text()
        });
        Self {
            name: visible_line(&tool.name).into_owned(),
            parameters: parameters.collect(),
            output,
        }
    }

    pub(crate) fn of_prompt(prompt: &Prompt) -> Self {
        let arguments = prompt.arguments.as_deref().unwrap_or_default();
        let parameters = arguments.iter().map(|argument| Parameter {
            name: visible_line(&argument.name).into_owned(),
            type_text: "string".to_owned(),
            is_required: argument.required == Some(true),
            default: None,
            description: argument.description.clone(),
        });
        Self {
            name: visible_line(&prompt.name).into_owned(),
            parameters: parameters.collect(),
            output: None,
        }
    }

    /// Returns the signature on one line.
    pub(crate) fn to_line(&self) -> String {
        let parameters: Vec<_> = self.parameters.iter().map(Parameter::to_text).collect();
        format!(
            "{}({}){}",
            self.name,
            parameters.join(", "),
            self.output_text()
        )
    }

    /// Returns the signature on one line if that fits `width` columns, else with a line for each parameter.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let line = self.to_line();
        if display_width(&line) <= width || self.parameters.is_empty() {
            return wrap_hanging(&line, width);
        }
        let mut lines = vec![format!("{}(", self.name)];
        for parameter in &self.parameters {
            let text = format!("{},", parameter.to_text());
            let wrapped = wrap_hanging(&text, width.saturating_sub(2));
            lines.extend(wrapped.iter().map(|line| format!("  {line}")));
        }
        lines.extend(wrap_hanging(&format!("){}", self.output_text()), width));
        lines
    }

    fn output_text(&self) -> String {
        self.output
            .as_ref()
            .map_or(String::new(), |output| format!(" -> {output}"))
    }
}

impl Parameter {
    fn to_text(&self) -> String {
        let mark = if self.is_required { "" } else { "?" };
        let default = self.default.as_ref();
        // An optional parameter whose default is null has none.
        let default = default.filter(|text| *text != "null");
        let default = default.map_or(String::new(), |text| format!(" = {}", visible_line(text)));
        format!("{}{mark}: {}{default}", self.name, self.type_text)
    }
}

/// A JSON schema, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'a> {
    node: &'a OrderedJson,
    /// What `$ref` refers into.
    root: &'a OrderedJson,
    depth: usize,
}

impl<'a> Schema<'a> {
    pub(crate) fn root(root: &'a OrderedJson) -> Self {
        let depth = 0;
        Self {
            node: root,
            root,
            depth,
        }
        .resolved()
    }

    /// Returns a part of this schema, after its references.
    pub(crate) fn child(self, node: &'a OrderedJson) -> Self {
        let depth = self.depth + 1;
        Self {
            node,
            depth,
            ..self
        }
        .resolved()
    }

    fn resolved(mut self) -> Self {
        // References may form a circle.
        for _ in 0..MAX_REFERENCES {
            let reference = self.node.get("$ref").and_then(OrderedJson::as_text);
            let Some(path) = reference.and_then(|it| it.strip_prefix("#/")) else {
                break;
            };
            let found = path.split('/').try_fold(self.root, |node, part| {
                node.get(&part.replace("~1", "/").replace("~0", "~"))
            });
            match found {
                Some(found) => self.node = found,
                None => break,
            }
        }
        self
    }

    pub(crate) fn keyword(self, name: &str) -> Option<&'a OrderedJson> {
        self.node.get(name)
    }

    pub(crate) fn properties(self) -> &'a [(String, OrderedJson)] {
        self.keyword("properties").map_or(&[], OrderedJson::members)
    }

    pub(crate) fn required(self) -> Vec<&'a str> {
        let names = self.keyword("required").map_or(&[][..], OrderedJson::items);
        names.iter().filter_map(OrderedJson::as_text).collect()
    }

    /// Returns whether the object may have members that are not in `properties`, because the schema says so.
    pub(crate) fn allows_more(self) -> bool {
        let more = self.keyword("additionalProperties");
        more.is_some_and(|more| *more != OrderedJson::Bool(false))
            || self.keyword("patternProperties").is_some()
    }

    /// Returns the alternatives of a union; the schema itself if it is none.
    pub(crate) fn alternatives(self) -> Vec<Self> {
        let union = self.keyword("anyOf").or_else(|| self.keyword("oneOf"));
        match union.map(OrderedJson::items) {
            Some(items) if !items.is_empty() => items.iter().map(|item| self.child(item)).collect(),
            _ => vec![self],
        }
    }

    /// Returns the names of `type`.
    pub(crate) fn types(self) -> Vec<&'a str> {
        match self.keyword("type") {
            Some(OrderedJson::Text(name)) => vec![name],
            Some(OrderedJson::List(names)) => {
                names.iter().filter_map(OrderedJson::as_text).collect()
            }
            _ if !self.properties().is_empty() => vec!["object"],
            _ => Vec::new(),
        }
    }

    /// Returns how many parts are shown: fewer at each level, so that a schema that refers to itself stays short.
    fn max_parts(self) -> usize {
        MAX_PARTS >> self.depth.min(MAX_DEPTH)
    }

    /// Returns whether a value of this part would be nested too deeply to be written on a command line.
    pub(crate) fn is_deep(self) -> bool {
        self.depth > MAX_DEPTH
    }

    /// Returns the type in the notation of TypeScript.
    pub(crate) fn type_text(self) -> String {
        if self.is_deep() {
            return "…".to_owned();
        }
        if let Some(value) = self.keyword("const") {
            return literal(value);
        }
        if let Some(values) = self.keyword("enum") {
            let values = values.items();
            let mut texts: Vec<_> = values.iter().take(MAX_VALUES).map(literal).collect();
            if values.len() > MAX_VALUES {
                texts.push("…".to_owned());
            }
            return texts.join(" | ");
        }
        if let Some(parts) = self.keyword("allOf") {
            let texts: Vec<_> = parts
                .items()
                .iter()
                .take(self.max_parts())
                .map(|part| self.child(part).type_text())
                .collect();
            if !texts.is_empty() {
                return texts.join(" & ");
            }
        }
        let alternatives = self.alternatives();
        if alternatives.len() > 1 || self.keyword("anyOf").or(self.keyword("oneOf")).is_some() {
            return union(
                alternatives
                    .into_iter()
                    .take(self.max_parts())
                    .map(Self::type_text),
            );
        }
        match *self.node {
            OrderedJson::Bool(false) => return "never".to_owned(),
            OrderedJson::Object(_) => {}
            _ => return "any".to_owned(),
        }
        let types = self.types();
        match types.is_empty() {
            true => "any".to_owned(),
            false => union(types.into_iter().map(|name| self.named_type_text(name))),
        }
    }

    fn named_type_text(self, name: &str) -> String {
        match name {
            "array" => self.array_text(),
            "object" => self.object_text(),
            name => visible_line(name).into_owned(),
        }
    }

    fn array_text(self) -> String {
        if let Some(items) = self.keyword("prefixItems") {
            let items: Vec<_> = items
                .items()
                .iter()
                .take(self.max_parts())
                .map(|item| self.child(item).type_text())
                .collect();
            return format!("[{}]", items.join(", "));
        }
        let item = self
            .keyword("items")
            .map_or("any".to_owned(), |item| self.child(item).type_text());
        match item.contains(' ') && !item.starts_with('{') {
            true => format!("({item})[]"),
            false => format!("{item}[]"),
        }
    }

    fn object_text(self) -> String {
        let properties = self.properties();
        if properties.is_empty() {
            return match self.keyword("additionalProperties") {
                Some(values @ OrderedJson::Object(_)) => {
                    format!("{{[key]: {}}}", self.child(values).type_text())
                }
                _ => "object".to_owned(),
            };
        }
        let required = self.required();
        let mut members: Vec<_> = (properties.iter().take(self.max_parts()))
            .map(|(name, property)| {
                let mark = if required.contains(&name.as_str()) {
                    ""
                } else {
                    "?"
                };
                format!(
                    "{}{mark}: {}",
                    visible_line(name),
                    self.child(property).type_text()
                )
            })
            .collect();
        if properties.len() > self.max_parts() {
            members.push("…".to_owned());
        }
        format!("{{{}}}", members.join(", "))
    }
}

fn union(texts: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for text in texts {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    // Last, as people write it.
    distinct.sort_by_key(|text| text == "null");
    distinct.join(" | ")
}

fn literal(value: &OrderedJson) -> String {
    visible_line(&value.to_value().to_string()).into_owned()
}

const MAX_DEPTH: usize = 5;
const MAX_REFERENCES: usize = 8;
const MAX_VALUES: usize = 12;
const MAX_PARTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(input: &str, output: Option<&str>) -> String {
        let input: bowline::Json = bowline::Json::parse(input.to_owned()).unwrap();
        let mut tool = Tool::new("t", input);
        tool.output_schema = output.map(|it| bowline::Json::parse(it.to_owned()).unwrap());
        Signature::of_tool(&tool).to_line()
    }

    #[test]
    fn parameters_keep_the_order_of_the_schema_and_optional_ones_are_marked() {
        let input = r#"{"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string", "default": "x"},
            "c": {"type": ["string", "null"], "default": null}}, "required": ["b"]}"#;
        let output =
            r#"{"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}"#;

        assert_eq!(
            line(input, Some(output)),
            r#"t(b: integer, a?: string = "x", c?: string | null) -> {sum: number}"#
        );
        assert_eq!(line("{}", None), "t()");
    }

    #[test]
    fn every_kind_of_type_has_a_text() {
        let text = |schema: serde_json::Value| {
            let schema = OrderedJson::parse(&schema.to_string());
            Schema::root(&schema).type_text()
        };

        assert_eq!(text(json!({"enum": ["a", 1, null]})), r#""a" | 1 | null"#);
        assert_eq!(text(json!({"const": "a"})), r#""a""#);
        assert_eq!(
            text(json!({"type": "array", "items": {"type": "string"}})),
            "string[]"
        );
        assert_eq!(
            text(json!({"type": "array", "items": {"enum": ["a", "b"]}})),
            r#"("a" | "b")[]"#
        );
        assert_eq!(text(json!({"type": "array"})), "any[]");
        assert_eq!(
            text(json!({"type": "array", "prefixItems": [{"type": "string"}, {}]})),
            "[string, any]"
        );
        assert_eq!(
            text(json!({"anyOf": [{"type": "null"}, {"type": "string"}]})),
            "string | null"
        );
        assert_eq!(text(json!({"type": "object"})), "object");
        assert_eq!(
            text(json!({"type": "object", "additionalProperties": {"type": "number"}})),
            "{[key]: number}"
        );
        assert_eq!(
            text(
                json!({"allOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object"}]})
            ),
            "{a?: any} & object"
        );
        assert_eq!(text(json!(true)), "any");
        assert_eq!(text(json!(false)), "never");
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let input = r##"{"type": "object", "properties": {"p": {"$ref": "#/$defs/Point"}, "t": {"$ref": "#/$defs/Tree"}, "u": {"$ref": "#/$defs/Self"}},
            "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            "Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}, "Self": {"$ref": "#/$defs/Self"}}}"##;

        assert_eq!(
            line(input, None),
            "t(p?: {x: number}, t?: …[][][][][], u?: any)"
        );
    }

    #[test]
    fn a_schema_that_multiplies_stays_short() {
        let names = (0..40).map(|at| format!(r##""p{at}": {{"$ref": "#"}}"##));
        let names = names.collect::<Vec<_>>().join(", ");
        let input = format!(r#"{{"type": "object", "properties": {{{names}}}}}"#);

        assert!(line(&input, None).len() < 1_000_000);
    }

    #[test]
    fn long_signatures_have_a_line_for_each_parameter() {
        let input = json!({"type": "object", "properties": {"first": {"type": "string"}, "second": {"type": "string"}}, "required": ["first"]});
        let signature = Signature::of_tool(&Tool::new("concatenate", bowline::Json::from(input)));

        assert_eq!(signature.lines(80).len(), 1);
        assert_eq!(
            signature.lines(30),
            [
                "concatenate(",
                "  first: string,",
                "  second?: string,",
                ")"
            ]
        );
    }

    #[test]
    fn names_of_servers_cannot_control_the_terminal() {
        let input = json!({"type": "object", "properties": {"a\u{1b}[2J": {"enum": ["\u{1b}"]}}});
        let tool = Tool::new("t\u{1b}", bowline::Json::from(input));

        assert!(!Signature::of_tool(&tool).to_line().contains('\u{1b}'));
    }
}
