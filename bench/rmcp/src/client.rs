//! `rmcp-client`: the same client with rmcp, speaking the latest version; by `--default` as `serve` does it,
//! which opens a conversation of the version before.

use bench_fixture::{ClientOptions, TIMEOUT, Target, drive, drop_one_by_one, time_out};
use bench_rmcp::ByHand;
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
    let lifecycle = if options.default_way {
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
            let transport = TokioChildProcess::new(command).expect("the child can be started");
            handler.serve_with_lifecycle(transport, lifecycle).await
        }
        Target::Memory => {
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let running = ByHand::new(0).serve(far).await;
                let _ = running.expect("the client opens").waiting().await;
            });
            handler.serve_with_lifecycle(near, lifecycle).await
        }
        Target::InProcess => panic!("rmcp has no way to do without a wire"),
    };
    let client = Arc::new(client.expect("the server answers"));
    if options.drops > 0 {
        let slow = || call(client.clone(), "slow", json!({"ms": 60_000, "watch": true}));
        let stats = async || {
            let text = call(client.clone(), "stats", json!({})).await;
            text.expect("`stats` answers")
        };
        drop_one_by_one(options.drops, slow, stats).await;
    } else if options.stalled {
        let long = "x".repeat(1 << 20);
        time_out(|| limited(client.clone(), json!({"text": long}))).await;
    } else {
        let caller = client.clone();
        let call = move || {
            let reply = call(caller.clone(), "echo", json!({"text": "hello"}));
            async move { reply.await.is_ok_and(|text| text == "hello") }
        };
        drive(options.in_flight, options.window, call).await;
    }
}

/// `echo` with a timeout.
async fn limited(
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
