//! `raw-client`: the ceiling for clients. Over HTTP, a stack of idle hyper connections; over stdio, one line per
//! message; replies are parsed into a small struct.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bench_fixture::{ClientOptions, Target, run_load};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, oneshot};

fn main() {
    let options = ClientOptions::read();
    bench_fixture::block_on(options.runtime, run(options));
}

async fn run(options: ClientOptions) {
    match &options.target {
        Target::Url(url) => {
            let client = Arc::new(HttpClient::new(url));
            let call = move || client.clone().call();
            run_load(options.in_flight, options.window, call).await;
        }
        Target::Child(program) => {
            let mut child = Command::new(program)
                .args(options.child_arguments())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .expect("failed to start the child");
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let client = Arc::new(StdioClient::default());
            tokio::spawn(client.clone().write(input.expect("piped")));
            tokio::spawn(client.clone().read(output.expect("piped")));
            let call = move || client.clone().call();
            run_load(options.in_flight, options.window, call).await;
        }
        Target::Memory | Target::InProcess => panic!("the raw client has no in-process target"),
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    id: u64,
    #[serde(borrow)]
    result: CallResult<'a>,
}

#[derive(Deserialize)]
struct CallResult<'a> {
    #[serde(borrow)]
    content: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    text: &'a str,
}

fn is_expected(reply: &Reply<'_>) -> bool {
    reply
        .result
        .content
        .iter()
        .all(|block| block.text == "hello")
}

fn request(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"raw","version":"0"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

struct HttpClient {
    authority: String,
    path: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    next: AtomicU64,
}

impl HttpClient {
    fn new(url: &str) -> Self {
        let url: http::Uri = url.parse().expect("a URL");
        let authority = url.authority().expect("a URL with an authority");
        Self {
            authority: authority.to_string(),
            path: url.path().to_owned(),
            idle: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    async fn call(self: Arc<Self>) -> bool {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let request = Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "echo")
            .body(Full::new(Bytes::from(request(id))))
            .expect("a request");
        let idle = lock(&self.idle).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await,
        };
        connection.ready().await.expect("a connection");
        let response = connection.send_request(request).await.expect("a response");
        let body = response.into_body().collect().await.expect("a body");
        lock(&self.idle).push(connection);
        let bytes = body.to_bytes();
        let reply: Reply<'_> = serde_json::from_slice(&bytes).expect("a reply");
        reply.id == id && is_expected(&reply)
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.expect("failed to connect");
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        sender
    }
}

#[derive(Default)]
struct StdioClient {
    waiting: Mutex<HashMap<u64, oneshot::Sender<bool>>>,
    out: Mutex<Vec<u8>>,
    more: Notify,
    next: AtomicU64,
}

impl StdioClient {
    async fn call(self: Arc<Self>) -> bool {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        {
            let mut out = lock(&self.out);
            out.extend_from_slice(request(id).as_bytes());
            out.push(b'\n');
        }
        self.more.notify_one();
        receiver.await.unwrap_or(false)
    }

    async fn write(self: Arc<Self>, mut pipe: ChildStdin) {
        loop {
            self.more.notified().await;
            let out = std::mem::take(&mut *lock(&self.out));
            if pipe.write_all(&out).await.is_err() {
                return;
            }
        }
    }

    async fn read(self: Arc<Self>, pipe: ChildStdout) {
        let mut pipe = BufReader::with_capacity(1 << 16, pipe);
        let mut line = Vec::new();
        while matches!(pipe.read_until(b'\n', &mut line).await, Ok(1..)) {
            let reply: Reply<'_> = serde_json::from_slice(&line).expect("a reply");
            let waiting = lock(&self.waiting).remove(&reply.id);
            if let Some(waiting) = waiting {
                let _ = waiting.send(is_expected(&reply));
            }
            line.clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no thread panics while it holds the lock")
}
