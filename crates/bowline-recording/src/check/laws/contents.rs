//! Laws about the contents of results.

use std::collections::BTreeSet;

use bowline_types::Json;
use serde_json::Value;

use super::super::context::ResultOf;
use super::{Breach, Breaches, COMPLETION, CheckContext, Law, RESOURCES, TOOLS, must, should};
use crate::timeline::{member, text_member};

pub(super) const LAWS: &[Law] = &[
    must(
        "tool-schema",
        TOOLS,
        "the `inputSchema` of a tool is an object of type `object`",
        tool_schema,
    ),
    should(
        "tool-name",
        TOOLS,
        "a tool has a unique name of 1 to 128 letters, digits, `_`, `-` and `.`",
        tool_name,
    ),
    must(
        "tool-content",
        TOOLS,
        "the result of a tool has an array `content`",
        tool_content,
    ),
    must(
        "list-shape",
        TOOLS,
        "the result of a list has its array, and `nextCursor` is a string",
        list_shape,
    ),
    must(
        "resource-contents",
        RESOURCES,
        "a resource that is read has contents with `text` or `blob`",
        resource_contents,
    ),
    must(
        "completion-limit",
        COMPLETION,
        "a completion has at most 100 values",
        completion_limit,
    ),
];

fn complete_results<'a>(
    context: &'a CheckContext<'_>,
    method: &'static str,
) -> impl Iterator<Item = ResultOf<'a>> {
    context
        .results()
        .filter(move |it| it.exchange.method == method && it.is_complete())
}

fn list(result: &ResultOf<'_>, name: &str) -> Option<Vec<Json>> {
    result.member(name)?.decode().ok()
}

fn tool_schema(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in complete_results(context, "tools/list") {
        for tool in list(&result, "tools").unwrap_or_default() {
            let name = text_member(&tool, &["name"]).unwrap_or_default();
            let schema = member(&tool, &["inputSchema"]);
            let is_of_object = |it: &Json| text_member(it, &["type"]).as_deref() == Some("object");
            if !schema.as_ref().is_some_and(is_of_object) {
                let what = format!(
                    "the tool {:?} has no `inputSchema` of type `object`",
                    bowline_core::shortened(name)
                );
                breaches.push(breach(&result, what));
            }
        }
    }
}

fn tool_name(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in complete_results(context, "tools/list") {
        let mut names = BTreeSet::new();
        for tool in list(&result, "tools").unwrap_or_default() {
            let name = text_member(&tool, &["name"]).unwrap_or_default();
            let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_-.".contains(&it);
            if !(1..=128).contains(&name.len()) || !name.bytes().all(is_plain) {
                let what = format!("a tool has the name {:?}", bowline_core::shortened(&name));
                breaches.push(breach(&result, what));
            }
            if !names.insert(name.clone()) {
                let what = format!(
                    "two tools have the name {:?}",
                    bowline_core::shortened(&name)
                );
                breaches.push(breach(&result, what));
            }
        }
    }
}

fn tool_content(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in complete_results(context, "tools/call") {
        // A call that was made a task is answered with the task.
        if result.member("task").is_none() && list(&result, "content").is_none() {
            let name = result.exchange.name.clone().unwrap_or_default();
            let what = format!(
                "the result of {:?} has no array `content`",
                bowline_core::shortened(name)
            );
            breaches.push(breach(&result, what));
        }
    }
}

fn list_shape(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (method, member) in [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        for result in complete_results(context, method) {
            if list(&result, member).is_none() {
                let what = format!("the result of {method} has no array `{member}`");
                breaches.push(breach(&result, what));
            }
            let cursor = result.member("nextCursor");
            if cursor.is_some_and(|cursor| cursor.text().is_err()) {
                let what = format!("`nextCursor` of {method} is not a string");
                breaches.push(breach(&result, what));
            }
        }
    }
}

fn resource_contents(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in complete_results(context, "resources/read") {
        let contents: Option<Vec<Value>> =
            result.member("contents").and_then(|it| it.decode().ok());
        let has_content = |it: &Value| it["text"].is_string() || it["blob"].is_string();
        let is_valid =
            |contents: &Vec<Value>| !contents.is_empty() && contents.iter().all(has_content);
        if !contents.as_ref().is_some_and(is_valid) {
            let uri = result.exchange.name.clone().unwrap_or_default();
            let what = format!(
                "{:?} was read without contents",
                bowline_core::shortened(uri)
            );
            breaches.push(breach(&result, what));
        }
    }
}

fn completion_limit(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in complete_results(context, "completion/complete") {
        let values = member(result.result, &["completion", "values"]);
        let values: Option<Vec<Json>> = values.and_then(|values| values.decode().ok());
        let what = match values.map(|values| values.len()) {
            None => "a completion has no array `values`".to_owned(),
            Some(count) if count > 100 => format!("a completion has {count} values"),
            Some(_) => continue,
        };
        breaches.push(breach(&result, what));
    }
}

fn breach(result: &ResultOf<'_>, what: String) -> Breach {
    Breach::new(what, [result.line]).of(result.exchange.number)
}
