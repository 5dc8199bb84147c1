//! A server with tools that show what becomes of them, and a client that speaks plain HTTP.

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

/// A server and what happens to its handlers.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) happened: mpsc::UnboundedReceiver<Happened>,
    /// Lets one `talk` or `wait` come to its end.
    pub(crate) release: Arc<Notify>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Started(String),
    Finished(String),
    Dropped(String),
}

impl Stage {
    pub(crate) fn new() -> Self {
        let (sender, happened) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let server = Server::new("stage", "1.0.0")
            .resource_updates()
            .tool(echo())
            .tool(panics())
            .tool(needs("needs", Says::Nothing))
            .tool(needs("needs_late", Says::Something))
            .tool(waits("wait", Says::Nothing, &sender, &release))
            .tool(waits("talk", Says::Something, &sender, &release))
            .tool(region())
            .tool(whose());
        Self {
            server,
            happened,
            release,
        }
    }

    pub(crate) async fn next(&mut self) -> Happened {
        let next = tokio::time::timeout(Duration::from_secs(61), self.happened.recv());
        next.await
            .expect("something happens")
            .expect("the server lives")
    }

    /// Waits until the handler of a call with this name has begun.
    pub(crate) async fn started(&mut self, name: &str) {
        assert_eq!(self.next().await, Happened::Started(name.into()));
    }

    pub(crate) async fn dropped(&mut self, name: &str) {
        assert_eq!(self.next().await, Happened::Dropped(name.into()));
    }

    pub(crate) async fn finished(&mut self, name: &str) {
        assert_eq!(self.next().await, Happened::Finished(name.into()));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Says {
    Nothing,
    Something,
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

fn needs(name: &str, says: Says) -> Tool {
    Tool::raw(name, json!({"type": "object"}), move |_, cx| async move {
        if says == Says::Something {
            cx.progress(1.0);
        }
        let code = ErrorCode::MISSING_CLIENT_CAPABILITY;
        Err(RpcError::new(code, "needs elicitation"))
    })
}

fn region() -> Tool {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}});
    Tool::raw("region", schema, async |_, _| {
        Ok(CallToolResult::text("here"))
    })
}

/// Tells on whose behalf it was called, and what it knows of the HTTP request.
fn whose() -> Tool {
    let object = json!({"type": "object"});
    Tool::raw("whose", object, async |_, cx: bowline::Context| {
        let head = cx.extensions().find::<http::request::Parts>();
        let host = head.map(|head| head.headers["host"].to_str().unwrap_or_default());
        let text = format!("{:?} at {:?}", cx.principal(), host);
        Ok(CallToolResult::text(text))
    })
}

/// Says something or nothing, then waits to be released. The argument `name` tells calls apart.
fn waits(
    tool: &str,
    says: Says,
    sender: &mpsc::UnboundedSender<Happened>,
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
                let mut guard = Guard {
                    name: name.clone(),
                    sender: sender.clone(),
                    finished: false,
                };
                if says == Says::Something {
                    cx.progress(1.0);
                }
                let _ = sender.send(Happened::Started(name));
                release.notified().await;
                guard.finished = true;
                Ok(CallToolResult::text("released"))
            }
        },
    )
}

struct Guard {
    name: String,
    sender: mpsc::UnboundedSender<Happened>,
    finished: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let name = self.name.clone();
        let _ = self.sender.send(if self.finished {
            Happened::Finished(name)
        } else {
            Happened::Dropped(name)
        });
    }
}

/// A connection over HTTP/1.1, or HTTP/2.
pub(crate) struct Link {
    sender: Sender,
    _tasks: Tasks,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Both ends of a connection; ended when dropped.
pub(crate) struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    pub(crate) fn of(tasks: impl Into<Vec<JoinHandle<()>>>) -> Self {
        Self(tasks.into())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Link {
    /// Over a pipe in memory.
    pub(crate) async fn to(service: &HttpService) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let service = service.clone();
        let serving = tokio::spawn(async move { service.serve_connection(far).await });
        Self::over(near, vec![serving]).await
    }

    pub(crate) async fn http2_to(service: &HttpService) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let service = service.clone();
        let serving = tokio::spawn(async move { service.serve_connection(far).await });
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near))
            .await
            .expect("a handshake");
        let connecting = tokio::spawn(async move { drop(connection.await) });
        Self {
            sender: Sender::Http2(sender),
            _tasks: Tasks(vec![serving, connecting]),
        }
    }

    pub(crate) async fn over(
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut tasks: Vec<JoinHandle<()>>,
    ) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(io))
            .await
            .expect("a handshake");
        tasks.push(tokio::spawn(async move { drop(connection.await) }));
        Self {
            sender: Sender::Http1(sender),
            _tasks: Tasks(tasks),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Reply {
        Reply(self.try_send(request).await.expect("a response"))
    }

    pub(crate) async fn try_send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                *request.uri_mut() = "http://localhost/mcp".parse().expect("a URI");
                request.headers_mut().remove("host");
                sender.clone().send_request(request).await
            }
        }
    }
}

/// A response that is being read.
#[derive(Debug)]
pub(crate) struct Reply(Response<Incoming>);

impl Reply {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    pub(crate) fn is_events(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The whole body, which is JSON.
    pub(crate) async fn json(self) -> Value {
        let is_json = self.header("content-type") == Some("application/json");
        let body = self
            .0
            .into_body()
            .collect()
            .await
            .expect("a whole body")
            .to_bytes();
        assert!(is_json, "not JSON: {body:?}");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// The whole body.
    pub(crate) async fn text(self) -> String {
        let body = self.0.into_body().collect().await.expect("a whole body");
        String::from_utf8(body.to_bytes().into()).expect("text")
    }

    /// The next chunk as it came; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let frame = self.0.body_mut().frame().await?.expect("the body goes on");
        Some(String::from_utf8(frame.into_data().expect("data").into()).expect("text"))
    }

    /// The messages of a stream, to its end.
    pub(crate) async fn messages(self) -> Vec<Value> {
        assert!(self.is_events(), "not events: {self:?}");
        messages(&self.text().await)
    }
}

/// The messages in a piece of a stream.
pub(crate) fn messages(events: &str) -> Vec<Value> {
    events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| !data.is_empty())
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// The same on behalf of somebody, as a layer that checked a credential would have it.
pub(crate) fn on_behalf(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
) -> Request<Full<Bytes>> {
    request
        .extensions_mut()
        .insert(bowline::exchange::Principal::named(name));
    request
}

/// Answers a request without a connection.
pub(crate) async fn ask(
    service: &HttpService,
    request: Request<Full<Bytes>>,
) -> Response<bowline::http::server::HttpBody> {
    use tower_service::Service;
    service
        .clone()
        .call(request)
        .await
        .expect("a service is infallible")
}

/// The whole body of such an answer.
pub(crate) async fn whole(response: Response<bowline::http::server::HttpBody>) -> Value {
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

/// A modern request with every header that it should have.
pub(crate) fn modern(
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

/// A modern call of a tool whose argument `name` tells it apart.
pub(crate) fn call(id: impl Into<Value>, tool: &str, name: &str) -> Request<Full<Bytes>> {
    let params = json!({"name": tool, "arguments": {"name": name}});
    modern(id, "tools/call", params)
}

/// The same with a progress token.
pub(crate) fn call_with_progress(id: i64, tool: &str, name: &str) -> Request<Full<Bytes>> {
    let params = json!({"name": tool, "arguments": {"name": name}, "_meta": {"progressToken": id}});
    modern(id, "tools/call", params)
}

pub(crate) fn post(body: &Value) -> Request<Full<Bytes>> {
    Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Full::from(body.to_string()))
        .expect("a request")
}

/// A header in the place of whatever was there.
pub(crate) fn with(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert(name, value.parse().expect("ASCII"));
    request
}

/// A request as it looks on the socket.
pub(crate) async fn raw(request: Request<Full<Bytes>>) -> Vec<u8> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let mut text = format!("{} {} HTTP/1.1\r\n", head.method, head.uri);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [text.as_bytes(), &body].concat()
}
