//! Servers with a store whose clock is tokio's, and scripted clients.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::exchange::{Dialect, Outcome, Principal, Request};
use bowline::layer::Next;
use bowline::testing::{ScriptedPeer, scripted_client};
use bowline::{Server, Tool};
use bowline_tasks::Tasks;
use bowline_tasks::store::{MemoryStore, StoreLimits, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A store whose time is that of tokio's clock, which tests pause.
pub(crate) fn store() -> Arc<MemoryStore> {
    store_with(StoreLimits::new())
}

pub(crate) fn store_with(limits: StoreLimits) -> Arc<MemoryStore> {
    let start = Instant::now();
    let clock = move || {
        let base = Timestamp::from_millis(1_785_240_000_000);
        base.after(Instant::now().duration_since(start))
    };
    Arc::new(MemoryStore::new().limits(limits).clock(clock))
}

/// A process with these tools. The principal of a request is the member `principal` of its `_meta`.
pub(crate) fn server(tasks: Tasks, tools: impl IntoIterator<Item = Tool>) -> Server {
    let server = Server::new("s", "1").layer(authenticate).extension(tasks);
    let server = tools.into_iter().fold(server, Server::tool);
    server.check().unwrap();
    server
}

async fn authenticate(request: Request, next: Next) -> Outcome {
    let meta = request.params.member("_meta").unwrap().unwrap();
    let meta: Value = meta.decode().unwrap();
    let next = match meta["principal"].as_str() {
        Some(name) => next.with_principal(Principal::named(name)),
        None => next,
    };
    next.run(request).await
}

/// A client that declares the extension.
pub(crate) struct TestClient {
    peer: ScriptedPeer,
    principal: Option<&'static str>,
    next_id: i64,
    notifications: VecDeque<Value>,
}

impl TestClient {
    pub(crate) fn new(server: &Server) -> Self {
        Self {
            peer: scripted_client(server),
            principal: None,
            next_id: 1,
            notifications: VecDeque::new(),
        }
    }

    pub(crate) fn of_principal(server: &Server, principal: &'static str) -> Self {
        Self {
            principal: Some(principal),
            ..Self::new(server)
        }
    }

    /// Sends a request; returns its result or its error.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id).await
    }

    /// Sends a request of a client that does not declare the extension.
    pub(crate) async fn request_undeclared(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Value, Value> {
        let id = self.send_with(method, params, &json!({}));
        self.answer(id).await
    }

    /// Sends a request; returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        let extensions = json!({"io.modelcontextprotocol/tasks": {}});
        self.send_with(method, params, &extensions)
    }

    fn send_with(&mut self, method: &str, mut params: Value, extensions: &Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let capabilities = json!({"elicitation": {}, "roots": {}, "extensions": extensions});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        if let Some(principal) = self.principal {
            params["_meta"]["principal"] = principal.into();
        }
        self.peer.request(modern(), id, method, params);
        id
    }

    pub(crate) async fn answer(&mut self, id: i64) -> Result<Value, Value> {
        loop {
            let mut message = self.peer.next_message().await;
            if message.get("method").is_some() {
                self.notifications.push_back(message);
                continue;
            }
            assert_eq!(message["id"], id, "unexpected response {message}");
            return match message.get_mut("error") {
                Some(error) => Err(error.take()),
                None => Ok(message["result"].take()),
            };
        }
    }

    pub(crate) fn cancel_request(&mut self, id: i64) {
        let params = json!({"requestId": id});
        self.peer.notify("notifications/cancelled", params);
    }

    /// Returns the params of the next notification, which must have this method.
    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        let mut message = match self.notifications.pop_front() {
            Some(message) => message,
            None => self.peer.next_message().await,
        };
        assert_eq!(message["method"], method, "{message}");
        message["params"].take()
    }

    /// Checks that no further message arrives.
    pub(crate) async fn expect_nothing(&mut self) {
        assert_eq!(self.notifications, [] as [Value; 0]);
        self.peer.expect_nothing().await;
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Calls a tool, which must become a task; returns its id.
    pub(crate) async fn start(&mut self, tool: &str) -> String {
        let created = self.call(tool, json!({})).await.unwrap();
        assert_eq!(created["resultType"], "task", "{created}");
        created["taskId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&mut self, task: &str) -> Result<Value, Value> {
        self.request("tasks/get", json!({"taskId": task})).await
    }

    pub(crate) async fn cancel(&mut self, task: &str) -> Result<Value, Value> {
        self.request("tasks/cancel", json!({"taskId": task})).await
    }

    pub(crate) async fn update(&mut self, task: &str, answers: Value) -> Result<Value, Value> {
        let params = json!({"taskId": task, "inputResponses": answers});
        self.request("tasks/update", params).await
    }

    /// Polls a task until it has this status.
    pub(crate) async fn wait_for(&mut self, task: &str, status: &str) -> Value {
        let mut last = Value::Null;
        for _ in 0..600 {
            last = self.get(task).await.unwrap();
            if last["status"] == status {
                return last;
            }
            pass(SECOND / 10).await;
        }
        panic!("expected the status `{status}`, got {last}");
    }

    /// Subscribes to tasks; returns the accepted ids.
    pub(crate) async fn listen(&mut self, tasks: &[&str]) -> Value {
        let params = json!({"notifications": {"taskIds": tasks}});
        self.send("subscriptions/listen", params);
        let acknowledged = "notifications/subscriptions/acknowledged";
        let mut params = self.notification(acknowledged).await;
        params["notifications"]["taskIds"].take()
    }
}

pub(crate) fn modern() -> &'static Dialect {
    Dialect::of("2026-07-28").unwrap()
}

/// Lets this time pass, with all that happens in it.
pub(crate) async fn pass(time: Duration) {
    timeout(time, pending::<()>()).await.unwrap_err();
}

/// The answer to an elicitation.
#[allow(clippy::needless_pass_by_value, reason = "callers pass `json!`")]
pub(crate) fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// Counts how often something happened.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts when the returned value is dropped.
    pub(crate) fn on_drop(&self) -> CountsDrop {
        CountsDrop(self.clone())
    }
}

pub(crate) struct CountsDrop(Counter);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A tool that never ends, and counts when its handler is dropped.
pub(crate) fn hangs(dropped: &Counter) -> Tool {
    let dropped = dropped.clone();
    Tool::new("hangs", move || {
        let guard = dropped.on_drop();
        async move {
            let _guard = guard;
            pending::<String>().await
        }
    })
}
