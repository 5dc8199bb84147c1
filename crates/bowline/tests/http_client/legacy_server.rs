//! A legacy server without sockets: it has sessions, it can be restarted, and a test decides when each request
//! gets a connection, reaches the server and is answered.
//!
//! ```text
//! send ─▶ Connect ─▶ body handed over ─▶ Transit ─▶ processed ─▶ Head ─▶ response
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, RequestBody, ResponseBody};
use bowline::{Client, Error, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

pub(crate) const LEGACY: &str = "2025-11-25";

/// A point on the way of a request at which it can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Before a connection has the body.
    Connect,
    /// Between the connection and the server.
    Transit,
    /// After the server has processed it, before the head of the response arrives.
    Head,
}

/// What the server does with a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnGet {
    Stream,
    /// A stream that ends at once.
    EmptyStream,
    Status(u16),
}

/// One request, as the server processed it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) what: String,
    pub(crate) session: Option<String>,
    pub(crate) last_event: Option<String>,
    pub(crate) body: Value,
    pub(crate) status: u16,
}

/// What one session knows.
#[derive(Default)]
pub(crate) struct Session {
    /// Which one it is, counted from 1.
    pub(crate) opened: u32,
    pub(crate) is_initialized: bool,
    pub(crate) subscriptions: BTreeSet<String>,
    pub(crate) level: Option<String>,
    /// Calls that are neither answered nor cancelled: by id, with the response each is answered on.
    pub(crate) running: BTreeMap<String, Events>,
    /// Cancels that arrived before their request.
    pub(crate) early: BTreeSet<String>,
    stream: Option<Events>,
    /// Numbered events, for streams that are resumed.
    log: Vec<(u32, String)>,
}

pub(crate) struct World {
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) seen: Vec<Seen>,
    /// What connections got, in that order, whether or not it arrived: the message and its session.
    pub(crate) handed: Vec<(Value, Option<String>)>,
    /// What was lost on the way, because the server was down.
    pub(crate) lost: Vec<Value>,
    pub(crate) on_get: OnGet,
    pub(crate) is_down: bool,
    pub(crate) is_stateless: bool,
    /// Whether it is a server of 2024-11-05, with two endpoints and one connection.
    pub(crate) has_two_endpoints: bool,
    /// Calls of a server without sessions, with the response each is answered on.
    pub(crate) stateless_running: BTreeMap<String, Events>,
    next_session: u32,
    next_event: u32,
    /// Whether events have ids.
    pub(crate) numbers_events: bool,
    /// Whether the next call is redirected.
    pub(crate) redirects: bool,
    /// Delays in milliseconds, drawn for each request at each stage.
    pub(crate) delays: Option<Delays>,
}

type Delays = Box<dyn FnMut(Stage, &str) -> u64 + Send>;

/// Where requests are held, and whether they still are.
type Holds = BTreeMap<(Stage, String), watch::Sender<bool>>;

/// The writing end of a response or stream.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::UnboundedSender<Bytes>);

impl Events {
    /// Whether the client still reads.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    /// Answers the call `id` as one that was cancelled.
    pub(crate) fn end(&self, id: &Value) {
        let error = json!({"code": -32800, "message": "cancelled"});
        let end = json!({"jsonrpc": "2.0", "id": id, "error": error});
        self.send(format!("data: {end}\n\n"));
    }

    fn send(&self, text: String) {
        let _ = self.0.send(text.into());
    }
}

#[derive(Clone)]
pub(crate) struct LegacyServer {
    world: Arc<Mutex<World>>,
    holds: Arc<Mutex<Holds>>,
    connections: watch::Sender<usize>,
}

impl LegacyServer {
    pub(crate) fn start() -> Self {
        let world = World {
            sessions: BTreeMap::new(),
            seen: Vec::new(),
            handed: Vec::new(),
            lost: Vec::new(),
            on_get: OnGet::Stream,
            is_down: false,
            is_stateless: false,
            has_two_endpoints: false,
            stateless_running: BTreeMap::new(),
            next_session: 0,
            next_event: 0,
            numbers_events: true,
            redirects: false,
            delays: None,
        };
        Self {
            world: Arc::new(Mutex::new(world)),
            holds: Arc::default(),
            connections: watch::Sender::new(0),
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        let connect = Client::connect("http://legacy.invalid/mcp").http(self.clone());
        let version = match self.world().has_two_endpoints {
            true => "2024-11-05",
            false => LEGACY,
        };
        connect.speaking(version).await.unwrap()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Holds every `what` at `stage` until it is released.
    pub(crate) fn hold(&self, stage: Stage, what: &str) {
        let mut holds = self.holds.lock().unwrap();
        holds.insert((stage, what.to_owned()), watch::Sender::new(true));
    }

    pub(crate) fn release(&self, stage: Stage, what: &str) {
        let hold = self.holds.lock().unwrap().remove(&(stage, what.to_owned()));
        hold.unwrap().send_replace(false);
    }

    /// Forgets every session and cuts every response, as a process that is started again.
    pub(crate) fn restart(&self) {
        let forgotten = std::mem::take(&mut self.world().sessions);
        drop(forgotten);
    }

    /// Ends the GET streams. The sessions stay.
    pub(crate) fn cut_streams(&self) {
        for session in self.world().sessions.values_mut() {
            session.stream = None;
        }
    }

    /// How many requests have a connection that is not given back.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// All that was processed so far, without the bodies: `POST tools/call s1`.
    pub(crate) fn seen(&self) -> Vec<String> {
        let world = self.world();
        let line = |seen: &Seen| match &seen.session {
            Some(session) => format!("{} {session}", seen.what),
            None => seen.what.clone(),
        };
        world.seen.iter().map(line).collect()
    }

    /// The same, and forgets it.
    pub(crate) fn take_seen(&self) -> Vec<String> {
        let seen = self.seen();
        self.world().seen.clear();
        seen
    }

    /// Tells the clients of every session that a resource changed, if they are subscribed to it.
    pub(crate) fn change_resource(&self, uri: &str) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": {"uri": uri}});
        self.world()
            .notify(&message, |session| session.subscriptions.contains(uri));
    }

    /// Tells the clients of every session that the list of tools changed.
    pub(crate) fn change_tools(&self) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        self.world().notify(&message, |_| true);
    }

    /// Puts a request to the client of every session.
    pub(crate) fn ask(&self, id: u32, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.world().notify(&message, |_| true);
    }

    async fn pass(&self, stage: Stage, what: &str) {
        let delay = {
            let mut world = self.world();
            world
                .delays
                .as_mut()
                .map_or(0, |delays| delays(stage, what))
        };
        if delay > 0 {
            sleep(Duration::from_millis(delay)).await;
        }
        loop {
            let held = {
                let holds = self.holds.lock().unwrap();
                let hold = holds.get(&(stage, what.to_owned()));
                hold.map(watch::Sender::subscribe)
            };
            match held {
                Some(mut held) => drop(held.wait_for(|held| !*held).await),
                None => return,
            }
        }
    }
}

/// Runs everything that can run without the clock moving on by more than a millisecond. The clock of these tests
/// is paused: it moves only when there is nothing else to do.
pub(crate) async fn idle() {
    sleep(Duration::from_millis(1)).await;
}

impl HttpSend for LegacyServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let server = self.clone();
        Box::pin(async move {
            let connection = Connection::open(&server.connections);
            let (head, body) = request.into_parts();
            let method = method_of(&body);
            let what = match &method {
                Some(method) => format!("{} {method}", head.method),
                None => head.method.to_string(),
            };
            server.pass(Stage::Connect, &what).await;
            if server.world().is_down {
                return Err(refused());
            }
            let bytes = body.into_bytes();
            if bytes.is_empty() && head.method == Method::POST {
                return Err(refused()); // withdrawn
            }
            let message = serde_json::from_slice(&bytes).unwrap_or_default();
            let session = head.headers.get("mcp-session-id");
            let session = session.map(|id| id.to_str().unwrap().to_owned());
            server.world().handed.push((message, session));
            // What a connection has arrives, even if nobody waits for the response.
            let arriving = tokio::spawn({
                let server = server.clone();
                async move {
                    server.pass(Stage::Transit, &what).await;
                    let response = server.world().process(&what, &head, &bytes);
                    server.pass(Stage::Head, &what).await;
                    response
                }
            });
            let response = arriving.await.unwrap().ok_or_else(refused)?;
            Ok(response.map(|incoming| {
                ResponseBody::new(Incoming {
                    incoming,
                    _connection: connection,
                })
            }))
        })
    }
}

fn refused() -> Error {
    Error::Transport {
        what: "connection refused".into(),
        source: None,
    }
}

/// The method of a message that no connection has yet. Taking the body would hand it over, so this reads what `Debug`
/// shows of it.
fn method_of(body: &RequestBody) -> Option<String> {
    const MEMBER: &str = r#"\"method\":\""#;
    let shown = format!("{body:?}");
    let (_, method) = shown.split_once(MEMBER)?;
    Some(method.split('\\').next()?.to_owned())
}

impl World {
    fn notify(&mut self, message: &Value, wants: impl Fn(&Session) -> bool) {
        let sessions = self.sessions.values_mut();
        for session in sessions.filter(|session| wants(session)) {
            self.next_event += 1;
            let number = self.next_event;
            let event = match self.numbers_events {
                true => format!("id: {number}\ndata: {message}\n\n"),
                false => format!("data: {message}\n\n"),
            };
            if self.numbers_events {
                session.log.push((number, event.clone()));
            }
            if let Some(stream) = &session.stream {
                stream.send(event);
            }
        }
    }

    /// Processes a request; `None` if the server is down.
    fn process(
        &mut self,
        what: &str,
        head: &http::request::Parts,
        bytes: &Bytes,
    ) -> Option<Response<mpsc::UnboundedReceiver<Bytes>>> {
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        if self.is_down {
            self.lost.push(body);
            return None;
        }
        let header = |name: &str| {
            let value = head.headers.get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let session = header("mcp-session-id");
        let is_known = session
            .as_ref()
            .is_some_and(|id| self.sessions.contains_key(id));
        let response = match what {
            _ if self.has_two_endpoints => self.process_apart(what, head.uri.path(), &body),
            "POST initialize" => self.initialize(&body),
            _ if self.is_stateless => self.process_stateless(what, &body),
            _ if session.is_none() => status(400),
            _ if !is_known => status(404),
            "POST tools/call" if std::mem::take(&mut self.redirects) => {
                let mut response = status(307);
                let location = HeaderValue::from_static("/elsewhere");
                response.headers_mut().insert("location", location);
                response
            }
            _ => {
                let session = session.clone().unwrap();
                let after = header("last-event-id").and_then(|id| id.parse().ok());
                self.process_in(&session, what, &body, after)
            }
        };
        self.seen.push(Seen {
            at: Instant::now(),
            what: what.to_owned(),
            session,
            last_event: header("last-event-id"),
            body,
            status: response.status().as_u16(),
        });
        Some(response)
    }

    fn initialize(&mut self, body: &Value) -> Response<mpsc::UnboundedReceiver<Bytes>> {
        let capabilities = json!({"tools": {"listChanged": true}, "logging": {},
            "resources": {"subscribe": true, "listChanged": true}});
        let greeting = json!({"protocolVersion": LEGACY, "capabilities": capabilities,
            "serverInfo": {"name": "legacy", "version": "1"}});
        let mut response = answer(body, &greeting);
        if !self.is_stateless {
            self.next_session += 1;
            let id = format!("s{}", self.next_session);
            let session = Session {
                opened: self.next_session,
                ..Session::default()
            };
            self.sessions.insert(id.clone(), session);
            let id = HeaderValue::from_str(&id).unwrap();
            response.headers_mut().insert("mcp-session-id", id);
        }
        response
    }

    /// Answers go over the one stream, whatever they are to.
    fn process_apart(
        &mut self,
        what: &str,
        path: &str,
        body: &Value,
    ) -> Response<mpsc::UnboundedReceiver<Bytes>> {
        let session = self.sessions.entry("the only one".into()).or_default();
        match (what, path) {
            ("GET", _) => {
                let (events, response) = stream();
                events.send("event: endpoint\ndata: /messages\n\n".into());
                session.stream = Some(events);
                return response;
            }
            (_, "/messages") => {}
            _ => return status(405),
        }
        let result = match what {
            "POST initialize" => json!({"protocolVersion": "2024-11-05", "capabilities":
                {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}),
            "POST notifications/cancelled" => {
                let request = body["params"]["requestId"].to_string();
                session.running.remove(&request);
                return status(202);
            }
            "POST tools/call" if body["params"]["name"] == "slow" => {
                let events = session.stream.clone().unwrap();
                session.running.insert(body["id"].to_string(), events);
                return status(202);
            }
            _ => json!({"content": []}),
        };
        if body.get("id").is_some() {
            let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
            let stream = session.stream.as_ref().unwrap();
            stream.send(format!("event: message\ndata: {answer}\n\n"));
        }
        status(202)
    }

    fn process_stateless(
        &mut self,
        what: &str,
        body: &Value,
    ) -> Response<mpsc::UnboundedReceiver<Bytes>> {
        match what {
            "GET" => status(405),
            "POST tools/call" if body["params"]["name"] == "slow" => {
                let (events, response) = stream();
                self.stateless_running
                    .insert(body["id"].to_string(), events);
                response
            }
            _ if body.get("id").is_some() => answer(body, &json!({"content": []})),
            _ => status(202),
        }
    }

    fn process_in(
        &mut self,
        id: &str,
        what: &str,
        body: &Value,
        after: Option<u32>,
    ) -> Response<mpsc::UnboundedReceiver<Bytes>> {
        let on_get = self.on_get;
        let session = self.sessions.get_mut(id).unwrap();
        let uri = body["params"]["uri"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match what {
            "GET" => match on_get {
                OnGet::Status(code) => return status(code),
                OnGet::EmptyStream => return stream().1,
                OnGet::Stream => {
                    let (events, response) = stream();
                    let missed = session
                        .log
                        .iter()
                        .filter(|(number, _)| Some(*number) > after);
                    if after.is_some() {
                        missed.for_each(|(_, event)| events.send(event.clone()));
                    }
                    session.stream = Some(events);
                    return response;
                }
            },
            "DELETE" => {
                self.sessions.remove(id);
                return status(200);
            }
            "POST notifications/initialized" => session.is_initialized = true,
            "POST notifications/cancelled" => {
                let request = body["params"]["requestId"].to_string();
                match session.running.remove(&request) {
                    Some(events) => events.end(&body["params"]["requestId"]),
                    None => drop(session.early.insert(request)),
                }
            }
            "POST resources/subscribe" => drop(session.subscriptions.insert(uri)),
            "POST resources/unsubscribe" => drop(session.subscriptions.remove(&uri)),
            "POST logging/setLevel" => {
                session.level = body["params"]["level"].as_str().map(str::to_owned);
            }
            "POST tools/call" if body["params"]["name"] == "slow" => {
                let request = body["id"].to_string();
                let (events, response) = stream();
                // A server keeps an early cancel for a while.
                if !session.early.remove(&request) {
                    session.running.insert(request, events);
                }
                return response;
            }
            _ => {}
        }
        match body.get("id") {
            Some(_) if body.get("method").is_some() => answer(body, &json!({"content": []})),
            _ => status(202),
        }
    }
}

type Outgoing = Response<mpsc::UnboundedReceiver<Bytes>>;

fn answer(request: &Value, result: &Value) -> Outgoing {
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    let mut response = status(200);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Bytes::from(answer.to_string()));
    *response.body_mut() = receiver;
    with_type(response, "application/json")
}

fn stream() -> (Events, Outgoing) {
    let mut response = status(200);
    let (sender, receiver) = mpsc::unbounded_channel();
    *response.body_mut() = receiver;
    (Events(sender), with_type(response, "text/event-stream"))
}

fn status(code: u16) -> Outgoing {
    let (_, receiver) = mpsc::unbounded_channel();
    let mut response = Response::new(receiver);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn with_type(mut response: Outgoing, media: &'static str) -> Outgoing {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(media));
    response
}

/// A connection in use, counted.
struct Connection(watch::Sender<usize>);

impl Connection {
    fn open(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The body of a response, which ends with its session.
struct Incoming {
    incoming: mpsc::UnboundedReceiver<Bytes>,
    _connection: Connection,
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, io::Error>>> {
        let bytes = self.incoming.poll_recv(cx);
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
