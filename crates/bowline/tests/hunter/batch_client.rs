//! A legacy client that posts batches, which [`bowline::Client`] never does. It opens a connection for each POST.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::handlers::{HandlerStep, Job, OWN_ANSWER_ONLY, ReleaseGate, sleep_ms};
use crate::http_frontend::Connector;
use crate::invariants::{ABANDONED_HANDLERS_STOP, MAX_CALL_SECONDS};
use crate::scene::BATCH_PARTY as PARTY;
use crate::schedule::CANCELS_MAY_OVERTAKE;
use crate::schedule_log::ScheduleLog;
use crate::seeded_random::SeededRandom;
use crate::test_setup::TestSetup;

/// The client, its requests and its POSTs.
pub(crate) struct BatchClient {
    sender: PostSender,
    random: SeededRandom,
    log: ScheduleLog,
    release_gate: ReleaseGate,
    requests: Vec<SentRequest>,
    posts: Vec<Arc<BatchPost>>,
    tasks: JoinSet<()>,
}

/// Sends HTTP requests of the session.
#[derive(Clone)]
struct PostSender {
    connector: Connector,
    session: Option<HeaderValue>,
}

/// A call that was sent.
struct SentRequest {
    id: usize,
    tag: String,
    post: Arc<BatchPost>,
    is_cancelled: bool,
}

/// One POST and its response.
#[derive(Default)]
struct BatchPost {
    /// The number of its elements that are not JSON-RPC messages.
    malformed: usize,
    response: Mutex<Option<PostResponse>>,
}

struct PostResponse {
    status: StatusCode,
    session: Option<HeaderValue>,
    /// The JSON-RPC responses in its body.
    answers: Vec<Value>,
}

impl BatchClient {
    /// Opens a session of the version that has batches.
    pub(crate) async fn connect(setup: &TestSetup) -> Self {
        let mut sender = PostSender {
            connector: setup.connector(PARTY),
            session: None,
        };
        let initialize = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": {"name": "batcher", "version": "1.0.0"},
        }});
        let response = sender.clone().send(Method::POST, encode(&initialize)).await;
        sender.session = response.and_then(|response| response.session);
        assert!(
            sender.session.is_some(),
            "the response to `initialize` has a session id"
        );
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        sender
            .clone()
            .send(Method::POST, encode(&initialized))
            .await;
        Self {
            sender,
            random: setup.random.clone(),
            log: setup.log.clone(),
            release_gate: setup.release_gate.clone(),
            requests: Vec::new(),
            posts: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Posts a random body, or releases one of its handlers.
    pub(crate) fn step(&mut self) {
        match self.random.below(24) {
            0..=11 => self.post_batch(),
            12..=16 => self.post_cancel(),
            17 => self.flood(),
            _ => self.release(),
        }
    }

    fn post_batch(&mut self) {
        let mut post = BatchPost::default();
        let (mut elements, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..=self.random.below(4) {
            match self.random.below(8) {
                0..=4 => {
                    let (id, job) = self.call();
                    elements.push(request(id, &job));
                    calls.push((id, job.tag, false));
                }
                5 => {
                    if let Some((id, _, is_cancelled @ false)) = calls.last_mut() {
                        elements.push(cancel(*id));
                        *is_cancelled = true;
                    }
                }
                6 => elements.push(json!({"jsonrpc": "2.0", "method": "notifications/nothing"})),
                _ => {
                    post.malformed += 1;
                    elements.push(json!(0));
                }
            }
        }
        if elements.is_empty() {
            return;
        }
        let post = self.post(post, &Value::from(elements));
        self.requests.extend(
            calls
                .into_iter()
                .map(|(id, tag, is_cancelled)| SentRequest {
                    id,
                    tag,
                    post: post.clone(),
                    is_cancelled,
                }),
        );
    }

    fn call(&mut self) -> (usize, Job) {
        // Not `requests.len()`: the calls of a batch are added to `requests` after the whole batch is built.
        let id = self.log.next_number() as usize;
        let plan = (0..self.random.below(3)).map(|_| match self.random.below(6) {
            0 => HandlerStep::Yield,
            1 => HandlerStep::Idle(self.random.below(300) as u64),
            2 => HandlerStep::Progress,
            _ => HandlerStep::Wait,
        });
        let job = Job {
            tag: format!("{PARTY}{id}"),
            plan: plan.collect(),
        };
        (id, job)
    }

    /// Cancels a call in flight, in another POST: a single message or a batch of one.
    fn post_cancel(&mut self) {
        let may_cancel = |sent: &&mut SentRequest| {
            let has_arrived = || {
                let network = &self.sender.connector.network;
                network.has_arrived(PARTY, &sent.id.to_string())
            };
            !sent.is_cancelled && !sent.post.is_over() && (CANCELS_MAY_OVERTAKE || has_arrived())
        };
        let pending: Vec<_> = self.requests.iter_mut().filter(may_cancel).collect();
        if pending.is_empty() {
            return;
        }
        let at = self.random.below(pending.len());
        let Some(sent) = pending.into_iter().nth(at) else {
            return;
        };
        sent.is_cancelled = true;
        let cancel = cancel(sent.id);
        let body = match self.random.one_in(2) {
            true => Value::from(vec![cancel]),
            false => cancel,
        };
        self.post(BatchPost::default(), &body);
    }

    /// Posts so many notifications that the server may refuse the next POST, and a batch right after them.
    fn flood(&mut self) {
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/nothing"});
        let body = Value::from(vec![notification; FLOOD_SIZE]);
        self.post(BatchPost::default(), &body);
        self.post_batch();
    }

    fn release(&mut self) {
        if !self.requests.is_empty() {
            let sent = &self.requests[self.random.below(self.requests.len())];
            self.log.note(format_args!("{} is released", sent.tag));
            self.release_gate.release(&sent.tag);
        }
    }

    fn post(&mut self, post: BatchPost, body: &Value) -> Arc<BatchPost> {
        let post = Arc::new(post);
        let body = encode(body);
        if self.log.has_trace() {
            let start: String = String::from_utf8_lossy(&body).chars().take(300).collect();
            self.log.note(format_args!("{PARTY} posts {start}"));
        }
        let (sender, record, log) = (self.sender.clone(), post.clone(), self.log.clone());
        self.tasks.spawn(async move {
            let response = sender.send(Method::POST, body).await;
            if let Some(response) = &response {
                log.note(format_args!("{PARTY} gets {}", response.status));
            }
            *record.lock() = response;
        });
        self.posts.push(post.clone());
        post
    }

    /// Checks that the handlers of cancelled requests have stopped.
    pub(crate) fn check_that_handlers_have_stopped(&self) {
        for sent in self.requests.iter().filter(|sent| sent.is_cancelled) {
            if self.log.is_handler_running(&sent.tag) {
                self.log.violation(ABANDONED_HANDLERS_STOP, &sent.tag);
            }
        }
    }

    /// Checks that every POST has ended with one answer for each of its requests, and that the requests of refused
    /// POSTs left no state.
    pub(crate) async fn finish(mut self) {
        for _ in 0..MAX_CALL_SECONDS {
            if self.posts.iter().all(|post| post.is_over()) {
                break;
            }
            sleep_ms(1000).await;
        }
        for sent in &self.requests {
            self.check_answers(sent);
        }
        for post in &self.posts {
            self.check_malformed(post);
        }
        let refused = self.requests.iter().filter(|it| it.post.was_refused());
        let refused: Vec<_> = refused.map(|sent| (sent.id, sent.tag.clone())).collect();
        for (id, tag) in refused {
            let plan = Vec::new();
            let again = request(id, &Job { tag, plan });
            let response = self.sender.clone().send(Method::POST, encode(&again)).await;
            let answers = response.map(|it| it.answers).unwrap_or_default();
            if answers.iter().all(|answer| answer["result"].is_null()) {
                let invariant = "a refused POST leaves no request with its id";
                self.log.violation(invariant, format_args!("{id}"));
            }
        }
        self.sender.clone().send(Method::DELETE, Bytes::new()).await;
        self.tasks.shutdown().await;
    }

    fn check_answers(&self, sent: &SentRequest) {
        let SentRequest { id, tag, post, .. } = sent;
        let response = post.lock();
        let Some(response) = &*response else {
            return self.log.violation("every POST ends", tag);
        };
        if !response.status.is_success() {
            return;
        }
        let answers = response.answers.iter();
        let own: Vec<_> = answers.filter(|answer| answer["id"] == *id).collect();
        let invariant = "each request of a batch is answered once, on its own POST";
        let [answer] = own[..] else {
            let details = format_args!("{tag}: {own:?}");
            return self.log.violation(invariant, details);
        };
        let got = &answer["result"]["content"][0]["text"];
        let is_own = got == tag.as_str();
        if got.is_string() && !is_own {
            let details = format_args!("{tag} got {got}");
            self.log.violation(OWN_ANSWER_ONLY, details);
        }
        let is_terminated = sent.is_cancelled && answer["error"]["code"] == -32800;
        if !is_own && !is_terminated {
            let details = format_args!("{tag} got {answer}");
            self.log.violation(invariant, details);
        }
    }

    fn check_malformed(&self, post: &BatchPost) {
        let response = post.lock();
        let Some(response) = &*response else { return };
        let answers = response.answers.iter();
        let count = answers.filter(|answer| answer["id"].is_null()).count();
        if response.status.is_success() && count != post.malformed {
            let invariant = "each malformed element of a batch is refused once";
            let details = format_args!("{count} of {}", post.malformed);
            self.log.violation(invariant, details);
        }
    }
}

impl BatchPost {
    fn is_over(&self) -> bool {
        self.lock().is_some()
    }

    fn was_refused(&self) -> bool {
        let response = self.lock();
        response.as_ref().is_some_and(|it| !it.status.is_success())
    }

    fn lock(&self) -> MutexGuard<'_, Option<PostResponse>> {
        self.response.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostSender {
    /// Sends one request over a new connection, and reads the whole response.
    async fn send(self, method: Method, body: Bytes) -> Option<PostResponse> {
        let near = self.connector.connect().await;
        let (mut send, connection) = http1::handshake(TokioIo::new(near)).await.ok()?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(id) = &self.session {
            request = request.header("mcp-session-id", id);
        }
        let request = request.body(Full::new(body)).ok()?;
        let response = send.send_request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        drop(send);
        let _ = connection.await;
        Some(PostResponse {
            status: head.status,
            session: head.headers.get("mcp-session-id").cloned(),
            answers: answers(&body),
        })
    }
}

/// Returns the JSON-RPC responses in a body: one message, a batch, or an SSE stream of them.
fn answers(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body);
    let mut values: Vec<Value> = Vec::new();
    match serde_json::from_str(&text) {
        Ok(value) => values.push(value),
        Err(_) => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
            values.extend(data.filter_map(|data| serde_json::from_str(data).ok()));
        }
    }
    let each = values.into_iter().flat_map(|value| match value {
        Value::Array(values) => values,
        value => vec![value],
    });
    each.filter(|value| value["method"].is_null()).collect()
}

fn request(id: usize, job: &Job) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work", "arguments": job}})
}

fn cancel(id: usize) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// Encodes a body with `jsonrpc` as the first member of each message, by which the traffic monitor recognizes messages.
fn encode(value: &Value) -> Bytes {
    let one = |value: &Value| {
        let Value::Object(members) = value else {
            return value.to_string();
        };
        let mut members = members.clone();
        members.remove("jsonrpc");
        let rest = Value::Object(members).to_string();
        format!("{{\"jsonrpc\":\"2.0\",{}", &rest[1..])
    };
    match value {
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(one).collect();
            format!("[{}]", values.join(",")).into()
        }
        value => one(value).into(),
    }
}

/// More messages than a server queues for one client.
const FLOOD_SIZE: usize = 1_100;
