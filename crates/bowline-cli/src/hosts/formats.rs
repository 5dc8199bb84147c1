//! Reads JSON with comments, TOML and YAML into [`Node`]s.

use std::path::Path;

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions};
use saphyr_parser::{Event, Parser, ScalarStyle};
use toml::de::{DeTable, DeValue};

use super::node::{LineIndex, Node, NodeValue, SyntaxError};

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// JSON, with comments and trailing commas.
    Json,
    Toml,
    Yaml,
}

impl FileFormat {
    /// Returns the format that the name of a file implies. JSON if it implies none.
    pub(crate) fn of(path: &Path) -> Self {
        let extension = path
            .extension()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Self::Toml,
            "yaml" | "yml" => Self::Yaml,
            _ => Self::Json,
        }
    }

    /// Parses a file. An empty one is an empty map.
    ///
    /// # Errors
    ///
    /// With the line of the first mistake.
    pub(crate) fn parse(self, text: &str) -> Result<Node, SyntaxError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Json => parse_json(text),
            Self::Toml => parse_toml(text),
            Self::Yaml => YamlBuilder::default().parse(text),
        }
    }
}

fn parse_json(text: &str) -> Result<Node, SyntaxError> {
    let options = ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: true,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options);
    let parsed = parsed.map_err(|error| SyntaxError {
        line: error.line_display(),
        message: error.kind().to_string(),
    })?;
    let lines = LineIndex::new(text);
    Ok(match &parsed.value {
        Some(value) => json_node(value, &lines),
        None => Node::new(1, NodeValue::Map(Vec::new())),
    })
}

/// The parser limits the depth.
fn json_node(value: &ast::Value<'_>, lines: &LineIndex) -> Node {
    let node =
        |range: &jsonc_parser::common::Range, value| Node::new(lines.line(range.start), value);
    match value {
        ast::Value::StringLit(text) => node(&text.range, NodeValue::Text(text.value.to_string())),
        ast::Value::NumberLit(number) => {
            node(&number.range, NodeValue::Number(number.value.to_owned()))
        }
        ast::Value::BooleanLit(it) => node(&it.range, NodeValue::Bool(it.value)),
        ast::Value::NullKeyword(it) => node(&it.range, NodeValue::Null),
        ast::Value::Array(array) => {
            let items = array.elements.iter().map(|item| json_node(item, lines));
            node(&array.range, NodeValue::List(items.collect()))
        }
        ast::Value::Object(object) => {
            let members = object.properties.iter().map(|member| {
                let mut value = json_node(&member.value, lines);
                value.line = lines.line(member.range.start);
                (member.name.as_str().to_owned(), value)
            });
            node(&object.range, NodeValue::Map(members.collect()))
        }
    }
}

fn parse_toml(text: &str) -> Result<Node, SyntaxError> {
    let lines = LineIndex::new(text);
    let table = DeTable::parse(text).map_err(|error| SyntaxError {
        line: error.span().map_or(1, |span| lines.line(span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(toml_table(table.get_ref(), 1, &lines))
}

fn toml_table(table: &DeTable<'_>, line: usize, lines: &LineIndex) -> Node {
    let mut members: Vec<(String, Node)> = (table.iter())
        .map(|(key, value)| {
            let line = lines.line(key.span().start);
            (
                key.get_ref().to_string(),
                toml_node(value.get_ref(), line, lines),
            )
        })
        .collect();
    // The map of the parser is ordered by name.
    members.sort_by_key(|(_, node)| node.line);
    Node::new(line, NodeValue::Map(members))
}

/// The parser limits the depth.
fn toml_node(value: &DeValue<'_>, line: usize, lines: &LineIndex) -> Node {
    let value = match value {
        DeValue::String(text) => NodeValue::Text(text.to_string()),
        DeValue::Integer(number) => NodeValue::Number(number.to_string()),
        DeValue::Float(number) => NodeValue::Number(number.to_string()),
        DeValue::Boolean(value) => NodeValue::Bool(*value),
        DeValue::Datetime(time) => NodeValue::Text(time.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| {
                let line = lines.line(item.span().start);
                toml_node(item.get_ref(), line, lines)
            });
            NodeValue::List(items.collect())
        }
        DeValue::Table(table) => return toml_table(table, line, lines),
    };
    Node::new(line, value)
}

/// Builds the tree of the first document of a YAML stream.
#[derive(Default)]
struct YamlBuilder {
    /// The collections that are not complete, the innermost last.
    open: Vec<OpenCollection>,
    root: Option<Node>,
}

struct OpenCollection {
    line: usize,
    value: OpenValue,
}

enum OpenValue {
    List(Vec<Node>),
    /// The members, and a key whose value is not complete.
    Map(Vec<(String, Node)>, Option<(String, usize)>),
}

impl YamlBuilder {
    fn parse(mut self, text: &str) -> Result<Node, SyntaxError> {
        let mut events = Parser::new_from_str(text);
        while let Some(event) = events.next_event() {
            let (event, span) = event.map_err(|error| SyntaxError {
                line: error.marker().line(),
                message: error.info().to_owned(),
            })?;
            let line = span.start.line();
            match event {
                Event::Scalar(text, style, ..) => {
                    self.add(Node::new(line, yaml_scalar(&text, style)))
                }
                Event::SequenceStart(..) => self.open(line, OpenValue::List(Vec::new()))?,
                Event::MappingStart(..) => self.open(line, OpenValue::Map(Vec::new(), None))?,
                Event::SequenceEnd | Event::MappingEnd => self.close(),
                // Not followed: a few lines of aliases can stand for gigabytes.
                Event::Alias(_) => {
                    let message = "aliases are not supported".to_owned();
                    return Err(SyntaxError { line, message });
                }
                Event::DocumentEnd => break,
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_) => {}
            }
        }
        let empty = Node::new(1, NodeValue::Map(Vec::new()));
        let root = self.root.unwrap_or_else(|| empty.clone());
        Ok(match root.value {
            NodeValue::Null => empty,
            _ => root,
        })
    }

    fn open(&mut self, line: usize, value: OpenValue) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} deep");
            return Err(SyntaxError { line, message });
        }
        self.open.push(OpenCollection { line, value });
        Ok(())
    }

    fn close(&mut self) {
        let Some(OpenCollection { line, value }) = self.open.pop() else {
            return;
        };
        let value = match value {
            OpenValue::List(items) => NodeValue::List(items),
            OpenValue::Map(members, _) => NodeValue::Map(members),
        };
        self.add(Node::new(line, value));
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut().map(|open| &mut open.value) {
            None => self.root = Some(node),
            Some(OpenValue::List(items)) => items.push(node),
            Some(OpenValue::Map(members, key)) => match key.take() {
                // A key that is a collection cannot be the name of anything.
                None => *key = Some((node.to_text().unwrap_or_default(), node.line)),
                Some((name, line)) => members.push((name, Node { line, ..node })),
            },
        }
    }
}

/// Returns the value of a scalar, by the core schema of YAML 1.2.
fn yaml_scalar(text: &str, style: ScalarStyle) -> NodeValue {
    if style != ScalarStyle::Plain {
        return NodeValue::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" => NodeValue::Bool(true),
        "false" | "False" | "FALSE" => NodeValue::Bool(false),
        _ if text.parse::<i64>().is_ok() => NodeValue::Number(text.to_owned()),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && text.parse::<f64>().is_ok() =>
        {
            NodeValue::Number(text.to_owned())
        }
        _ => NodeValue::Text(text.to_owned()),
    }
}

const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn text_at(node: &Node, keys: &[&str]) -> Option<(String, usize)> {
        let found = keys.iter().try_fold(node, |node, key| node.get(key))?;
        Some((found.to_text()?, found.line))
    }

    #[test]
    fn the_same_values_and_lines_are_read_from_every_format() {
        let json = "// servers\n{\n  \"a\": {\n    \"b\": \"x\", /* no */ \"n\": 8,\n    \"t\": true, },\n}\n";
        let toml = "# servers\n[a]\n\nb = \"x\"\nn = 8\nt = true\n";
        let yaml = "# servers\na:\n\n  b: x\n  n: 8\n  t: true\n";

        for (format, text) in [
            (FileFormat::Json, json),
            (FileFormat::Toml, toml),
            (FileFormat::Yaml, yaml),
        ] {
            let node = format.parse(&format!("\u{feff}{text}")).unwrap();
            assert_eq!(
                text_at(&node, &["a", "b"]),
                Some(("x".into(), 4)),
                "{format:?}"
            );
            assert_eq!(text_at(&node, &["a", "n"]).unwrap().0, "8", "{format:?}");
            let flag = node.get("a").unwrap().get("t").unwrap();
            assert_eq!(flag.as_bool(), Some(true), "{format:?}");
        }
    }

    #[test]
    fn empty_files_are_empty_maps() {
        for format in [FileFormat::Json, FileFormat::Toml, FileFormat::Yaml] {
            for text in ["", "\n\n"] {
                assert_eq!(
                    format.parse(text).unwrap().members(),
                    Some(&[][..]),
                    "{format:?}"
                );
            }
        }
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        for (format, text) in [
            (FileFormat::Json, "{\n  \"a\": 1\n  \"b\": 2\n}"),
            (FileFormat::Toml, "a = 1\nb = 2\nc = = 3\n"),
            (FileFormat::Yaml, "a: 1\nb: 2\n  c: [1, 2\n"),
        ] {
            let error = format.parse(text).unwrap_err();
            assert!((2..=4).contains(&error.line), "{format:?}: {error:?}");
            assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn deep_and_multiplying_files_are_refused() {
        let deep = "[".repeat(100_000);
        let aliases = "a: &a [1, 1]\nb: &b [*a, *a]\n";

        for (format, text) in [
            (FileFormat::Json, format!("{{\"a\": {deep}")),
            (FileFormat::Toml, format!("a = {deep}")),
            (FileFormat::Yaml, format!("a: {deep}")),
        ] {
            assert!(format.parse(&text).is_err(), "{format:?}");
        }
        assert!(FileFormat::Yaml.parse(aliases).is_err());
    }

    #[test]
    fn plain_yaml_scalars_have_types_and_quoted_ones_are_text() {
        let text = "a: 1.5\nb: '1.5'\nc: 2026-07-28\nd: ~\ne: yes\nf: |\n  two\n  lines\n";
        let node = FileFormat::Yaml.parse(text).unwrap();

        let value = |key: &str| node.get(key).map(|node| node.value.clone());
        assert_eq!(value("a"), Some(NodeValue::Number("1.5".into())));
        assert_eq!(value("b"), Some(NodeValue::Text("1.5".into())));
        assert_eq!(value("c"), Some(NodeValue::Text("2026-07-28".into())));
        assert_eq!(value("d"), None);
        assert_eq!(value("e"), Some(NodeValue::Text("yes".into())));
        assert_eq!(value("f"), Some(NodeValue::Text("two\nlines\n".into())));
    }
}
