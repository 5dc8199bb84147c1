//! A scripted HTTP peer, on a real socket or behind pipes in memory: it records what arrives and says what the
//! script says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::testing::Pipes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) verb: String,
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// `POST tools/call`, or the verb alone for what has no body.
    pub(crate) fn what(&self) -> String {
        match self.body["method"].as_str() {
            Some(method) => format!("{} {method}", self.verb),
            None => self.verb.clone(),
        }
    }
}

/// What the script says to a request.
pub(crate) enum Say {
    /// These bytes; the connection stays.
    Bytes(String),
    /// These bytes, then the end of the connection.
    BytesThenClose(String),
    /// These bytes, then nothing until the client goes away.
    BytesThenStall(String),
    /// These bytes, then whatever comes through, until the client goes away.
    BytesThenMore(String, mpsc::UnboundedReceiver<String>),
    /// These bytes, then nothing for so long, then the end of the connection.
    BytesThenCloseAfter(String, Duration),
}

/// What the peer saw.
#[derive(Debug)]
pub(crate) enum Saw {
    Request(Arrived),
    /// A connection that was stalled on was closed by the client.
    ClientLeft,
}

pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) saw: mpsc::UnboundedReceiver<Saw>,
}

impl Peer {
    pub(crate) async fn start(script: impl FnMut(&Arrived) -> Say + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sender, saw) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, script.clone(), sender.clone()));
            }
        });
        Self { url, saw }
    }

    /// The same behind pipes in memory, for which a clock can be paused.
    pub(crate) fn in_memory(script: impl FnMut(&Arrived) -> Say + Send + 'static) -> (Self, Pipes) {
        let (sender, saw) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(script));
        let pipes = Pipes::with(move |far| {
            tokio::spawn(converse(far, script.clone(), sender.clone()));
        });
        let url = "http://localhost/mcp".to_owned();
        (Self { url, saw }, pipes)
    }

    /// The next request that arrives.
    pub(crate) async fn request(&mut self) -> Arrived {
        match self.saw.recv().await {
            Some(Saw::Request(arrived)) => arrived,
            other => panic!("expected a request, saw {other:?}"),
        }
    }

    /// Waits until the client closes the connection that was stalled on.
    pub(crate) async fn client_left(&mut self) {
        match self.saw.recv().await {
            Some(Saw::ClientLeft) => {}
            other => panic!("expected the client to leave, saw {other:?}"),
        }
    }

    /// Everything that has arrived so far.
    pub(crate) fn so_far(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Ok(saw) = self.saw.try_recv() {
            all.push(match saw {
                Saw::Request(arrived) => arrived.what(),
                Saw::ClientLeft => "client left".into(),
            });
        }
        all
    }
}

async fn converse<S: FnMut(&Arrived) -> Say>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Arc<Mutex<S>>,
    sender: mpsc::UnboundedSender<Saw>,
) {
    while let Some(arrived) = read_request(&mut stream).await {
        let say = (script.lock().unwrap())(&arrived);
        let _ = sender.send(Saw::Request(arrived));
        match say {
            Say::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Say::BytesThenClose(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Say::BytesThenMore(bytes, mut more) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                let mut rest = [0; 64];
                loop {
                    tokio::select! {
                        Some(bytes) = more.recv() => stream.write_all(bytes.as_bytes()).await.unwrap(),
                        read = stream.read(&mut rest) => if !read.is_ok_and(|read| read > 0) { break },
                    }
                }
                let _ = sender.send(Saw::ClientLeft);
                return;
            }
            Say::BytesThenCloseAfter(bytes, time) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                let _ = tokio::time::timeout(time, stream.read(&mut [0; 64])).await;
                return;
            }
            Say::BytesThenStall(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                let _ = sender.send(Saw::ClientLeft);
                return;
            }
        }
    }
}

pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Arrived> {
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
    let mut arrived = Arrived {
        verb: head.split(' ').next()?.to_owned(),
        head,
        body: serde_json::Value::Null,
    };
    let length: usize = arrived
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    while bytes.len() < end + length {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
    arrived.body = serde_json::from_slice(&bytes[end..end + length]).unwrap_or_default();
    Some(arrived)
}

/// A response with a JSON body.
pub(crate) fn json(status: &str, body: &serde_json::Value) -> String {
    json_with(status, "", body)
}

/// A response with a JSON body and more headers, each ending in CRLF.
pub(crate) fn json_with(status: &str, headers: &str, body: &serde_json::Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A response without a body.
pub(crate) fn bare(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

/// The head of a stream of events that ends with its connection.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

pub(crate) fn event(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}

/// The answer to a request.
pub(crate) fn result(arrived: &Arrived, result: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({"jsonrpc": "2.0", "id": arrived.body["id"], "result": result})
}

/// The refusal of a request.
pub(crate) fn error(arrived: &Arrived, code: i64, data: &serde_json::Value) -> serde_json::Value {
    let error = serde_json::json!({"code": code, "message": "no", "data": data});
    serde_json::json!({"jsonrpc": "2.0", "id": arrived.body["id"], "error": error})
}
