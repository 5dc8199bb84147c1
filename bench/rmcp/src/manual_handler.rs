//! The fastest handler: a `match` on the tool name, and a prebuilt list.

use std::sync::Arc;
use std::time::Duration;

use bench_fixture::{Counters, PROGRESS_STEPS, text_of};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::broadcast;

#[derive(Clone)]
pub struct ManualHandler(Arc<Shared>);

struct Shared {
    counters: Counters,
    tools: Vec<Tool>,
    changes: broadcast::Sender<()>,
}

impl ManualHandler {
    pub fn new(tools: usize) -> Self {
        let schema = serde_json::json!({
            "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
        });
        let schema: JsonObject = serde_json::from_value(schema).expect("an object");
        let schema = Arc::new(schema);
        let tools = (0..tools)
            .map(|index| {
                Tool::new(
                    format!("tool_{index}"),
                    "Returns the argument.",
                    schema.clone(),
                )
            })
            .collect();
        Self(Arc::new(Shared {
            counters: Counters::default(),
            tools,
            changes: broadcast::Sender::new(16),
        }))
    }

    async fn slow(&self, ms: u64) -> &'static str {
        let running_handler = self.0.counters.begin();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        running_handler.finish();
        "slept"
    }
}

impl ServerHandler for ManualHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut arguments = request.arguments.unwrap_or_default();
        let number = |name: &str| arguments.get(name).and_then(|value| value.as_u64());
        let text = match &*request.name {
            "add" => (number("a").unwrap_or(0) + number("b").unwrap_or(0)).to_string(),
            "length" => {
                let text = arguments.get("text").and_then(|text| text.as_str());
                text.map_or(0, str::len).to_string()
            }
            "text" => text_of(number("kib").unwrap_or(0) as usize),
            "stats" => self.0.counters.text(),
            "notify" => {
                let _ = self.0.changes.send(());
                "ok".to_owned()
            }
            "progress" => {
                for at in PROGRESS_STEPS {
                    report_progress(&context, at).await;
                }
                "done".to_owned()
            }
            // rmcp only cancels a token; a handler that does not watch it continues to run.
            "slow" if arguments.contains_key("watch") => {
                let ms = number("ms").unwrap_or(0);
                tokio::select! {
                    slept = self.slow(ms) => slept.to_owned(),
                    () = context.ct.cancelled() => "cancelled".to_owned(),
                }
            }
            "slow" => self.slow(number("ms").unwrap_or(0)).await.to_owned(),
            "slow_progress" => {
                let ms = number("ms").unwrap_or(0);
                report_progress(&context, 1.0).await;
                self.slow(ms).await.to_owned()
            }
            _ => match arguments.remove("text") {
                Some(serde_json::Value::String(text)) => text,
                _ => String::new(),
            },
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                Ok(()) = changes.recv() => {
                    let _ = context.sink().notify_tool_list_changed().await;
                }
            }
        }
    }
}

async fn report_progress(context: &RequestContext<RoleServer>, at: f64) {
    if let Some(token) = context.meta.get_progress_token() {
        let progress = ProgressNotificationParam::new(token, at);
        let _ = context.peer.notify_progress(progress).await;
    }
}
