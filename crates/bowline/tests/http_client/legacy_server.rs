//! A legacy server without sockets: it has sessions and can be restarted, and a test controls when each request gets
//! a connection, reaches the server and is answered.
//!
//! ```text
//! send ─▶ Connect ─▶ body read ─▶ Transit ─▶ processed ─▶ Head ─▶ response
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
use bowline::{Client, Error, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

pub(crate) const LEGACY: &str = "2025-11-25";

/// A stage of a request at which a test can hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldStage {
    /// Before the connection reads the body.
    Connect,
    /// Between the connection and the server.
    Transit,
    /// After the server has processed it, before the head of the response arrives.
    Head,
}

/// How the server answers a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GetBehavior {
    Stream,
    /// A stream that ends immediately.
    EmptyStream,
    Status(u16),
}

/// How the server answers with status 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    /// A JSON-RPC error with this code and the id of the request.
    OwnId(i64),
    /// A JSON-RPC error that answers no request.
    NullId,
    /// Text.
    Text,
}

/// A request that the server processed.
#[derive(Clone, Debug)]
pub(crate) struct ProcessedRequest {
    pub(crate) at: Instant,
    pub(crate) label: String,
    pub(crate) session: Option<String>,
    pub(crate) last_event: Option<String>,
    pub(crate) body: Value,
    pub(crate) status: u16,
}

#[derive(Default)]
pub(crate) struct LegacySession {
    /// The number of the session, starting at 1.
    pub(crate) number: u32,
    pub(crate) is_initialized: bool,
    pub(crate) subscriptions: BTreeSet<String>,
    pub(crate) level: Option<String>,
    /// Calls that are neither answered nor cancelled, by id, with their response streams.
    pub(crate) running: BTreeMap<String, EventSender>,
    /// Cancels that arrived before their request.
    pub(crate) early_cancels: BTreeSet<String>,
    stream: Option<EventSender>,
    /// Numbered events, replayed when a stream is resumed.
    log: Vec<(u32, String)>,
}

pub(crate) struct LegacyServerState {
    pub(crate) sessions: BTreeMap<String, LegacySession>,
    pub(crate) processed: Vec<ProcessedRequest>,
    /// Messages written to connections, in order, with their session; they may have been lost afterwards.
    pub(crate) sent: Vec<(Value, Option<String>)>,
    /// Messages lost in transit because the server was down.
    pub(crate) lost: Vec<Value>,
    pub(crate) get_behavior: GetBehavior,
    pub(crate) is_down: bool,
    pub(crate) is_stateless: bool,
    /// Whether it uses HTTP+SSE, the transport of 2024-11-05.
    pub(crate) is_http_sse: bool,
    /// Running calls of a server without sessions, with their response streams.
    pub(crate) stateless_running: BTreeMap<String, EventSender>,
    next_session: u32,
    next_event: u32,
    /// Whether SSE events have ids.
    pub(crate) has_event_ids: bool,
    /// Whether the next call is redirected.
    pub(crate) redirects_next_call: bool,
    /// The answer to requests in unknown sessions; `None` means 404.
    pub(crate) unknown_session: Option<BadRequest>,
    /// The answer to every call.
    pub(crate) refused_calls: Option<BadRequest>,
    /// Returns a delay in milliseconds for each request at each stage.
    pub(crate) delays: Option<Delays>,
}

type Delays = Box<dyn FnMut(HoldStage, &str) -> u64 + Send>;

type Holds = BTreeMap<(HoldStage, String), watch::Sender<bool>>;

/// The sending end of a response body.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(mpsc::UnboundedSender<Bytes>);

impl EventSender {
    /// Whether the client still reads the response.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    /// Answers the call `id` with the error of a cancelled request.
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
    state: Arc<Mutex<LegacyServerState>>,
    holds: Arc<Mutex<Holds>>,
    connections: watch::Sender<usize>,
}

impl LegacyServer {
    pub(crate) fn start() -> Self {
        let state = LegacyServerState {
            sessions: BTreeMap::new(),
            processed: Vec::new(),
            sent: Vec::new(),
            lost: Vec::new(),
            get_behavior: GetBehavior::Stream,
            is_down: false,
            is_stateless: false,
            is_http_sse: false,
            stateless_running: BTreeMap::new(),
            next_session: 0,
            next_event: 0,
            has_event_ids: true,
            redirects_next_call: false,
            unknown_session: None,
            refused_calls: None,
            delays: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            holds: Arc::default(),
            connections: watch::Sender::new(0),
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        self.builder().await.unwrap()
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        let connect = Client::connect("http://legacy.invalid/mcp").http_client(self.clone());
        let version = match self.state().is_http_sse {
            true => "2024-11-05",
            false => LEGACY,
        };
        connect.protocol_version(version)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LegacyServerState> {
        self.state.lock().unwrap()
    }

    /// Holds every request labelled `label` at `stage` until it is released.
    pub(crate) fn hold(&self, stage: HoldStage, label: &str) {
        let mut holds = self.holds.lock().unwrap();
        holds.insert((stage, label.to_owned()), watch::Sender::new(true));
    }

    pub(crate) fn release(&self, stage: HoldStage, label: &str) {
        let hold = self
            .holds
            .lock()
            .unwrap()
            .remove(&(stage, label.to_owned()));
        hold.unwrap().send_replace(false);
    }

    /// Drops every session and ends every response, as a restarted process does.
    pub(crate) fn restart(&self) {
        let sessions = std::mem::take(&mut self.state().sessions);
        drop(sessions);
    }

    /// Ends the GET streams and keeps the sessions.
    pub(crate) fn cut_streams(&self) {
        for session in self.state().sessions.values_mut() {
            session.stream = None;
        }
    }

    /// The number of connections in use.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// The requests processed so far, as `POST tools/call s1`.
    pub(crate) fn processed(&self) -> Vec<String> {
        let state = self.state();
        let line = |processed: &ProcessedRequest| match &processed.session {
            Some(session) => format!("{} {session}", processed.label),
            None => processed.label.clone(),
        };
        state.processed.iter().map(line).collect()
    }

    /// Returns and clears the processed requests.
    pub(crate) fn take_processed(&self) -> Vec<String> {
        let processed = self.processed();
        self.state().processed.clear();
        processed
    }

    /// Notifies every session that is subscribed to the resource.
    pub(crate) fn change_resource(&self, uri: &str) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": {"uri": uri}});
        self.state()
            .notify(&message, |session| session.subscriptions.contains(uri));
    }

    /// Notifies every session that the list of tools changed.
    pub(crate) fn change_tools(&self) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        self.state().notify(&message, |_| true);
    }

    /// Sends a request to the client of every session.
    pub(crate) fn send_request(&self, id: u32, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.state().notify(&message, |_| true);
    }

    async fn wait_at(&self, stage: HoldStage, label: &str) {
        let delay = {
            let mut state = self.state();
            state
                .delays
                .as_mut()
                .map_or(0, |delays| delays(stage, label))
        };
        if delay > 0 {
            sleep(Duration::from_millis(delay)).await;
        }
        loop {
            let held = {
                let holds = self.holds.lock().unwrap();
                let hold = holds.get(&(stage, label.to_owned()));
                hold.map(watch::Sender::subscribe)
            };
            match held {
                Some(mut held) => drop(held.wait_for(|held| !*held).await),
                None => return,
            }
        }
    }
}

/// Runs every task until it is idle. The paused clock advances only then, by the millisecond of this sleep.
pub(crate) async fn run_until_idle() {
    sleep(Duration::from_millis(1)).await;
}

impl HttpClient for LegacyServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let server = self.clone();
        Box::pin(async move {
            let connection = ConnectionGuard::open(&server.connections);
            let (head, body) = request.into_parts();
            let method = method_of(&body);
            let label = match &method {
                Some(method) => format!("{} {method}", head.method),
                None => head.method.to_string(),
            };
            server.wait_at(HoldStage::Connect, &label).await;
            if server.state().is_down {
                return Err(connection_refused());
            }
            let bytes = body.into_bytes();
            if bytes.is_empty() && head.method == Method::POST {
                return Err(connection_refused()); // the request was withdrawn
            }
            let message = serde_json::from_slice(&bytes).unwrap_or_default();
            let session = head.headers.get("mcp-session-id");
            let session = session.map(|id| id.to_str().unwrap().to_owned());
            server.state().sent.push((message, session));
            // A message written to a connection arrives even if the response future is dropped.
            let arriving = tokio::spawn({
                let server = server.clone();
                async move {
                    server.wait_at(HoldStage::Transit, &label).await;
                    let response = server.state().process(&label, &head, &bytes);
                    server.wait_at(HoldStage::Head, &label).await;
                    response
                }
            });
            let response = arriving.await.unwrap().ok_or_else(connection_refused)?;
            Ok(response.map(|chunks| {
                ResponseBody::new(CountedBody {
                    chunks,
                    _connection: connection,
                })
            }))
        })
    }
}

fn connection_refused() -> Error {
    Error::Transport {
        what: "connection refused".into(),
        source: None,
    }
}

/// The method of a message whose body no connection has read yet. Reading the body would count as sending it, so this
/// parses its `Debug` output.
fn method_of(body: &RequestBody) -> Option<String> {
    const MEMBER: &str = r#"\"method\":\""#;
    let shown = format!("{body:?}");
    let (_, method) = shown.split_once(MEMBER)?;
    Some(method.split('\\').next()?.to_owned())
}

impl LegacyServerState {
    /// Sends a message on the GET stream of each session that `wants` selects.
    fn notify(&mut self, message: &Value, wants: impl Fn(&LegacySession) -> bool) {
        let sessions = self.sessions.values_mut();
        for session in sessions.filter(|session| wants(session)) {
            self.next_event += 1;
            let number = self.next_event;
            let event = match self.has_event_ids {
                true => format!("id: {number}\ndata: {message}\n\n"),
                false => format!("data: {message}\n\n"),
            };
            if self.has_event_ids {
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
        label: &str,
        head: &http::request::Parts,
        bytes: &Bytes,
    ) -> Option<ServerResponse> {
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
        let response = match label {
            _ if self.is_http_sse => self.process_http_sse(label, head.uri.path(), &body),
            "POST initialize" => self.initialize(&body),
            _ if self.is_stateless => self.process_stateless(label, &body),
            _ if session.is_none() => status(400),
            _ if !is_known => match self.unknown_session {
                Some(form) => bad_request(&body, form),
                None => status(404),
            },
            "POST tools/call" if let Some(form) = self.refused_calls => bad_request(&body, form),
            "POST tools/call" if std::mem::take(&mut self.redirects_next_call) => {
                let mut response = status(307);
                let location = HeaderValue::from_static("/elsewhere");
                response.headers_mut().insert("location", location);
                response
            }
            _ => {
                let session = session.clone().unwrap();
                let after = header("last-event-id").and_then(|id| id.parse().ok());
                self.process_in_session(&session, label, &body, after)
            }
        };
        self.processed.push(ProcessedRequest {
            at: Instant::now(),
            label: label.to_owned(),
            session,
            last_event: header("last-event-id"),
            body,
            status: response.status().as_u16(),
        });
        Some(response)
    }

    fn initialize(&mut self, body: &Value) -> ServerResponse {
        let capabilities = json!({"tools": {"listChanged": true}, "logging": {},
            "resources": {"subscribe": true, "listChanged": true}});
        let result = json!({"protocolVersion": LEGACY, "capabilities": capabilities,
            "serverInfo": {"name": "legacy", "version": "1"}});
        let mut response = answer(body, &result);
        if !self.is_stateless {
            self.next_session += 1;
            let id = format!("s{}", self.next_session);
            let session = LegacySession {
                number: self.next_session,
                ..LegacySession::default()
            };
            self.sessions.insert(id.clone(), session);
            let id = HeaderValue::from_str(&id).unwrap();
            response.headers_mut().insert("mcp-session-id", id);
        }
        response
    }

    /// Processes a request of HTTP+SSE: every response goes onto the one stream.
    fn process_http_sse(&mut self, label: &str, path: &str, body: &Value) -> ServerResponse {
        let session = self.sessions.entry("http+sse".into()).or_default();
        match (label, path) {
            ("GET", _) => {
                let (events, response) = stream();
                events.send("event: endpoint\ndata: /messages\n\n".into());
                session.stream = Some(events);
                return response;
            }
            (_, "/messages") => {}
            _ => return status(405),
        }
        let result = match label {
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

    fn process_stateless(&mut self, label: &str, body: &Value) -> ServerResponse {
        match label {
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

    fn process_in_session(
        &mut self,
        id: &str,
        label: &str,
        body: &Value,
        after: Option<u32>,
    ) -> ServerResponse {
        let get_behavior = self.get_behavior;
        let session = self.sessions.get_mut(id).unwrap();
        let uri = body["params"]["uri"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match label {
            "GET" => match get_behavior {
                GetBehavior::Status(code) => return status(code),
                GetBehavior::EmptyStream => return stream().1,
                GetBehavior::Stream => {
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
                    None => drop(session.early_cancels.insert(request)),
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
                // A cancel that arrived early stops the call.
                if !session.early_cancels.remove(&request) {
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

type ServerResponse = Response<mpsc::UnboundedReceiver<Bytes>>;

fn answer(request: &Value, result: &Value) -> ServerResponse {
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    let mut response = status(200);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Bytes::from(answer.to_string()));
    *response.body_mut() = receiver;
    with_type(response, "application/json")
}

fn bad_request(request: &Value, form: BadRequest) -> ServerResponse {
    let (code, id) = match form {
        BadRequest::OwnId(code) => (code, request["id"].clone()),
        BadRequest::NullId => (-32000, Value::Null),
        BadRequest::Text => return status(400),
    };
    let error = json!({"code": code, "message": "Bad Request"});
    let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
    let mut response = status(400);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Bytes::from(body.to_string()));
    *response.body_mut() = receiver;
    with_type(response, "application/json")
}

fn stream() -> (EventSender, ServerResponse) {
    let mut response = status(200);
    let (sender, receiver) = mpsc::unbounded_channel();
    *response.body_mut() = receiver;
    (
        EventSender(sender),
        with_type(response, "text/event-stream"),
    )
}

fn status(code: u16) -> ServerResponse {
    let (_, receiver) = mpsc::unbounded_channel();
    let mut response = Response::new(receiver);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn with_type(mut response: ServerResponse, media: &'static str) -> ServerResponse {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(media));
    response
}

/// Counts one connection until it is dropped.
struct ConnectionGuard(watch::Sender<usize>);

impl ConnectionGuard {
    fn open(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The body of a response; it ends when the server drops its `EventSender`.
struct CountedBody {
    chunks: mpsc::UnboundedReceiver<Bytes>,
    _connection: ConnectionGuard,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, io::Error>>> {
        let bytes = self.chunks.poll_recv(cx);
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
