//! Somebody who speaks plain HTTP to a server of ours.

use std::pin::Pin;

use bowline_core::era::{Dialect, VersionHeader};
use bowline_core::sse::{Decoder, Event, Limits};
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::{Column, Transport};

/// A client of which every header is in the hands of the scenario.
///
/// Its requests are those of a client of its version that has opened a conversation, until they are changed.
#[derive(Clone, Debug)]
pub struct Plain {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    dialect: &'static Dialect,
    session: Option<String>,
}

impl Plain {
    pub(crate) fn new(url: &str, column: Column) -> Self {
        let http2 = column.transport == Transport::Http2;
        let mut builder = Client::builder(TokioExecutor::new());
        Self {
            client: builder.http2_only(http2).build_http(),
            url: url.to_owned(),
            dialect: column.dialect,
            session: None,
        }
    }

    /// The same client before it has opened anything.
    #[must_use]
    pub fn stranger(&self) -> Self {
        Self {
            session: None,
            ..self.clone()
        }
    }

    /// The same client in its next conversation, at another version.
    #[must_use]
    pub fn speaking(&self, dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            ..self.stranger()
        }
    }

    /// The name of the conversation, once the server gave it one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Opens a conversation as its version does, able to answer questions about roots.
    ///
    /// # Panics
    ///
    /// If the server does not go along.
    ///
    /// # Cancel safety
    ///
    /// Safe, but what was said stays said.
    pub async fn open(mut self) -> Self {
        if self.dialect.is_modern() {
            return self;
        }
        let heard = self.initialize().await;
        assert_eq!(heard.status(), 200, "{heard:?}");
        self.session = heard.header("mcp-session-id").map(str::to_owned);
        let answer = heard.json().await;
        assert_eq!(answer["result"]["protocolVersion"], self.dialect.version);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&initialized).await.status(), 202);
        self
    }

    /// The first words of a conversation.
    pub fn initialize(&self) -> Posting {
        let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": self.dialect.version,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "plain", "version": "1"},
        }});
        self.stranger().post(&hello).without("mcp-protocol-version")
    }

    /// A request, with what the version adds to every request.
    pub fn request(&self, id: impl Into<Value>, method: &str, mut params: Value) -> Posting {
        if self.dialect.is_modern() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] =
                json!(self.dialect.version);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let name = params["name"].as_str().map(str::to_owned);
        let id = id.into();
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut posting = self.post(&body);
        if self.dialect.http.mirrors_body_in_headers {
            posting = posting.header("mcp-method", method);
            if let Some(name) = name {
                posting = posting.header("mcp-name", &name);
            }
        }
        posting
    }

    /// A call of a tool.
    pub fn call(&self, id: impl Into<Value>, tool: &str) -> Posting {
        self.request(id, "tools/call", json!({"name": tool, "arguments": {}}))
    }

    /// A call of a tool that wants to hear of its progress, so that its answer is a stream.
    pub fn call_with_progress(&self, id: i64, tool: &str) -> Posting {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": id}});
        self.request(id, "tools/call", params)
    }

    /// Says that a request is given up.
    pub fn cancel(&self, id: i64) -> Posting {
        let params = json!({"requestId": id});
        self.post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
    }

    /// Posts this, which need not be a message.
    pub fn post(&self, body: &Value) -> Posting {
        self.post_text(&body.to_string())
    }

    /// Posts this, which need not even be JSON.
    pub fn post_text(&self, body: &str) -> Posting {
        let posting = self.ask(Method::POST, body);
        let posting = posting.header("content-type", "application/json");
        posting.header("accept", "application/json, text/event-stream")
    }

    /// Asks for a stream.
    pub fn get(&self) -> Posting {
        self.ask(Method::GET, "")
            .header("accept", "text/event-stream")
    }

    /// Ends the conversation.
    pub fn delete(&self) -> Posting {
        self.ask(Method::DELETE, "")
    }

    fn ask(&self, method: Method, body: &str) -> Posting {
        let mut request = Request::new(Full::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.parse().unwrap();
        let posting = Posting {
            client: self.client.clone(),
            request,
        };
        let posting = match &self.session {
            Some(session) => posting.header("mcp-session-id", session),
            None => posting,
        };
        match self.dialect.http.version_header {
            VersionHeader::Never => posting,
            _ => posting.header("mcp-protocol-version", self.dialect.version),
        }
    }
}

/// A request that is sent by awaiting it.
#[derive(Debug)]
#[must_use = "a request is sent by awaiting it"]
pub struct Posting {
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
}

impl Posting {
    /// With this header in the place of whatever was there.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let name = HeaderName::from_static(name);
        self.request
            .headers_mut()
            .insert(name, value.parse().unwrap());
        self
    }

    /// Without this header.
    pub fn without(mut self, name: &str) -> Self {
        self.request.headers_mut().remove(name);
        self
    }

    /// To another path of the same server.
    pub fn at(mut self, path: &str) -> Self {
        let mut parts = self.request.uri().clone().into_parts();
        parts.path_and_query = Some(path.parse().unwrap());
        *self.request.uri_mut() = http::Uri::from_parts(parts).unwrap();
        self
    }

    /// By another method.
    pub fn by(mut self, method: &str) -> Self {
        *self.request.method_mut() = method.parse().unwrap();
        self
    }
}

impl IntoFuture for Posting {
    type Output = Heard;
    type IntoFuture = Pin<Box<dyn Future<Output = Heard>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let response = self.client.request(self.request).await;
            Heard {
                response: response.unwrap(),
                decoder: Decoder::new(Limits::default()),
            }
        })
    }
}

/// What came back, as far as it was read. Dropping it gives the rest up.
#[derive(Debug)]
#[must_use = "dropping a response gives its request up"]
pub struct Heard {
    response: Response<Incoming>,
    decoder: Decoder,
}

impl Heard {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// A header, if there is one.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name)?;
        value.to_str().ok()
    }

    /// Whether it is a stream of events.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The whole body.
    ///
    /// # Panics
    ///
    /// If it breaks off or is no text.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the request up.
    pub async fn text(self) -> String {
        let body = self.response.into_body().collect().await.unwrap();
        String::from_utf8(body.to_bytes().into()).unwrap()
    }

    /// The body, which is plain JSON.
    ///
    /// # Panics
    ///
    /// If it is not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the request up.
    pub async fn json(self) -> Value {
        let kind = self.header("content-type").map(str::to_owned);
        let text = self.text().await;
        assert_eq!(kind.as_deref(), Some("application/json"), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The next event; `None` at the end of the stream.
    ///
    /// # Panics
    ///
    /// If it is no stream, or breaks off.
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is taken only when it is returned.
    pub async fn event(&mut self) -> Option<Event> {
        assert!(self.is_stream(), "no stream: {self:?}");
        loop {
            if let Some(event) = self.decoder.next() {
                return Some(event.unwrap());
            }
            let frame = self.response.body_mut().frame().await?.unwrap();
            if let Ok(bytes) = frame.into_data() {
                self.decoder.push(bytes);
            }
        }
    }

    /// The next event that carries a message, and its id; `None` at the end of the stream.
    ///
    /// # Panics
    ///
    /// If it is no stream, or breaks off.
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is taken only when it is returned.
    pub async fn next(&mut self) -> Option<(Value, Option<String>)> {
        loop {
            let event = self.event().await?;
            if !event.data.is_empty() {
                let message = serde_json::from_slice(&event.data).unwrap();
                return Some((message, event.id));
            }
        }
    }

    /// The message that comes next.
    ///
    /// # Panics
    ///
    /// If none does.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn message(&mut self) -> Value {
        self.next().await.unwrap().0
    }

    /// All messages that are left: one if it is plain JSON.
    ///
    /// # Panics
    ///
    /// If it breaks off.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the request up.
    pub async fn messages(mut self) -> Vec<Value> {
        if !self.is_stream() {
            return vec![self.json().await];
        }
        let mut all = Vec::new();
        while let Some((message, _)) = self.next().await {
            all.push(message);
        }
        all
    }

    /// The answer, which comes last.
    ///
    /// # Panics
    ///
    /// If there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the request up.
    pub async fn answer(self) -> Value {
        self.messages().await.pop().unwrap()
    }
}
