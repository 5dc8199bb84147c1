//! Tasks in a session of Streamable HTTP, with raw HTTP/1.1.

use bowline::http::HttpService;
use bowline::{Context, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::support::{LEGACY, RELATED_TASK, accept, server, store};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn greet(cx: Context) -> Result<String, ToolError> {
    let name = cx.elicit::<Name>("name", "Who?").await?;
    Ok(format!("Hello, {}!", name.name))
}

/// A session; each request has a connection of its own.
struct Session {
    service: HttpService,
    id: Option<String>,
}

impl Session {
    async fn open(service: HttpService) -> Self {
        let mut session = Self { service, id: None };
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "raw", "version": "1.0.0"},
        });
        let opened = session.request(0, "initialize", params).await.read().await;
        let mut headers = opened.lines().filter_map(|line| line.split_once(": "));
        let id = headers.find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
        session.id = Some(id.unwrap().1.to_owned());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session.post(&initialized).await.read().await;
        session
    }

    async fn request(&self, id: u32, method: &str, params: Value) -> HttpResponse {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(&request).await
    }

    async fn post(&self, message: &Value) -> HttpResponse {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let service = self.service.clone();
        tokio::spawn(async move { service.serve_connection(far).await });
        let body = message.to_string();
        let session = self.id.as_ref();
        let session = session.map(|id| format!("mcp-session-id: {id}\r\n"));
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: {LEGACY}\r\n\
             {}content-length: {}\r\n\r\n{body}",
            session.unwrap_or_default(),
            body.len(),
        );
        near.write_all(head.as_bytes()).await.unwrap();
        HttpResponse {
            stream: near,
            text: String::new(),
        }
    }
}

struct HttpResponse {
    stream: DuplexStream,
    text: String,
}

impl HttpResponse {
    /// Reads to the end.
    async fn read(mut self) -> String {
        self.stream.read_to_string(&mut self.text).await.unwrap();
        self.text
    }

    /// Reads until a message with this member has arrived.
    async fn message_with(&mut self, member: &str) -> Value {
        loop {
            let mut messages = self.text.lines().filter_map(message);
            if let Some(found) = messages.find(|message| message.get(member).is_some()) {
                return found;
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).await.unwrap();
            assert_ne!(
                length, 0,
                "expected a message with `{member}`: {}",
                self.text
            );
            self.text
                .push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
    }
}

/// Returns the message of a line: an event of a stream, or the whole body.
fn message(line: &str) -> Option<Value> {
    serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok()
}

#[tokio::test(start_paused = true)]
async fn a_question_is_sent_on_the_stream_of_the_client_that_waits() {
    let greet = Tool::new("greet", greet).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [greet]);
    let session = Session::open(server.http()).await;
    let call = json!({"name": "greet", "arguments": {}, "task": {}});
    let mut created = session.request(1, "tools/call", call).await;
    let created = created.message_with("result").await;
    let task = json!({"taskId": created["result"]["task"]["taskId"]});

    let mut wait = session.request(2, "tasks/result", task.clone()).await;
    let question = wait.message_with("method").await;
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["_meta"][RELATED_TASK], task);
    // Other requests of the session go on.
    let mut polled = session.request(3, "tasks/get", task.clone()).await;
    let polled = polled.message_with("result").await;
    assert_eq!(polled["result"]["status"], "input_required");
    let answer = accept(json!({"name": "Ada"}));
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    let accepted = session.post(&answer).await.read().await;
    assert!(accepted.starts_with("HTTP/1.1 202"), "{accepted}");

    let done = wait.message_with("result").await;
    assert_eq!(done["id"], 2);
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!");
    assert_eq!(done["result"]["_meta"][RELATED_TASK], task);
    assert!(wait.text.contains("text/event-stream"), "{}", wait.text);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_it_waits_does_not_cancel_the_task() {
    let greet = Tool::new("greet", greet).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [greet]);
    let session = Session::open(server.http()).await;
    let call = json!({"name": "greet", "arguments": {}, "task": {}});
    let mut created = session.request(1, "tools/call", call).await;
    let created = created.message_with("result").await;
    let task = json!({"taskId": created["result"]["task"]["taskId"]});
    let mut wait = session.request(2, "tasks/result", task.clone()).await;
    wait.message_with("method").await;

    drop(wait);

    let other = Session::open(server.http()).await;
    let mut wait = other.request(1, "tasks/result", task).await;
    let question = wait.message_with("method").await;
    let answer = accept(json!({"name": "Ada"}));
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    other.post(&answer).await.read().await;
    let done = wait.message_with("result").await;
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!");
}
