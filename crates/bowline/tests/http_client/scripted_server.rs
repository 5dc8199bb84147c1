//! An HTTP/1.1 server on a real socket or in-memory pipes: it records requests and writes the bytes of a script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::testing::PipeConnector;
use bowline::{Call, Client};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (header, value) = line.split_once(':')?;
            header.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// `POST tools/call`, or the HTTP method alone if there is no body.
    pub(crate) fn label(&self) -> String {
        match self.body["method"].as_str() {
            Some(method) => format!("{} {method}", self.method),
            None => self.method.clone(),
        }
    }
}

/// The bytes that answer a request, and what happens to the connection after them.
pub(crate) enum ScriptedReply {
    /// Keeps the connection open for the next request.
    Bytes(String),
    /// Closes the connection.
    BytesThenClose(String),
    /// Writes nothing more and waits until the client closes the connection.
    BytesThenStall(String),
    /// Writes what the channel yields until the client closes the connection.
    BytesThenMore(String, mpsc::UnboundedReceiver<String>),
    /// Closes the connection after this delay.
    BytesThenCloseAfter(String, Duration),
}

#[derive(Debug)]
pub(crate) enum ServerEvent {
    Request(ReceivedRequest),
    /// The client closed a connection whose response had not ended.
    ClientDisconnected,
}

pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    pub(crate) events: mpsc::UnboundedReceiver<ServerEvent>,
}

impl ScriptedServer {
    pub(crate) async fn start(
        script: impl FnMut(&ReceivedRequest) -> ScriptedReply + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (event_sender, events) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(
                    stream,
                    script.clone(),
                    event_sender.clone(),
                ));
            }
        });
        Self { url, events }
    }

    /// Serves in-memory pipes, for tests with a paused clock.
    pub(crate) fn in_memory(
        script: impl FnMut(&ReceivedRequest) -> ScriptedReply + Send + 'static,
    ) -> (Self, PipeConnector) {
        let (event_sender, events) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(script));
        let connector = PipeConnector::with(move |far| {
            tokio::spawn(serve_connection(far, script.clone(), event_sender.clone()));
        });
        let url = "http://localhost/mcp".to_owned();
        (Self { url, events }, connector)
    }

    /// Connects a client of this version.
    pub(crate) async fn connect(&self, version: &str) -> Client {
        let connect = Client::connect(&self.url).protocol_version(version);
        connect.await.unwrap()
    }

    /// Polls `call` until the server has received its request, and returns that request.
    pub(crate) async fn request_of(&mut self, call: &mut Call) -> ReceivedRequest {
        loop {
            tokio::select! {
                biased;
                outcome = &mut *call => panic!("the call ended: {outcome:?}"),
                request = self.request() => if request.label() == "POST tools/call" { return request },
            }
        }
    }

    /// Receives the next request.
    pub(crate) async fn request(&mut self) -> ReceivedRequest {
        match self.events.recv().await {
            Some(ServerEvent::Request(request)) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    /// Waits until the client closes a connection whose response had not ended.
    pub(crate) async fn client_disconnected(&mut self) {
        match self.events.recv().await {
            Some(ServerEvent::ClientDisconnected) => {}
            other => panic!("expected the client to disconnect, got {other:?}"),
        }
    }

    /// Drains the events recorded so far.
    pub(crate) fn drain_events(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            all.push(match event {
                ServerEvent::Request(request) => request.label(),
                ServerEvent::ClientDisconnected => "client disconnected".into(),
            });
        }
        all
    }
}

async fn serve_connection<S: FnMut(&ReceivedRequest) -> ScriptedReply>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Arc<Mutex<S>>,
    event_sender: mpsc::UnboundedSender<ServerEvent>,
) {
    while let Some(request) = read_request(&mut stream).await {
        let reply = (script.lock().unwrap())(&request);
        let _ = event_sender.send(ServerEvent::Request(request));
        match reply {
            ScriptedReply::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            ScriptedReply::BytesThenClose(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            ScriptedReply::BytesThenMore(bytes, mut more) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                let mut rest = [0; 64];
                loop {
                    tokio::select! {
                        Some(bytes) = more.recv() => stream.write_all(bytes.as_bytes()).await.unwrap(),
                        read = stream.read(&mut rest) => if !read.is_ok_and(|read| read > 0) { break },
                    }
                }
                let _ = event_sender.send(ServerEvent::ClientDisconnected);
                return;
            }
            ScriptedReply::BytesThenCloseAfter(bytes, time) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                let _ = tokio::time::timeout(time, stream.read(&mut [0; 64])).await;
                return;
            }
            ScriptedReply::BytesThenStall(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                let _ = event_sender.send(ServerEvent::ClientDisconnected);
                return;
            }
        }
    }
}

pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut request = ReceivedRequest {
        method: head.split(' ').next()?.to_owned(),
        head,
        body: serde_json::Value::Null,
    };
    let length: usize = request
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
    request.body = serde_json::from_slice(&bytes[end..end + length]).unwrap_or_default();
    Some(request)
}

/// A response with a JSON body.
pub(crate) fn json(status: &str, body: &serde_json::Value) -> String {
    json_with(status, "", body)
}

/// A response with a JSON body and extra headers, each ending in CRLF.
pub(crate) fn json_with(status: &str, headers: &str, body: &serde_json::Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A JSON response with the result of a request.
pub(crate) fn reply_with(request: &ReceivedRequest, value: &serde_json::Value) -> ScriptedReply {
    ScriptedReply::Bytes(json("200 OK", &result(request, value)))
}

/// The result of a tool that returned this text.
pub(crate) fn text_result(text: &str) -> serde_json::Value {
    serde_json::json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

/// A response without a body.
pub(crate) fn bare(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

/// The head of an SSE response that ends with its connection.
pub(crate) const SSE_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

pub(crate) fn event(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}

/// The JSON-RPC result of a request.
pub(crate) fn result(request: &ReceivedRequest, result: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result})
}

/// The JSON-RPC error of a request.
pub(crate) fn error(
    request: &ReceivedRequest,
    code: i64,
    data: &serde_json::Value,
) -> serde_json::Value {
    let error = serde_json::json!({"code": code, "message": "no", "data": data});
    serde_json::json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error})
}
