//! `RawResponder`: parses a request into a small struct, and answers it with a `match`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bench_fixture::{Counters, text_of};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

#[derive(Clone)]
pub(crate) struct RawResponder {
    counters: Counters,
    list: Arc<str>,
    /// Notifies subscriptions that the tools changed.
    pub(crate) changes: broadcast::Sender<()>,
}

/// The response to a request.
pub(crate) enum Action {
    /// Respond immediately.
    Respond(Vec<u8>),
    /// Send these notifications, then respond after this time.
    RespondLater {
        after: Duration,
        notifications: Vec<String>,
        response: Vec<u8>,
    },
    /// Send the first notification, then one for each change.
    Listen { first: String, each: String },
    /// A notification, which has no response.
    Ignore,
}

#[derive(Deserialize)]
pub(crate) struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta", default)]
    meta: Meta<'a>,
}

#[derive(Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(default)]
    a: i64,
    #[serde(default)]
    b: i64,
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    kib: usize,
}

impl RawResponder {
    pub(crate) fn new(tools: usize) -> Self {
        let tools: Vec<serde_json::Value> = (0..tools)
            .map(|index| {
                serde_json::json!({
                    "name": format!("tool_{index}"),
                    "description": "Returns the argument.",
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                })
            })
            .collect();
        let result = serde_json::json!({
            "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"
        });
        Self {
            counters: Counters::default(),
            list: result.to_string().into(),
            changes: broadcast::Sender::new(16),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Handles the request in `bytes`.
    ///
    /// # Panics
    ///
    /// On a malformed request: the raw server validates nothing.
    pub(crate) fn handle(&self, bytes: &[u8]) -> Action {
        let request: Request<'_> = serde_json::from_slice(bytes).expect("a request");
        let Some(id) = request.id else {
            return Action::Ignore;
        };
        let id = id.get();
        match &*request.method {
            "tools/call" => self.call(id, &request.params),
            "tools/list" => Action::Respond(response(id, &self.list)),
            "server/discover" => Action::Respond(response(id, DISCOVERED)),
            "initialize" => Action::Respond(response(id, INITIALIZED)),
            "subscriptions/listen" => listen(id),
            // Bridges request lists that this server does not have.
            other => Action::Respond(unknown(id, other)),
        }
    }

    fn call(&self, id: &str, params: &Params<'_>) -> Action {
        let arguments = params.arguments.map_or("{}", RawValue::get);
        let arguments: Arguments<'_> = serde_json::from_str(arguments).expect("arguments");
        match &*params.name {
            "add" => Action::Respond(text(id, &(arguments.a + arguments.b).to_string())),
            "length" => Action::Respond(text(id, &arguments.text.len().to_string())),
            "text" => Action::Respond(text(id, &text_of(arguments.kib))),
            "stats" => Action::Respond(text(id, &self.counters.text())),
            "notify" => {
                let _ = self.changes.send(());
                Action::Respond(text(id, "ok"))
            }
            "progress" => Action::RespondLater {
                after: Duration::ZERO,
                notifications: bench_fixture::PROGRESS_STEPS
                    .map(|at| progress(params, at))
                    .into(),
                response: text(id, "done"),
            },
            "slow" => Action::RespondLater {
                after: Duration::from_millis(arguments.ms),
                notifications: Vec::new(),
                response: text(id, "slept"),
            },
            "slow_progress" => Action::RespondLater {
                after: Duration::from_millis(arguments.ms),
                notifications: vec![progress(params, 1.0)],
                response: text(id, "slept"),
            },
            _ => Action::Respond(text(id, &arguments.text)),
        }
    }
}

fn listen(id: &str) -> Action {
    let notification = |method: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{more}"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    Action::Listen {
        first: notification(
            "subscriptions/acknowledged",
            r#""notifications":{"toolsListChanged":true},"#,
        ),
        each: notification("tools/list_changed", ""),
    }
}

fn progress(params: &Params<'_>, at: f64) -> String {
    let token = params.meta.token.map_or("0", RawValue::get);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{at}}}}}"#
    )
}

fn text(id: &str, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 160);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(br#","result":{"content":[{"type":"text","text":"#);
    serde_json::to_writer(&mut out, text).expect("text is serializable");
    out.extend_from_slice(br#"}],"resultType":"complete"}}"#);
    out
}

fn unknown(id: &str, method: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"method not found: {method}"}}}}"#
    )
    .into_bytes()
}

fn response(id: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

const DISCOVERED: &str = r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"raw","version":"0"}}}"#;
const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"0"}}"#;
