//! Lists: pages, names, descriptions and annotations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::codes::{self, Code};
use super::super::probe::lists::{ListEnd, ListFacts};
use super::super::report::{Finding, Severity};
use super::{count, names};

/// Judges how a list could be read. `method` is its method, `is_declared` whether the server declares the capability.
pub(crate) fn pages(method: &str, facts: &ListFacts, is_declared: bool) -> Option<Finding> {
    match &facts.end {
        ListEnd::Loop(cursor) => {
            let what = format!(
                "`{method}` returned the cursor `{cursor}` twice, on {}.",
                count(facts.pages, "page")
            );
            Some(Finding::new(&codes::PAGING_LOOP, what))
        }
        ListEnd::TooMany => {
            let read = count(facts.items.len(), "item");
            let what = format!(
                "`{method}` did not end after {} with {read}.",
                count(facts.pages, "page")
            );
            Some(Finding::new(&codes::PAGING_LOOP, what))
        }
        ListEnd::NoSuchMethod if is_declared => {
            let what =
                format!("The server declares the capability, and `{method}` does not exist.");
            Some(Finding::new(&codes::LIST_FAILED, what))
        }
        ListEnd::Failed(why) => {
            let what = format!("`{method}` failed: {why}.");
            Some(Finding::new(&codes::LIST_FAILED, what))
        }
        ListEnd::Complete | ListEnd::NoSuchMethod => None,
    }
}

/// Judges the names and descriptions of tools.
pub(crate) fn tools(tools: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(duplicates(tools, "name", "tool", &codes::DUPLICATE_TOOL));
    let bad_names = filter_names(tools, |tool| {
        !is_portable(tool["name"].as_str().unwrap_or_default())
    });
    if !bad_names.is_empty() {
        let what = format!("{} cannot be used everywhere.", names(&bad_names));
        let finding = Finding::new(&codes::TOOL_NAME, what);
        findings.push(match bad_names.iter().all(|name| is_specified(name)) {
            true => finding.severity(Severity::Note),
            false => finding,
        });
    }
    let undescribed = filter_names(tools, |tool| is_blank(&tool["description"]));
    if !undescribed.is_empty() {
        let what = format!(
            "{} without a description: {}.",
            count(undescribed.len(), "tool"),
            names(&undescribed)
        );
        findings.push(Finding::new(&codes::NO_DESCRIPTION, what));
    }
    let undescribed = filter_names(tools, has_undescribed_parameters);
    if !undescribed.is_empty() {
        let tools = count(undescribed.len(), "tool");
        let what = format!(
            "{tools} with arguments that have no description: {}.",
            names(&undescribed)
        );
        findings.push(Finding::new(&codes::UNDESCRIBED_PARAMETERS, what));
    }
    let unannotated = filter_names(tools, |tool| !has_behaviour_hints(&tool["annotations"]));
    if !unannotated.is_empty() {
        let what = format!(
            "{} without annotations: {}.",
            count(unannotated.len(), "tool"),
            names(&unannotated)
        );
        findings.push(Finding::new(&codes::NO_ANNOTATIONS, what));
    }
    if tools.len() > MAX_TOOLS {
        let what = format!("The server has {} tools.", tools.len());
        findings.push(Finding::new(&codes::MANY_TOOLS, what));
    }
    findings
}

/// Finds items with the same value of `member`, over all pages.
pub(crate) fn duplicates(
    items: &[Value],
    member: &str,
    noun: &str,
    code: &'static Code,
) -> Option<Finding> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in items.iter().filter_map(|item| item[member].as_str()) {
        *counts.entry(name).or_default() += 1;
    }
    let twice = counts.into_iter().filter(|(_, count)| *count > 1);
    let twice: Vec<String> = twice.map(|(name, _)| name.to_owned()).collect();
    (!twice.is_empty()).then(|| {
        let what = format!("More than one {noun} has the {member} {}.", names(&twice));
        Finding::new(code, what)
    })
}

fn filter_names(tools: &[Value], is_faulty: impl Fn(&Value) -> bool) -> Vec<String> {
    let faulty = tools.iter().filter(|tool| is_faulty(tool));
    let name = |tool: &Value| {
        tool["name"]
            .as_str()
            .unwrap_or("(without a name)")
            .to_owned()
    };
    faulty.map(name).collect()
}

/// Returns whether every host and model provider that is known accepts the name.
fn is_portable(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

/// Returns whether the specification recommends names of this form.
fn is_specified(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=128).contains(&name.len()) && name.chars().all(is_plain)
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn has_undescribed_parameters(tool: &Value) -> bool {
    let properties = tool["inputSchema"]["properties"].as_object();
    properties.is_some_and(|it| {
        it.values()
            .any(|property| property.is_object() && is_blank(&property["description"]))
    })
}

fn has_behaviour_hints(annotations: &Value) -> bool {
    let hints = [
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ];
    hints.iter().any(|hint| annotations[hint].is_boolean())
}

/// The limit of VS Code.
const MAX_TOOLS: usize = 128;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> Value {
        json!({
            "name": name,
            "description": "Does it.",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "description": "the a"}}},
            "annotations": {"readOnlyHint": true},
        })
    }

    fn codes(list: &[Value]) -> Vec<&'static str> {
        tools(list).iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn complete_tools_are_healthy() {
        assert!(codes(&[tool("a"), tool("b-2_c")]).is_empty());
    }

    #[test]
    fn names_that_repeat_or_do_not_fit_are_found() {
        assert_eq!(
            codes(&[tool("a"), tool("b"), tool("a")]),
            ["duplicate-tool"]
        );
        assert_eq!(codes(&[tool("files.read"), tool("")]), ["tool-name"]);
        assert_eq!(codes(&[tool(&"x".repeat(65))]), ["tool-name"]);
        let severity = |name: &str| tools(&[tool(name)])[0].severity;
        assert_eq!(severity("files.read"), Severity::Note);
        assert_eq!(severity("read files"), Severity::Warning);
        let many: Vec<_> = (0..129).map(|n| tool(&n.to_string())).collect();
        assert_eq!(codes(&many), ["many-tools"]);
    }

    #[test]
    fn missing_descriptions_and_annotations_are_found() {
        let bare = json!({"name": "a", "inputSchema": {"properties": {"x": {"type": "string"}}}});

        assert_eq!(
            codes(&[bare]),
            ["no-description", "undescribed-parameters", "no-annotations"]
        );
        assert_eq!(codes(&[json!(3)]).len(), 3, "not even an object");
    }

    #[test]
    fn lists_that_do_not_end_or_fail_are_found() {
        let facts = |end| ListFacts {
            items: Vec::new(),
            pages: 2,
            bytes: 0,
            end,
        };
        let code =
            |end, is_declared| pages("tools/list", &facts(end), is_declared).map(|it| it.code.name);

        assert_eq!(code(ListEnd::Loop("a".into()), true), Some("paging-loop"));
        assert_eq!(code(ListEnd::NoSuchMethod, true), Some("list-failed"));
        assert_eq!(code(ListEnd::NoSuchMethod, false), None);
        assert_eq!(code(ListEnd::Complete, true), None);
    }
}
