//! A server that demands tokens, authorization servers that follow a script, and what all of them were sent.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::error::Error as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bowline::exchange::{BoxFuture, Principal};
use bowline::http::client::{Authorizer, HttpSend, HyperSend, RequestBody};
use bowline::http::legacy::Legacy;
use bowline::http::server::HttpBody;
use bowline::{Client, Error, Result, Server, Tool};
use bowline_auth::client::{OAuth, OwnBrowser};
use bowline_auth::server::{AccessToken, Claims, Refused, ResourceServer, TokenVerifier};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use scenarios::World;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

/// Where people are sent back to.
pub(crate) const CALLBACK: &str = "http://127.0.0.1:7/callback";

/// An OAuth client for a server, whose person does what the authorization server's page says.
pub(crate) fn oauth(server: &Guarded) -> OAuth {
    unattended(server).user_agent(browser())
}

/// An OAuth client for a server, which asks nobody. It does without TLS: to read the certificates of the system takes longer
/// than anything else here.
pub(crate) fn unattended(server: &Guarded) -> OAuth {
    OAuth::new(&server.url).http(HyperSend::plain())
}

/// A browser that follows no redirect, so that the application sees where it leads.
pub(crate) fn browser() -> OwnBrowser {
    OwnBrowser::new(CALLBACK, async |url: String| {
        let mut request = Request::new(RequestBody::from(Bytes::new()));
        *request.uri_mut() = url.parse()?;
        let response = HyperSend::plain().send(request).await?;
        let location = response.headers().get(LOCATION);
        let location = location.ok_or("the page sends nobody anywhere")?;
        Ok(location.to_str()?.to_owned())
    })
}

/// Connects to a server.
pub(crate) async fn connect(
    world: &World,
    server: &Guarded,
    authorizer: impl Authorizer,
) -> Result<Client> {
    world.connect_to(&server.url).authorizer(authorizer).await
}

/// Connects to a server and calls `whoami`; versions with a handshake are refused when they connect, others then.
pub(crate) async fn call(
    world: &World,
    server: &Guarded,
    authorizer: impl Authorizer,
) -> Result<String> {
    let client = connect(world, server, authorizer).await?;
    let text = client.call_tool("whoami", ()).await?.text();
    client.close().await?;
    Ok(text)
}

/// Why a client has no token.
pub(crate) fn why<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    match error.source() {
        Some(source) => source.to_string(),
        None => String::new(),
    }
}

/// A request, as it came, and the status that it got.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    method: String,
    pub(crate) path: String,
    query: String,
    headers: HeaderMap,
    /// Empty where a server of ours has read it.
    body: String,
    pub(crate) status: u16,
}

impl Received {
    fn new<B>(request: &Request<B>, body: String) -> Self {
        let uri = request.uri();
        Self {
            method: request.method().to_string(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
            body,
            status: 0,
        }
    }

    /// `POST /token`.
    pub(crate) fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) fn authorization(&self) -> Option<&str> {
        self.headers.get(AUTHORIZATION)?.to_str().ok()
    }

    pub(crate) fn query(&self) -> BTreeMap<String, String> {
        read_form(&self.query)
    }

    pub(crate) fn form(&self) -> BTreeMap<String, String> {
        read_form(&self.body)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether a word is anywhere in it.
    pub(crate) fn contains(&self, word: &str) -> bool {
        let mut values = self.headers.values();
        self.query.contains(word)
            || self.body.contains(word)
            || values.any(|value| String::from_utf8_lossy(value.as_bytes()).contains(word))
    }
}

fn read_form(text: &str) -> BTreeMap<String, String> {
    let pairs = url::form_urlencoded::parse(text.as_bytes());
    pairs.into_owned().collect()
}

/// An authorization server that follows a script. Everybody agrees, everybody may register.
pub(crate) struct Issuer {
    /// What it calls itself.
    pub(crate) url: String,
    shared: Arc<Mutex<Script>>,
    _serving: JoinSet<()>,
}

/// What an authorization server says. It is changed while it is served.
pub(crate) struct Script {
    /// What it says of itself, and at which path.
    pub(crate) metadata: Value,
    pub(crate) metadata_at: String,
    /// The query of the address that people are sent back to, in which `{code}`, `{state}` and `{issuer}` stand for
    /// what is right.
    pub(crate) comes_back_with: String,
    /// What is different about a registration.
    pub(crate) registers: Value,
    /// In seconds.
    pub(crate) lifetime: u64,
    /// The scopes of its tokens, if they are not those that were asked for.
    pub(crate) grants: Option<String>,
    /// Whether servers accept its tokens.
    pub(crate) is_accepted: bool,
    issuer: String,
    received: Vec<Received>,
    /// What it says the next time, by path.
    next: BTreeMap<&'static str, VecDeque<(u16, Value)>>,
    registered: usize,
    issued: usize,
    /// The scopes of access tokens that are good.
    tokens: BTreeMap<String, String>,
    /// The scopes of codes and refresh tokens, each of which is used up by its use.
    grantable: BTreeMap<String, String>,
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        Self::at("").await
    }

    /// One of several at a host, whose issuer has this path.
    pub(crate) async fn at(path: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}{path}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Script::new(&issuer)));
        let answering = shared.clone();
        let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let shared = answering.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let request = Request::from_parts(head, ());
                let body = String::from_utf8_lossy(&body).into_owned();
                let response = lock(&shared).answer(Received::new(&request, body));
                response.map(axum::body::Body::from)
            }
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url: issuer,
            shared,
            _serving: serving,
        }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.shared)
    }

    /// What it was sent, in order, and what it was sent since it was asked the last time.
    pub(crate) fn received(&self) -> Vec<Received> {
        std::mem::take(&mut self.script().received)
    }

    /// The same, as verbs and paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.received().iter().map(Received::what).collect()
    }

    /// Does not count its tokens as good any more.
    pub(crate) fn end_tokens(&self) {
        self.script().tokens.clear();
    }
}

impl Script {
    fn new(issuer: &str) -> Self {
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": true,
        });
        Self {
            metadata,
            metadata_at: WELL_KNOWN.into(),
            comes_back_with: "code={code}&state={state}&iss={issuer}".into(),
            registers: json!({}),
            lifetime: 3600,
            grants: None,
            is_accepted: true,
            issuer: issuer.to_owned(),
            received: Vec::new(),
            next: BTreeMap::new(),
            registered: 0,
            issued: 0,
            tokens: BTreeMap::new(),
            grantable: BTreeMap::new(),
        }
    }

    /// Says this the next time that something is sent to a path.
    pub(crate) fn says_next(&mut self, path: &'static str, status: u16, body: Value) {
        self.next.entry(path).or_default().push_back((status, body));
    }

    /// The same, before anything else that it was to say there.
    pub(crate) fn says_first(&mut self, path: &'static str, status: u16, body: Value) {
        self.next
            .entry(path)
            .or_default()
            .push_front((status, body));
    }

    /// The access token that it gave out last.
    pub(crate) fn last_token(&self) -> String {
        format!("{}-access-{}", self.name(), self.issued)
    }

    /// What its tokens begin with, which no other issuer's do.
    fn name(&self) -> String {
        let port = self.issuer.rsplit(':').next().unwrap_or_default();
        port.replace('/', "-")
    }

    fn answer(&mut self, mut received: Received) -> Response<String> {
        let response = self.respond(&received);
        received.status = response.status().as_u16();
        self.received.push(received);
        response
    }

    fn respond(&mut self, received: &Received) -> Response<String> {
        let scripted = self.next.iter_mut();
        let mut scripted = scripted.filter(|(path, _)| received.path.ends_with(**path));
        if let Some((status, body)) = scripted.find_map(|(_, next)| next.pop_front()) {
            return respond(status, &body);
        }
        if received.path == self.metadata_at {
            return respond(200, &self.metadata);
        }
        match received.path.rsplit('/').next() {
            Some("register") => self.register(&received.json()),
            Some("authorize") => self.send_back(&received.query()),
            Some("token") => self.issue(&received.form()),
            _ => respond(404, &Value::Null),
        }
    }

    fn register(&mut self, about: &Value) -> Response<String> {
        self.registered += 1;
        let mut registered = about.clone();
        registered["client_id"] = json!(format!("{}-client-{}", self.name(), self.registered));
        for (name, value) in self.registers.as_object().unwrap() {
            registered[name] = value.clone();
        }
        respond(201, &registered)
    }

    fn send_back(&mut self, asked: &BTreeMap<String, String>) -> Response<String> {
        let code = format!("{}-code-{}", self.name(), self.received.len());
        let scope = asked.get("scope").cloned().unwrap_or_default();
        self.grantable.insert(code.clone(), scope);
        let query = self.comes_back_with.replace("{code}", &code);
        let query = query.replace("{state}", &asked["state"]);
        let query = query.replace("{issuer}", &self.issuer);
        let mut response = respond(303, &Value::Null);
        let location = format!("{}?{query}", asked["redirect_uri"]);
        let headers = response.headers_mut();
        headers.insert(LOCATION, location.parse().unwrap());
        response
    }

    fn issue(&mut self, form: &BTreeMap<String, String>) -> Response<String> {
        let asked = form.get("scope").cloned().unwrap_or_default();
        let scope = match form.get("code").or(form.get("refresh_token")) {
            Some(used) => self.grantable.remove(used),
            None => Some(asked),
        };
        let Some(scope) = scope else {
            return respond(400, &json!({"error": "invalid_grant"}));
        };
        self.issued += 1;
        let (access, refresh) = (
            self.last_token(),
            format!("{}-refresh-{}", self.name(), self.issued),
        );
        let granted = self.grants.clone().unwrap_or_else(|| scope.clone());
        self.tokens.insert(access.clone(), granted);
        self.grantable.insert(refresh.clone(), scope);
        let answer = json!({
            "access_token": access, "token_type": "Bearer",
            "expires_in": self.lifetime, "refresh_token": refresh,
        });
        respond(200, &answer)
    }
}

/// An MCP server that demands tokens.
pub(crate) struct Guarded {
    pub(crate) url: String,
    front: Arc<Mutex<Front>>,
    _serving: JoinSet<()>,
}

/// What the server says differently, and what it was sent.
#[derive(Default)]
pub(crate) struct Front {
    /// What is at which path of it; `null` means that nothing is.
    pub(crate) documents: BTreeMap<String, Value>,
    /// What it says instead of its own challenges, by status.
    pub(crate) challenges: BTreeMap<u16, String>,
    /// An authorization server at the same host.
    own_issuer: Option<Arc<Mutex<Script>>>,
    received: Vec<Received>,
}

impl Guarded {
    /// A server that names the first of these, and accepts the tokens of all.
    pub(crate) async fn by(issuers: &[&Issuer]) -> Self {
        Self::with(issuers, |guard| guard).await
    }

    /// The same, with a say in how it is guarded.
    pub(crate) async fn with(
        issuers: &[&Issuer],
        choose: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        let scripts = issuers.iter().map(|issuer| issuer.shared.clone());
        let named = issuers[0].url.clone();
        Self::start(scripts.collect(), Some(named), choose).await
    }

    /// A server that publishes nothing of its own, and whose host is an authorization server.
    pub(crate) async fn on_its_own() -> Self {
        Self::start(Vec::new(), None, |guard| guard).await
    }

    async fn start(
        mut scripts: Vec<Arc<Mutex<Script>>>,
        named: Option<String>,
        choose: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        let service = notes().http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", bound.addr());
        let url = format!("{origin}/mcp");
        let mut front = Front::default();
        let issuer = named.unwrap_or_else(|| {
            let own = Arc::new(Mutex::new(Script::new(&origin)));
            scripts.push(own.clone());
            front.own_issuer = Some(own);
            for path in ["/.well-known/oauth-protected-resource", RESOURCE_METADATA] {
                front.documents.insert(path.to_owned(), Value::Null);
            }
            // What a server of 2025-03-26 says, which knows of no documents.
            front.challenges.insert(401, "Bearer".into());
            origin
        });
        let table = Table {
            audience: url.clone(),
            scripts,
        };
        let guard = ResourceServer::new(&url, issuer, table).unwrap();
        let guard = choose(guard.any_issuer_of_verifier());
        let front = Arc::new(Mutex::new(front));
        let guarded = FrontService {
            inner: guard.layer(bound.service()),
            front: front.clone(),
        };
        let mut serving = JoinSet::new();
        serving.spawn(async move { bound.serve_through(guarded).await.unwrap() });
        Self {
            url,
            front,
            _serving: serving,
        }
    }

    pub(crate) fn front(&self) -> MutexGuard<'_, Front> {
        lock(&self.front)
    }

    /// What is different about the authorization server at the same host.
    pub(crate) fn own_issuer(&self, change: impl FnOnce(&mut Script)) {
        let own = self.front().own_issuer.clone().unwrap();
        change(&mut lock(&own));
    }

    /// What it was sent since it was asked the last time.
    pub(crate) fn received(&self) -> Vec<Received> {
        std::mem::take(&mut self.front().received)
    }

    /// What clients looked for besides MCP, as verbs and paths.
    pub(crate) fn looked_for(&self) -> Vec<String> {
        let received = self.received();
        let others = received.iter().filter(|it| it.path != "/mcp");
        others.map(Received::what).collect()
    }

    /// Changes the document about the server, as it publishes it.
    pub(crate) fn publishes(&self, issuer: &str, scopes: Option<&[&str]>) {
        let mut document = json!({"resource": self.url, "authorization_servers": [issuer]});
        if let Some(scopes) = scopes {
            document["scopes_supported"] = json!(scopes);
        }
        let documents = &mut self.front().documents;
        documents.insert(RESOURCE_METADATA.to_owned(), document);
    }
}

/// Tools that say on whose behalf they work, and one that needs a scope.
fn notes() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        principal.name().unwrap_or("nobody").to_owned()
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}

/// Knows the tokens that authorization servers gave out.
struct Table {
    audience: String,
    scripts: Vec<Arc<Mutex<Script>>>,
}

impl TokenVerifier for Table {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
        let known = self.scripts.iter().find_map(|script| {
            let script = lock(script);
            let scope = script.tokens.get(token.as_str())?;
            let claims =
                json!({"iss": script.issuer, "sub": "ada", "aud": self.audience, "scope": scope});
            script.is_accepted.then_some(claims)
        });
        let claims = match known {
            Some(claims) => Claims::read(claims.to_string().as_bytes()),
            None => Err(Refused::invalid("the token is unknown")),
        };
        Box::pin(std::future::ready(claims))
    }
}

/// Records what comes, and says what the scenario wants to be said.
#[derive(Clone)]
struct FrontService<S> {
    inner: S,
    front: Arc<Mutex<Front>>,
}

impl<S> Service<Request<Incoming>> for FrontService<S>
where
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<HttpBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let front = self.front.clone();
        Box::pin(async move {
            let mut received = Received::new(&request, String::new());
            let response = match respond_instead(&front, &mut received, request).await {
                Ok(response) => response.map(|body| HttpBody::from(Bytes::from(body))),
                Err(request) => inner.call(request).await?,
            };
            let (mut head, body) = response.into_parts();
            received.status = head.status.as_u16();
            let mut front = lock(&front);
            if let Some(challenge) = front.challenges.get(&received.status) {
                let challenge = challenge.parse().unwrap();
                head.headers.insert(WWW_AUTHENTICATE, challenge);
            }
            front.received.push(received);
            Ok(Response::from_parts(head, body))
        })
    }
}

/// Answers in the place of the server, or gives the request back.
async fn respond_instead(
    front: &Mutex<Front>,
    received: &mut Received,
    request: Request<Incoming>,
) -> Result<Response<String>, Request<Incoming>> {
    if received.path == "/mcp" {
        return Err(request);
    }
    match lock(front).documents.get(&received.path) {
        Some(Value::Null) => return Ok(respond(404, &Value::Null)),
        Some(document) => return Ok(respond(200, document)),
        None => {}
    }
    let own = lock(front).own_issuer.clone();
    let Some(own) = own else {
        return Err(request);
    };
    let body = request.into_body().collect().await.unwrap().to_bytes();
    received.body = String::from_utf8_lossy(&body).into_owned();
    let response = lock(&own).respond(received);
    Ok(response)
}

fn respond(status: u16, body: &Value) -> Response<String> {
    let mut response = Response::new(body.to_string());
    *response.status_mut() = status.try_into().unwrap();
    let json = "application/json".parse().unwrap();
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap()
}

/// Where an authorization server without a path describes itself.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
/// Where a guarded server does.
pub(crate) const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";
