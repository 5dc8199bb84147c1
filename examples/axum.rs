//! An MCP server in an axum application, behind CORS and body-limit middleware, with routes for probes and shutdown.
//!
//! `cargo run --example axum` listens on `http://127.0.0.1:8000/mcp`, or on the address in its first argument, with one
//! tool, `add`. `/ready` returns 200 until the server shuts down, as after Ctrl-C; `/live` as long as it answers.

use std::time::Duration;

use axum::Router;
use axum::http::Method;
use bowline::http::HttpService;
use bowline::http::server::SourcePolicy;
use bowline::{CallToolResult, Server, Tool};
use serde_json::json;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (app, mcp) = application();
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let stop = async move {
        let _ = tokio::signal::ctrl_c().await;
        // Ends subscriptions and lets handlers finish, so that axum's graceful shutdown does not wait for them. At
        // SIGTERM, `drain` would first take requests until a load balancer has noticed.
        mcp.shut_down(Duration::from_secs(5));
        mcp.drained().await;
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    Ok(())
}

/// Returns the application, and its MCP service.
fn application() -> (Router, HttpService) {
    let add = Tool::raw("add", json!({"type": "object"}), async |arguments, _cx| {
        let arguments: serde_json::Value = arguments.decode().map_err(bowline::invalid_params)?;
        let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
        Ok(CallToolResult::text(sum.to_string()))
    });
    // For a web page of this origin: the policy admits its requests, CORS lets it read the responses.
    let policy = SourcePolicy::loopback().allow_origin(PAGE);
    let mcp = Server::new("calculator", "1.0.0")
        .tool(add)
        .http()
        .source(policy);
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::exact(
            PAGE.parse().expect("the origin is ASCII"),
        ))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(Any);

    let app = Router::new()
        .route_service("/mcp", mcp.clone())
        .route_service("/live", mcp.liveness())
        .route_service("/ready", mcp.readiness())
        .layer(RequestBodyLimitLayer::new(1024 * 1024))
        .layer(cors);
    (app, mcp)
}

const PAGE: &str = "https://app.example";

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::{Request, Response, StatusCode};
    use http_body_util::BodyExt;
    use tower_service::Service;

    async fn send(app: &mut Router, request: Request<Body>) -> Response<Body> {
        app.call(request).await.expect("a router is infallible")
    }

    fn call() -> axum::http::request::Builder {
        Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "add")
    }

    fn body() -> Body {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}}}});
        body.to_string().into()
    }

    #[tokio::test]
    async fn a_tool_is_called_through_the_middleware() {
        let (mut app, _) = application();

        let request = call().header("origin", PAGE).body(body()).unwrap();
        let response = send(&mut app, request).await;

        assert_eq!(response.headers()["access-control-allow-origin"], PAGE);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "3");
    }

    #[tokio::test]
    async fn requests_of_other_origins_are_refused() {
        let (mut app, _) = application();

        let request = call().header("origin", "https://evil.example");
        let response = send(&mut app, request.body(body()).unwrap()).await;

        assert_eq!(response.status(), StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn the_server_is_not_ready_after_shutdown() {
        let (mut app, mcp) = application();
        let ready = || Request::get("/ready").body(Body::empty()).unwrap();

        let before = send(&mut app, ready()).await.status();
        mcp.shut_down(Duration::ZERO);
        let after = send(&mut app, ready()).await.status();

        assert_eq!(
            (before, after),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        let refused = send(&mut app, call().body(body()).unwrap()).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
