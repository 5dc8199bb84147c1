//! HTTP requests of the doctor, each on a connection of its own, so that a load balancer in front of several replicas
//! shows itself.

use std::fmt;
use std::time::{Duration, SystemTime};

use bowline_core::http::headers::encode_value;
use bowline_core::sse;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::socket::{self, Address, ConnectFailure, Offer, Opened};
use super::{Patience, Reply, Request, accept_messages};
use bowline::exchange::Dialect;

/// A URL to send requests to.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) uri: Uri,
    pub(crate) address: Address,
    /// The headers of the user, tokens included.
    pub(crate) headers: HeaderMap,
    pub(crate) patience: Patience,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The JSON-RPC messages of the body, whatever its type.
    pub(crate) messages: Vec<Value>,
    /// The start of a body without messages.
    pub(crate) text: String,
    /// When the head arrived.
    pub(crate) at: SystemTime,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpFailure {
    Connect(ConnectFailure),
    /// The connection ended before the response was complete.
    Broken(String),
    /// No head of a response, or no end, in this time.
    TimedOut(Duration),
    TooLong,
}

/// A response, or why there is none.
pub(crate) type HttpOutcome = Result<HttpAnswer, HttpFailure>;

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(failure) => write!(f, "failed to connect: {failure}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::TimedOut(after) => write!(f, "no answer after {after:?}"),
            Self::TooLong => write!(f, "the answer exceeds {MAX_BODY} bytes"),
        }
    }
}

impl HttpAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The media type, in lower case and without parameters.
    pub(crate) fn media_type(&self) -> Option<String> {
        let value = self.header("content-type")?;
        let media = value.split(';').next().unwrap_or_default();
        Some(media.trim().to_ascii_lowercase())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer to the request with this id; an error without an id counts too.
    pub(crate) fn reply(&self, id: u64) -> Option<Reply> {
        let mut messages = self.messages.iter();
        let exact = messages.find_map(|message| Reply::of(message, id));
        exact.or_else(|| {
            let only = self.messages.first()?;
            let has_no_id = only.get("id").is_none_or(Value::is_null);
            Reply::read(only).filter(|reply| has_no_id && reply.error_code().is_some())
        })
    }

    /// Drops the messages, which may be long, except that there were some.
    fn without_content(mut self) -> Self {
        let has_messages = !self.messages.is_empty();
        self.messages = has_messages.then_some(Value::Null).into_iter().collect();
        self
    }

    /// A description for a sentence: `status 404 with error -32601 (…)`.
    pub(crate) fn describe(&self, id: u64) -> String {
        let status = self.status;
        match self.reply(id) {
            Some(reply) => format!("status {status} with {}", reply.describe()),
            None if self.text.is_empty() => format!("status {status} without a body"),
            None => format!("status {status} with `{}`", self.text),
        }
    }
}

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Reading stops at the answer with this id: a stream may stay open.
    pub(crate) id: Option<u64>,
}

impl Outgoing {
    /// A POST of a JSON-RPC request, with the headers of its version.
    pub(crate) fn post(request: &Request) -> Self {
        let mut outgoing = Self::message(&request.to_json());
        outgoing.id = Some(request.id);
        if request.dialect.is_modern() {
            outgoing.set("mcp-protocol-version", request.dialect.version);
            outgoing.set("mcp-method", &request.method);
            let name = request.params["name"].as_str();
            if let Some(name) = name.filter(|_| request.method == "tools/call") {
                let header = HeaderName::from_static("mcp-name");
                outgoing.headers.insert(header, encode_value(name));
            }
        }
        outgoing
    }

    /// A POST of any message.
    pub(crate) fn message(message: &Value) -> Self {
        let mut outgoing = Self::new(Method::POST);
        outgoing.body = message.to_string().into();
        outgoing.set("content-type", "application/json");
        outgoing
    }

    pub(crate) fn new(method: Method) -> Self {
        let mut outgoing = Self {
            method,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            id: None,
        };
        outgoing.set("accept", "application/json, text/event-stream");
        outgoing
    }

    /// Sets a header. A value that no header can have is left out.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set(name, value);
        self
    }
}

impl Endpoint {
    /// Sends a request on a new connection, and reads the response.
    pub(crate) async fn send(&self, outgoing: &Outgoing) -> HttpOutcome {
        self.send_within(self.patience.answer, outgoing).await
    }

    /// Sends a request on a new connection, and waits this long for the response.
    pub(crate) async fn send_within(&self, limit: Duration, outgoing: &Outgoing) -> HttpOutcome {
        let endpoint = Self {
            patience: Patience {
                answer: limit,
                ..self.patience
            },
            ..self.clone()
        };
        match timeout(limit, endpoint.exchange(outgoing)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HttpFailure::TimedOut(limit)),
        }
    }

    async fn exchange(&self, outgoing: &Outgoing) -> HttpOutcome {
        let (response, _connection) = self.start(outgoing).await?;
        read(response, outgoing.id).await
    }

    /// Sends a request on a new connection, and returns the status and the whole body.
    pub(crate) async fn send_for_text(
        &self,
        outgoing: &Outgoing,
    ) -> Result<(u16, Bytes), HttpFailure> {
        let limit = self.patience.answer;
        let exchange = async {
            let (response, _connection) = self.start(outgoing).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_DOCUMENT)
                .collect()
                .await;
            let body = body.map_err(|error| HttpFailure::Broken(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        match timeout(limit, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HttpFailure::TimedOut(limit)),
        }
    }

    /// Sends a request on a new connection, and waits for the head of the response.
    pub(crate) async fn start(
        &self,
        outgoing: &Outgoing,
    ) -> Result<(Response<Incoming>, ConnectionTask), HttpFailure> {
        let limit = self.patience.answer;
        let opened = socket::open(&self.address, Offer::Any, limit).await;
        let opened = opened.map_err(HttpFailure::Connect)?;
        let mut request = http::Request::new(Full::new(outgoing.body.clone()));
        *request.method_mut() = outgoing.method.clone();
        let mut headers = self.headers.clone();
        headers.extend(outgoing.headers.clone());
        *request.headers_mut() = headers;
        send_on(opened, request, &self.uri).await
    }
}

/// The task that drives a connection, which ends with this.
#[derive(Debug)]
pub(crate) struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn send_on(
    opened: Opened,
    mut request: http::Request<Full<Bytes>>,
    uri: &Uri,
) -> Result<(Response<Incoming>, ConnectionTask), HttpFailure> {
    let broken = |error: hyper::Error| HttpFailure::Broken(causes(&error));
    let io = TokioIo::new(opened.io);
    if opened.is_http2 {
        *request.uri_mut() = uri.clone();
        request.headers_mut().remove(HOST);
        let (mut send, connection) = http2::handshake(TokioExecutor::new(), io)
            .await
            .map_err(broken)?;
        let task = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
        let response = send.send_request(request).await.map_err(broken)?;
        return Ok((response, task));
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let host = uri
        .authority()
        .map(|it| it.as_str().rsplit('@').next().unwrap_or_default());
    if let Some(Ok(host)) = host.map(HeaderValue::from_str) {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    let (mut send, connection) = http1::handshake(io).await.map_err(broken)?;
    let task = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
    let response = send.send_request(request).await.map_err(broken)?;
    Ok((response, task))
}

/// Reads a response: to its end, or to the answer with this id.
async fn read(response: Response<Incoming>, id: Option<u64>) -> HttpOutcome {
    let (head, mut body) = response.into_parts();
    let mut answer = HttpAnswer {
        status: head.status.as_u16(),
        headers: head.headers,
        messages: Vec::new(),
        text: String::new(),
        at: SystemTime::now(),
    };
    let mut events = EventReader::new();
    let is_stream = answer
        .media_type()
        .is_some_and(|media| media == "text/event-stream");
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| HttpFailure::Broken(causes(&error)))?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        if all.len() + chunk.len() > MAX_BODY {
            return Err(HttpFailure::TooLong);
        }
        all.extend_from_slice(&chunk);
        if is_stream {
            answer.messages.extend(events.push(chunk)?);
            if id.is_some_and(|id| answer.reply(id).is_some()) {
                return Ok(answer);
            }
        }
    }
    if !is_stream {
        answer.messages = accept_messages(&all);
        if answer.messages.is_empty() {
            // Some servers send events with another content type.
            answer.messages = events.push(all.clone().into())?;
        }
    }
    if answer.messages.is_empty() {
        let text = String::from_utf8_lossy(&all);
        answer.text = text.trim().chars().take(MAX_QUOTED).collect();
    }
    Ok(answer)
}

/// Reads the messages of an event stream.
#[derive(Debug)]
pub(crate) struct EventReader {
    decoder: sse::Decoder,
}

impl EventReader {
    pub(crate) fn new() -> Self {
        let limits = sse::DecoderLimits {
            line: MAX_BODY,
            event: MAX_BODY,
        };
        Self {
            decoder: sse::Decoder::new(limits),
        }
    }

    /// Takes a chunk, and returns the messages that it completes.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Result<Vec<Value>, HttpFailure> {
        self.decoder.push(chunk);
        let mut messages = Vec::new();
        while let Some(event) = self.decoder.next() {
            let event = event.map_err(|_| HttpFailure::TooLong)?;
            messages.extend(accept_messages(&event.data));
        }
        Ok(messages)
    }
}

/// An endpoint in one protocol version.
#[derive(Debug)]
pub(crate) struct HttpLink<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) dialect: &'static Dialect,
    /// The headers of the handshake's outcome, if the version has one.
    pub(crate) state_headers: HeaderMap,
    pub(crate) last_id: u64,
    /// The first answers.
    pub(crate) observed: Vec<Observed>,
}

/// An answer, with the method that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) method: String,
    pub(crate) outcome: HttpOutcome,
}

impl HttpLink<'_> {
    /// Builds a request with the next id.
    pub(crate) fn prepare(&mut self, method: &str, params: Value) -> (Request, Outgoing) {
        self.last_id += 1;
        let request = Request::new(self.last_id, self.dialect, method, params);
        let mut outgoing = Outgoing::post(&request);
        outgoing.headers.extend(self.state_headers.clone());
        (request, outgoing)
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Result<Reply, String> {
        let (request, outgoing) = self.prepare(method, params);
        let outcome = self.endpoint.send(&outgoing).await;
        let reply = match &outcome {
            Ok(answer) => {
                let reply = answer.reply(request.id);
                reply.ok_or_else(|| answer.describe(request.id))
            }
            Err(failure) => Err(failure.to_string()),
        };
        if self.observed.len() < MAX_OBSERVED {
            let method = method.to_owned();
            let outcome = outcome.map(HttpAnswer::without_content);
            self.observed.push(Observed { method, outcome });
        }
        reply
    }
}

/// Returns an error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the headers that a user gave.
pub(crate) fn header_map(headers: &[crate::values::NamedValue]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&header.value)) {
            map.append(name, value);
        }
    }
    // The doctor sets these for each request.
    map.remove(ACCEPT);
    map.remove(CONTENT_TYPE);
    map
}

/// Enough for lists of thousands of tools.
const MAX_BODY: usize = 16 << 20;
const MAX_DOCUMENT: usize = 1 << 20;
const MAX_QUOTED: usize = 160;
const MAX_OBSERVED: usize = 20;
