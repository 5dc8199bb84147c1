//! One tool over HTTP.

use std::sync::Arc;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::schemars::{self, JsonSchema};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use serde::Deserialize;

#[derive(Clone)]
struct Calculator;

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[tool_router]
impl Calculator {
    #[tool(description = "Adds two numbers.")]
    async fn add(&self, Parameters(sum): Parameters<Sum>) -> String {
        (sum.a + sum.b).to_string()
    }
}

#[tool_handler]
impl ServerHandler for Calculator {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    #[cfg(feature = "client")]
    if let Some(url) = std::env::args().nth(1) {
        use rmcp::ServiceExt as _;
        use rmcp::model::{CallToolRequestParams, ClientConfig, JsonObject};
        let transport = rmcp::transport::StreamableHttpClientTransport::from_uri(url.as_str());
        let client = ClientConfig::default().serve(transport).await;
        let client = client.expect("failed to connect");
        let arguments = serde_json::json!({"a": 1, "b": 2});
        let arguments: JsonObject = serde_json::from_value(arguments).expect("an object");
        let params = CallToolRequestParams::new("add").with_arguments(arguments);
        println!("{:?}", client.call_tool(params).await);
        return;
    }
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Calculator), sessions, config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await;
    let listener = listener.expect("failed to bind");
    axum::serve(listener, router).await.expect("failed to serve");
}
