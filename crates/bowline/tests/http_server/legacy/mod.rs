//! The legacy era over HTTP: a client that speaks plain HTTP, and what it finds.

mod cancelling;
mod limits;
mod others;
mod paths;
mod sessions;
mod streams;

use bowline::Client;
use bowline::exchange::{CallOptions, Request as Inside};
use bowline::http::HttpService;
use bowline::{CallToolResult, Json, RpcError, Server, Tool};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

/// A client in one session. Each request has a connection of its own, which lives as long as this does.
pub(crate) struct Conversation {
    service: HttpService,
    version: &'static str,
    pub(crate) id: String,
    links: Vec<Link>,
}

impl Conversation {
    /// Shakes hands, and goes on without a session if there is none.
    pub(crate) async fn open_if(service: &HttpService, version: &'static str) -> Self {
        let mut link = Link::to(service).await;
        let reply = link.send(post(&initialize(version))).await;
        let id = reply
            .header("mcp-session-id")
            .unwrap_or_default()
            .to_owned();
        Self {
            service: service.clone(),
            version,
            id,
            links: vec![link],
        }
    }

    /// Shakes hands.
    pub(crate) async fn open(service: &HttpService, version: &'static str) -> Self {
        let mut link = Link::to(service).await;
        let reply = link.send(post(&initialize(version))).await;
        assert_eq!(reply.status(), 200);
        let id = reply
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        let answer = reply.json().await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        let mut own = Self {
            service: service.clone(),
            version,
            id,
            links: vec![link],
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(own.send(own.post(&initialized)).await.status(), 202);
        own
    }

    /// A POST with the headers of this session.
    pub(crate) fn post(&self, body: &Value) -> Request<Full<Bytes>> {
        self.dress(post(body))
    }

    /// A call of a tool whose argument `name` tells it apart.
    pub(crate) fn call(
        &self,
        id: impl Into<Value>,
        tool: &str,
        name: &str,
    ) -> Request<Full<Bytes>> {
        self.post(&tool_call(
            &id.into(),
            tool,
            &json!({"name": name}),
            &json!({}),
        ))
    }

    /// The same with a progress token.
    pub(crate) fn call_with_progress(
        &self,
        id: i64,
        tool: &str,
        name: &str,
    ) -> Request<Full<Bytes>> {
        let meta = json!({"progressToken": id});
        self.post(&tool_call(&id.into(), tool, &json!({"name": name}), &meta))
    }

    pub(crate) fn cancel(&self, id: impl Into<Value>) -> Request<Full<Bytes>> {
        self.post(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id.into()}}),
        )
    }

    pub(crate) fn get(&self) -> Request<Full<Bytes>> {
        let request = Request::get("/mcp")
            .header("host", "localhost")
            .header("accept", "text/event-stream");
        self.dress(request.body(Full::default()).unwrap())
    }

    pub(crate) fn delete(&self) -> Request<Full<Bytes>> {
        let request = Request::delete("/mcp").header("host", "localhost");
        self.dress(request.body(Full::default()).unwrap())
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Reply {
        let mut link = Link::to(&self.service).await;
        let reply = link.send(request).await;
        self.links.push(link);
        reply
    }

    /// Loses every connection. The session goes on.
    pub(crate) fn cut(&mut self) {
        self.links.clear();
    }

    pub(crate) fn dress(&self, request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let request = match &*self.id {
            "" => request,
            id => with(request, "mcp-session-id", id),
        };
        match self.version {
            "2025-03-26" => request,
            version => with(request, "mcp-protocol-version", version),
        }
    }
}

pub(crate) fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {"roots": {}},
        "clientInfo": {"name": "plain", "version": "1"}}})
}

pub(crate) fn tool_call(id: &Value, tool: &str, arguments: &Value, meta: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta}})
}

/// A tool that asks its client for roots, and tells what came back.
pub(crate) fn asks(server: Server) -> Server {
    let asks = Tool::raw(
        "asks",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            let Some(back) = cx.way_back() else {
                return Ok(CallToolResult::error("there is no way back"));
            };
            let caller = cx.caller().clone();
            let question = Inside::new("roots/list", Json::empty_object(), caller);
            match back.open(question, CallOptions::default()).answer().await {
                Ok(answer) => Ok(CallToolResult::text(format!("{answer:?}"))),
                Err(error) => {
                    Err::<_, RpcError>(RpcError::new(bowline::ErrorCode(-1), error.to_string()))
                }
            }
        },
    );
    server.tool(asks)
}

/// What an event of a stream says about itself.
pub(crate) fn last_event_id(events: &str) -> &str {
    let mut ids = events.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.next_back().expect("an event has an id")
}

#[tokio::test]
async fn a_client_of_ours_speaks_every_legacy_version() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let stage = Stage::new();
        let bound = stage.server.http().bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.addr());
        let serving = tokio::spawn(bound.serve());

        let client = Client::connect(&url).speaking(version).await.unwrap();
        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

        assert_eq!(reply.text(), r#"{"a":1}"#, "{version}");
        client.close().await.unwrap();
        serving.abort();
    }
}
