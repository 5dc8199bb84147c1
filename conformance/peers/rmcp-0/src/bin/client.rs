//! Checks our server with an early rmcp: a mode, `auto` or `sse`, and a URL or a command.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::transport::{SseClientTransport, StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;
type Client = RunningService<RoleClient, ()>;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut counts = [0, 0];
    let mut report = |name: &str, outcome: Result<()>| match outcome {
        Ok(()) => {
            counts[0] += 1;
            println!("ok {name}");
        }
        Err(error) => {
            counts[1] += 1;
            println!("FAILED {name}: {}", error.to_string().replace('\n', " "));
        }
    };
    match within(open(&words)).await {
        Err(error) => report("open", Err(error)),
        Ok((client, version)) => {
            report("open", Ok(()));
            println!("# {version}");
            report("list", within(list(&client)).await);
            report("call", within(add(&client)).await);
            report("abandon", within(abandon(&client)).await);
            let close = async { Ok(client.cancel().await.map(|_| ())?) };
            report("close", within(close).await);
        }
    }
    println!("{} passed, {} failed", counts[0], counts[1]);
    ExitCode::from(u8::from(counts[1] != 0))
}

async fn open(words: &[String]) -> Result<(Client, String)> {
    let client = match words {
        [mode, url] if mode == "sse" => {
            ().serve(SseClientTransport::start(url.as_str()).await?)
                .await?
        }
        [_, url] if url.starts_with("http://") => {
            ().serve(StreamableHttpClientTransport::from_uri(url.as_str()))
                .await?
        }
        [_, program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments);
            ().serve(TokioChildProcess::new(command)?).await?
        }
        _ => return Err("usage: client auto|sse URL | COMMAND…".into()),
    };
    let version = call(&client, "protocol_version", json!({})).await?;
    Ok((client, version))
}

async fn list(client: &Client) -> Result<()> {
    let tools = client.list_all_tools().await?;
    let is_there = tools.iter().any(|tool| tool.name == "add");
    ensure(is_there, "`add` is not listed")
}

async fn add(client: &Client) -> Result<()> {
    let sum = call(client, "add", json!({"a": 2, "b": 40})).await?;
    ensure(sum == "42", &format!("expected 2 + 40 = 42, got {sum}"))
}

async fn abandon(client: &Client) -> Result<()> {
    let before = stats(client).await?;
    let request = CallToolRequest {
        method: Default::default(),
        params: params("slow", json!({"seconds": 600})),
        extensions: Default::default(),
    };
    let request = ClientRequest::CallToolRequest(request);
    let options = PeerRequestOptions::no_options();
    let slow = client.send_cancellable_request(request, options).await?;
    while stats(client).await?["started"] == before["started"] {
        sleep(POLL_INTERVAL).await;
    }
    slow.cancel(None).await?;
    let stopped = timeout(ABANDON_LIMIT, async {
        while stats(client).await?["cancelled"] == before["cancelled"] {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    });
    match stopped.await {
        Ok(outcome) => outcome.and(add(client).await),
        Err(_) => Err("the handler of a dropped call was not cancelled".into()),
    }
}

async fn stats(client: &Client) -> Result<Value> {
    Ok(serde_json::from_str(
        &call(client, "stats", json!({})).await?,
    )?)
}

async fn call(client: &Client, tool: &'static str, arguments: Value) -> Result<String> {
    let result = client.call_tool(params(tool, arguments)).await?;
    let text = result.content.first().and_then(|block| block.as_text());
    Ok(text.ok_or("the result has no text")?.text.clone())
}

fn params(tool: &'static str, arguments: Value) -> CallToolRequestParam {
    CallToolRequestParam {
        name: tool.into(),
        arguments: arguments.as_object().cloned(),
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

async fn within<T>(check: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(TIME_LIMIT, check).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("timed out after {} s", TIME_LIMIT.as_secs()).into()),
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(30);
const ABANDON_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
