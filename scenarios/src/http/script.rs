//! An HTTP server that follows a script, for clients of ours: over HTTP/1.1 and HTTP/2 alike.

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

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct Arrived {
    head: Parts,
    /// The body; `null` if there is none.
    pub body: Value,
}

impl Arrived {
    /// `POST tools/call`, or the verb alone if no method is called.
    #[must_use]
    pub fn what(&self) -> String {
        match self.body["method"].as_str() {
            Some(method) => format!("{} {method}", self.head.method),
            None => self.head.method.to_string(),
        }
    }

    /// A header, if it has it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// Where it was sent.
    #[must_use]
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The answer to it.
    #[must_use]
    pub fn result(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }

    /// The refusal of it.
    #[must_use]
    pub fn error(&self, code: i64) -> Value {
        let error = json!({"code": code, "message": "no"});
        json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error})
    }
}

/// What the script says to a request.
#[derive(Debug)]
#[must_use = "what is not returned is not said"]
pub struct Say {
    response: http::response::Builder,
    body: Said,
}

impl Say {
    /// Nothing but a status.
    pub fn status(status: u16) -> Self {
        Self {
            response: Response::builder().status(status),
            body: Said::whole(""),
        }
    }

    /// Plain JSON.
    pub fn json(body: &Value) -> Self {
        let body = Said::whole(&body.to_string());
        Self::status(200)
            .header("content-type", "application/json")
            .with(body)
    }

    /// A stream of these events, which then ends.
    pub fn events(events: &str) -> Self {
        Self::status(200)
            .header("content-type", "text/event-stream")
            .with(Said::whole(events))
    }

    /// A stream of events that goes on as long as the other end of this does.
    pub fn stream() -> (mpsc::UnboundedSender<String>, Self) {
        let (more, rest) = mpsc::unbounded_channel();
        let said = Self::events("").with(Said { rest });
        (more, said)
    }

    /// With another status.
    pub fn at(mut self, status: u16) -> Self {
        self.response = self.response.status(status);
        self
    }

    /// With a header in the place of whatever was there.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let headers = self.response.headers_mut().unwrap();
        headers.insert(name, value.parse().unwrap());
        self
    }

    fn with(mut self, body: Said) -> Self {
        self.body = body;
        self
    }
}

/// What any polite server says to what a scenario is not about: legacy clients get a conversation called `s1`,
/// and modern ones are told that nothing is known.
pub fn manners(request: &Arrived) -> Say {
    match &*request.what() {
        "POST initialize" => {
            let version = request.body["params"]["protocolVersion"].clone();
            Say::json(&request.result(&greeting(&version))).header("mcp-session-id", "s1")
        }
        "POST server/discover" => Say::status(400),
        "GET" => Say::status(405),
        "DELETE" => Say::status(200),
        "POST tools/call" => {
            let text = json!([{"type": "text", "text": "done"}]);
            Say::json(&request.result(&json!({"content": text, "resultType": "complete"})))
        }
        _ => Say::status(202),
    }
}

/// What a server says in a handshake.
#[must_use]
pub fn greeting(version: &Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// A server that follows a script. Dropping it closes its connections.
#[derive(Debug)]
#[must_use = "dropping it closes its connections"]
pub struct Script {
    /// Where it is.
    pub url: String,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    _serving: JoinSet<()>,
}

impl Script {
    /// Answers each request by what `say` makes of it.
    ///
    /// # Panics
    ///
    /// If there is no address to serve at.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future serves nothing.
    pub async fn start(say: impl FnMut(&Arrived) -> Say + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (tell, arrived) = mpsc::unbounded_channel();
        let say = Arc::new(Mutex::new(say));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (say, tell) = (say.clone(), tell.clone());
                let service = hyper::service::service_fn(move |request| {
                    answer(request, say.clone(), tell.clone())
                });
                connections.spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let io = TokioIo::new(stream);
                    // A connection that ends badly is what some scenarios are about.
                    drop(builder.serve_connection(io, service).await);
                });
            }
        });
        Self {
            url,
            arrived,
            _serving: serving,
        }
    }

    /// Waits for the next request of this kind, and passes over others.
    ///
    /// # Panics
    ///
    /// If the server is over.
    ///
    /// # Cancel safety
    ///
    /// Safe, but what was passed over stays passed over.
    pub async fn request(&mut self, what: &str) -> Arrived {
        loop {
            let arrived = self.arrived.recv().await.unwrap();
            if arrived.what() == what {
                return arrived;
            }
        }
    }

    /// Everything that has arrived and was not waited for.
    pub fn so_far(&mut self) -> Vec<Arrived> {
        std::iter::from_fn(|| self.arrived.try_recv().ok()).collect()
    }
}

async fn answer<S: FnMut(&Arrived) -> Say>(
    request: Request<Incoming>,
    say: Arc<Mutex<S>>,
    tell: mpsc::UnboundedSender<Arrived>,
) -> Result<Response<Said>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let arrived = Arrived { head, body };
    let said = (say.lock().unwrap())(&arrived);
    let _ = tell.send(arrived);
    Ok(said.response.body(said.body).unwrap())
}

/// The body of a response, as it is said.
#[derive(Debug)]
struct Said {
    rest: mpsc::UnboundedReceiver<String>,
}

impl Said {
    fn whole(text: &str) -> Self {
        let (more, rest) = mpsc::unbounded_channel();
        if !text.is_empty() {
            let _ = more.send(text.to_owned());
        }
        Self { rest }
    }
}

impl Body for Said {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.rest.poll_recv(cx);
        next.map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}
