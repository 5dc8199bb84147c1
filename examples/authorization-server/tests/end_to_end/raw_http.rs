//! The HTTP exchanges, made by a client without the SDK.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::exchange::Dialect;
use bowline::http::client::{HttpClient, HyperClient, RequestBody};
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::SimulatedUser;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::test_servers::{TestServers, Verification, clock_fn, notes};

/// A response.
#[derive(Debug)]
struct RawResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl RawResponse {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    fn text(&self) -> String {
        let response = self.json();
        let text = response["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {response}"))
            .to_owned()
    }

    /// Returns a parameter of the challenge.
    fn challenge_param(&self, name: &str) -> Option<String> {
        let challenge = self.headers.get("www-authenticate")?.to_str().ok()?;
        let value = challenge.split(&format!("{name}=\"")).nth(1)?;
        value.split('"').next().map(str::to_owned)
    }
}

async fn send(request: Request<RequestBody>) -> RawResponse {
    let response = HyperClient::plain().send(request).await.unwrap();
    let (head, body) = response.into_parts();
    RawResponse {
        status: head.status,
        headers: head.headers,
        body: body.collect(1024 * 1024).await.unwrap(),
    }
}

async fn fetch(url: &str) -> RawResponse {
    let mut request = Request::new(RequestBody::from(Bytes::new()));
    *request.uri_mut() = url.parse().unwrap();
    send(request).await
}

async fn post(url: &str, media: &str, body: String) -> RawResponse {
    let mut request = Request::new(RequestBody::from(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    request
        .headers_mut()
        .insert("content-type", media.parse().unwrap());
    send(request).await
}

async fn post_form(url: &str, form: &[(&str, &str)]) -> RawResponse {
    let form = serde_urlencoded::to_string(form).unwrap();
    post(url, "application/x-www-form-urlencoded", form).await
}

/// A client without the SDK, which sends plain HTTP requests.
struct RawClient<'a> {
    servers: &'a TestServers,
    metadata: Value,
    id: String,
    tokens: Value,
}

const CALLBACK: &str = "http://127.0.0.1:7/callback";
const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";

impl<'a> RawClient<'a> {
    /// Discovers the authorization server from the first 401, and registers.
    async fn new(servers: &'a TestServers) -> Self {
        let refused = call(&servers.resource, "whoami", None).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let document = fetch(&refused.challenge_param("resource_metadata").unwrap())
            .await
            .json();
        assert_eq!(document["resource"], *servers.resource);
        let issuer = document["authorization_servers"][0].as_str().unwrap();
        let url = format!("{issuer}/.well-known/oauth-authorization-server");
        let metadata = fetch(&url).await.json();
        assert_eq!(metadata["issuer"], issuer);
        let client_metadata = json!({"client_name": "raw", "redirect_uris": ["http://127.0.0.1/callback"],
            "application_type": "native", "x": "kept"});
        let registration = metadata["registration_endpoint"].as_str().unwrap();
        let registered = post(
            registration,
            "application/json",
            client_metadata.to_string(),
        )
        .await;
        assert_eq!(registered.status, StatusCode::CREATED);
        let registered = registered.json();
        assert_eq!(registered["x"], "kept");
        Self {
            servers,
            metadata,
            id: registered["client_id"].as_str().unwrap().to_owned(),
            tokens: Value::Null,
        }
    }

    fn endpoint(&self, name: &str) -> &str {
        self.metadata[name].as_str().unwrap()
    }

    /// Returns the authorization URL.
    fn authorization_url(&self, change: &[(&str, &str)]) -> String {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", "opaque"),
            ("resource", &self.servers.resource),
            ("scope", "read"),
        ];
        query.retain(|(name, _)| change.iter().all(|(changed, _)| changed != name));
        query.extend(change);
        let query = serde_urlencoded::to_string(query).unwrap();
        format!("{}?{query}", self.endpoint("authorization_endpoint"))
    }

    /// Returns the parameters of the redirect.
    async fn redirect_params(&self, change: &[(&str, &str)]) -> Vec<(String, String)> {
        let callback = SimulatedUser::new("ada")
            .allow(&self.authorization_url(change))
            .await
            .unwrap();
        let query = callback.strip_prefix(CALLBACK).unwrap().strip_prefix('?');
        serde_urlencoded::from_str(query.unwrap()).unwrap()
    }

    async fn code(&self, scope: &str) -> String {
        let params = self.redirect_params(&[("scope", scope)]).await;
        assert_eq!(value(&params, "state"), "opaque");
        assert_eq!(value(&params, "iss"), self.servers.issuer);
        value(&params, "code").to_owned()
    }

    async fn redeem(&self, code: &str, change: &[(&str, &str)]) -> RawResponse {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &*self.id),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
            ("resource", &self.servers.resource),
        ];
        form.retain(|(name, _)| change.iter().all(|(changed, _)| changed != name));
        form.extend(change);
        post_form(self.endpoint("token_endpoint"), &form).await
    }

    /// Obtains tokens with this scope.
    async fn authorize(&mut self, scope: &str) {
        let code = self.code(scope).await;
        let tokens = self.redeem(&code, &[]).await;
        assert_eq!(tokens.status, StatusCode::OK);
        assert_eq!(tokens.headers["cache-control"], "no-store");
        self.tokens = tokens.json();
    }

    async fn refresh_with(&self, refresh_token: &str) -> RawResponse {
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", &*self.id),
            ("refresh_token", refresh_token),
            ("resource", &self.servers.resource),
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

    async fn call(&self, tool: &str) -> RawResponse {
        call(
            &self.servers.resource,
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

/// Calls a tool in the modern era.
async fn call(url: &str, tool: &str, token: Option<&str>) -> RawResponse {
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
async fn a_new_client_discovers_registers_and_calls_a_tool() {
    for verification in [Verification::Jwt, Verification::Introspection] {
        let servers = TestServers::new(verification).await;
        let mut client = RawClient::new(&servers).await;

        client.authorize("read").await;

        let name = client.call("whoami").await.text();
        assert_eq!(name, format!("{} ada", servers.issuer));
    }
}

#[tokio::test]
async fn the_layer_works_in_a_web_framework() {
    let servers = TestServers::new(Verification::Jwt).await;
    let mut client = RawClient::new(&servers).await;
    client.authorize("read").await;
    let keys = JwtVerifier::discover(servers.issuer.clone()).unwrap();
    let guard = ResourceServer::new(&servers.resource, servers.issuer.clone(), keys).unwrap();
    let document = guard.metadata_path();
    let app = axum::Router::new()
        .route_service("/mcp", notes().http())
        .layer(guard.clock(clock_fn(&servers.clock)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let described = fetch(&format!("{origin}{document}")).await;
    let endpoint = format!("{origin}/mcp");
    let without_token = call(&endpoint, "whoami", None).await;
    let token = client.token("access_token");
    let refused = call(&endpoint, "write", Some(&token)).await;
    let served = call(&endpoint, "whoami", Some(&token)).await;

    assert_eq!(described.json()["resource"], *servers.resource);
    assert_eq!(without_token.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.challenge_param("scope").as_deref(), Some("write"));
    assert_eq!(served.status, StatusCode::OK);
    serving.abort();
}

#[tokio::test]
async fn an_expired_token_is_refused_and_its_refresh_accepted() {
    let servers = TestServers::new(Verification::Jwt).await;
    let mut client = RawClient::new(&servers).await;
    client.authorize("read").await;
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    servers.advance(300);
    let expired = client.call("whoami").await;
    client.refresh().await;
    let refreshed = client.call("whoami").await;

    assert_eq!(expired.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        expired.challenge_param("error").as_deref(),
        Some("invalid_token")
    );
    assert_eq!(refreshed.status, StatusCode::OK);
}

#[tokio::test]
async fn a_reused_refresh_token_revokes_its_family() {
    let servers = TestServers::new(Verification::Introspection).await;
    let mut client = RawClient::new(&servers).await;
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
async fn a_rotated_key_is_fetched_and_a_removed_one_refused() {
    let servers = TestServers::new(Verification::Jwt).await;
    let mut client = RawClient::new(&servers).await;
    client.authorize("read").await;
    let old = client.token("access_token");
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    servers.authorization.rotate_key();
    client.refresh().await;
    let new = client.call("whoami").await.status;
    let still = call(&servers.resource, "whoami", Some(&old)).await.status;
    servers.authorization.retire_old_keys();
    servers.authorization.rotate_key();
    servers.authorization.retire_old_keys();
    // A token with an unknown `kid` makes the server fetch the keys again.
    client.refresh().await;
    let newest = client.call("whoami").await.status;
    let forgotten = call(&servers.resource, "whoami", Some(&old)).await.status;

    assert_eq!((new, still), (StatusCode::OK, StatusCode::OK));
    assert_eq!(newest, StatusCode::OK);
    assert_eq!(forgotten, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_introspection() {
    let servers = TestServers::new(Verification::Introspection).await;
    let mut client = RawClient::new(&servers).await;
    client.authorize("read").await;
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);
    let revocation = client.endpoint("revocation_endpoint");
    let access = client.token("access_token");

    let by_another_client = [("token", &*access), ("client_id", "another client")];
    post_form(revocation, &by_another_client).await;
    let after_foreign_revocation = client.call("whoami").await.status;
    let own = [("token", &*access), ("client_id", &*client.id)];
    let revoked = post_form(revocation, &own).await.status;
    let after = client.call("whoami").await;
    let refreshed = client.refresh_with(&client.token("refresh_token")).await;

    assert_eq!(
        (after_foreign_revocation, revoked),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(after.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        after.challenge_param("error").as_deref(),
        Some("invalid_token")
    );
    assert_eq!(refreshed.json()["error"], "invalid_grant");
}

#[tokio::test]
async fn a_scope_challenge_names_the_scopes_to_request() {
    let servers = TestServers::new(Verification::Jwt).await;
    let mut client = RawClient::new(&servers).await;
    client.authorize("read").await;

    let refused = client.call("write").await;
    let required = refused.challenge_param("scope").unwrap();
    client.authorize(&required).await;
    let served = client.call("write").await;

    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refused.challenge_param("error").as_deref(),
        Some("insufficient_scope")
    );
    assert_eq!(required, "read write");
    assert_eq!(served.text(), "written");
}

#[tokio::test]
async fn a_code_works_once_and_for_its_client_only() {
    let servers = TestServers::new(Verification::Jwt).await;
    let client = RawClient::new(&servers).await;
    for change in [
        (
            "code_verifier",
            "another-verifier-that-is-long-enough-0123456789",
        ),
        ("code_verifier", ""),
        ("client_id", "another client"),
        ("redirect_uri", "http://127.0.0.1:8/callback"),
    ] {
        let code = client.code("read").await;

        let refused = client.redeem(&code, &[change]).await;
        let again = client.redeem(&code, &[]).await;

        assert_eq!(refused.json()["error"], "invalid_grant", "{change:?}");
        assert_eq!(again.json()["error"], "invalid_grant", "{change:?}");
    }
    let code = client.code("read").await;
    servers.advance(60);
    assert_eq!(
        client.redeem(&code, &[]).await.json()["error"],
        "invalid_grant"
    );
}

#[tokio::test]
async fn a_reused_code_revokes_its_tokens() {
    let servers = TestServers::new(Verification::Introspection).await;
    let mut client = RawClient::new(&servers).await;
    let code = client.code("read").await;
    client.tokens = client.redeem(&code, &[]).await.json();
    assert_eq!(client.call("whoami").await.status, StatusCode::OK);

    let again = client.redeem(&code, &[]).await;

    assert_eq!(again.json()["error"], "invalid_grant");
    assert_eq!(client.call("whoami").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_invalid_authorization_request_redirects_with_an_error() {
    let servers = TestServers::new(Verification::Jwt).await;
    let client = RawClient::new(&servers).await;
    for (change, error) in [
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("resource", "https://other.example"), "invalid_target"),
        (("scope", "everything"), "invalid_scope"),
        (("response_type", "token"), "unsupported_response_type"),
    ] {
        let params = client.redirect_params(&[change]).await;

        assert_eq!(value(&params, "error"), error, "{change:?}");
        assert_eq!(value(&params, "state"), "opaque");
        assert_eq!(value(&params, "iss"), servers.issuer);
        assert_eq!(value(&params, "code"), "");
    }
}

#[tokio::test]
async fn an_unregistered_redirect_uri_is_not_redirected_to() {
    let servers = TestServers::new(Verification::Jwt).await;
    let client = RawClient::new(&servers).await;
    for change in [
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:7/other"),
        ("redirect_uri", "javascript:alert(1)"),
        ("client_id", "unknown"),
    ] {
        let response = fetch(&client.authorization_url(&[change])).await;

        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{change:?}");
        assert_eq!(response.headers.get("location"), None, "{change:?}");
    }
}

#[tokio::test]
async fn an_unsafe_redirect_uri_is_not_registered() {
    let servers = TestServers::new(Verification::Jwt).await;
    let url = format!("{}/register", servers.issuer);
    for redirects in [
        json!([]),
        json!(["javascript:alert(1)"]),
        json!(["http://evil.example/callback"]),
        json!(["https://app.example/#fragment"]),
        json!("https://app.example/"),
    ] {
        let metadata = json!({"redirect_uris": redirects}).to_string();
        let refused = post(&url, "application/json", metadata).await;

        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{redirects}");
        assert_eq!(refused.json()["error"], "invalid_redirect_uri");
    }
    let refused = post(&url, "application/json", "[]".to_owned()).await;
    assert_eq!(refused.json()["error"], "invalid_client_metadata");
}
