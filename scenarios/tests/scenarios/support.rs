//! Servers and questions that many scenarios need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bowline::types::{
    GetPromptRequest, GetPromptRequestParams, GetPromptResult, ListToolsRequest,
    PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult,
    Tool as ToolDefinition,
};
use bowline::{CallToolResult, Client, Context, Error, Json, Result, RpcError, Server, Tool};
use scenarios::http::Plain;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The schema of any object.
pub(crate) fn anything() -> Value {
    json!({"type": "object"})
}

/// A tool that answers with its arguments.
pub(crate) fn echo(name: &str) -> Tool {
    Tool::raw(name, anything(), async |arguments: Json, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    })
}

/// A tool that answers with this, whatever it is asked.
pub(crate) fn answering(name: &str, result: Value) -> Tool {
    let result: CallToolResult = serde_json::from_value(result).unwrap();
    Tool::raw(name, anything(), move |_, _| {
        let result = result.clone();
        async { Ok(result) }
    })
}

/// Adds a tool `change` that does this to the server while it runs.
pub(crate) fn with_change(server: Server, change: fn(&Server)) -> Server {
    let own = Arc::new(OnceLock::<Server>::new());
    let itself = own.clone();
    let tool = Tool::raw("change", anything(), move |_, _| {
        change(itself.get().unwrap());
        async { Ok(CallToolResult::text("changed")) }
    });
    let server = server.tool(tool);
    own.set(server.clone()).unwrap();
    server
}

/// A server whose tool `hang` never ends, whose tool `tally` tells how many of those began and how many were
/// dropped, and whose tool `echo` answers with its arguments.
pub(crate) fn hanging() -> Server {
    let tally = Arc::new(Tally::default());
    let telling = tally.clone();
    let hang = Tool::raw("hang", anything(), move |_, cx: Context| {
        let running = Running::begin(&tally);
        async move {
            let _running = running;
            cx.progress(1.0);
            std::future::pending().await
        }
    });
    let tell = Tool::raw("tally", anything(), move |_, _| {
        let text = format!("{} {}", telling.begun(), telling.dropped());
        async { Ok(CallToolResult::text(text)) }
    });
    Server::new("hanging", "1.0.0")
        .tool(hang)
        .tool(tell)
        .tool(echo("echo"))
}

#[derive(Default)]
struct Tally {
    begun: AtomicUsize,
    dropped: AtomicUsize,
}

impl Tally {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct Running(Arc<Tally>);

impl Running {
    fn begin(tally: &Arc<Tally>) -> Self {
        tally.begun.fetch_add(1, Ordering::SeqCst);
        Self(tally.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asks a [`hanging`] server until this many calls of `hang` began and this many were dropped.
pub(crate) async fn tally(client: &Client, begun: usize, dropped: usize) {
    let expected = format!("{begun} {dropped}");
    for _ in 0..1000 {
        if client.call_tool("tally", ()).await.unwrap().text() == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    let told = client.call_tool("tally", ()).await.unwrap().text();
    panic!("begun and dropped are {told} and not {expected}");
}

/// The same, asked by somebody who speaks plain HTTP.
pub(crate) async fn tally_of(plain: &Plain, begun: usize, dropped: usize) {
    let expected = format!("{begun} {dropped}");
    let mut told = Value::Null;
    for _ in 0..1000 {
        let answer = plain.call("tally", "tally").await.answer().await;
        told = answer["result"]["content"][0]["text"].clone();
        if told == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("begun and dropped are {told} and not {expected}");
}

/// A server whose tool `wait` says something and waits for a call of `release`.
pub(crate) fn waiting() -> Server {
    let gate = Arc::new(Notify::new());
    let opening = gate.clone();
    let wait = Tool::raw("wait", anything(), move |_, cx: Context| {
        let gate = gate.clone();
        async move {
            cx.progress(1.0);
            gate.notified().await;
            Ok(CallToolResult::text("released"))
        }
    });
    let release = Tool::raw("release", anything(), move |_, _| {
        opening.notify_one();
        async { Ok(CallToolResult::text("done")) }
    });
    Server::new("waiting", "1.0.0").tool(wait).tool(release)
}

/// A call of `hang` that is at work, in a task; aborting the task drops the call.
pub(crate) async fn hang(client: &Client) -> tokio::task::JoinHandle<Result<bowline::Reply>> {
    let begun = begun(client).await;
    let call = tokio::spawn(client.call_tool("hang", ()).into_future());
    let dropped = dropped(client).await;
    tally(client, begun + 1, dropped).await;
    call
}

async fn begun(client: &Client) -> usize {
    told(client, 0).await
}

async fn dropped(client: &Client) -> usize {
    told(client, 1).await
}

async fn told(client: &Client, nth: usize) -> usize {
    let text = client.call_tool("tally", ()).await.unwrap().text();
    text.split(' ').nth(nth).unwrap().parse().unwrap()
}

/// How the other side said no.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T>) -> RpcError {
    match result {
        Err(Error::Peer(error)) => error,
        other => panic!("the other side did not say no, but {other:?}"),
    }
}

/// The first page of tools.
pub(crate) async fn tools(client: &Client) -> Vec<ToolDefinition> {
    let params = PaginatedRequestParams::default();
    let page = client.request::<ListToolsRequest>(&params).await.unwrap();
    page.tools
}

/// What a result says, as JSON.
pub(crate) fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

/// Reads a resource.
pub(crate) async fn read(client: &Client, uri: &str) -> Result<ReadResourceResult> {
    let params = ReadResourceRequestParams::new(uri);
    client.request::<ReadResourceRequest>(&params).await
}

/// Reads a resource, as JSON.
pub(crate) async fn contents(client: &Client, uri: &str) -> Value {
    serde_json::to_value(read(client, uri).await.unwrap().contents).unwrap()
}

/// Asks for a prompt.
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
