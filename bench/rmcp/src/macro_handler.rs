//! The handler in the style of the documentation, with macros.

use std::time::Duration;

use bench_fixture::{Counters, PROGRESS_STEPS, text_of};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, ServerCapabilities, ServerConfig};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, tool, tool_handler, tool_router};
use serde::Deserialize;

#[derive(Clone, Default)]
pub struct MacroHandler {
    counters: Counters,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Size {
    kib: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Sleep {
    ms: u64,
}

#[tool_router]
impl MacroHandler {
    #[tool(description = "Returns the argument.")]
    async fn echo(&self, Parameters(arguments): Parameters<Text>) -> String {
        arguments.text
    }

    #[tool(description = "Adds two numbers.")]
    async fn add(&self, Parameters(sum): Parameters<Sum>) -> String {
        (sum.a + sum.b).to_string()
    }

    #[tool(description = "Returns the length of a text.")]
    async fn length(&self, Parameters(arguments): Parameters<Text>) -> String {
        arguments.text.len().to_string()
    }

    #[tool(description = "Returns this many KiB of text.")]
    async fn text(&self, Parameters(size): Parameters<Size>) -> String {
        text_of(size.kib)
    }

    #[tool(description = "Reports its progress three times.")]
    async fn progress(&self, context: RequestContext<RoleServer>) -> String {
        for at in PROGRESS_STEPS {
            report_progress(&context, at).await;
        }
        "done".to_owned()
    }

    #[tool(description = "Sleeps.")]
    async fn slow(&self, Parameters(sleep): Parameters<Sleep>) -> String {
        self.sleep(sleep.ms).await
    }

    #[tool(description = "Reports progress, then sleeps.")]
    async fn slow_progress(
        &self,
        Parameters(sleep): Parameters<Sleep>,
        context: RequestContext<RoleServer>,
    ) -> String {
        report_progress(&context, 1.0).await;
        self.sleep(sleep.ms).await
    }

    #[tool(description = "Returns the counters of slow calls.")]
    async fn stats(&self) -> String {
        self.counters.text()
    }
}

impl MacroHandler {
    async fn sleep(&self, ms: u64) -> String {
        let running_handler = self.counters.begin();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        running_handler.finish();
        "slept".to_owned()
    }
}

async fn report_progress(context: &RequestContext<RoleServer>, at: f64) {
    if let Some(token) = context.meta.get_progress_token() {
        let progress = ProgressNotificationParam::new(token, at);
        let _ = context.peer.notify_progress(progress).await;
    }
}

#[tool_handler]
impl ServerHandler for MacroHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
