//! The part of an examination that is the same over every transport: lists, tools, schemas, cost, cancellation.

use serde_json::{Value, json};

use super::checks::cancel::{CancelVerdict, NO_TOOL};
use super::checks::cost::Cost;
use super::checks::{cancel, era, lists, schemas};
use super::codes;
use super::probe::cancel::{CancelCall, choose_tool};
use super::probe::lists::{ListEnd, ListFacts, read_list};
use super::probe::{self, Link};
use super::report::{Finding, Report};
use super::{CancelChoice, Settings};

/// Examines what a server offers. `introduction` is the result of `server/discover` or `initialize`.
pub(crate) async fn examine_server(
    link: &mut Link<'_>,
    introduction: &Value,
    settings: &Settings,
    report: &mut Report,
) {
    if let Some(name) = server_name(introduction) {
        report.fact("server", name);
    }
    let capabilities = &introduction["capabilities"];
    let mut tools = Vec::new();
    for list in LISTS {
        if !capabilities[list.capability].is_object() {
            continue;
        }
        let facts = read_list(link, list.method, list.member, settings.patience).await;
        report
            .findings
            .extend(lists::pages(list.method, &facts, list.is_required));
        report.findings.extend(judge_items(list, &facts));
        report.fact(list.label, describe(&facts));
        if list.member == "tools" {
            tools = facts.items;
        }
    }
    report.findings.extend(era::untyped_results(&link.untyped));
    let instructions = introduction["instructions"].as_str().unwrap_or_default();
    let cost = Cost::of(&tools, instructions);
    report.fact("context", cost.describe());
    report.findings.extend(cost.finding());
    report.cost = Some(cost.to_json());
    examine_cancellation(link, &tools, settings, report).await;
}

fn judge_items(list: &ListKind, facts: &ListFacts) -> Vec<Finding> {
    let items = &facts.items;
    if matches!(facts.end, ListEnd::Loop(_)) {
        return Vec::new(); // the same items come again
    }
    match list.member {
        "tools" => [lists::tools(items), schemas::schemas(items)].concat(),
        _ => lists::duplicates(items, list.key, list.noun, &codes::DUPLICATE_NAME)
            .into_iter()
            .collect(),
    }
}

fn describe(facts: &ListFacts) -> String {
    match &facts.end {
        ListEnd::Complete => facts.items.len().to_string(),
        ListEnd::NoSuchMethod => "none".to_owned(),
        ListEnd::Failed(_) => "failed".to_owned(),
        ListEnd::Loop(_) | ListEnd::TooMany => format!("{} or more", facts.items.len()),
    }
}

async fn examine_cancellation(
    link: &mut Link<'_>,
    tools: &[Value],
    settings: &Settings,
    report: &mut Report,
) {
    let call = match &settings.cancel {
        CancelChoice::None => {
            report.unchecked("cancellation", "--no-cancel is given");
            return;
        }
        CancelChoice::Named { tool, arguments } => {
            let definition = tools.iter().find(|it| it["name"] == tool.as_str());
            Some(CancelCall {
                tool: tool.clone(),
                arguments: arguments.clone(),
                schema: definition.map_or(json!({}), |it| it["inputSchema"].clone()),
            })
        }
        CancelChoice::Any => choose_tool(tools),
    };
    let Some(call) = call else {
        report.unchecked("cancellation", NO_TOOL);
        return;
    };
    let facts = probe::cancel::cancel(link, &call, settings.patience).await;
    match cancel::judge(&facts) {
        CancelVerdict::Healthy(what) => report.fact("cancel", what),
        CancelVerdict::Faulty(findings) => report.findings.extend(findings),
        CancelVerdict::Unknown(why) => report.unchecked("cancellation", why),
    }
}

fn server_name(introduction: &Value) -> Option<String> {
    let in_meta = &introduction["_meta"]["io.modelcontextprotocol/serverInfo"];
    let info = introduction.get("serverInfo").unwrap_or(in_meta);
    let name = info["name"].as_str()?;
    let version = info["version"].as_str().unwrap_or_default();
    Some(format!("{name} {version}").trim_end().to_owned())
}

/// A list of a server.
#[derive(Debug)]
struct ListKind {
    capability: &'static str,
    method: &'static str,
    member: &'static str,
    /// The member that must differ.
    key: &'static str,
    noun: &'static str,
    label: &'static str,
    /// Whether a server with the capability must have it.
    is_required: bool,
}

static LISTS: &[ListKind] = &[
    ListKind {
        capability: "tools",
        method: "tools/list",
        member: "tools",
        key: "name",
        noun: "tool",
        label: "tools",
        is_required: true,
    },
    ListKind {
        capability: "prompts",
        method: "prompts/list",
        member: "prompts",
        key: "name",
        noun: "prompt",
        label: "prompts",
        is_required: true,
    },
    ListKind {
        capability: "resources",
        method: "resources/list",
        member: "resources",
        key: "uri",
        noun: "resource",
        label: "resources",
        is_required: true,
    },
    // Many servers have resources and no templates, and leave the method out.
    ListKind {
        capability: "resources",
        method: "resources/templates/list",
        member: "resourceTemplates",
        key: "uriTemplate",
        noun: "resource template",
        label: "templates",
        is_required: false,
    },
];
