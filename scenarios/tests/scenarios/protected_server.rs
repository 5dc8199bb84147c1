//! An MCP server that requires tokens, scripted authorization servers, and the requests that they received.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::error::Error as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bowline::exchange::{BoxFuture, Principal};
use bowline::http::client::{Authorizer, HttpClient, HyperClient, RequestBody};
use bowline::http::legacy::Legacy;
use bowline::http::server::HttpBody;
use bowline::{Client, Error, Result, Server, Tool};
use bowline_auth::client::{EmbeddedBrowser, OAuth};
use bowline_auth::server::{AccessToken, Claims, ResourceServer, TokenVerifier, VerifyError};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use scenarios::ScenarioEnv;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_layer::layer_fn;
use tower_service::Service;

/// The redirect URI of the client.
pub(crate) const CALLBACK: &str = "http://127.0.0.1:7/callback";

/// An OAuth client for a server, with a browser that follows the scripted redirect.
pub(crate) fn oauth(server: &ProtectedServer) -> OAuth {
    oauth_without_browser(server).user_agent(browser())
}

/// An OAuth client for a server, without a browser and without TLS: loading the system certificates would take most of
/// the test's time.
pub(crate) fn oauth_without_browser(server: &ProtectedServer) -> OAuth {
    OAuth::new(&server.url).http_client(HyperClient::plain())
}

/// A browser that returns the redirect to the application instead of following it.
pub(crate) fn browser() -> EmbeddedBrowser {
    EmbeddedBrowser::new(CALLBACK, async |url: String| {
        let mut request = Request::new(RequestBody::from(Bytes::new()));
        *request.uri_mut() = url.parse()?;
        let response = HyperClient::plain().send(request).await?;
        let location = response.headers().get(LOCATION);
        let location = location.ok_or("the response is not a redirect")?;
        Ok(location.to_str()?.to_owned())
    })
}

/// Connects to a server.
pub(crate) async fn connect(
    env: &ScenarioEnv,
    server: &ProtectedServer,
    authorizer: impl Authorizer,
) -> Result<Client> {
    env.connect_to(&server.url).authorizer(authorizer).await
}

/// Connects to a server and calls `whoami`. A legacy client is rejected while connecting, a modern one by the call.
pub(crate) async fn call(
    env: &ScenarioEnv,
    server: &ProtectedServer,
    authorizer: impl Authorizer,
) -> Result<String> {
    let client = connect(env, server, authorizer).await?;
    let text = client.call_tool("whoami", ()).await?.text();
    client.close().await?;
    Ok(text)
}

/// The cause of an `Unauthorized` error.
pub(crate) fn authorization_error<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    match error.source() {
        Some(source) => source.to_string(),
        None => String::new(),
    }
}

/// A received request, and the status of its response.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    method: String,
    pub(crate) path: String,
    query: String,
    headers: HeaderMap,
    /// Empty if the MCP server has read it.
    body: String,
    pub(crate) status: u16,
}

impl RecordedRequest {
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

    /// The method and the path, such as `POST /token`.
    pub(crate) fn method_and_path(&self) -> String {
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

    /// Whether the query, the body or a header contains a word.
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

/// A scripted authorization server. Every user consents, and every client may register.
pub(crate) struct ScriptedIssuer {
    /// The issuer identifier.
    pub(crate) url: String,
    shared: Arc<Mutex<IssuerScript>>,
    _serving: JoinSet<()>,
}

/// The responses of an authorization server, which a scenario can change at runtime.
pub(crate) struct IssuerScript {
    /// Its metadata document, and the path of that document.
    pub(crate) metadata: Value,
    pub(crate) metadata_path: String,
    /// The query of the redirect, with placeholders `{code}`, `{state}` and `{issuer}` for the correct values.
    pub(crate) redirect_query: String,
    /// Members that override those of a registration response.
    pub(crate) registration_overrides: Value,
    /// The lifetime of tokens, in seconds.
    pub(crate) lifetime: u64,
    /// The scopes of its tokens, if they differ from the requested ones.
    pub(crate) granted_scope: Option<String>,
    /// Whether servers accept its tokens.
    pub(crate) accepts_tokens: bool,
    issuer: String,
    received: Vec<RecordedRequest>,
    /// The queued responses, by path.
    next: BTreeMap<&'static str, VecDeque<(u16, Value)>>,
    registered: usize,
    issued: usize,
    /// The scopes of valid access tokens.
    tokens: BTreeMap<String, String>,
    /// The scopes of codes and refresh tokens, each of which can be used once.
    grantable: BTreeMap<String, String>,
}

impl ScriptedIssuer {
    pub(crate) async fn start() -> Self {
        Self::with_path("").await
    }

    /// Starts an issuer whose identifier has this path.
    pub(crate) async fn with_path(path: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}{path}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(IssuerScript::new(&issuer)));
        let answering = shared.clone();
        let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let shared = answering.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let request = Request::from_parts(head, ());
                let body = String::from_utf8_lossy(&body).into_owned();
                let response = lock(&shared).answer(RecordedRequest::new(&request, body));
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

    pub(crate) fn script(&self) -> MutexGuard<'_, IssuerScript> {
        lock(&self.shared)
    }

    /// Takes the requests received since the last call.
    pub(crate) fn received(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.script().received)
    }

    /// The same, as methods and paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.received()
            .iter()
            .map(RecordedRequest::method_and_path)
            .collect()
    }

    /// Revokes all access tokens.
    pub(crate) fn revoke_tokens(&self) {
        self.script().tokens.clear();
    }
}

impl IssuerScript {
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
            metadata_path: WELL_KNOWN.into(),
            redirect_query: "code={code}&state={state}&iss={issuer}".into(),
            registration_overrides: json!({}),
            lifetime: 3600,
            granted_scope: None,
            accepts_tokens: true,
            issuer: issuer.to_owned(),
            received: Vec::new(),
            next: BTreeMap::new(),
            registered: 0,
            issued: 0,
            tokens: BTreeMap::new(),
            grantable: BTreeMap::new(),
        }
    }

    /// Queues a response for the next request to a path.
    pub(crate) fn respond_next(&mut self, path: &'static str, status: u16, body: Value) {
        self.next.entry(path).or_default().push_back((status, body));
    }

    /// The same, before the queued responses.
    pub(crate) fn respond_first(&mut self, path: &'static str, status: u16, body: Value) {
        self.next
            .entry(path)
            .or_default()
            .push_front((status, body));
    }

    /// The access token that was issued last.
    pub(crate) fn last_token(&self) -> String {
        format!("{}-access-{}", self.name(), self.issued)
    }

    /// The prefix of its tokens, unique among the issuers.
    fn name(&self) -> String {
        let port = self.issuer.rsplit(':').next().unwrap_or_default();
        port.replace('/', "-")
    }

    fn answer(&mut self, mut received: RecordedRequest) -> Response<String> {
        let response = self.respond(&received);
        received.status = response.status().as_u16();
        self.received.push(received);
        response
    }

    fn respond(&mut self, received: &RecordedRequest) -> Response<String> {
        let scripted = self.next.iter_mut();
        let mut scripted = scripted.filter(|(path, _)| received.path.ends_with(**path));
        if let Some((status, body)) = scripted.find_map(|(_, next)| next.pop_front()) {
            return respond(status, &body);
        }
        if received.path == self.metadata_path {
            return respond(200, &self.metadata);
        }
        match received.path.rsplit('/').next() {
            Some("register") => self.register(&received.json()),
            Some("authorize") => self.redirect(&received.query()),
            Some("token") => self.issue(&received.form()),
            _ => respond(404, &Value::Null),
        }
    }

    fn register(&mut self, about: &Value) -> Response<String> {
        self.registered += 1;
        let mut registered = about.clone();
        registered["client_id"] = json!(format!("{}-client-{}", self.name(), self.registered));
        for (name, value) in self.registration_overrides.as_object().unwrap() {
            registered[name] = value.clone();
        }
        respond(201, &registered)
    }

    fn redirect(&mut self, requested: &BTreeMap<String, String>) -> Response<String> {
        let code = format!("{}-code-{}", self.name(), self.received.len());
        let scope = requested.get("scope").cloned().unwrap_or_default();
        self.grantable.insert(code.clone(), scope);
        let query = self.redirect_query.replace("{code}", &code);
        let query = query.replace("{state}", &requested["state"]);
        let query = query.replace("{issuer}", &self.issuer);
        let mut response = respond(303, &Value::Null);
        let location = format!("{}?{query}", requested["redirect_uri"]);
        let headers = response.headers_mut();
        headers.insert(LOCATION, location.parse().unwrap());
        response
    }

    fn issue(&mut self, form: &BTreeMap<String, String>) -> Response<String> {
        let requested = form.get("scope").cloned().unwrap_or_default();
        let scope = match form.get("code").or(form.get("refresh_token")) {
            Some(used) => self.grantable.remove(used),
            None => Some(requested),
        };
        let Some(scope) = scope else {
            return respond(400, &json!({"error": "invalid_grant"}));
        };
        self.issued += 1;
        let (access, refresh) = (
            self.last_token(),
            format!("{}-refresh-{}", self.name(), self.issued),
        );
        let granted = self.granted_scope.clone().unwrap_or_else(|| scope.clone());
        self.tokens.insert(access.clone(), granted);
        self.grantable.insert(refresh.clone(), scope);
        let answer = json!({
            "access_token": access, "token_type": "Bearer",
            "expires_in": self.lifetime, "refresh_token": refresh,
        });
        respond(200, &answer)
    }
}

/// An MCP server that requires tokens.
pub(crate) struct ProtectedServer {
    pub(crate) url: String,
    overrides: Arc<Mutex<Overrides>>,
    _serving: JoinSet<()>,
}

/// The responses that a scenario overrides, and the requests that the server received.
#[derive(Default)]
pub(crate) struct Overrides {
    /// Documents by path; `null` means status 404.
    pub(crate) documents: BTreeMap<String, Value>,
    /// `WWW-Authenticate` values that replace the server's own, by status.
    pub(crate) challenges: BTreeMap<u16, String>,
    /// An authorization server on the same host.
    own_issuer: Option<Arc<Mutex<IssuerScript>>>,
    received: Vec<RecordedRequest>,
}

impl ProtectedServer {
    /// A server that publishes the first of these issuers, and accepts the tokens of all of them.
    pub(crate) async fn trusting(issuers: &[&ScriptedIssuer]) -> Self {
        Self::with_guard(issuers, |guard| guard).await
    }

    /// An issuer, and a server that publishes it and accepts its tokens.
    pub(crate) async fn with_issuer() -> (ScriptedIssuer, Self) {
        let issuer = ScriptedIssuer::start().await;
        let server = Self::trusting(&[&issuer]).await;
        (issuer, server)
    }

    /// The same as [`Self::trusting`], with a configured `ResourceServer`.
    pub(crate) async fn with_guard(
        issuers: &[&ScriptedIssuer],
        configure: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        let scripts = issuers.iter().map(|issuer| issuer.shared.clone());
        let named = issuers[0].url.clone();
        Self::start(scripts.collect(), Some(named), configure).await
    }

    /// A server without resource metadata whose host is also an authorization server.
    pub(crate) async fn with_own_issuer() -> Self {
        Self::start(Vec::new(), None, |guard| guard).await
    }

    async fn start(
        mut scripts: Vec<Arc<Mutex<IssuerScript>>>,
        named: Option<String>,
        configure: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        let service = notes_server().http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", bound.local_addr());
        let url = format!("{origin}/mcp");
        let mut overrides = Overrides::default();
        let issuer = named.unwrap_or_else(|| {
            let own = Arc::new(Mutex::new(IssuerScript::new(&origin)));
            scripts.push(own.clone());
            overrides.own_issuer = Some(own);
            for path in ["/.well-known/oauth-protected-resource", RESOURCE_METADATA] {
                overrides.documents.insert(path.to_owned(), Value::Null);
            }
            // The challenge of a server of 2025-03-26, which has no resource metadata.
            overrides.challenges.insert(401, "Bearer".into());
            origin
        });
        let table = IssuedTokens {
            audience: url.clone(),
            scripts,
        };
        let guard = ResourceServer::new(&url, issuer, table).unwrap();
        let guard = configure(guard.trust_verifier_issuers());
        let overrides = Arc::new(Mutex::new(overrides));
        let overriding = layer_fn(|inner| OverrideService {
            inner,
            overrides: overrides.clone(),
        });
        let guarded = bound.layer(guard).layer(overriding);
        let mut serving = JoinSet::new();
        serving.spawn(async move { guarded.serve().await.unwrap() });
        Self {
            url,
            overrides,
            _serving: serving,
        }
    }

    pub(crate) fn overrides(&self) -> MutexGuard<'_, Overrides> {
        lock(&self.overrides)
    }

    /// Changes the script of the authorization server on the same host.
    pub(crate) fn own_issuer(&self, change: impl FnOnce(&mut IssuerScript)) {
        let own = self.overrides().own_issuer.clone().unwrap();
        change(&mut lock(&own));
    }

    /// Takes the requests received since the last call.
    pub(crate) fn received(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.overrides().received)
    }

    /// Takes the requests to paths other than the MCP endpoint, as methods and paths.
    pub(crate) fn metadata_requests(&self) -> Vec<String> {
        let received = self.received();
        let others = received.iter().filter(|it| it.path != "/mcp");
        others.map(RecordedRequest::method_and_path).collect()
    }

    /// Replaces the resource metadata document.
    pub(crate) fn publish_metadata(&self, issuer: &str, scopes: Option<&[&str]>) {
        let mut document = json!({"resource": self.url, "authorization_servers": [issuer]});
        if let Some(scopes) = scopes {
            document["scopes_supported"] = json!(scopes);
        }
        let documents = &mut self.overrides().documents;
        documents.insert(RESOURCE_METADATA.to_owned(), document);
    }
}

/// A server with a tool that returns the principal's name, and one that requires a scope.
fn notes_server() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        principal.name().unwrap_or("anonymous").to_owned()
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}

/// Verifies tokens against those that the scripted issuers have issued.
struct IssuedTokens {
    audience: String,
    scripts: Vec<Arc<Mutex<IssuerScript>>>,
}

impl TokenVerifier for IssuedTokens {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
        let known = self.scripts.iter().find_map(|script| {
            let script = lock(script);
            let scope = script.tokens.get(token.as_str())?;
            let claims =
                json!({"iss": script.issuer, "sub": "ada", "aud": self.audience, "scope": scope});
            script.accepts_tokens.then_some(claims)
        });
        let claims = match known {
            Some(claims) => Claims::read(claims.to_string().as_bytes()),
            None => Err(VerifyError::invalid("the token is unknown")),
        };
        Box::pin(std::future::ready(claims))
    }
}

/// Records requests, and applies the overrides of the scenario.
#[derive(Clone)]
struct OverrideService<S> {
    inner: S,
    overrides: Arc<Mutex<Overrides>>,
}

impl<S> Service<Request<Incoming>> for OverrideService<S>
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
        let overrides = self.overrides.clone();
        Box::pin(async move {
            let mut received = RecordedRequest::new(&request, String::new());
            let response = match override_response(&overrides, &mut received, request).await {
                Ok(response) => response.map(|body| HttpBody::from(Bytes::from(body))),
                Err(request) => inner.call(request).await?,
            };
            let (mut head, body) = response.into_parts();
            received.status = head.status.as_u16();
            let mut overrides = lock(&overrides);
            if let Some(challenge) = overrides.challenges.get(&received.status) {
                let challenge = challenge.parse().unwrap();
                head.headers.insert(WWW_AUTHENTICATE, challenge);
            }
            overrides.received.push(received);
            Ok(Response::from_parts(head, body))
        })
    }
}

/// Responds in place of the server, or returns the request.
async fn override_response(
    overrides: &Mutex<Overrides>,
    received: &mut RecordedRequest,
    request: Request<Incoming>,
) -> Result<Response<String>, Request<Incoming>> {
    if received.path == "/mcp" {
        return Err(request);
    }
    match lock(overrides).documents.get(&received.path) {
        Some(Value::Null) => return Ok(respond(404, &Value::Null)),
        Some(document) => return Ok(respond(200, document)),
        None => {}
    }
    let own = lock(overrides).own_issuer.clone();
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

/// The metadata path of an issuer without a path.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
/// The metadata path of the MCP server.
pub(crate) const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";
