//! [`Introduction`]: what a mock answers to `server/discover`, which is also its answer to `initialize`.

use std::sync::Arc;

use bowline::Context;
use bowline::exchange::{Caller, Dialects, Outcome, Request};
use bowline::http::server::{MethodCatalog, ParamHeaders};
use bowline_core::json::{Object, pick};
use bowline_types::{Implementation, Json, ServerCapabilities};
use serde::Deserialize;
use serde_json::json;

use super::MockInner;
use super::play::sleep;
use crate::conversation::{Conversation, Ending, RequestKey, Script, Step};

/// What the recorded server says about itself.
pub(super) struct Introduction {
    /// The result of `server/discover`, with the versions of the mock.
    result: Json,
    pub(super) server_info: Implementation,
    pub(super) capabilities: ServerCapabilities,
    pub(super) catalog: ToolHeaders,
}

impl Introduction {
    pub(super) fn of(conversation: &Conversation, served: &Dialects) -> Self {
        let versions: Vec<&str> = served.iter().map(|dialect| dialect.version).collect();
        let recorded = conversation.introduction.clone();
        let recorded = recorded.unwrap_or_else(|| guess(conversation));
        let result = match (Object::read(&recorded), Json::encode(&versions)) {
            (Ok(mut members), Ok(versions)) => {
                members.set("supportedVersions", versions);
                members.to_json()
            }
            _ => recorded.clone(),
        };
        let declared = pick(&result, ["capabilities"]).ok();
        let declared = declared.and_then(|[declared]| declared?.decode().ok());
        let name = || Implementation::new("mock", env!("CARGO_PKG_VERSION"));
        Self {
            capabilities: declared.unwrap_or_default(),
            server_info: conversation.server_info.clone().unwrap_or_else(name),
            catalog: ToolHeaders::of(&conversation.scripts),
            result,
        }
    }

    /// Returns the result for a caller. The extension of tasks, and the tasks of 2025-11-25, are offered to clients of
    /// the era in which they were recorded.
    fn for_caller(&self, caller: &Caller) -> Json {
        let Ok(mut result) = Object::read(&self.result) else {
            return self.result.clone();
        };
        let Some(declared) = result.member("capabilities").cloned() else {
            return self.result.clone();
        };
        let Ok(mut capabilities) = Object::read(&declared) else {
            return self.result.clone();
        };
        match caller.dialect.is_modern() {
            true => drop(capabilities.remove("tasks")),
            false => drop(capabilities.remove("extensions")),
        }
        let capabilities = capabilities.to_json();
        result.set("capabilities", capabilities);
        result.to_json()
    }
}

impl MockInner {
    pub(super) async fn introduce(&self, request: &Request, cx: &Context) -> Outcome {
        let key = RequestKey::new(&request.method, &Json::empty_object());
        let nth = self.count_use(&key, cx);
        sleep(self.faults.answer_delay(std::time::Duration::ZERO)).await;
        match self.faults.failure(key.method(), key.params(), nth) {
            Some(error) => Err(error),
            None => Ok(self.introduction.for_caller(&request.caller)),
        }
    }
}

/// Makes an introduction of what was requested, for a recording that has none: it began after the client had connected,
/// or the client is modern and did not ask.
fn guess(conversation: &Conversation) -> Json {
    let has = |prefix: &str| {
        let mut scripts = conversation.scripts.iter();
        scripts.any(|script| script.method.starts_with(prefix))
    };
    let mut capabilities = json!({});
    for (name, prefix) in [
        ("tools", "tools/"),
        ("prompts", "prompts/"),
        ("resources", "resources/"),
        ("completions", "completion/"),
    ] {
        if has(prefix) {
            capabilities[name] = json!({});
        }
    }
    let has_logs = |step: &Step| matches!(step, Step::Notify { notification, .. } if notification.method == "notifications/message");
    let mut steps = conversation.scripts.iter().flat_map(|script| &script.steps);
    if steps.any(has_logs) {
        capabilities["logging"] = json!({});
    }
    for group in &conversation.changes {
        let filter = group.filter.clone().unwrap_or_default();
        let is_sent = |method: &str| group.changes.iter().any(|change| change.method == method);
        let is_declared = [
            (
                "tools",
                filter.tools_list_changed,
                "notifications/tools/list_changed",
            ),
            (
                "prompts",
                filter.prompts_list_changed,
                "notifications/prompts/list_changed",
            ),
            (
                "resources",
                filter.resources_list_changed,
                "notifications/resources/list_changed",
            ),
        ];
        for (name, is_wanted, method) in is_declared {
            if is_wanted == Some(true) || is_sent(method) {
                capabilities[name]["listChanged"] = json!(true);
            }
        }
        if filter.resource_subscriptions.is_some() || is_sent("notifications/resources/updated") {
            capabilities["resources"]["subscribe"] = json!(true);
        }
    }
    Json::from(json!({"capabilities": capabilities}))
}

/// The arguments of the recorded tools that clients mirror in `Mcp-Param-*` headers.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolHeaders(Arc<Vec<(String, Arc<ParamHeaders>)>>);

impl ToolHeaders {
    fn of(scripts: &[Script]) -> Self {
        #[derive(Deserialize)]
        struct Page {
            tools: Vec<ListedTool>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListedTool {
            name: String,
            input_schema: Option<Json>,
        }
        let lists = scripts.iter().filter(|it| it.method == "tools/list");
        let pages = lists.filter_map(|script| match &script.ending {
            // Most servers mirror no arguments, and their lists need not be decoded.
            Ending::Answer {
                outcome: Ok(page), ..
            } if page.as_str().contains("x-mcp-header") => page.decode::<Page>().ok(),
            _ => None,
        });
        let mut headers: Vec<(String, Arc<ParamHeaders>)> = Vec::new();
        for tool in pages.flat_map(|page| page.tools) {
            // Clients do not call a tool with an invalid annotation over HTTP.
            let read = tool
                .input_schema
                .and_then(|it| ParamHeaders::read(&it).ok());
            if let Some(read) = read.filter(|read| !read.is_empty())
                && headers.iter().all(|(name, _)| *name != tool.name)
            {
                headers.push((tool.name, Arc::new(read)));
            }
        }
        Self(Arc::new(headers))
    }
}

impl MethodCatalog for ToolHeaders {
    fn has_method(&self, _: &str) -> bool {
        true
    }

    fn param_headers(&self, tool: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        let mut headers = self.0.iter();
        let (_, headers) = headers.find(|(name, _)| name == tool)?;
        Some(headers.clone())
    }
}
