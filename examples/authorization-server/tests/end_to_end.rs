//! A client, a guarded server and an authorization server over sockets: everything that happens to a token.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::exchange::{Dialect, Principal};
use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bowline::{Server, Tool};
use bowline_auth::server::{Introspection, JwtVerifier, ResourceServer};
use bowline_example_authorization_server::{AuthorizationServer, User};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tower_layer::Layer;

/// Both servers, and the time that they share.
struct World {
    authorization: AuthorizationServer,
    issuer: String,
    resource: String,
    clock: Arc<AtomicU64>,
    serving: Vec<JoinHandle<()>>,
}

/// How the guarded server makes sure of tokens.
#[derive(Clone, Copy)]
enum By {
    Keys,
    Asking,
}

impl World {
    async fn new(by: By) -> Self {
        let clock = Arc::new(AtomicU64::new(1_900_000_000));
        let issuing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", issuing.local_addr().unwrap());
        let bound = notes().http().bind("127.0.0.1:0").await.unwrap();
        let resource = format!("http://{}/mcp", bound.addr());

        let now = reading(&clock);
        let authorization = AuthorizationServer::new(issuer.clone())
            .protects(&resource, &["read", "write"])
            .introspected_by("notes", "hush")
            .token_lifetime(Duration::from_secs(300))
            .clock(now);
        let guard = match by {
            By::Keys => {
                let keys = JwtVerifier::discover(issuer.clone()).unwrap();
                let keys = keys.fetch_again_after(Duration::ZERO);
                ResourceServer::new(&resource, issuer.clone(), keys.within_private_network())
            }
            By::Asking => {
                let asking = Introspection::new(issuer.clone(), &format!("{issuer}/introspect"));
                let asking = asking.unwrap().credentials("notes", "hush");
                ResourceServer::new(&resource, issuer.clone(), asking.within_private_network())
            }
        };
        let guard = guard.unwrap().scopes(["read"]).leeway(Duration::ZERO);
        let guarded = guard.clock(reading(&clock)).layer(bound.service());
        let router = authorization.router();
        let serving = vec![
            tokio::spawn(async move { axum::serve(issuing, router).await.unwrap() }),
            tokio::spawn(async move { bound.serve_through(guarded).await.unwrap() }),
        ];
        Self {
            authorization,
            issuer,
            resource,
            clock,
            serving,
        }
    }

    fn advance(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

fn reading(clock: &Arc<AtomicU64>) -> impl Fn() -> std::time::SystemTime + Send + Sync + 'static {
    let clock = clock.clone();
    move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed))
}

fn notes() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        principal.name().unwrap_or("nobody").to_owned()
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    fn text(&self) -> String {
        let answer = self.json();
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {answer}"))
            .to_owned()
    }

    /// A parameter of the challenge.
    fn challenged(&self, name: &str) -> Option<String> {
        let challenge = self.headers.get("www-authenticate")?.to_str().ok()?;
        let value = challenge.split(&format!("{name}=\"")).nth(1)?;
        value.split('"').next().map(str::to_owned)
    }
}

async fn send(request: Request<RequestBody>) -> Answer {
    let response = HyperSend::plain().send(request).await.unwrap();
    let (head, body) = response.into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect(1024 * 1024).await.unwrap(),
    }
}

async fn fetch(url: &str) -> Answer {
    let mut request = Request::new(RequestBody::from(Bytes::new()));
    *request.uri_mut() = url.parse().unwrap();
    send(request).await
}

async fn post(url: &str, media: &str, body: String) -> Answer {
    let mut request = Request::new(RequestBody::from(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    request
        .headers_mut()
        .insert("content-type", media.parse().unwrap());
    send(request).await
}

async fn post_form(url: &str, form: &[(&str, &str)]) -> Answer {
    let form = serde_urlencoded::to_string(form).unwrap();
    post(url, "application/x-www-form-urlencoded", form).await
}

/// A client that speaks plain HTTP and does by hand what an SDK does.
struct Client<'a> {
    world: &'a World,
    metadata: Value,
    id: String,
    tokens: Value,
}

const CALLBACK: &str = "http://127.0.0.1:7/callback";
const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";

impl<'a> Client<'a> {
    /// Finds its way from the first refusal to the authorization server, and introduces itself.
    async fn new(world: &'a World) -> Self {
        let refused = call(&world.resource, "whoami", None).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let document = fetch(&refused.challenged("resource_metadata").unwrap())
            .await
            .json();
        assert_eq!(document["resource"], *world.resource);
        let issuer = document["authorization_servers"][0].as_str().unwrap();
        let place = format!("{issuer}/.well-known/oauth-authorization-server");
        let metadata = fetch(&place).await.json();
        assert_eq!(metadata["issuer"], issuer);
        let about = json!({"client_name": "raw", "redirect_uris": ["http://127.0.0.1/callback"],
            "application_type": "native", "x": "kept"});
        let registration = metadata["registration_endpoint"].as_str().unwrap();
        let registered = post(registration, "application/json", about.to_string()).await;
        assert_eq!(registered.status, StatusCode::CREATED);
        let registered = registered.json();
        assert_eq!(registered["x"], "kept");
        Self {
            world,
            metadata,
            id: registered["client_id"].as_str().unwrap().to_owned(),
            tokens: Value::Null,
        }
    }

    fn endpoint(&self, name: &str) -> &str {
        self.metadata[name].as_str().unwrap()
    }

    /// The URL at which a user is asked.
    fn question(&self, change: &[(&str, &str)]) -> String {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", "opaque"),
            ("resource", &self.world.resource),
            ("scope", "read"),
        ];
        query.retain(|(name, _)| change.iter().all(|(changed, _)| changed != name));
        query.extend(change);
        let query = serde_urlencoded::to_string(query).unwrap();
        format!("{}?{query}", self.endpoint("authorization_endpoint"))
    }

    /// What the user brings back.
    async fn ask(&self, change: &[(&str, &str)]) -> Vec<(String, String)> {
        let callback = User::named("ada")
            .visit(&self.question(change))
            .await
            .unwrap();
        let query = callback.strip_prefix(CALLBACK).unwrap().strip_prefix('?');
        serde_urlencoded::from_str(query.unwrap()).unwrap()
    }

    async fn code(&self, scope: &str) -> String {
        let brought = self.ask(&[("scope", scope)]).await;
        assert_eq!(value(&brought, "state"), "opaque");
        assert_eq!(value(&brought, "iss"), self.world.issuer);
        value(&brought, "code").to_owned()
    }

    async fn redeem(&self, code: &str, change: &[(&str, &str)]) -> Answer {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &*self.id),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
            ("resource", &self.world.resource),
        ];
        form.retain(|(name, _)| change.iter().all(|(changed, _)| changed != name));
        form.extend(change);
        post_form(self.endpoint("token_endpoint"), &form).await
    }

    /// Gets tokens that allow this.
    async fn authorize(&mut self, scope: &str) {
        let code = self.code(scope).await;
        let tokens = self.redeem(&code, &[]).await;
        assert_eq!(tokens.status, StatusCode::OK);
        assert_eq!(tokens.headers["cache-control"], "no-store");
        self.tokens = tokens.json();
    }

    async fn refresh_with(&self, refresh_token: &str) -> Answer {
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", &*self.id),
            ("refresh_token", refresh_token),
            ("resource", &self.world.resource),
        ];
        post_form(self.endpoint("token_endpoint"), &form).await
    }

    async fn refresh(&mut self) {
        let refreshed = self.refresh_with(&self.token("refresh_token")).await;
        assert_eq!(refreshed.status, StatusCode::OK);
        self.tokens = refreshed.json();
    }

    fn token(&self, name: &str) -> String {
        self.tokens[name].as_str().unwrap().to_owned()
    }

    async fn call(&self, tool: &str) -> Answer {
        call(
            &self.world.resource,
            tool,
            Some(&self.token("access_token")),
        )
        .await
    }
}

fn value<'a>(query: &'a [(String, String)], name: &str) -> &'a str {
    let found = query.iter().find(|(other, _)| other == name);
    found.map_or("", |(_, value)| value)
}

/// A call of a tool by a client of the modern era.
async fn call(url: &str, tool: &str, token: Option<&str>) -> Answer {
    let version = Dialect::LATEST.version;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool, "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let mut request = Request::new(RequestBody::from(Bytes::from(body.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    let headers = request.headers_mut();
    for (name, value) in [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", version),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    if let Some(token) = token {
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    send(request).await
}

#[tokio::test]
async fn a_stranger_finds_the_way_to_a_token_and_calls_a_tool() {
    for by in [By::Keys, By::Asking] {
        let world = World::new(by).await;
        let mut client = Client::new(&world).await;

        client.authorize("read").await;

        let name = client.call("whoami").await.text();
        assert_eq!(name, format!("{} ada", world.issuer));
    }
}

#[tokio::test]
async fn the_layer_stands_around_the_routes_of_a_web_framework_just_as_well() {
    let world = World::new(By::Keys).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;
    let keys = JwtVerifier::discover(world.issuer.clone()).unwrap();
    let keys = keys.within_private_network();
    let guard = ResourceServer::new(&world.resource, world.issuer.clone(), keys).unwrap();
    let document = guard.metadata_path();
    let app = axum::Router::new()
        .route_service("/mcp", notes().http())
        .layer(guard.clock(reading(&world.clock)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let described = fetch(&format!("{origin}{document}")).await;
    let endpoint = format!("{origin}/mcp");
    let stranger = call(&endpoint, "whoami", None).await;
    let token = client.token("access_token");
    let refused = call(&endpoint, "write", Some(&token)).await;
    let served = call(&endpoint, "whoami", Some(&token)).await;

    assert_eq!(described.json()["resource"], *world.resource);
    assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.challenged("scope").as_deref(), Some("write"));
    assert_eq!(served.status, StatusCode::OK);
    serving.abort();
}

#[tokio::test]
async fn a_token_that_expires_on_the_way_is_refreshed_and_the_work_goes_on() {
    let world = World::new(By::Keys).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    world.advance(300);
    let expired = client.call("whoami").await;
    client.refresh().await;
    let refreshed = client.call("whoami").await;

    assert_eq!(expired.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        expired.challenged("error").as_deref(),
        Some("invalid_token")
    );
    assert_eq!(refreshed.status, StatusCode::OK);
}

#[tokio::test]
async fn a_refresh_token_that_is_used_twice_ends_the_whole_family() {
    let world = World::new(By::Asking).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;
    let stolen = client.token("refresh_token");
    client.refresh().await;
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    let replayed = client.refresh_with(&stolen).await;
    let successor = client.refresh_with(&client.token("refresh_token")).await;

    assert_eq!(replayed.json()["error"], "invalid_grant");
    assert_eq!(successor.json()["error"], "invalid_grant");
    assert_eq!(client.call("whoami").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_rotated_key_is_found_and_a_retired_one_is_forgotten() {
    let world = World::new(By::Keys).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;
    let old = client.token("access_token");
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    world.authorization.rotate_key();
    client.refresh().await;
    let new = client.call("whoami").await.status;
    let still = call(&world.resource, "whoami", Some(&old)).await.status;
    world.authorization.retire_old_keys();
    world.authorization.rotate_key();
    world.authorization.retire_old_keys();
    // A token with a key that nobody knows yet makes the server look again.
    client.refresh().await;
    let newest = client.call("whoami").await.status;
    let forgotten = call(&world.resource, "whoami", Some(&old)).await.status;

    assert_eq!((new, still), (StatusCode::OK, StatusCode::OK));
    assert_eq!(newest, StatusCode::OK);
    assert_eq!(forgotten, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_revoked_token_is_worth_nothing_to_a_server_that_asks() {
    let world = World::new(By::Asking).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);
    let revocation = client.endpoint("revocation_endpoint");
    let access = client.token("access_token");

    let others = [("token", &*access), ("client_id", "somebody else")];
    post_form(revocation, &others).await;
    let not_theirs = client.call("whoami").await.status;
    let own = [("token", &*access), ("client_id", &*client.id)];
    let revoked = post_form(revocation, &own).await.status;
    let after = client.call("whoami").await;
    let refreshed = client.refresh_with(&client.token("refresh_token")).await;

    assert_eq!((not_theirs, revoked), (StatusCode::OK, StatusCode::OK));
    assert_eq!(after.status, StatusCode::UNAUTHORIZED);
    assert_eq!(after.challenged("error").as_deref(), Some("invalid_token"));
    assert_eq!(refreshed.json()["error"], "invalid_grant");
}

#[tokio::test]
async fn a_tool_that_needs_more_is_reached_by_asking_for_what_the_challenge_says() {
    let world = World::new(By::Keys).await;
    let mut client = Client::new(&world).await;
    client.authorize("read").await;

    let refused = client.call("write").await;
    let wanted = refused.challenged("scope").unwrap();
    client.authorize(&wanted).await;
    let served = client.call("write").await;

    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refused.challenged("error").as_deref(),
        Some("insufficient_scope")
    );
    assert_eq!(wanted, "read write");
    assert_eq!(served.text(), "written");
}

#[tokio::test]
async fn a_code_works_once_for_whoever_asked_for_it() {
    let world = World::new(By::Keys).await;
    let client = Client::new(&world).await;
    for change in [
        (
            "code_verifier",
            "another-verifier-that-is-long-enough-0123456789",
        ),
        ("code_verifier", ""),
        ("client_id", "somebody else"),
        ("redirect_uri", "http://127.0.0.1:8/callback"),
    ] {
        let code = client.code("read").await;

        let refused = client.redeem(&code, &[change]).await;
        let again = client.redeem(&code, &[]).await;

        assert_eq!(refused.json()["error"], "invalid_grant", "{change:?}");
        assert_eq!(again.json()["error"], "invalid_grant", "{change:?}");
    }
    let code = client.code("read").await;
    world.advance(60);
    assert_eq!(
        client.redeem(&code, &[]).await.json()["error"],
        "invalid_grant"
    );
}

#[tokio::test]
async fn a_code_that_is_used_twice_takes_its_tokens_along() {
    let world = World::new(By::Asking).await;
    let mut client = Client::new(&world).await;
    let code = client.code("read").await;
    client.tokens = client.redeem(&code, &[]).await.json();
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    let again = client.redeem(&code, &[]).await;

    assert_eq!(again.json()["error"], "invalid_grant");
    assert_eq!(client.call("whoami").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_to_the_client_by_way_of_the_user() {
    let world = World::new(By::Keys).await;
    let client = Client::new(&world).await;
    for (change, error) in [
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("resource", "https://other.example"), "invalid_target"),
        (("scope", "everything"), "invalid_scope"),
        (("response_type", "token"), "unsupported_response_type"),
    ] {
        let brought = client.ask(&[change]).await;

        assert_eq!(value(&brought, "error"), error, "{change:?}");
        assert_eq!(value(&brought, "state"), "opaque");
        assert_eq!(value(&brought, "iss"), world.issuer);
        assert_eq!(value(&brought, "code"), "");
    }
}

#[tokio::test]
async fn nobody_is_sent_where_the_client_has_not_said_that_it_is() {
    let world = World::new(By::Keys).await;
    let client = Client::new(&world).await;
    for change in [
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:7/other"),
        ("redirect_uri", "javascript:alert(1)"),
        ("client_id", "nobody"),
    ] {
        let answer = fetch(&client.question(&[change])).await;

        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{change:?}");
        assert_eq!(answer.headers.get("location"), None, "{change:?}");
    }
}

#[tokio::test]
async fn a_client_that_would_send_users_anywhere_is_not_registered() {
    let world = World::new(By::Keys).await;
    let place = format!("{}/register", world.issuer);
    for redirects in [
        json!([]),
        json!(["javascript:alert(1)"]),
        json!(["http://evil.example/callback"]),
        json!(["https://app.example/#fragment"]),
        json!("https://app.example/"),
    ] {
        let about = json!({"redirect_uris": redirects}).to_string();
        let refused = post(&place, "application/json", about).await;

        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{redirects}");
        assert_eq!(refused.json()["error"], "invalid_redirect_uri");
    }
    let refused = post(&place, "application/json", "[]".to_owned()).await;
    assert_eq!(refused.json()["error"], "invalid_client_metadata");
}
