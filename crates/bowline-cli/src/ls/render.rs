//! The text of `bowline ls`.

use bowline::types::{Prompt, Resource, ResourceTemplate, Tool};

use super::{About, Detail, Listing};
use crate::ordered_json::OrderedJson;
use crate::output::{Output, Style, display_width, fit, visible, visible_line, wrap};
use crate::signature::{Parameter, Signature};

/// Returns the lines of the whole listing.
pub(super) fn lines(
    about: &About,
    listing: &Listing,
    detail: Detail,
    output: Output,
) -> Vec<String> {
    let mut lines = heading(about, detail, output);
    let items = Items { detail, output };
    if let Some(tools) = &listing.tools {
        items.section(&mut lines, "Tools", tools, Items::tool);
    }
    if let Some(resources) = &listing.resources {
        items.section(&mut lines, "Resources", resources, Items::resource);
    }
    if let Some(templates) = &listing.templates {
        items.section(&mut lines, "Resource templates", templates, Items::template);
    }
    if let Some(prompts) = &listing.prompts {
        items.section(&mut lines, "Prompts", prompts, Items::prompt);
    }
    lines
}

fn heading(about: &About, detail: Detail, output: Output) -> Vec<String> {
    let info = about.info();
    let name = info
        .as_ref()
        .map_or("a server without a name".into(), |info| {
            let name = info.title.as_ref().unwrap_or(&info.name);
            format!("{} {}", visible_line(name), visible_line(&info.version))
        });
    let version = format!("protocol {}", about.version);
    let name = fit(&name, output.width.saturating_sub(version.len() + 2));
    let mut lines = vec![format!(
        "{}  {}",
        output.style(Style::Bold, name),
        output.style(Style::Dim, version)
    )];
    let instructions = about.instructions();
    if let Some(instructions) = instructions.filter(|_| detail != Detail::Short) {
        let max = if detail == Detail::Normal {
            MAX_LINES
        } else {
            usize::MAX
        };
        lines.extend(paragraph(instructions, 2, max, output));
    }
    lines
}

#[derive(Clone, Copy)]
struct Items {
    detail: Detail,
    output: Output,
}

impl Items {
    fn section<T>(
        self,
        lines: &mut Vec<String>,
        title: &str,
        items: &[T],
        render: impl Fn(Self, &T) -> Vec<String>,
    ) {
        if items.is_empty() {
            return;
        }
        lines.push(String::new());
        let count = self.output.style(Style::Dim, format!("({})", items.len()));
        lines.push(format!("{} {count}", self.output.style(Style::Bold, title)));
        for (at, item) in items.iter().enumerate() {
            if at > 0 && self.detail != Detail::Short {
                lines.push(String::new());
            }
            lines.extend(render(self, item));
        }
    }

    fn tool(self, tool: &Tool) -> Vec<String> {
        let signature = Signature::of_tool(tool);
        let mut lines = self.signature(&signature);
        if self.detail == Detail::Short {
            return lines;
        }
        let title = tool
            .title
            .as_ref()
            .or_else(|| tool.annotations.as_ref()?.title.as_ref());
        lines.extend(self.details(title, tool.description.as_ref()));
        lines.extend(self.parameters(&signature.parameters));
        let hints = hints(tool);
        if !hints.is_empty() {
            lines.push(format!(
                "    {}",
                self.output.style(Style::Yellow, hints.join(", "))
            ));
        }
        if self.detail == Detail::Schema {
            lines.extend(self.schema("input", tool.input_schema.as_str()));
            if let Some(schema) = &tool.output_schema {
                lines.extend(self.schema("output", schema.as_str()));
            }
        }
        lines
    }

    fn resource(self, resource: &Resource) -> Vec<String> {
        let mut facts = vec![visible_line(&resource.name).into_owned()];
        facts.extend(
            resource
                .mime_type
                .as_deref()
                .map(|it| visible_line(it).into_owned()),
        );
        facts.extend(resource.size.map(|size| format!("{size} bytes")));
        self.uri(
            &resource.uri,
            &facts,
            resource.title.as_ref(),
            resource.description.as_ref(),
        )
    }

    fn template(self, template: &ResourceTemplate) -> Vec<String> {
        let mut facts = vec![visible_line(&template.name).into_owned()];
        facts.extend(
            template
                .mime_type
                .as_deref()
                .map(|it| visible_line(it).into_owned()),
        );
        let (title, description) = (template.title.as_ref(), template.description.as_ref());
        self.uri(&template.uri_template, &facts, title, description)
    }

    fn uri(
        self,
        uri: &str,
        facts: &[String],
        title: Option<&String>,
        description: Option<&String>,
    ) -> Vec<String> {
        let uri = visible_line(uri);
        let mut lines: Vec<_> = (wrap(&uri, self.output.width.saturating_sub(2)).iter())
            .map(|line| format!("  {}", self.output.style(Style::Cyan, line)))
            .collect();
        if self.detail == Detail::Short {
            return lines;
        }
        let facts = fit(&facts.join(", "), self.output.width.saturating_sub(4));
        lines.push(format!("    {}", self.output.style(Style::Dim, facts)));
        lines.extend(self.details(title, description));
        lines
    }

    fn prompt(self, prompt: &Prompt) -> Vec<String> {
        let signature = Signature::of_prompt(prompt);
        let mut lines = self.signature(&signature);
        if self.detail != Detail::Short {
            lines.extend(self.details(prompt.title.as_ref(), prompt.description.as_ref()));
            lines.extend(self.parameters(&signature.parameters));
        }
        lines
    }

    fn signature(self, signature: &Signature) -> Vec<String> {
        let name = &signature.name;
        let lines = signature
            .lines(self.output.width.saturating_sub(2))
            .into_iter();
        let style = |line: String| match line.strip_prefix(name.as_str()) {
            Some(rest) => format!("  {}{rest}", self.output.style(Style::Cyan, name)),
            None => format!("  {line}"),
        };
        lines
            .enumerate()
            .map(|(at, line)| {
                if at == 0 {
                    style(line)
                } else {
                    format!("  {line}")
                }
            })
            .collect()
    }

    fn details(self, title: Option<&String>, description: Option<&String>) -> Vec<String> {
        let max = if self.detail == Detail::Normal {
            MAX_LINES
        } else {
            usize::MAX
        };
        let mut lines = Vec::new();
        if let Some(title) = title.filter(|it| !it.is_empty() && Some(*it) != description) {
            let title = fit(&visible_line(title), self.output.width.saturating_sub(4));
            lines.push(format!("    {}", self.output.style(Style::Bold, title)));
        }
        if let Some(description) = description {
            lines.extend(paragraph(description, 4, max, self.output));
        }
        lines
    }

    /// Returns the descriptions of the parameters that have one.
    fn parameters(self, parameters: &[Parameter]) -> Vec<String> {
        let described = || {
            parameters
                .iter()
                .filter_map(|it| Some((&it.name, it.description.as_ref()?)))
        };
        let widest = described()
            .map(|(name, _)| display_width(name))
            .max()
            .unwrap_or(0);
        let indent = 4 + widest.min(MAX_NAME_COLUMNS) + 2;
        let mut lines = Vec::new();
        for (name, description) in described() {
            let max = if self.detail == Detail::Normal {
                2
            } else {
                usize::MAX
            };
            let mut text = paragraph(description, indent, max, self.output).into_iter();
            let first = text.next().unwrap_or_default();
            let padding = " ".repeat(indent.saturating_sub(4 + display_width(name)).max(1));
            let name = self.output.style(Style::Dim, name);
            lines.push(format!("    {name}{padding}{}", first.trim_start()));
            lines.extend(text);
        }
        lines
    }

    fn schema(self, name: &str, schema: &str) -> Vec<String> {
        let pretty = OrderedJson::parse(schema).pretty();
        let title = format!(
            "    {}",
            self.output.style(Style::Dim, format!("{name} schema"))
        );
        let width = self.output.width.saturating_sub(6);
        let lines = pretty.lines().flat_map(|line| {
            let depth = line.len() - line.trim_start().len();
            let wrapped = wrap(
                &visible(line.trim_start()),
                width.saturating_sub(depth).max(10),
            );
            wrapped
                .into_iter()
                .map(move |line| format!("      {}{line}", " ".repeat(depth)))
                .collect::<Vec<_>>()
        });
        std::iter::once(title).chain(lines).collect()
    }
}

/// Wraps text of a server with an indent, and leaves out what is more than `max` lines.
fn paragraph(text: &str, indent: usize, max: usize, output: Output) -> Vec<String> {
    let text = visible(text.trim());
    let mut lines = wrap(&text, output.width.saturating_sub(indent).max(20));
    if lines.len() > max {
        lines.truncate(max);
        if let Some(last) = lines.last_mut() {
            *last = fit(&format!("{last} …"), output.width.saturating_sub(indent));
        }
    }
    let indent = " ".repeat(indent);
    let indented = lines
        .iter()
        .map(|line| format!("{indent}{line}").trim_end().to_owned());
    indented.collect()
}

/// Returns the hints that the server gives about a tool. It need not tell the truth.
fn hints(tool: &Tool) -> Vec<&'static str> {
    let Some(annotations) = &tool.annotations else {
        return Vec::new();
    };
    let hints = [
        (annotations.read_only_hint, "read-only", "writes"),
        (
            annotations.destructive_hint,
            "destructive",
            "not destructive",
        ),
        (annotations.idempotent_hint, "idempotent", "not idempotent"),
        (annotations.open_world_hint, "open world", "closed world"),
    ];
    let hints = hints
        .into_iter()
        .filter_map(|(hint, yes, no)| Some(if hint? { yes } else { no }));
    hints.collect()
}

/// How many lines of a description are shown in a list of many.
const MAX_LINES: usize = 6;
const MAX_NAME_COLUMNS: usize = 20;
