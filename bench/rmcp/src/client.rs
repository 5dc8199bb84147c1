//! `rmcp-client`: the same client with rmcp, with the latest protocol version. With `--default` it connects as `serve`
//! does, which opens a legacy session.

use bench_fixture::{ClientOptions, TIMEOUT, Target, measure_drops, measure_timeouts, run_load};
use bench_rmcp::ManualHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, JsonObject,
    ProtocolVersion, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServiceExt as _};
use serde_json::json;
use std::sync::Arc;

fn main() {
    let options = ClientOptions::read();
    bench_fixture::block_on(options.runtime, run(options));
}

async fn run(options: ClientOptions) {
    let lifecycle = if options.documented_style {
        ClientLifecycleMode::Initialize
    } else {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        ClientLifecycleMode::Discover { preferred_versions }
    };
    let handler = ClientConfig::default();
    let client = match &options.target {
        Target::Url(url) => {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            handler.serve_with_lifecycle(transport, lifecycle).await
        }
        Target::Child(program) => {
            let mut command = tokio::process::Command::new(program);
            command.args(options.child_arguments());
            let transport = TokioChildProcess::new(command).expect("failed to start the child");
            handler.serve_with_lifecycle(transport, lifecycle).await
        }
        Target::Memory => {
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let running = ManualHandler::new(0).serve(far).await;
                let _ = running
                    .expect("failed to accept the client")
                    .waiting()
                    .await;
            });
            handler.serve_with_lifecycle(near, lifecycle).await
        }
        Target::InProcess => panic!("rmcp has no in-process transport"),
    };
    let client = Arc::new(client.expect("failed to connect"));
    if options.drops > 0 {
        let slow = || call(client.clone(), "slow", json!({"ms": 60_000, "watch": true}));
        let stats = async || {
            let text = call(client.clone(), "stats", json!({})).await;
            text.expect("a reply of `stats`")
        };
        measure_drops(options.drops, options.settle, slow, stats).await;
    } else if options.stalled {
        let long = "x".repeat(1 << 20);
        measure_timeouts(|| call_with_timeout(client.clone(), json!({"text": long}))).await;
    } else {
        let caller = client.clone();
        let call = move || {
            let reply = call(caller.clone(), "echo", json!({"text": "hello"}));
            async move { reply.await.is_ok_and(|text| text == "hello") }
        };
        run_load(options.in_flight, options.window, call).await;
    }
}

/// Calls `echo` with a timeout.
async fn call_with_timeout(
    client: Arc<RunningService<RoleClient, ClientConfig>>,
    arguments: serde_json::Value,
) -> Result<ServerResult, ServiceError> {
    let arguments: JsonObject = serde_json::from_value(arguments).expect("an object");
    let params = CallToolRequestParams::new("echo").with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::with_timeout(TIMEOUT);
    let handle = client.send_request_with_option(request, options).await?;
    handle.await_response().await
}

async fn call(
    client: Arc<RunningService<RoleClient, ClientConfig>>,
    name: &'static str,
    arguments: serde_json::Value,
) -> Result<String, ServiceError> {
    let arguments: JsonObject = serde_json::from_value(arguments).expect("an object");
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    let result = client.call_tool(params).await?;
    let text = result.content.first().and_then(|block| block.as_text());
    Ok(text.map(|text| text.text.clone()).unwrap_or_default())
}
