//! `ServerFixture`, a server whose tools report when they start and end, and `PlainConnection`, an HTTP client without
//! MCP.

use std::sync::Arc;
use std::time::Duration;

use bowline::http::HttpService;
use bowline::{CallToolResult, ErrorCode, Json, RpcError, Server, Tool};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// A server, and the events of its handlers.
pub(crate) struct ServerFixture {
    pub(crate) server: Server,
    pub(crate) events: mpsc::UnboundedReceiver<HandlerEvent>,
    /// Ends one call of the tools `wait` and `progress`.
    pub(crate) release: Arc<Notify>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerEvent {
    Started(String),
    Finished(String),
    Dropped(String),
}

impl ServerFixture {
    pub(crate) fn new() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let server = Server::new("fixture", "1.0.0")
            .resource_subscriptions()
            .tool(echo())
            .tool(panics())
            .tool(missing_capability(
                "missing_capability",
                ProgressReport::None,
            ))
            .tool(missing_capability(
                "missing_capability_after_progress",
                ProgressReport::Once,
            ))
            .tool(wait_tool("wait", ProgressReport::None, &sender, &release))
            .tool(wait_tool(
                "progress",
                ProgressReport::Once,
                &sender,
                &release,
            ))
            .tool(region())
            .tool(principal());
        Self {
            server,
            events,
            release,
        }
    }

    pub(crate) async fn next_event(&mut self) -> HandlerEvent {
        let event = tokio::time::timeout(Duration::from_secs(61), self.events.recv());
        event
            .await
            .expect("a handler event within the timeout")
            .expect("the server keeps its sender")
    }

    /// Waits for the next event, which must be the start of the call with this name.
    pub(crate) async fn handler_started(&mut self, name: &str) {
        assert_eq!(self.next_event().await, HandlerEvent::Started(name.into()));
    }

    /// Waits for a response and for the start of its handler.
    pub(crate) async fn started(
        &mut self,
        name: &str,
        sending: impl Future<Output = PlainResponse>,
    ) -> PlainResponse {
        let response = sending.await;
        self.handler_started(name).await;
        response
    }

    pub(crate) async fn handler_dropped(&mut self, name: &str) {
        assert_eq!(self.next_event().await, HandlerEvent::Dropped(name.into()));
    }

    pub(crate) async fn handler_finished(&mut self, name: &str) {
        assert_eq!(self.next_event().await, HandlerEvent::Finished(name.into()));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ProgressReport {
    None,
    Once,
}

fn echo() -> Tool {
    Tool::raw("echo", json!({"type": "object"}), async |arguments, _| {
        Ok(CallToolResult::text(arguments.to_string()))
    })
}

fn panics() -> Tool {
    Tool::raw("panics", json!({"type": "object"}), async |_, _| {
        let none: Vec<CallToolResult> = Vec::new();
        Ok(none[0].clone())
    })
}

fn missing_capability(name: &str, report: ProgressReport) -> Tool {
    Tool::raw(name, json!({"type": "object"}), move |_, cx| async move {
        if report == ProgressReport::Once {
            cx.progress(1.0);
        }
        let code = ErrorCode::MISSING_CLIENT_CAPABILITY;
        Err(RpcError::new(code, "needs elicitation").into())
    })
}

fn region() -> Tool {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}});
    Tool::raw("region", schema, async |_, _| {
        Ok(CallToolResult::text("here"))
    })
}

/// Returns the principal and the `Host` header of its request.
fn principal() -> Tool {
    let object = json!({"type": "object"});
    Tool::raw("principal", object, async |_, cx: bowline::Context| {
        let head = cx.extensions().get::<http::request::Parts>();
        let host = head.map(|head| head.headers["host"].to_str().unwrap_or_default());
        let text = format!("{:?} at {:?}", cx.principal(), host);
        Ok(CallToolResult::text(text))
    })
}

/// Reports progress or not, then waits for `release`. The argument `name` identifies the call.
fn wait_tool(
    tool: &str,
    report: ProgressReport,
    sender: &mpsc::UnboundedSender<HandlerEvent>,
    release: &Arc<Notify>,
) -> Tool {
    let (sender, release) = (sender.clone(), release.clone());
    Tool::raw(
        tool,
        json!({"type": "object"}),
        move |arguments: Json, cx| {
            let (sender, release) = (sender.clone(), release.clone());
            async move {
                let arguments: Value = arguments.decode().expect("an object");
                let name = arguments["name"].as_str().unwrap_or_default().to_owned();
                let mut reporter = DropReporter {
                    name: name.clone(),
                    sender: sender.clone(),
                    finished: false,
                };
                if report == ProgressReport::Once {
                    cx.progress(1.0);
                }
                let _ = sender.send(HandlerEvent::Started(name));
                release.notified().await;
                reporter.finished = true;
                Ok(CallToolResult::text("released"))
            }
        },
    )
}

struct DropReporter {
    name: String,
    sender: mpsc::UnboundedSender<HandlerEvent>,
    finished: bool,
}

impl Drop for DropReporter {
    fn drop(&mut self) {
        let name = self.name.clone();
        let _ = self.sender.send(if self.finished {
            HandlerEvent::Finished(name)
        } else {
            HandlerEvent::Dropped(name)
        });
    }
}

/// A client connection over HTTP/1.1 or HTTP/2.
pub(crate) struct PlainConnection {
    sender: RequestSender,
    _tasks: AbortOnDrop,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// The tasks of both ends of a connection, aborted on drop.
pub(crate) struct AbortOnDrop(Vec<JoinHandle<()>>);

impl AbortOnDrop {
    pub(crate) fn new(tasks: impl Into<Vec<JoinHandle<()>>>) -> Self {
        Self(tasks.into())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl PlainConnection {
    /// Connects over HTTP/1.1 through an in-memory pipe.
    pub(crate) async fn http1(service: &HttpService) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let service = service.clone();
        let serving = tokio::spawn(async move { service.serve_connection(far).await });
        Self::over_io(near, vec![serving]).await
    }

    pub(crate) async fn http2(service: &HttpService) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let service = service.clone();
        let serving = tokio::spawn(async move { service.serve_connection(far).await });
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near))
            .await
            .expect("a handshake");
        let connecting = tokio::spawn(async move { drop(connection.await) });
        Self {
            sender: RequestSender::Http2(sender),
            _tasks: AbortOnDrop(vec![serving, connecting]),
        }
    }

    pub(crate) async fn over_io(
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut tasks: Vec<JoinHandle<()>>,
    ) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(io))
            .await
            .expect("a handshake");
        tasks.push(tokio::spawn(async move { drop(connection.await) }));
        Self {
            sender: RequestSender::Http1(sender),
            _tasks: AbortOnDrop(tasks),
        }
    }

    /// Calls the tool `progress`, and waits until its handler has started.
    pub(crate) async fn start_call(
        &mut self,
        fixture: &mut ServerFixture,
        id: i64,
        name: &str,
    ) -> PlainResponse {
        let request = call_with_progress(id, "progress", name);
        fixture.started(name, self.send(request)).await
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> PlainResponse {
        PlainResponse(self.try_send(request).await.expect("a response"))
    }

    pub(crate) async fn try_send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            RequestSender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            RequestSender::Http2(sender) => {
                sender.ready().await?;
                *request.uri_mut() = "http://localhost/mcp".parse().expect("a URI");
                request.headers_mut().remove("host");
                sender.clone().send_request(request).await
            }
        }
    }
}

/// A response whose body may still be arriving.
#[derive(Debug)]
pub(crate) struct PlainResponse(Response<Incoming>);

impl PlainResponse {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// Reads the complete body, which must be JSON.
    pub(crate) async fn json(self) -> Value {
        let is_json = self.header("content-type") == Some("application/json");
        let body = self
            .0
            .into_body()
            .collect()
            .await
            .expect("a complete body")
            .to_bytes();
        assert!(is_json, "not JSON: {body:?}");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Reads the complete body.
    pub(crate) async fn text(self) -> String {
        let body = self.0.into_body().collect().await.expect("a complete body");
        String::from_utf8(body.to_bytes().into()).expect("text")
    }

    /// Reads the next body frame; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let frame = self.0.body_mut().frame().await?.expect("a body frame");
        Some(String::from_utf8(frame.into_data().expect("data").into()).expect("text"))
    }

    /// Reads the messages of an event stream to its end.
    pub(crate) async fn messages(self) -> Vec<Value> {
        assert!(self.is_event_stream(), "not an event stream: {self:?}");
        messages(&self.text().await)
    }
}

/// Returns the messages in a part of an event stream.
pub(crate) fn messages(events: &str) -> Vec<Value> {
    events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| !data.is_empty())
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// Adds a principal, as an authentication layer does.
pub(crate) fn with_principal(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
) -> Request<Full<Bytes>> {
    request
        .extensions_mut()
        .insert(bowline::exchange::Principal::named(name));
    request
}

/// Calls the service without a connection.
pub(crate) async fn call_service(
    service: &HttpService,
    request: Request<Full<Bytes>>,
) -> Response<bowline::http::server::HttpBody> {
    use tower_service::Service;
    service
        .clone()
        .call(request)
        .await
        .expect("the service is infallible")
}

/// Reads the complete JSON body of a response of [`call_service`].
pub(crate) async fn response_json(response: Response<bowline::http::server::HttpBody>) -> Value {
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a complete body")
        .to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

/// A modern request with all required headers.
pub(crate) fn modern_request(
    id: impl Into<Value>,
    method: &str,
    mut params: Value,
) -> Request<Full<Bytes>> {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let name = params["name"].as_str().map(str::to_owned);
    let body = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
    let mut request = post(&body);
    let headers = request.headers_mut();
    headers.insert("mcp-protocol-version", "2026-07-28".parse().expect("ASCII"));
    headers.insert("mcp-method", method.parse().expect("ASCII"));
    if let Some(name) = name {
        headers.insert("mcp-name", name.parse().expect("ASCII"));
    }
    request
}

/// A modern call of a tool; the argument `name` identifies it.
pub(crate) fn call(id: impl Into<Value>, tool: &str, name: &str) -> Request<Full<Bytes>> {
    let params = json!({"name": tool, "arguments": {"name": name}});
    modern_request(id, "tools/call", params)
}

/// The same with a progress token.
pub(crate) fn call_with_progress(id: i64, tool: &str, name: &str) -> Request<Full<Bytes>> {
    let params = json!({"name": tool, "arguments": {"name": name}, "_meta": {"progressToken": id}});
    modern_request(id, "tools/call", params)
}

pub(crate) fn post(body: &Value) -> Request<Full<Bytes>> {
    Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Full::from(body.to_string()))
        .expect("a request")
}

/// Sets a header.
pub(crate) fn with_header(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert(name, value.parse().expect("ASCII"));
    request
}

/// Serializes a request as HTTP/1.1.
pub(crate) async fn http1_bytes(request: Request<Full<Bytes>>) -> Vec<u8> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a complete body").to_bytes();
    let mut text = format!("{} {} HTTP/1.1\r\n", head.method, head.uri);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [text.as_bytes(), &body].concat()
}
