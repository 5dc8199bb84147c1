//! A guarded bridge in front of a server that records the heads of all its requests, both over HTTP.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};

use bowline::exchange::{BoxFuture, Dialects};
use bowline::http::client::{Authorizer, Refusal};
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline_auth::server::{AccessToken, Claims, ResourceServer, TokenVerifier, VerifyError};
use bowline_bridge::credentials::Credentials;
use bowline_bridge::{Bridge, BridgeConfig, FrontToken, Target};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

pub(crate) const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const RESOURCE: &str = "https://bridge.example/mcp";

/// Accepts the tokens `USER.CLIENT.SCOPE+SCOPE.NUMBER`, for one resource.
pub(crate) struct TableVerifier {
    pub(crate) issuer: String,
    pub(crate) resource: String,
}

impl TokenVerifier for TableVerifier {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
        let parts: Vec<_> = token.as_str().split('.').collect();
        let claims = match parts[..] {
            [user, client, scopes, _] => {
                let claims = json!({"iss": self.issuer, "sub": user, "aud": self.resource, "client_id": client,
                    "scope": scopes.replace('+', " ")});
                Claims::read(claims.to_string().as_bytes())
            }
            _ => Err(VerifyError::invalid("the token is unknown")),
        };
        Box::pin(async move { claims })
    }
}

/// Sends the token that the test has put there.
#[derive(Clone)]
pub(crate) struct Presented(pub(crate) Arc<Mutex<String>>);

impl Presented {
    pub(crate) fn new(token: &str) -> Self {
        Self(Arc::new(Mutex::new(token.to_owned())))
    }

    pub(crate) fn set(&self, token: &str) {
        *self.0.lock().unwrap() = token.to_owned();
    }
}

impl Authorizer for Presented {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.0.lock().unwrap())).unwrap();
        head.headers.insert(AUTHORIZATION, value);
        Box::pin(async { Ok(()) })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async { Err(refusal.to_error()) })
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

/// The heads of the requests that a server has got.
#[derive(Clone, Default)]
pub(crate) struct Heads(Arc<Mutex<Vec<Head>>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) authorization: Option<String>,
    /// The URL and all headers.
    pub(crate) text: String,
}

impl Heads {
    pub(crate) fn all(&self) -> Vec<Head> {
        self.0.lock().unwrap().clone()
    }
}

impl<S: Clone> Layer<S> for Heads {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        let heads = self.clone();
        Recorded { inner, heads }
    }
}

#[derive(Clone)]
pub(crate) struct Recorded<S> {
    inner: S,
    heads: Heads,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Recorded<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let mut text = request.uri().to_string();
        for (name, value) in request.headers() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            writeln!(text, "{name}: {value}").unwrap();
        }
        let authorization = request.headers().get(AUTHORIZATION);
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        let head = Head {
            authorization,
            text,
        };
        self.heads.0.lock().unwrap().push(head);
        self.inner.call(request)
    }
}

/// A server over HTTP whose tool `whoami` returns the `Authorization` header of its call.
pub(crate) fn upstream_server() -> Server {
    let whoami = Tool::new("whoami", async |cx: Context| {
        let head = cx.extensions().get::<request::Parts>();
        let header = head.and_then(|head| head.headers.get(AUTHORIZATION));
        header.map_or("nothing".to_owned(), |value| {
            value.to_str().unwrap().to_owned()
        })
    });
    Server::new("upstream", "1.0.0").tool(whoami)
}

/// Starts a server that speaks one version; returns its URL, and what it gets.
pub(crate) async fn start_upstream(version: &'static str) -> (String, Heads) {
    let heads = Heads::default();
    let service = upstream_server()
        .http()
        .legacy(Legacy::sessions())
        .versions(Dialects::only(|dialect| dialect.version == version));
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    let serving = bound.layer(heads.clone());
    tokio::spawn(async move { serving.serve().await });
    (url, heads)
}

/// Returns a bridge to the server of a configuration: its URL, and our settings for it.
pub(crate) fn bridge_to(url: &str, settings: Value) -> Bridge {
    Bridge::new(target_of(url, settings))
}

/// Returns how the server of a configuration is reached.
pub(crate) fn target_of(url: &str, settings: Value) -> Target {
    let text = json!({"mcpServers": {"up": {"url": url, "bridge": settings}}}).to_string();
    let config = BridgeConfig::from_json(&text).unwrap();
    let target = Credentials::new().target(config.get("up").unwrap());
    target.unwrap()
}

/// Serves a bridge that requires tokens, and keeps them; returns its URL.
pub(crate) async fn serve_guarded(bridge: &Bridge) -> String {
    let verifier = TableVerifier {
        issuer: ISSUER.to_owned(),
        resource: RESOURCE.to_owned(),
    };
    let guard = ResourceServer::new(RESOURCE, ISSUER, verifier).unwrap();
    let guard = guard.keep_token(|token| FrontToken::new(token.as_str()));
    let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    let serving = bound.layer(guard);
    tokio::spawn(async move { serving.serve().await });
    url
}

pub(crate) async fn connect(url: &str, version: &str, token: &Presented) -> Client {
    let client = Client::connect(url).protocol_version(version);
    client.authorizer(token.clone()).await.unwrap()
}

pub(crate) async fn whoami(client: &Client) -> String {
    let reply = client.call_tool("whoami", ()).await.unwrap();
    reply.text().to_owned()
}

/// Answers every POST and GET of a raw HTTP server with what `answer` returns for path and body: status and JSON.
pub(crate) async fn start_raw(
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut read = Vec::new();
                let (head, body) = loop {
                    let mut part = [0; 4096];
                    let length = stream.read(&mut part).await.unwrap();
                    if length == 0 {
                        return;
                    }
                    read.extend_from_slice(&part[..length]);
                    let text = String::from_utf8_lossy(&read).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    let lower = head.to_ascii_lowercase();
                    let expected = lower.split("content-length: ").nth(1);
                    let expected = expected.map_or(0, |rest| {
                        rest.lines().next().unwrap().trim().parse().unwrap()
                    });
                    if body.len() >= expected {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                let path = head.split(' ').nth(1).unwrap();
                let (status, json) = answer(path, &body);
                let json = json.to_string();
                let response = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                     connection: close\r\n\r\n{json}",
                    json.len()
                );
                stream.write_all(response.as_bytes()).await.unwrap();
            });
        }
    });
    format!("http://{address}")
}

/// Everything that is logged on this thread while it is in use.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<String>>);

impl Logs {
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        let logs = Self::default();
        let guard = tracing::subscriber::set_default(logs.clone());
        (logs, guard)
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::field::Visit for Logs {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Logs {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
