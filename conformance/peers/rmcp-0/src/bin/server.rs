//! A server on an early rmcp: `stdio`, or `http` or `sse` and a port.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{SseServer, StreamableHttpServerConfig, StreamableHttpService, stdio};
use rmcp::{Error as McpError, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["stdio"] => {
            Tools.serve(stdio()).await?.waiting().await?;
        }
        ["sse", port] => {
            let server = SseServer::serve(format!("127.0.0.1:{port}").parse()?).await?;
            server.with_service(|| Tools).cancelled().await;
        }
        ["http", port] => {
            let service = StreamableHttpService::new(
                || Ok(Tools),
                Arc::new(LocalSessionManager::default()),
                StreamableHttpServerConfig::default(),
            );
            let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
            let router = axum::Router::new().nest_service("/mcp", service);
            axum::serve(listener, router).await?;
        }
        _ => return Err("usage: server stdio | http PORT | sse PORT".into()),
    }
    Ok(())
}

#[derive(Clone)]
struct Tools;

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerInfo {
        ServerInfo {
            capabilities: ServerCapabilities::builder().enable_tools().build(),
            ..Default::default()
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        let Value::Object(schema) = json!({"type": "object"}) else {
            return Err(McpError::internal_error("no schema", None));
        };
        let tool = |name| Tool::new(name, "", schema.clone());
        Ok(ListToolsResult {
            tools: vec![tool("add"), tool("slow")],
            next_cursor: None,
        })
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParam,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, McpError> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let number = |name: &str| arguments[name].as_i64().unwrap_or_default();
        let text = match &*call.name {
            "add" => (number("a") + number("b")).to_string(),
            _ => {
                let seconds = Duration::from_secs(number("seconds").unsigned_abs());
                tokio::select! {
                    () = tokio::time::sleep(seconds) => "slept".to_owned(),
                    () = context.ct.cancelled() => "cancelled".to_owned(),
                }
            }
        };
        Ok(CallToolResult::success(vec![Content::text(text)]))
    }
}
