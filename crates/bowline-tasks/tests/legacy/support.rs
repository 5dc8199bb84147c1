//! Servers with a store whose clock is tokio's, and scripted clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Dialect, Outcome, Principal, Request};
use bowline::layer::Next;
use bowline::testing::{ScriptedPeer, scripted_client};
use bowline::{Server, Tool};
use bowline_tasks::Tasks;
use bowline_tasks::store::{MemoryStore, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A store whose time is that of tokio's clock, which tests pause.
pub(crate) fn store() -> Arc<MemoryStore> {
    let start = Instant::now();
    let clock = move || {
        let base = Timestamp::from_millis(1_785_240_000_000);
        base.after(Instant::now().duration_since(start))
    };
    Arc::new(MemoryStore::new().clock(clock))
}

/// A process with these tools. The principal of a request is the member `principal` of its `_meta`.
pub(crate) fn server(tasks: Tasks, tools: impl IntoIterator<Item = Tool>) -> Server {
    let server = Server::new("s", "1").layer(authenticate).extension(tasks);
    let server = tools.into_iter().fold(server, Server::tool);
    server.check().unwrap();
    server
}

async fn authenticate(request: Request, next: Next) -> Outcome {
    let meta = request.params.member("_meta").unwrap();
    let meta: Value = meta.map(|meta| meta.decode().unwrap()).unwrap_or_default();
    let next = match meta["principal"].as_str() {
        Some(name) => next.with_principal(Principal::named(name)),
        None => next,
    };
    next.run(request).await
}

/// A client of one connection.
pub(crate) struct TestClient {
    peer: ScriptedPeer,
    dialect: &'static Dialect,
    principal: Option<&'static str>,
    next_id: i64,
    /// What the server advertised.
    pub(crate) capabilities: Value,
    /// Responses and other messages that no method has returned yet.
    received: VecDeque<Value>,
}

impl TestClient {
    /// Connects a client of 2025-11-25 that supports elicitation.
    pub(crate) async fn connect(server: &Server) -> Self {
        Self::connect_as(server, None, json!({"elicitation": {}})).await
    }

    pub(crate) async fn of_principal(server: &Server, principal: &'static str) -> Self {
        Self::connect_as(server, Some(principal), json!({})).await
    }

    pub(crate) async fn connect_as(
        server: &Server,
        principal: Option<&'static str>,
        capabilities: Value,
    ) -> Self {
        Self::of_version(server, LEGACY, principal, capabilities).await
    }

    pub(crate) async fn of_version(
        server: &Server,
        version: &str,
        principal: Option<&'static str>,
        capabilities: Value,
    ) -> Self {
        let dialect = Dialect::of(version).unwrap();
        let mut client = Self {
            peer: scripted_client(server),
            dialect,
            principal,
            next_id: 1,
            capabilities: Value::Null,
            received: VecDeque::new(),
        };
        let (method, params) = match dialect.is_modern() {
            true => ("server/discover", json!({})),
            false => (
                "initialize",
                json!({
                    "protocolVersion": version,
                    "capabilities": capabilities,
                    "clientInfo": {"name": "scripted", "version": "1.0.0"},
                }),
            ),
        };
        let mut opened = client.request(method, params).await.unwrap();
        client.capabilities = opened["capabilities"].take();
        if !dialect.is_modern() {
            client.peer.notify("notifications/initialized", json!({}));
        }
        client
    }

    /// Sends a request; returns its result or its error.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id).await
    }

    /// Sends a request; returns its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.dialect.is_modern() {
            let capabilities =
                json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}});
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        }
        if let Some(principal) = self.principal {
            params["_meta"]["principal"] = principal.into();
        }
        self.peer.request(self.dialect, id, method, params);
        id
    }

    /// Waits for the answer to a request. Other messages are kept.
    pub(crate) async fn answer(&mut self, id: i64) -> Result<Value, Value> {
        let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == id;
        let mut message = self.take(is_answer).await;
        match message.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(message["result"].take()),
        }
    }

    /// Waits for a request or a notification of the server.
    pub(crate) async fn receive(&mut self, method: &str) -> Value {
        self.take(|message| message["method"] == method).await
    }

    async fn take(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.received.iter().position(&is_wanted) {
            return self.received.remove(at).unwrap();
        }
        loop {
            let message = self.peer.next_message().await;
            if is_wanted(&message) {
                return message;
            }
            self.received.push_back(message);
        }
    }

    /// Sends the result of a request of the server.
    pub(crate) fn reply(&mut self, request: &Value, result: &Value) {
        let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.peer.send_json(&response);
    }

    /// Sends an error as the answer to a request of the server.
    pub(crate) fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        let response = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
        self.peer.send_json(&response);
    }

    pub(crate) fn cancel_request(&mut self, id: i64) {
        let params = json!({"requestId": id});
        self.peer.notify("notifications/cancelled", params);
    }

    /// Checks that no further message arrives within a minute.
    pub(crate) async fn expect_nothing(&mut self) {
        assert_eq!(self.received, [] as [Value; 0]);
        self.peer.expect_nothing().await;
    }

    /// Checks that only messages of this method arrive within half a minute, and drops them.
    pub(crate) async fn expect_nothing_but(&mut self, method: &str) {
        let until = Instant::now() + 30 * SECOND;
        while let Ok(message) = tokio::time::timeout_at(until, self.peer.next_message()).await {
            assert_eq!(message["method"], method, "{message}");
        }
    }

    /// Calls a tool without a task.
    pub(crate) async fn call(&mut self, tool: &str) -> Result<Value, Value> {
        let params = json!({"name": tool, "arguments": {}});
        self.request("tools/call", params).await
    }

    /// Calls a tool with this member `task`.
    pub(crate) async fn call_as_task(&mut self, tool: &str, task: Value) -> Result<Value, Value> {
        let params = json!({"name": tool, "arguments": {}, "task": task});
        self.request("tools/call", params).await
    }

    /// Starts a task; returns its id.
    pub(crate) async fn start(&mut self, tool: &str) -> String {
        let created = self.call_as_task(tool, json!({})).await.unwrap();
        created["task"]["taskId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&mut self, task: &str) -> Result<Value, Value> {
        self.request("tasks/get", json!({"taskId": task})).await
    }

    pub(crate) async fn result(&mut self, task: &str) -> Result<Value, Value> {
        let id = self.send_result(task);
        self.answer(id).await
    }

    /// Sends `tasks/result`; returns the id of the request.
    pub(crate) fn send_result(&mut self, task: &str) -> i64 {
        self.send("tasks/result", json!({"taskId": task}))
    }

    pub(crate) async fn cancel(&mut self, task: &str) -> Result<Value, Value> {
        self.request("tasks/cancel", json!({"taskId": task})).await
    }

    /// Polls a task until it has this status.
    pub(crate) async fn wait_for(&mut self, task: &str, status: &str) -> Value {
        let mut last = Value::Null;
        for _ in 0..600 {
            last = self.get(task).await.unwrap();
            if last["status"] == status {
                return last;
            }
            sleep(SECOND / 10).await;
        }
        panic!("expected the status `{status}`, got {last}");
    }
}

/// Returns the names of the members of an object, in order.
pub(crate) fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().collect();
    names.sort();
    names.into_iter().map(String::as_str).collect()
}

/// The answer to an elicitation.
#[allow(clippy::needless_pass_by_value, reason = "callers pass `json!`")]
pub(crate) fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// A tool that works for this long.
pub(crate) fn works_for(duration: Duration) -> Tool {
    Tool::new("works", move || async move {
        sleep(duration).await;
        "worked"
    })
}
