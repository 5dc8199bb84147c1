//! The legacy era over HTTP, tested with `SessionClient`, an HTTP client that sets the session headers.

mod cancellation;
mod drain;
mod limits;
mod paths;
mod raw_responder;
mod replicas;
mod revival;
mod serving_modes;
mod sessions;
mod streams;

use bowline::Client;
use bowline::exchange::{CallOptions, Request as ServerRequest};
use bowline::http::HttpService;
use bowline::{CallToolResult, Json, RpcError, Server, Tool};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

/// A client of one session. Opens a connection for each request, and keeps them open.
pub(crate) struct SessionClient {
    service: HttpService,
    version: &'static str,
    pub(crate) id: String,
    connections: Vec<PlainConnection>,
}

impl SessionClient {
    /// Sends `initialize`, and continues without a session if the response has none.
    pub(crate) async fn open_with_optional_session(
        service: &HttpService,
        version: &'static str,
    ) -> Self {
        let mut connection = PlainConnection::http1(service).await;
        let response = connection.send(post(&initialize(version))).await;
        let id = response
            .header("mcp-session-id")
            .unwrap_or_default()
            .to_owned();
        Self {
            service: service.clone(),
            version,
            id,
            connections: vec![connection],
        }
    }

    /// Sends `initialize` and `notifications/initialized`.
    pub(crate) async fn open(service: &HttpService, version: &'static str) -> Self {
        let mut connection = PlainConnection::http1(service).await;
        let response = connection.send(post(&initialize(version))).await;
        assert_eq!(response.status(), 200);
        let id = response
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        let answer = response.json().await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        let mut client = Self {
            service: service.clone(),
            version,
            id,
            connections: vec![connection],
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.send(client.post(&initialized)).await.status(), 202);
        client
    }

    pub(crate) fn service(&self) -> &HttpService {
        &self.service
    }

    /// The same client, whose requests another service gets.
    pub(crate) fn at(&self, service: &HttpService) -> Self {
        Self {
            service: service.clone(),
            version: self.version,
            id: self.id.clone(),
            connections: Vec::new(),
        }
    }

    /// A POST with the headers of this session.
    pub(crate) fn post(&self, body: &Value) -> Request<Full<Bytes>> {
        self.with_session_headers(post(body))
    }

    /// A call of a tool; the argument `name` identifies it.
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
        self.with_session_headers(request.body(Full::default()).unwrap())
    }

    pub(crate) fn delete(&self) -> Request<Full<Bytes>> {
        let request = Request::delete("/mcp").header("host", "localhost");
        self.with_session_headers(request.body(Full::default()).unwrap())
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> PlainResponse {
        let mut connection = PlainConnection::http1(&self.service).await;
        let response = connection.send(request).await;
        self.connections.push(connection);
        response
    }

    /// Calls the tool `progress`, and waits until its handler has started.
    pub(crate) async fn start_call(
        &mut self,
        fixture: &mut ServerFixture,
        id: i64,
        name: &str,
    ) -> PlainResponse {
        let request = self.call_with_progress(id, "progress", name);
        fixture.started(name, self.send(request)).await
    }

    /// Closes every connection. The session continues.
    pub(crate) fn close_connections(&mut self) {
        self.connections.clear();
    }

    pub(crate) fn with_session_headers(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Request<Full<Bytes>> {
        let request = match &*self.id {
            "" => request,
            id => with_header(request, "mcp-session-id", id),
        };
        match self.version {
            "2025-03-26" => request,
            version => with_header(request, "mcp-protocol-version", version),
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

/// Adds a tool that requests `roots/list` of its client and returns the response.
pub(crate) fn with_roots_tool(server: Server) -> Server {
    let list_roots = Tool::raw(
        "list_roots",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            let Some(back) = cx.back_channel() else {
                return Ok(CallToolResult::error("no back channel"));
            };
            let caller = cx.caller().clone();
            let request = ServerRequest::new("roots/list", Json::empty_object(), caller);
            match back.open(request, CallOptions::default()).answer().await {
                Ok(answer) => Ok(CallToolResult::text(format!("{answer:?}"))),
                Err(error) => Err(RpcError::new(bowline::ErrorCode(-1), error.to_string()).into()),
            }
        },
    );
    server.tool(list_roots)
}

/// Returns the id of the last event.
pub(crate) fn last_event_id(events: &str) -> &str {
    let mut ids = events.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.next_back().expect("an event with an id")
}

#[tokio::test]
async fn our_client_works_in_every_legacy_version() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let fixture = ServerFixture::new();
        let bound = fixture.server.http().bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.local_addr());
        let serving = tokio::spawn(bound.serve());

        let client = Client::connect(&url)
            .protocol_version(version)
            .await
            .unwrap();
        let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();

        assert_eq!(reply.text(), r#"{"a":1}"#, "{version}");
        client.close().await.unwrap();
        serving.abort();
    }
}
