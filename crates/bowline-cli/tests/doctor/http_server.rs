//! A small HTTP server on raw sockets, which answers as a test tells it to.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

/// A request, as far as tests need it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The message of the body; null if there is none.
    pub(crate) message: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(it, _)| it == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The method of the message.
    pub(crate) fn rpc(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

/// What the server does with a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Full(Response),
    /// The head and the first events of a stream that stays open until the client closes it.
    Open(Response),
    /// The answer comes only after the client has closed its side.
    AfterClose(Response),
}

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self {
            body: body.to_string(),
            ..Self::status(status)
        }
        .header("content-type", "application/json")
    }

    pub(crate) fn result(request: &Request, result: &Value) -> Self {
        let id = &request.message["id"];
        Self::json(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    pub(crate) fn error(status: u16, request: &Request, code: i64) -> Self {
        let id = &request.message["id"];
        let error = json!({"code": code, "message": "refused"});
        Self::json(status, &json!({"jsonrpc": "2.0", "id": id, "error": error}))
    }

    pub(crate) fn events(messages: &[Value]) -> Self {
        let events: String = messages
            .iter()
            .map(|it| format!("data: {it}\n\n"))
            .collect();
        Self {
            body: events,
            ..Self::status(200)
        }
        .header("content-type", "text/event-stream")
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(it, _)| *it != name);
        self.headers.push((name, value.into()));
        self
    }
}

pub(crate) type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

/// Starts a server, which runs until the test program ends. Returns its URL.
pub(crate) fn serve(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handler: Arc<Handler> = Arc::new(handler);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = handler.clone();
            std::thread::spawn(move || drop(serve_connection(stream, address, &*handler)));
        }
    });
    format!("http://{address}/mcp")
}

fn serve_connection(
    stream: TcpStream,
    address: SocketAddr,
    handler: &Handler,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader)? {
        // Every healthy server refuses what a web page of another origin sends.
        let is_foreign = request.header("origin").is_some()
            || request.header("host") != Some(address.to_string().as_str());
        let answer = match is_foreign {
            true => Answer::Full(Response::status(403)),
            false => handler(&request),
        };
        match answer {
            Answer::Full(response) => write_response(&mut stream, &response, true)?,
            Answer::Open(response) => {
                write_response(&mut stream, &response, false)?;
                return wait_for_end(&mut reader);
            }
            Answer::AfterClose(response) => {
                wait_for_end(&mut reader)?;
                return write_response(&mut stream, &response, true);
            }
        }
    }
    Ok(())
}

fn wait_for_end(reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).map(drop)
}

/// Reads a request; `None` at the end of the connection.
pub(crate) fn read_request(reader: &mut impl std::io::BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request {
        method,
        path,
        headers,
        message: serde_json::from_slice(&body).unwrap_or(Value::Null),
    }))
}

pub(crate) fn write_response(
    stream: &mut impl Write,
    response: &Response,
    is_complete: bool,
) -> std::io::Result<()> {
    let mut text = format!("HTTP/1.1 {} X\r\n", response.status);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if is_complete {
        text.push_str(&format!("content-length: {}\r\n", response.body.len()));
    }
    text.push_str("\r\n");
    text.push_str(&response.body);
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

/// The tools of a healthy server.
pub(crate) fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": "Returns its argument.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "the text"}},
        },
        "annotations": {"readOnlyHint": true},
    })
}

/// What a healthy server of 2026-07-28 answers.
pub(crate) fn modern(request: &Request) -> Answer {
    let complete = |mut result: Value| {
        result["resultType"] = json!("complete");
        Answer::Full(Response::result(request, &result))
    };
    if request.method != "POST" {
        return Answer::Full(Response::status(405));
    }
    match request.rpc() {
        "server/discover" => complete(json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}},
            "ttlMs": 0,
            "cacheScope": "private",
        })),
        "tools/list" => {
            complete(json!({"tools": [tool("echo")], "ttlMs": 0, "cacheScope": "private"}))
        }
        "subscriptions/listen" => Answer::Open(Response::events(&[json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "notifications": {"toolsListChanged": true},
                "_meta": {"io.modelcontextprotocol/subscriptionId": request.message["id"]},
            },
        })])),
        _ => Answer::Full(Response::error(404, request, -32601)),
    }
}

/// What a healthy server of revisions until 2025-11-25 answers, with one session for all.
pub(crate) fn legacy(request: &Request) -> Answer {
    let result = |result: Value| Answer::Full(Response::result(request, &result));
    let is_open = request.header("mcp-session-id") == Some("s1");
    match (request.method.as_str(), request.rpc()) {
        ("GET", _) => Answer::Open(Response::events(&[])),
        ("DELETE", _) => Answer::Full(Response::status(405)),
        ("POST", "initialize") => {
            let offered = request.message["params"]["protocolVersion"].clone();
            let result = json!({
                "protocolVersion": offered,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "legacy", "version": "1"},
            });
            Answer::Full(Response::result(request, &result).header("mcp-session-id", "s1"))
        }
        ("POST", _) if !is_open => Answer::Full(Response::error(400, request, -32000)),
        ("POST", "notifications/initialized" | "notifications/cancelled") => {
            Answer::Full(Response::status(202))
        }
        ("POST", "ping") => result(json!({})),
        ("POST", "tools/list") => result(json!({"tools": [tool("echo")]})),
        ("POST", _) => Answer::Full(Response::error(200, request, -32601)),
        _ => Answer::Full(Response::status(405)),
    }
}
