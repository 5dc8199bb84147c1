//! A legacy client that posts batches, which our own never does: every POST is made by hand, over a connection of
//! its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::door::Connector;
use crate::ledger::Ledger;
use crate::schedule::CANCELS_MAY_OVERTAKE;
use crate::work::{Act, Job, NO_CROSSED_ANSWERS, Releases, pass};
use crate::world::World;

/// The client, and what it has posted.
pub(crate) struct Batcher {
    mail: Mail,
    chance: Chance,
    ledger: Ledger,
    releases: Releases,
    requests: Vec<Sent>,
    posts: Vec<Arc<Post>>,
    tasks: JoinSet<()>,
}

/// What every POST needs.
#[derive(Clone)]
struct Mail {
    connector: Connector,
    session: Option<HeaderValue>,
}

/// A call that it has sent.
struct Sent {
    id: usize,
    tag: String,
    post: Arc<Post>,
    is_cancelled: bool,
}

/// One POST, and what came back.
#[derive(Default)]
struct Post {
    /// How many elements of it were not even messages.
    malformed: usize,
    reply: Mutex<Option<Reply>>,
}

struct Reply {
    status: StatusCode,
    session: Option<HeaderValue>,
    /// Every JSON-RPC response in it.
    answers: Vec<Value>,
}

impl Batcher {
    /// Opens a session of the version that has batches.
    pub(crate) async fn join(world: &World) -> Self {
        let mut mail = Mail {
            connector: world.connector(PARTY),
            session: None,
        };
        let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": {"name": "batcher", "version": "1.0.0"},
        }});
        let opened = mail.clone().send(Method::POST, text(&hello)).await;
        mail.session = opened.and_then(|reply| reply.session);
        assert!(mail.session.is_some(), "a session is opened");
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        mail.clone().send(Method::POST, text(&ready)).await;
        Self {
            mail,
            chance: world.chance.clone(),
            ledger: world.ledger.clone(),
            releases: world.releases.clone(),
            requests: Vec::new(),
            posts: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Posts something, as chance has it, or lets one of its handlers go on.
    pub(crate) fn step(&mut self) {
        match self.chance.below(24) {
            0..=11 => self.post_batch(),
            12..=16 => self.post_cancel(),
            17 => self.flood(),
            _ => self.release(),
        }
    }

    fn post_batch(&mut self) {
        let mut post = Post::default();
        let (mut elements, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..=self.chance.below(4) {
            match self.chance.below(8) {
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
        self.requests
            .extend(calls.into_iter().map(|(id, tag, is_cancelled)| Sent {
                id,
                tag,
                post: post.clone(),
                is_cancelled,
            }));
    }

    fn call(&mut self) -> (usize, Job) {
        // Those of one batch are not among the requests yet, so the id is drawn from the whole row.
        let id = self.ledger.count() as usize;
        let acts = (0..self.chance.below(3)).map(|_| match self.chance.below(6) {
            0 => Act::Yield,
            1 => Act::Take(self.chance.below(300) as u64),
            2 => Act::Progress,
            _ => Act::Wait,
        });
        let job = Job {
            tag: format!("{PARTY}{id}"),
            acts: acts.collect(),
        };
        (id, job)
    }

    /// Cancels a call that is under way, in a POST of its own: a single message or a batch of one.
    fn post_cancel(&mut self) {
        let may_cancel = |sent: &&mut Sent| {
            let has_arrived = || {
                let network = &self.mail.connector.network;
                network.has_arrived(PARTY, &sent.id.to_string())
            };
            !sent.is_cancelled && !sent.post.is_over() && (CANCELS_MAY_OVERTAKE || has_arrived())
        };
        let open: Vec<_> = self.requests.iter_mut().filter(may_cancel).collect();
        if open.is_empty() {
            return;
        }
        let at = self.chance.below(open.len());
        let Some(sent) = open.into_iter().nth(at) else {
            return;
        };
        sent.is_cancelled = true;
        let cancel = cancel(sent.id);
        let body = match self.chance.one_in(2) {
            true => Value::from(vec![cancel]),
            false => cancel,
        };
        self.post(Post::default(), &body);
    }

    /// Posts so many notifications that the server may refuse what comes next, and something right after them.
    fn flood(&mut self) {
        let notice = json!({"jsonrpc": "2.0", "method": "notifications/nothing"});
        self.post(Post::default(), &Value::from(vec![notice; MANY]));
        self.post_batch();
    }

    fn release(&mut self) {
        if !self.requests.is_empty() {
            let sent = &self.requests[self.chance.below(self.requests.len())];
            self.ledger.note(format_args!("{} is released", sent.tag));
            self.releases.release(&sent.tag);
        }
    }

    fn post(&mut self, post: Post, body: &Value) -> Arc<Post> {
        let post = Arc::new(post);
        let body = text(body);
        if self.ledger.has_trace() {
            let shown: String = String::from_utf8_lossy(&body).chars().take(300).collect();
            self.ledger.note(format_args!("{PARTY} posts {shown}"));
        }
        let (mail, filled, ledger) = (self.mail.clone(), post.clone(), self.ledger.clone());
        self.tasks.spawn(async move {
            let reply = mail.send(Method::POST, body).await;
            if let Some(reply) = &reply {
                ledger.note(format_args!("{PARTY} gets {}", reply.status));
            }
            *filled.lock() = reply;
        });
        self.posts.push(post.clone());
        post
    }

    /// What was cancelled is not worked on.
    pub(crate) fn check_that_work_has_stopped(&self) {
        for sent in self.requests.iter().filter(|sent| sent.is_cancelled) {
            if self.ledger.is_at_work(&sent.tag) {
                self.ledger
                    .broken("letting go of a call stops the work", &sent.tag);
            }
        }
    }

    /// Sees to it that every POST is over and has one answer for each of its requests, and that what was refused is
    /// forgotten.
    pub(crate) async fn end(mut self) {
        for _ in 0..PATIENCE {
            if self.posts.iter().all(|post| post.is_over()) {
                break;
            }
            pass(1000).await;
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
            let acts = Vec::new();
            let again = request(id, &Job { tag, acts });
            let reply = self.mail.clone().send(Method::POST, text(&again)).await;
            let is_answered =
                reply.is_some_and(|it| it.answers.iter().any(|answer| !answer["result"].is_null()));
            if !is_answered {
                self.ledger
                    .broken("a refused POST leaves nothing", format_args!("{id}"));
            }
        }
        self.mail.clone().send(Method::DELETE, Bytes::new()).await;
        self.tasks.shutdown().await;
    }

    fn check_answers(&self, sent: &Sent) {
        let Sent { id, tag, post, .. } = sent;
        let reply = post.lock();
        let Some(reply) = &*reply else {
            return self.ledger.broken("every POST ends", tag);
        };
        if !reply.status.is_success() {
            return;
        }
        let own = reply.answers.iter().filter(|answer| answer["id"] == *id);
        let own: Vec<_> = own.collect();
        let law = "each request of a batch is answered once, on its own POST";
        let [answer] = own[..] else {
            return self.ledger.broken(law, format_args!("{tag}: {own:?}"));
        };
        let got = &answer["result"]["content"][0]["text"];
        let is_own = got == tag.as_str();
        if got.is_string() && !is_own {
            let how = format_args!("{tag} got {got}");
            self.ledger.broken(NO_CROSSED_ANSWERS, how);
        }
        let is_terminated = sent.is_cancelled && answer["error"]["code"] == -32800;
        if !is_own && !is_terminated {
            self.ledger.broken(law, format_args!("{tag} got {answer}"));
        }
    }

    fn check_malformed(&self, post: &Post) {
        let reply = post.lock();
        let Some(reply) = &*reply else { return };
        let refusals = reply.answers.iter().filter(|answer| answer["id"].is_null());
        let count = refusals.count();
        if reply.status.is_success() && count != post.malformed {
            let law = "each malformed part of a batch is refused once";
            let how = format_args!("{count} of {}", post.malformed);
            self.ledger.broken(law, how);
        }
    }
}

impl Post {
    fn is_over(&self) -> bool {
        self.lock().is_some()
    }

    fn was_refused(&self) -> bool {
        let reply = self.lock();
        reply.as_ref().is_some_and(|it| !it.status.is_success())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reply>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mail {
    /// Sends one request over a connection of its own, and reads the whole response.
    async fn send(self, method: Method, body: Bytes) -> Option<Reply> {
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
        Some(Reply {
            status: head.status,
            session: head.headers.get("mcp-session-id").cloned(),
            answers: answers(&body),
        })
    }
}

/// The responses in a body, be it one message, several, or a stream of them.
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

/// As it is found again on the wire: the version first, as every writer of ours has it.
fn text(value: &Value) -> Bytes {
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

pub(crate) const PARTY: char = 'r';
/// More messages than a server keeps of one client that it has not looked at.
const MANY: usize = 1_100;
/// How many seconds a POST may take whose handlers are all released.
const PATIENCE: usize = 70;
