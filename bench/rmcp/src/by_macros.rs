//! The handler as the documentation shows it first.

use std::time::Duration;

use bench_fixture::{Counters, STEPS, text_of};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, ServerCapabilities, ServerConfig};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, tool, tool_handler, tool_router};
use serde::Deserialize;

#[derive(Clone, Default)]
pub struct ByMacros {
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
impl ByMacros {
    #[tool(description = "Says what it is told.")]
    async fn echo(&self, Parameters(said): Parameters<Text>) -> String {
        said.text
    }

    #[tool(description = "Adds two numbers.")]
    async fn add(&self, Parameters(sum): Parameters<Sum>) -> String {
        (sum.a + sum.b).to_string()
    }

    #[tool(description = "Tells how long a text is.")]
    async fn length(&self, Parameters(said): Parameters<Text>) -> String {
        said.text.len().to_string()
    }

    #[tool(description = "Says that many KiB of text.")]
    async fn text(&self, Parameters(size): Parameters<Size>) -> String {
        text_of(size.kib)
    }

    #[tool(description = "Reports its progress three times.")]
    async fn progress(&self, context: RequestContext<RoleServer>) -> String {
        for at in STEPS {
            say(&context, at).await;
        }
        "done".to_owned()
    }

    #[tool(description = "Sleeps.")]
    async fn slow(&self, Parameters(sleep): Parameters<Sleep>) -> String {
        self.sleep(sleep.ms).await
    }

    #[tool(description = "Says that it has begun, then sleeps.")]
    async fn slow_progress(
        &self,
        Parameters(sleep): Parameters<Sleep>,
        context: RequestContext<RoleServer>,
    ) -> String {
        say(&context, 1.0).await;
        self.sleep(sleep.ms).await
    }

    #[tool(description = "Tells what became of the slow calls.")]
    async fn stats(&self) -> String {
        self.counters.text()
    }
}

impl ByMacros {
    async fn sleep(&self, ms: u64) -> String {
        let working = self.counters.begin();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        working.finish();
        "slept".to_owned()
    }
}

async fn say(context: &RequestContext<RoleServer>, at: f64) {
    if let Some(token) = context.meta.get_progress_token() {
        let progress = ProgressNotificationParam::new(token, at);
        let _ = context.peer.notify_progress(progress).await;
    }
}

#[tool_handler]
impl ServerHandler for ByMacros {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
