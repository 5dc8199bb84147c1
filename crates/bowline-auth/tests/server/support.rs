//! [`TestEnv`]: a protected server, its issuer, and the documents of the issuer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::exchange::{BoxFuture, Dialect};
use bowline::http::HttpService;
use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
use bowline::http::server::HttpBody;
use bowline::{CallToolResult, Server, Tool};
use bowline_auth::server::{JwtVerifier, ResourceServer, ResourceServerService};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tower_layer::Layer;
use tower_service::Service;

pub(crate) const RESOURCE: &str = "http://localhost/mcp";
pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const JWKS_URL: &str = "https://id.example/keys";
/// The time at which every test starts.
pub(crate) const NOW: u64 = 1_900_000_000;

/// A signing key.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) kid: &'static str,
    pkcs8: Vec<u8>,
    public: Vec<u8>,
}

impl Signer {
    pub(crate) fn new(kid: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        Self {
            kid,
            pkcs8: pkcs8.as_ref().to_vec(),
            public: pair.public_key().as_ref().to_vec(),
        }
    }

    /// Returns the public key as the issuer publishes it.
    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.public[1..].split_at(32);
        let text = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
        json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y),
            "kid": self.kid, "alg": "ES256", "use": "sig"})
    }

    /// Returns the public key as it is in a DPoP proof.
    pub(crate) fn bare_jwk(&self) -> Value {
        let jwk = self.jwk();
        json!({"kty": "EC", "crv": "P-256", "x": jwk["x"], "y": jwk["y"]})
    }

    pub(crate) fn thumbprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let jwk = self.jwk();
        let canonical = format!(
            r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#,
            jwk["x"], jwk["y"]
        );
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(canonical))
    }

    pub(crate) fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns a token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.kid, "typ": "at+jwt"});
        self.sign_with_header(&header, claims)
    }

    /// Returns a token with this header.
    pub(crate) fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &self.pkcs8, &random).unwrap();
        let signature = pair.sign(&random, message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    pub(crate) fn pkcs8(&self) -> Vec<u8> {
        self.pkcs8.clone()
    }
}

/// Returns the claims of a valid token.
pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "ada", "aud": RESOURCE, "exp": NOW + 600, "scope": "use"})
}

/// Returns the claims of a valid token, with one changed.
pub(crate) fn claims_with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

/// Documents by URL, and the requests for each.
#[derive(Clone, Default)]
pub(crate) struct FakeWeb(Arc<Mutex<BTreeMap<String, FakePage>>>);

#[derive(Default)]
struct FakePage {
    status: StatusCode,
    body: String,
    requests: usize,
    bodies: Vec<String>,
    headers: Vec<http::HeaderMap>,
    gate: Option<Arc<tokio::sync::Semaphore>>,
}

impl FakeWeb {
    pub(crate) fn put(&self, url: &str, body: &Value) {
        self.put_text(url, StatusCode::OK, &body.to_string());
    }

    pub(crate) fn put_text(&self, url: &str, status: StatusCode, body: &str) {
        let mut pages = self.0.lock().unwrap();
        let page = pages.entry(url.to_owned()).or_default();
        page.status = status;
        page.body = body.to_owned();
    }

    pub(crate) fn publish(&self, signers: &[&Signer]) {
        let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
        self.put(JWKS_URL, &json!({"keys": keys}));
    }

    /// Holds responses for the page until a permit is added.
    pub(crate) fn hold(&self, url: &str) -> Arc<tokio::sync::Semaphore> {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let mut pages = self.0.lock().unwrap();
        pages.entry(url.to_owned()).or_default().gate = Some(gate.clone());
        gate
    }

    pub(crate) fn request_count(&self, url: &str) -> usize {
        self.0
            .lock()
            .unwrap()
            .get(url)
            .map_or(0, |page| page.requests)
    }

    pub(crate) fn total_requests(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .values()
            .map(|page| page.requests)
            .sum()
    }

    /// Returns the last body that was posted to a page, and its headers.
    pub(crate) fn last_post(&self, url: &str) -> (String, http::HeaderMap) {
        let mut pages = self.0.lock().unwrap();
        let page = pages.get_mut(url).unwrap();
        (page.bodies.pop().unwrap(), page.headers.pop().unwrap())
    }
}

impl HttpClient for FakeWeb {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let url = request.uri().to_string();
        let own = self.clone();
        Box::pin(async move {
            let gate = {
                let mut pages = own.0.lock().unwrap();
                let page = pages.entry(url.clone()).or_insert_with(|| FakePage {
                    status: StatusCode::NOT_FOUND,
                    ..FakePage::default()
                });
                page.requests += 1;
                page.headers.push(request.headers().clone());
                let body = request.into_body().into_bytes();
                page.bodies.push(String::from_utf8(body.to_vec()).unwrap());
                page.gate.clone()
            };
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            let pages = own.0.lock().unwrap();
            let page = &pages[&url];
            let body = Full::new(Bytes::from(page.body.clone()));
            let mut response = Response::new(ResponseBody::new(body));
            *response.status_mut() = page.status;
            Ok(response)
        })
    }
}

/// A clock that the test advances.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A protected server, its issuer and its clock.
pub(crate) struct TestEnv {
    pub(crate) web: FakeWeb,
    pub(crate) signer: Signer,
    pub(crate) clock: TestClock,
    pub(crate) guard: ResourceServer,
    pub(crate) server: Server,
    pub(crate) calls: Arc<AtomicUsize>,
}

impl TestEnv {
    /// Creates a server, and an issuer with one published key.
    pub(crate) fn new() -> Self {
        let (web, signer) = (FakeWeb::default(), Signer::new("first"));
        web.publish(&[&signer]);
        let verifier = JwtVerifier::new(ISSUER, JWKS_URL)
            .unwrap()
            .http_client(web.clone());
        let clock = TestClock(Arc::new(AtomicU64::new(NOW)));
        let guard = guard(verifier, &clock);
        let calls = Arc::new(AtomicUsize::new(0));
        Self {
            web,
            signer,
            clock,
            guard,
            server: server(&calls),
            calls,
        }
    }

    pub(crate) fn service(&self) -> ResourceServerService<HttpService> {
        self.guard.layer(self.server.http())
    }

    /// Calls the tool `whoami` with this token.
    pub(crate) async fn call(&self, token: &str) -> Response<HttpBody> {
        send_request(&self.service(), with_bearer(call("whoami"), token)).await
    }

    /// Calls the tool `whoami` with a token that has these claims.
    pub(crate) async fn call_with(&self, claims: &Value) -> Response<HttpBody> {
        self.call(&self.signer.sign(claims)).await
    }

    /// Returns how many calls reached a handler.
    pub(crate) fn handled_calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

pub(crate) fn guard(
    verifier: impl bowline_auth::server::TokenVerifier,
    clock: &TestClock,
) -> ResourceServer {
    let clock = clock.clone();
    ResourceServer::new(RESOURCE, ISSUER, verifier)
        .unwrap()
        .scopes(["use"])
        .leeway(Duration::ZERO)
        .clock(move || UNIX_EPOCH + Duration::from_secs(clock.0.load(Ordering::Relaxed)))
}

fn server(calls: &Arc<AtomicUsize>) -> Server {
    let calls = calls.clone();
    let object = || json!({"type": "object"});
    let whoami = Tool::raw("whoami", object(), move |_, cx| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move {
            let principal = cx.principal();
            let scopes: Vec<_> = principal.scopes().collect();
            let head = cx.extensions().get::<http::request::Parts>();
            let saw_token = head.is_some_and(|head| {
                head.headers.contains_key("authorization") || head.headers.contains_key("dpop")
            });
            let claims: Option<Value> = principal.claims().and_then(|claims| claims.decode().ok());
            let result = json!({"name": principal.name(), "scopes": scopes, "claims": claims,
                "saw_token": saw_token});
            Ok(CallToolResult::text(result.to_string()))
        }
    });
    let write = Tool::raw("write", object(), async |_, _| {
        Ok(CallToolResult::text("written"))
    });
    Server::new("guarded", "1.0.0")
        .tool(whoami)
        .tool(write.scopes(["files:write"]))
}

pub(crate) async fn send_request<S>(
    service: &S,
    request: Request<Full<Bytes>>,
) -> Response<HttpBody>
where
    S: Service<Request<Full<Bytes>>, Response = Response<HttpBody>> + Clone,
    S::Error: std::fmt::Debug,
{
    service.clone().call(request).await.unwrap()
}

/// Returns a modern `tools/call` request, without a token.
pub(crate) fn call(tool: &str) -> Request<Full<Bytes>> {
    call_with(tool, &[])
}

/// Returns a modern `tools/call` request with more params.
pub(crate) fn call_with(tool: &str, more: &[(&str, &Value)]) -> Request<Full<Bytes>> {
    let mut params = json!({"name": tool, "arguments": {}});
    for (name, value) in more {
        params[name] = (*value).clone();
    }
    with_header(modern("tools/call", params), "mcp-name", tool)
}

/// Returns a modern `tools/list` request, without a token.
pub(crate) fn list() -> Request<Full<Bytes>> {
    modern("tools/list", json!({}))
}

/// Returns a modern `subscriptions/listen` request, without a token.
pub(crate) fn listen() -> Request<Full<Bytes>> {
    let notifications = json!({"toolsListChanged": true});
    modern(
        "subscriptions/listen",
        json!({"notifications": notifications}),
    )
}

fn modern(method: &str, mut params: Value) -> Request<Full<Bytes>> {
    let version = Dialect::LATEST.version;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = with_header(post(&body), "mcp-protocol-version", version);
    with_header(request, "mcp-method", method)
}

pub(crate) fn post(body: &Value) -> Request<Full<Bytes>> {
    Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Full::from(body.to_string()))
        .unwrap()
}

pub(crate) fn with_bearer(request: Request<Full<Bytes>>, token: &str) -> Request<Full<Bytes>> {
    with_header(request, "authorization", &format!("Bearer {token}"))
}

pub(crate) fn with_header(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

pub(crate) fn challenge(response: &Response<HttpBody>) -> &str {
    let value = response.headers().get("www-authenticate");
    value.map_or("", |value| value.to_str().unwrap())
}

/// Returns the `error_description` of the challenge.
pub(crate) fn error_description(response: &Response<HttpBody>) -> &str {
    let (_, rest) = challenge(response)
        .split_once("error_description=\"")
        .unwrap_or_default();
    rest.split('"').next().unwrap_or_default()
}

pub(crate) async fn json(response: Response<HttpBody>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("not JSON: {body:?}"))
}

/// Returns the result of the tool `whoami`.
pub(crate) async fn whoami_result(response: Response<HttpBody>) -> Value {
    let response = json(response).await;
    let text = response["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("no text: {response}"))).unwrap()
}
