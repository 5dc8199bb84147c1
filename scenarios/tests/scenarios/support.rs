//! Servers, tools and requests that several scenarios share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bowline::types::{
    GetPromptRequest, GetPromptRequestParams, GetPromptResult, ListToolsRequest,
    PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult,
    Tool as ToolDefinition,
};
use bowline::{CallToolResult, Client, Context, Error, Json, Result, RpcError, Server, Tool};
use scenarios::http::RawHttpClient;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A JSON schema that accepts any object.
pub(crate) fn any_object() -> Value {
    json!({"type": "object"})
}

/// A tool that returns its arguments as text.
pub(crate) fn echo(name: &str) -> Tool {
    Tool::raw(name, any_object(), async |arguments: Json, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    })
}

/// A tool that returns this result for any arguments.
pub(crate) fn fixed_result(name: &str, result: Value) -> Tool {
    let result: CallToolResult = serde_json::from_value(result).unwrap();
    Tool::raw(name, any_object(), move |_, _| {
        let result = result.clone();
        async { Ok(result) }
    })
}

/// Adds a tool `change` that applies `change` to the running server.
pub(crate) fn with_change(server: Server, change: fn(&Server)) -> Server {
    server.tool(Tool::raw("change", any_object(), move |_, cx: Context| {
        change(&cx.server());
        async { Ok(CallToolResult::text("changed")) }
    }))
}

/// A server whose tool `hang` never completes, whose tool `handler_counts` returns how many `hang` handlers started and
/// how many were dropped, and whose tool `echo` returns its arguments.
pub(crate) fn hanging_server() -> Server {
    let counters = Arc::new(HandlerCounters::default());
    let counted = counters.clone();
    let hang = Tool::raw("hang", any_object(), move |_, cx: Context| {
        let guard = HangGuard::start(&counters);
        async move {
            let _guard = guard;
            cx.progress(1.0);
            std::future::pending().await
        }
    });
    let counts = Tool::raw("handler_counts", any_object(), move |_, _| {
        let text = format!("{} {}", counted.started(), counted.dropped());
        async { Ok(CallToolResult::text(text)) }
    });
    Server::new("hanging", "1.0.0")
        .tool(hang)
        .tool(counts)
        .tool(echo("echo"))
}

#[derive(Default)]
struct HandlerCounters {
    started: AtomicUsize,
    dropped: AtomicUsize,
}

impl HandlerCounters {
    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct HangGuard(Arc<HandlerCounters>);

impl HangGuard {
    fn start(counters: &Arc<HandlerCounters>) -> Self {
        counters.started.fetch_add(1, Ordering::SeqCst);
        Self(counters.clone())
    }
}

impl Drop for HangGuard {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls a [`hanging_server`] until this many `hang` handlers have started and this many were dropped.
pub(crate) async fn wait_for_handlers(client: &Client, started: usize, dropped: usize) {
    let expected = format!("{started} {dropped}");
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if client.call_tool("handler_counts", ()).await.unwrap().text() == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    let counts = client.call_tool("handler_counts", ()).await.unwrap().text();
    panic!("expected {expected} started and dropped handlers, got {counts}");
}

/// The same as [`wait_for_handlers`], with a raw HTTP client.
pub(crate) async fn wait_for_handlers_raw(client: &RawHttpClient, started: usize, dropped: usize) {
    let expected = format!("{started} {dropped}");
    let mut counts = Value::Null;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let call = client.call("handler_counts", "handler_counts");
        let answer = call.await.answer().await;
        counts = answer["result"]["content"][0]["text"].clone();
        if counts == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("expected {expected} started and dropped handlers, got {counts}");
}

/// A server whose tool `wait` reports progress and waits for a call of `release`.
pub(crate) fn waiting_server() -> Server {
    let released = Arc::new(Notify::new());
    let releaser = released.clone();
    let wait = Tool::raw("wait", any_object(), move |_, cx: Context| {
        let released = released.clone();
        async move {
            cx.progress(1.0);
            released.notified().await;
            Ok(CallToolResult::text("released"))
        }
    });
    let release = Tool::raw("release", any_object(), move |_, _| {
        releaser.notify_one();
        async { Ok(CallToolResult::text("done")) }
    });
    Server::new("waiting", "1.0.0").tool(wait).tool(release)
}

/// Starts a call of `hang` in a task, and waits until its handler is running; aborting the task drops the call.
pub(crate) async fn start_hang(client: &Client) -> tokio::task::JoinHandle<Result<bowline::Reply>> {
    let started = handler_count(client, 0).await;
    let call = tokio::spawn(client.call_tool("hang", ()).into_future());
    let dropped = handler_count(client, 1).await;
    wait_for_handlers(client, started + 1, dropped).await;
    call
}

/// The number of started (0) or dropped (1) handlers.
async fn handler_count(client: &Client, nth: usize) -> usize {
    let text = client.call_tool("handler_counts", ()).await.unwrap().text();
    text.split(' ').nth(nth).unwrap().parse().unwrap()
}

/// The JSON-RPC error with which the peer rejected a request.
pub(crate) fn peer_error<T: std::fmt::Debug>(result: Result<T>) -> RpcError {
    match result {
        Err(Error::Rpc(error)) => error,
        other => panic!("expected an error of the peer, got {other:?}"),
    }
}

/// The first page of tools.
pub(crate) async fn tools(client: &Client) -> Vec<ToolDefinition> {
    let params = PaginatedRequestParams::default();
    let page = client.request::<ListToolsRequest>(&params).await.unwrap();
    page.tools
}

/// Decodes raw JSON.
pub(crate) fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

/// Reads a resource.
pub(crate) async fn read(client: &Client, uri: &str) -> Result<ReadResourceResult> {
    let params = ReadResourceRequestParams::new(uri);
    client.request::<ReadResourceRequest>(&params).await
}

/// Reads a resource, and returns its contents as JSON.
pub(crate) async fn contents(client: &Client, uri: &str) -> Value {
    serde_json::to_value(read(client, uri).await.unwrap().contents).unwrap()
}

/// Gets a prompt.
pub(crate) async fn prompt(
    client: &Client,
    name: &str,
    arguments: Value,
) -> Result<GetPromptResult> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = serde_json::from_value(arguments).unwrap();
    client.request::<GetPromptRequest>(&params).await
}

/// The messages of a prompt, as JSON.
pub(crate) async fn messages(client: &Client, name: &str, arguments: Value) -> Value {
    let result = prompt(client, name, arguments).await.unwrap();
    serde_json::to_value(result.messages).unwrap()
}

/// Of the clock of the machine: that of a test may be paused.
const PATIENCE: Duration = Duration::from_secs(30);
