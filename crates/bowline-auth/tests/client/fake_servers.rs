//! [`FakeServers`]: a protected server and its authorization server, without sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
use bowline_auth::client::EmbeddedBrowser;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::Notify;
use url::form_urlencoded;

pub(crate) const SERVER: &str = "https://mcp.test/mcp";
const REDIRECT_URI: &str = "http://127.0.0.1:7/callback";

/// Both servers.
#[derive(Clone, Default)]
pub(crate) struct FakeServers(Arc<FakeServersInner>);

#[derive(Default)]
struct FakeServersInner {
    state: Mutex<FakeServerState>,
    /// Releases held token requests.
    token_gate: Notify,
}

/// The state and settings of both servers.
pub(crate) struct FakeServerState {
    /// One line per request or prompt.
    pub(crate) log: Vec<String>,
    pub(crate) issuer: String,
    /// The URL in the protected resource metadata.
    pub(crate) resource: String,
    /// Access tokens and their scopes.
    pub(crate) valid_tokens: BTreeMap<String, String>,
    /// Refresh tokens; each can be used once.
    pub(crate) valid_refresh_tokens: Vec<String>,
    /// The lifetime of access tokens, in seconds.
    pub(crate) lifetime: u64,
    /// The scope that `tools/call` requires.
    pub(crate) required_scope: String,
    /// Whether token requests wait.
    pub(crate) holds_token_requests: bool,
    pub(crate) supports_revocation: bool,
    /// Whether clients get a secret for HTTP Basic. Like the Python SDK, the authorization server then looks the client
    /// up by the `client_id` of the form.
    pub(crate) registers_with_secret: bool,
    /// Whether the token endpoint responds with 503.
    pub(crate) is_down: bool,
    pub(crate) accepts_tokens: bool,
    /// Whether the server requires no token.
    pub(crate) is_open: bool,
    /// Whether tokens get the requested scopes.
    pub(crate) grants_scopes: bool,
    /// The number of requests with a used refresh token.
    pub(crate) reused: usize,
    /// The seed of random delays; zero for none.
    pub(crate) delay_seed: u64,
    /// Replaces the protected resource metadata.
    pub(crate) metadata: Option<Vec<u8>>,
    issued: usize,
    scope: String,
}

impl Default for FakeServerState {
    fn default() -> Self {
        Self {
            log: Vec::new(),
            issuer: "https://as.test".into(),
            resource: SERVER.into(),
            valid_tokens: BTreeMap::new(),
            valid_refresh_tokens: Vec::new(),
            lifetime: 3600,
            required_scope: String::new(),
            holds_token_requests: false,
            is_down: false,
            supports_revocation: false,
            registers_with_secret: false,
            accepts_tokens: true,
            is_open: false,
            grants_scopes: true,
            reused: 0,
            delay_seed: 0,
            metadata: None,
            issued: 0,
            scope: String::new(),
        }
    }
}

impl FakeServers {
    pub(crate) fn state(&self) -> MutexGuard<'_, FakeServerState> {
        self.0.state.lock().unwrap()
    }

    /// Returns and clears the log.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }

    /// Returns the number of log lines with this prefix.
    pub(crate) fn count(&self, what: &str) -> usize {
        let state = self.state();
        state.log.iter().filter(|it| it.starts_with(what)).count()
    }

    /// Yields to other tasks a random number of times.
    pub(crate) async fn yield_randomly(&self) {
        let steps = {
            let mut state = self.state();
            // Xorshift, reproducible from the seed.
            state.delay_seed ^= state.delay_seed << 13;
            state.delay_seed ^= state.delay_seed >> 7;
            state.delay_seed ^= state.delay_seed << 17;
            state.delay_seed % 6
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn release_token_requests(&self) {
        self.state().holds_token_requests = false;
        self.0.token_gate.notify_waiters();
    }

    /// Returns a user agent whose user consents immediately.
    pub(crate) fn consenting_user(&self) -> EmbeddedBrowser {
        let servers = self.clone();
        EmbeddedBrowser::new(REDIRECT_URI, move |url| {
            std::future::ready(Ok(servers.consent(&url)))
        })
    }

    /// Grants consent, and returns the URL of the redirect.
    pub(crate) fn consent(&self, url: &str) -> String {
        let (_, query) = url.split_once('?').unwrap();
        let params: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let mut state = self.state();
        state.scope = params.get("scope").cloned().unwrap_or_default();
        let line = format!("consent {} [{}]", params["client_id"], state.scope);
        state.log.push(line);
        let (back, issuer) = (&params["redirect_uri"], &state.issuer);
        format!("{back}?code=c&state={}&iss={issuer}", params["state"])
    }

    fn respond(&self, head: &request::Parts, body: &[u8]) -> Response<ResponseBody> {
        let host = head.uri.host().unwrap_or_default();
        let path = head.uri.path().to_owned();
        match (host, &*path) {
            (_, "/mcp") => self.serve(head, body),
            ("mcp.test", _) => self.describe_resource(&path),
            _ if path.contains(".well-known") => self.describe_issuer(),
            (_, "/register") => {
                self.state().log.push(format!("register {host}"));
                let mut registration = json!({"client_id": format!("client-of-{host}")});
                if self.state().registers_with_secret {
                    registration["client_secret"] = json!("hush");
                    registration["token_endpoint_auth_method"] = json!("client_secret_basic");
                }
                json_response(201, &registration)
            }
            (_, "/token" | "/revoke") if !self.is_authenticated(host, head, body) => {
                let error =
                    json!({"error": "invalid_client", "error_description": "Missing client_id"});
                json_response(401, &error)
            }
            (_, "/token") => self.issue(host, body),
            (_, "/revoke") => {
                let form = String::from_utf8_lossy(body).into_owned();
                self.state().log.push(format!("revoke {form}"));
                empty(200)
            }
            _ => empty(404),
        }
    }

    /// Returns whether a client with a secret sent it in the header, and its id in the form too.
    fn is_authenticated(&self, host: &str, head: &request::Parts, body: &[u8]) -> bool {
        if !self.state().registers_with_secret {
            return true;
        }
        let client = format!("client-of-{host}");
        let expected = format!("Basic {}", STANDARD.encode(format!("{client}:hush")));
        let sent = head.headers.get(AUTHORIZATION);
        let mut form = form_urlencoded::parse(body);
        sent.is_some_and(|sent| sent.as_bytes() == expected.as_bytes())
            && form.any(|(name, value)| name == "client_id" && value == client)
    }

    fn describe_resource(&self, path: &str) -> Response<ResponseBody> {
        let state = self.state();
        if let Some(metadata) = &state.metadata {
            return response(200, metadata.clone());
        }
        if path != "/.well-known/oauth-protected-resource/mcp" {
            return empty(404);
        }
        json_response(
            200,
            &json!({"resource": state.resource, "authorization_servers": [state.issuer]}),
        )
    }

    fn describe_issuer(&self) -> Response<ResponseBody> {
        let state = self.state();
        let issuer = &state.issuer;
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported":
                if state.registers_with_secret { ["client_secret_basic"] } else { ["none"] },
        });
        if state.supports_revocation {
            document["revocation_endpoint"] = json!(format!("{issuer}/revoke"));
        }
        json_response(200, &document)
    }

    fn issue(&self, host: &str, body: &[u8]) -> Response<ResponseBody> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let mut state = self.state();
        let grant = &form["grant_type"];
        state.log.push(format!("{grant} {host}"));
        if state.is_down {
            return empty(503);
        }
        if let Some(used) = form.get("refresh_token") {
            let Some(at) = state.valid_refresh_tokens.iter().position(|it| it == used) else {
                state.reused += 1;
                return json_response(400, &json!({"error": "invalid_grant"}));
            };
            state.valid_refresh_tokens.remove(at);
        }
        state.issued += 1;
        let (access, refresh) = (format!("t{}", state.issued), format!("r{}", state.issued));
        let scope = if state.grants_scopes {
            state.scope.clone()
        } else {
            String::new()
        };
        state.valid_tokens.insert(access.clone(), scope);
        state.valid_refresh_tokens.push(refresh.clone());
        let answer = json!({
            "access_token": access, "token_type": "Bearer",
            "expires_in": state.lifetime, "refresh_token": refresh,
        });
        json_response(200, &answer)
    }

    fn serve(&self, head: &request::Parts, body: &[u8]) -> Response<ResponseBody> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let what = body["method"].as_str().unwrap_or(head.method.as_str());
        let shown = head.headers.get(AUTHORIZATION);
        let shown = shown.map_or("-", |it| it.to_str().unwrap());
        let mut state = self.state();
        state.log.push(format!("{what} {shown}"));
        let scope = shown
            .strip_prefix("Bearer ")
            .and_then(|token| state.valid_tokens.get(token))
            .filter(|_| state.accepts_tokens);
        let Some(scope) = scope.map_or(state.is_open.then_some(""), |scope| Some(scope)) else {
            return challenge(401, "Bearer");
        };
        if what == "tools/call" && !scope.contains(&state.required_scope) {
            let error = "error=\"insufficient_scope\"";
            let required_scope = &state.required_scope;
            return challenge(403, &format!("Bearer {error}, scope=\"{required_scope}\""));
        }
        let result = json!({"resultType": "complete", "content": []});
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
        json_response(200, &answer)
    }
}

impl HttpClient for FakeServers {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let (servers, body) = (self.clone(), body.into_bytes());
        Box::pin(async move {
            servers.yield_randomly().await;
            let response = servers.respond(&head, &body);
            servers.yield_randomly().await;
            if head.uri.path() == "/token" {
                let released = servers.0.token_gate.notified();
                if servers.state().holds_token_requests {
                    released.await;
                }
            }
            Ok(response)
        })
    }
}

fn challenge(status: u16, challenge: &str) -> Response<ResponseBody> {
    let mut response = empty(status);
    let value = HeaderValue::from_str(challenge).unwrap();
    response.headers_mut().insert(WWW_AUTHENTICATE, value);
    response
}

fn json_response(status: u16, body: &Value) -> Response<ResponseBody> {
    response(status, body.to_string().into_bytes())
}

fn empty(status: u16) -> Response<ResponseBody> {
    response(status, Vec::new())
}

fn response(status: u16, body: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(body))));
    *response.status_mut() = status.try_into().unwrap();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
