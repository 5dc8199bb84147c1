//! A scripted HTTP server for tests of the client, over HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A request that the scripted server received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    head: Parts,
    /// The body; `null` if there is none.
    pub body: Value,
}

impl ReceivedRequest {
    /// The HTTP method and the JSON-RPC method, such as `POST tools/call`; the HTTP method alone without the latter.
    #[must_use]
    pub fn label(&self) -> String {
        match self.body["method"].as_str() {
            Some(method) => format!("{} {method}", self.head.method),
            None => self.head.method.to_string(),
        }
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The path of the request URI.
    #[must_use]
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// A JSON-RPC response with this result.
    #[must_use]
    pub fn result(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }

    /// A JSON-RPC response with an error of this code.
    #[must_use]
    pub fn error(&self, code: i64) -> Value {
        let error = json!({"code": code, "message": "no"});
        json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error})
    }
}

/// The response of the scripted server to a request.
#[derive(Debug)]
#[must_use = "a response is sent by returning it"]
pub struct ScriptedResponse {
    response: http::response::Builder,
    body: ScriptedBody,
}

impl ScriptedResponse {
    /// A response with this status and an empty body.
    pub fn status(status: u16) -> Self {
        Self {
            response: Response::builder().status(status),
            body: ScriptedBody::complete(""),
        }
    }

    /// An `application/json` response.
    pub fn json(body: &Value) -> Self {
        let body = ScriptedBody::complete(&body.to_string());
        Self::status(200)
            .header("content-type", "application/json")
            .with(body)
    }

    /// An event stream with these events, which then ends.
    pub fn events(events: &str) -> Self {
        Self::status(200)
            .header("content-type", "text/event-stream")
            .with(ScriptedBody::complete(events))
    }

    /// An event stream that stays open until the sender is dropped.
    pub fn stream() -> (mpsc::UnboundedSender<String>, Self) {
        let (sender, chunks) = mpsc::unbounded_channel();
        let response = Self::events("").with(ScriptedBody { chunks });
        (sender, response)
    }

    /// Replaces the status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.response = self.response.status(status);
        self
    }

    /// Sets a header, replacing an existing value.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let headers = self.response.headers_mut().unwrap();
        headers.insert(name, value.parse().unwrap());
        self
    }

    fn with(mut self, body: ScriptedBody) -> Self {
        self.body = body;
        self
    }
}

/// The response for requests that a scenario does not test: legacy clients get a session with the id `s1`, modern ones
/// get status 400 for `server/discover`, and every tool call returns the text `done`.
pub fn default_response(request: &ReceivedRequest) -> ScriptedResponse {
    match &*request.label() {
        "POST initialize" => {
            let version = request.body["params"]["protocolVersion"].clone();
            ScriptedResponse::json(&request.result(&initialize_result(&version)))
                .header("mcp-session-id", "s1")
        }
        "POST server/discover" => ScriptedResponse::status(400),
        "GET" => ScriptedResponse::status(405),
        "DELETE" => ScriptedResponse::status(200),
        "POST tools/call" => {
            let text = json!([{"type": "text", "text": "done"}]);
            ScriptedResponse::json(
                &request.result(&json!({"content": text, "resultType": "complete"})),
            )
        }
        _ => ScriptedResponse::status(202),
    }
}

/// The result of `initialize`.
#[must_use]
pub fn initialize_result(version: &Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// A scripted HTTP server. Dropping it closes its connections.
#[derive(Debug)]
#[must_use = "dropping it closes its connections"]
pub struct ScriptedHttpServer {
    /// The URL of its MCP endpoint.
    pub url: String,
    received: mpsc::UnboundedReceiver<ReceivedRequest>,
    _serving: JoinSet<()>,
}

impl ScriptedHttpServer {
    /// Starts a server that responds to each request with the return value of `respond`.
    ///
    /// # Panics
    ///
    /// If no local port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts no server.
    pub async fn start(
        respond: impl FnMut(&ReceivedRequest) -> ScriptedResponse + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (received_sender, received) = mpsc::unbounded_channel();
        let respond = Arc::new(Mutex::new(respond));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (respond, received_sender) = (respond.clone(), received_sender.clone());
                let service = hyper::service::service_fn(move |request| {
                    respond_to(request, respond.clone(), received_sender.clone())
                });
                connections.spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let io = TokioIo::new(stream);
                    // Some scenarios break the connection on purpose.
                    drop(builder.serve_connection(io, service).await);
                });
            }
        });
        Self {
            url,
            received,
            _serving: serving,
        }
    }

    /// Waits for the next request with this label, and discards others.
    ///
    /// # Panics
    ///
    /// If the server has stopped.
    ///
    /// # Cancel safety
    ///
    /// Safe, except that discarded requests are lost.
    pub async fn request(&mut self, label: &str) -> ReceivedRequest {
        loop {
            let received = self.received.recv().await.unwrap();
            if received.label() == label {
                return received;
            }
        }
    }

    /// Takes all requests that were received and not taken yet.
    pub fn take_received(&mut self) -> Vec<ReceivedRequest> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }
}

async fn respond_to<S: FnMut(&ReceivedRequest) -> ScriptedResponse>(
    request: Request<Incoming>,
    respond: Arc<Mutex<S>>,
    received_sender: mpsc::UnboundedSender<ReceivedRequest>,
) -> Result<Response<ScriptedBody>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let received = ReceivedRequest { head, body };
    let scripted = (respond.lock().unwrap())(&received);
    let _ = received_sender.send(received);
    Ok(scripted.response.body(scripted.body).unwrap())
}

/// A response body that yields each chunk as it is sent.
#[derive(Debug)]
struct ScriptedBody {
    chunks: mpsc::UnboundedReceiver<String>,
}

impl ScriptedBody {
    fn complete(text: &str) -> Self {
        let (sender, chunks) = mpsc::unbounded_channel();
        if !text.is_empty() {
            let _ = sender.send(text.to_owned());
        }
        Self { chunks }
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.chunks.poll_recv(cx);
        next.map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}
