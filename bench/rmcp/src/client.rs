//! `rmcp-client`: the same client with rmcp, speaking the latest version; by `--default` as `serve` does it,
//! which opens a conversation of the version before.

use bench_fixture::{ClientOptions, Target, drive, drop_one_by_one};
use bench_rmcp::ByHand;
use rmcp::model::{CallToolRequestParams, ClientConfig, JsonObject, ProtocolVersion};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServiceExt as _};
use serde_json::json;
use std::sync::Arc;

fn main() {
    let options = ClientOptions::read();
    bench_fixture::block_on(run(options));
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
            command.arg("--stdio");
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
        let slow = || call(client.clone(), "slow", json!({"ms": 60_000}));
        let stats = async || {
            let text = call(client.clone(), "stats", json!({})).await;
            text.expect("`stats` answers")
        };
        drop_one_by_one(options.drops, slow, stats).await;
    } else {
        let caller = client.clone();
        let call = move || {
            let reply = call(caller.clone(), "echo", json!({"text": "hello"}));
            async move { reply.await.is_ok_and(|text| text == "hello") }
        };
        drive(options.in_flight, options.window, call).await;
    }
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
