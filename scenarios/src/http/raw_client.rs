//! A raw HTTP client for tests of the server.

use std::pin::Pin;

use bowline_core::era::{Dialect, VersionHeader};
use bowline_core::sse::{Decoder, DecoderLimits, SseEvent};
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::{Column, Transport};

/// An HTTP client that can change every header.
///
/// By default its requests are those of an MCP client of its version with an open session.
#[derive(Clone, Debug)]
pub struct RawHttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    dialect: &'static Dialect,
    session: Option<String>,
}

impl RawHttpClient {
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

    /// Returns the same client without a session.
    #[must_use]
    pub fn without_session(&self) -> Self {
        Self {
            session: None,
            ..self.clone()
        }
    }

    /// Returns the same client without a session, at another version.
    #[must_use]
    pub fn with_dialect(&self, dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            ..self.without_session()
        }
    }

    /// The session id, once the server assigned one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Performs the handshake where the version has one, and declares the `roots` capability.
    ///
    /// # Panics
    ///
    /// If the server rejects the handshake.
    ///
    /// # Cancel safety
    ///
    /// Safe, except that the session may stay open on the server.
    pub async fn open(mut self) -> Self {
        if self.dialect.is_modern() {
            return self;
        }
        let response = self.initialize().await;
        assert_eq!(response.status(), 200, "{response:?}");
        self.session = response.header("mcp-session-id").map(str::to_owned);
        let body = response.json().await;
        assert_eq!(body["result"]["protocolVersion"], self.dialect.version);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&initialized).await.status(), 202);
        self
    }

    /// The `initialize` request.
    pub fn initialize(&self) -> RawHttpRequest {
        let body = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": self.dialect.version,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "plain", "version": "1"},
        }});
        self.without_session()
            .post(&body)
            .without("mcp-protocol-version")
    }

    /// A JSON-RPC request with the envelope and headers of the version.
    pub fn request(&self, id: impl Into<Value>, method: &str, mut params: Value) -> RawHttpRequest {
        if self.dialect.is_modern() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] =
                json!(self.dialect.version);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let name = params["name"].as_str().map(str::to_owned);
        let id = id.into();
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut request = self.post(&body);
        if self.dialect.http.mirrors_body_in_headers {
            request = request.header("mcp-method", method);
            if let Some(name) = name {
                request = request.header("mcp-name", &name);
            }
        }
        request
    }

    /// A `tools/call` request.
    pub fn call(&self, id: impl Into<Value>, tool: &str) -> RawHttpRequest {
        self.request(id, "tools/call", json!({"name": tool, "arguments": {}}))
    }

    /// A `tools/call` request with a progress token, so that the response is a stream.
    pub fn call_with_progress(&self, id: i64, tool: &str) -> RawHttpRequest {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": id}});
        self.request(id, "tools/call", params)
    }

    /// A `notifications/cancelled` for a request.
    pub fn cancel(&self, id: i64) -> RawHttpRequest {
        let params = json!({"requestId": id});
        self.post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
    }

    /// A POST with this JSON body, which need not be a message.
    pub fn post(&self, body: &Value) -> RawHttpRequest {
        self.post_text(&body.to_string())
    }

    /// A POST with this body, which need not be JSON.
    pub fn post_text(&self, body: &str) -> RawHttpRequest {
        let request = self.build(Method::POST, body);
        let request = request.header("content-type", "application/json");
        request.header("accept", "application/json, text/event-stream")
    }

    /// A GET for the standalone stream.
    pub fn get(&self) -> RawHttpRequest {
        self.build(Method::GET, "")
            .header("accept", "text/event-stream")
    }

    /// A DELETE, which ends the session.
    pub fn delete(&self) -> RawHttpRequest {
        self.build(Method::DELETE, "")
    }

    fn build(&self, method: Method, body: &str) -> RawHttpRequest {
        let mut request = Request::new(Full::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.parse().unwrap();
        let request = RawHttpRequest {
            client: self.client.clone(),
            request,
        };
        let request = match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        };
        match self.dialect.http.version_header {
            VersionHeader::Never => request,
            _ => request.header("mcp-protocol-version", self.dialect.version),
        }
    }
}

/// An HTTP request that is sent by awaiting it.
#[derive(Debug)]
#[must_use = "a request is sent by awaiting it"]
pub struct RawHttpRequest {
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
}

impl RawHttpRequest {
    /// Sets a header, replacing an existing value.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let name = HeaderName::from_static(name);
        self.request
            .headers_mut()
            .insert(name, value.parse().unwrap());
        self
    }

    /// Removes a header.
    pub fn without(mut self, name: &str) -> Self {
        self.request.headers_mut().remove(name);
        self
    }

    /// Sets the path.
    pub fn path(mut self, path: &str) -> Self {
        let mut parts = self.request.uri().clone().into_parts();
        parts.path_and_query = Some(path.parse().unwrap());
        *self.request.uri_mut() = http::Uri::from_parts(parts).unwrap();
        self
    }

    /// Sets the HTTP method.
    pub fn method(mut self, method: &str) -> Self {
        *self.request.method_mut() = method.parse().unwrap();
        self
    }
}

impl IntoFuture for RawHttpRequest {
    type Output = RawHttpResponse;
    type IntoFuture = Pin<Box<dyn Future<Output = RawHttpResponse>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let response = self.client.request(self.request).await;
            RawHttpResponse {
                response: response.unwrap(),
                decoder: Decoder::new(DecoderLimits::default()),
            }
        })
    }
}

/// An HTTP response. Dropping it closes an unread body.
#[derive(Debug)]
#[must_use = "dropping a response abandons its request"]
pub struct RawHttpResponse {
    response: Response<Incoming>,
    decoder: Decoder,
}

impl RawHttpResponse {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name)?;
        value.to_str().ok()
    }

    /// Whether the body is an event stream.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The whole body.
    ///
    /// # Panics
    ///
    /// If the body is cut off or is not UTF-8.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
    pub async fn text(self) -> String {
        let body = self.response.into_body().collect().await.unwrap();
        String::from_utf8(body.to_bytes().into()).unwrap()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If the content type is not `application/json`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
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
    /// If the body is not an event stream, or is cut off.
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is taken only when it is returned.
    pub async fn event(&mut self) -> Option<SseEvent> {
        assert!(self.is_stream(), "not an event stream: {self:?}");
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
    /// If the body is not an event stream, or is cut off.
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

    /// The next message.
    ///
    /// # Panics
    ///
    /// At the end of the stream.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is taken only when it is returned.
    pub async fn message(&mut self) -> Value {
        self.next().await.unwrap().0
    }

    /// All remaining messages; one if the body is JSON.
    ///
    /// # Panics
    ///
    /// If the body is cut off.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
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

    /// The JSON-RPC response, which is the last message.
    ///
    /// # Panics
    ///
    /// If there is no message.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
    pub async fn answer(self) -> Value {
        self.messages().await.pop().unwrap()
    }
}
