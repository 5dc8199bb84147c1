//! `TaskServer`, a scripted server that answers `tools/call` with a task.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::exchange::{Notification, Outcome, Request, Responder};
use bowline::types::ElicitResult;
use bowline::{Client, Context, ErrorCode, RpcError};
use bowline_tasks::TaskClient;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const ID: &str = "A7";

/// A server with one task, in the states that the test sets.
#[derive(Clone)]
pub(crate) struct TaskServer(Arc<Mutex<Script>>);

struct Script {
    /// The result of `tools/call`.
    created: Value,
    /// The answers of each method, in order; the last is repeated. `Silence` is no answer.
    answers: BTreeMap<&'static str, VecDeque<Answer>>,
    /// Sends the params of notifications to the listeners, and `null` to end their subscriptions.
    listeners: Option<broadcast::Sender<Value>>,
    /// What a listener's acknowledgement contains; by default what it requested.
    acknowledged: Option<Value>,
    requests: Vec<(Instant, String, Value)>,
}

#[derive(Clone)]
pub(crate) enum Answer {
    Result(Value),
    Error(ErrorCode, &'static str),
    Silence,
}

impl From<Value> for Answer {
    fn from(result: Value) -> Self {
        Self::Result(result)
    }
}

impl TaskServer {
    /// A server whose task is working, and that sends no notifications.
    pub(crate) fn new() -> Self {
        let mut created = task("working");
        created["resultType"] = json!("task");
        let server = Self(Arc::new(Mutex::new(Script {
            created,
            answers: BTreeMap::new(),
            listeners: None,
            acknowledged: None,
            requests: Vec::new(),
        })));
        server
            .answers("tasks/get", [task("working")])
            .answers("tasks/update", [json!({})])
            .answers("tasks/cancel", [json!({})])
    }

    /// Sets the result of `tools/call`.
    pub(crate) fn created(self, created: Value) -> Self {
        self.0.lock().unwrap().created = created;
        self
    }

    /// Sets the answers to a method.
    pub(crate) fn answers<A: Into<Answer>>(
        self,
        method: &'static str,
        answers: impl IntoIterator<Item = A>,
    ) -> Self {
        self.set_answers(method, answers);
        self
    }

    pub(crate) fn set_answers<A: Into<Answer>>(
        &self,
        method: &'static str,
        answers: impl IntoIterator<Item = A>,
    ) {
        let answers = answers.into_iter().map(Into::into).collect();
        self.0.lock().unwrap().answers.insert(method, answers);
    }

    /// Sets the answers to `tasks/get`.
    pub(crate) fn states<A: Into<Answer>>(self, states: impl IntoIterator<Item = A>) -> Self {
        self.answers("tasks/get", states)
    }

    /// Makes the server accept subscriptions, and returns what sends notifications.
    pub(crate) fn listening(&self) -> broadcast::Sender<Value> {
        let (sender, _) = broadcast::channel(100);
        self.0.lock().unwrap().listeners = Some(sender.clone());
        sender
    }

    pub(crate) fn acknowledging(self, acknowledged: Value) -> Self {
        self.0.lock().unwrap().acknowledged = Some(acknowledged);
        self
    }

    /// A client of this server that waits for tasks.
    pub(crate) async fn client(&self) -> Client {
        self.connect().extension(TaskClient::new()).await.unwrap()
    }

    pub(crate) async fn client_with_host(&self, host: Host) -> Client {
        let client = self.connect().extension(TaskClient::new()).host(host);
        client.await.unwrap()
    }

    pub(crate) fn connect(&self) -> ClientBuilder {
        Client::in_process(&self.responder()).protocol_version(MODERN)
    }

    pub(crate) fn responder(&self) -> impl Responder + Clone + use<> {
        let server = self.clone();
        move |request, cx| server.clone().respond(request, cx)
    }

    /// The methods of all requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        let script = self.0.lock().unwrap();
        let methods = script.requests.iter().map(|(_, method, _)| method.clone());
        methods.collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.params(method).len()
    }

    /// The params of all requests for `method`.
    pub(crate) fn params(&self, method: &str) -> Vec<Value> {
        let script = self.0.lock().unwrap();
        let requests = script.requests.iter();
        let params = requests.filter(|(_, received, _)| received == method);
        params.map(|(_, _, params)| params.clone()).collect()
    }

    /// When the requests for `method` came.
    pub(crate) fn times(&self, method: &str) -> Vec<Instant> {
        let script = self.0.lock().unwrap();
        let requests = script.requests.iter();
        let times = requests.filter(|(_, received, _)| received == method);
        times.map(|(at, _, _)| *at).collect()
    }

    /// Waits until a request for `method` has come.
    pub(crate) async fn received(&self, method: &str) {
        let limit = Instant::now() + Duration::from_secs(3600);
        while self.count(method) == 0 {
            assert!(Instant::now() < limit, "no `{method}` came");
            pass(Duration::from_millis(1)).await;
        }
    }

    async fn respond(self, request: Request, cx: Context) -> Outcome {
        let params: Value = request.params.decode().unwrap();
        let method = &*request.method;
        let declared = request.caller.capabilities.extensions.as_ref();
        assert!(
            declared.is_some_and(|declared| declared.contains_key("io.modelcontextprotocol/tasks")),
            "`{method}` does not declare the extension"
        );
        let answer = self.receive(method, &params);
        match answer {
            Some(Answer::Result(result)) => Ok(result.into()),
            Some(Answer::Error(code, message)) => Err(RpcError::new(code, message)),
            Some(Answer::Silence) => pending().await,
            None if method == "subscriptions/listen" => self.listen(params, cx).await,
            None => Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, method)),
        }
    }

    fn receive(&self, method: &str, params: &Value) -> Option<Answer> {
        let mut script = self.0.lock().unwrap();
        let (now, known) = (Instant::now(), params.clone());
        script.requests.push((now, method.to_owned(), known));
        if method == "tools/call" && !script.answers.contains_key(method) {
            return Some(script.created.clone().into());
        }
        let answers = script.answers.get_mut(method)?;
        match answers.len() {
            ..2 => answers.front().cloned(),
            _ => answers.pop_front(),
        }
    }

    async fn listen(self, params: Value, cx: Context) -> Outcome {
        let (listeners, acknowledged) = {
            let script = self.0.lock().unwrap();
            let receiver = script.listeners.as_ref().map(broadcast::Sender::subscribe);
            (receiver, script.acknowledged.clone())
        };
        let Some(mut changes) = listeners else {
            return Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, "no listeners"));
        };
        let filter = acknowledged.unwrap_or_else(|| params["notifications"].clone());
        let method = "notifications/subscriptions/acknowledged";
        send(&cx, method, json!({"notifications": filter}));
        while let Ok(change) = changes.recv().await
            && !change.is_null()
        {
            send(&cx, "notifications/tasks", change);
        }
        Ok(json!({}).into())
    }
}

pub(crate) fn send(cx: &Context, method: &'static str, params: Value) {
    cx.send(Notification::new(method, Some(params.into())));
}

/// A task of the server, which is to be polled every second.
pub(crate) fn task(status: &str) -> Value {
    json!({
        "taskId": ID,
        "status": status,
        "createdAt": "2026-07-28T12:00:00Z",
        "lastUpdatedAt": "2026-07-28T12:00:01Z",
        "ttlMs": 3_600_000,
        "pollIntervalMs": 1000,
    })
}

/// The task with other members.
pub(crate) fn with(mut task: Value, members: Value) -> Value {
    let Value::Object(members) = members else {
        panic!("expected an object, got {members}");
    };
    for (name, value) in members {
        task[name] = value;
    }
    task
}

pub(crate) fn completed(text: &str) -> Value {
    let result = json!({"content": [{"type": "text", "text": text}]});
    with(task("completed"), json!({"result": result}))
}

/// The task with a question for the user under this key.
pub(crate) fn asking(key: &str) -> Value {
    let request = json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "How many?",
            "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    });
    with(
        task("input_required"),
        json!({"inputRequests": {key: request}}),
    )
}

/// A host that answers 3, and how often it was asked.
pub(crate) fn answering_host() -> (Host, Arc<Mutex<usize>>) {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let host = Host::new().elicitation(move |_| {
        *count.lock().unwrap() += 1;
        async { ElicitResult::accept(json!({"n": 3})) }
    });
    (host, asked)
}

/// Lets this time pass, with all that happens in it.
pub(crate) async fn pass(time: Duration) {
    timeout(time, pending::<()>()).await.unwrap_err();
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
