//! A server and its authorization server, without sockets: who comes in, and what was asked of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, RequestBody, ResponseBody};
use bowline_auth::client::OwnBrowser;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::Notify;
use url::form_urlencoded;

pub(crate) const SERVER: &str = "https://mcp.test/mcp";
const HERE: &str = "http://127.0.0.1:7/callback";

/// Both servers.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Lets token requests through, if they are held.
    token_gate: Notify,
}

/// What both servers know, and how they behave.
pub(crate) struct State {
    /// What arrived, in words.
    pub(crate) seen: Vec<String>,
    /// Who issues tokens.
    pub(crate) issuer: String,
    /// Tokens that are good, and their scopes.
    pub(crate) good: BTreeMap<String, String>,
    /// Refresh tokens that are good. Each is used up by its use.
    pub(crate) refreshable: Vec<String>,
    /// In seconds.
    pub(crate) lifetime: u64,
    /// What `tools/call` needs.
    pub(crate) needs: String,
    /// Whether token requests wait.
    pub(crate) holds_tokens: bool,
    /// Whether tokens can be revoked.
    pub(crate) revokes: bool,
    /// Whether the token endpoint is out of order.
    pub(crate) is_down: bool,
    /// Whether tokens are good for something.
    pub(crate) accepts: bool,
    /// Whether tokens have the scopes that they were asked for with.
    pub(crate) grants: bool,
    /// Refresh tokens that were shown although they were used up.
    pub(crate) reused: usize,
    /// Makes everything take a while, a different one each time, if it is not zero.
    pub(crate) chance: u64,
    /// What the server says instead of its metadata.
    pub(crate) metadata: Option<Vec<u8>>,
    issued: usize,
    scope: String,
}

impl Default for State {
    fn default() -> Self {
        Self {
            seen: Vec::new(),
            issuer: "https://as.test".into(),
            good: BTreeMap::new(),
            refreshable: Vec::new(),
            lifetime: 3600,
            needs: String::new(),
            holds_tokens: false,
            is_down: false,
            revokes: false,
            accepts: true,
            grants: true,
            reused: 0,
            chance: 0,
            metadata: None,
            issued: 0,
            scope: String::new(),
        }
    }
}

impl World {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// What arrived since it was asked the last time.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state().seen)
    }

    /// How often something that begins like this has arrived.
    pub(crate) fn count(&self, what: &str) -> usize {
        let state = self.state();
        state.seen.iter().filter(|it| it.starts_with(what)).count()
    }

    /// Lets others go first, as chance will have it.
    pub(crate) async fn dawdle(&self) {
        let steps = {
            let mut state = self.state();
            // Xorshift: whatever follows from a seed can be had again.
            state.chance ^= state.chance << 13;
            state.chance ^= state.chance >> 7;
            state.chance ^= state.chance << 17;
            state.chance % 6
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn let_tokens_through(&self) {
        self.state().holds_tokens = false;
        self.0.token_gate.notify_waiters();
    }

    /// Somebody who agrees at once.
    pub(crate) fn person(&self) -> OwnBrowser {
        let world = self.clone();
        OwnBrowser::new(HERE, move |url| std::future::ready(Ok(world.agree(&url))))
    }

    /// What happens when somebody agrees: the address that they are sent back to.
    pub(crate) fn agree(&self, url: &str) -> String {
        let (_, query) = url.split_once('?').unwrap();
        let asked: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let mut state = self.state();
        state.scope = asked.get("scope").cloned().unwrap_or_default();
        let line = format!("person {} [{}]", asked["client_id"], state.scope);
        state.seen.push(line);
        let (back, issuer) = (&asked["redirect_uri"], &state.issuer);
        format!("{back}?code=c&state={}&iss={issuer}", asked["state"])
    }

    fn answer(&self, head: &request::Parts, body: &[u8]) -> Response<ResponseBody> {
        let host = head.uri.host().unwrap_or_default();
        let path = head.uri.path().to_owned();
        match (host, &*path) {
            (_, "/mcp") => self.serve(head, body),
            ("mcp.test", _) => self.describe_resource(&path),
            _ if path.contains(".well-known") => self.describe_issuer(),
            (_, "/register") => {
                self.state().seen.push(format!("register {host}"));
                json_response(201, &json!({"client_id": format!("client-of-{host}")}))
            }
            (_, "/token") => self.issue(host, body),
            (_, "/revoke") => {
                let form = String::from_utf8_lossy(body).into_owned();
                self.state().seen.push(format!("revoke {form}"));
                empty(200)
            }
            _ => empty(404),
        }
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
            &json!({"resource": SERVER, "authorization_servers": [state.issuer]}),
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
            "token_endpoint_auth_methods_supported": ["none"],
        });
        if state.revokes {
            document["revocation_endpoint"] = json!(format!("{issuer}/revoke"));
        }
        json_response(200, &document)
    }

    fn issue(&self, host: &str, body: &[u8]) -> Response<ResponseBody> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let mut state = self.state();
        let grant = &form["grant_type"];
        state.seen.push(format!("{grant} {host}"));
        if state.is_down {
            return empty(503);
        }
        if let Some(used) = form.get("refresh_token") {
            let Some(at) = state.refreshable.iter().position(|it| it == used) else {
                state.reused += 1;
                return json_response(400, &json!({"error": "invalid_grant"}));
            };
            state.refreshable.remove(at);
        }
        state.issued += 1;
        let (access, refresh) = (format!("t{}", state.issued), format!("r{}", state.issued));
        let scope = if state.grants {
            state.scope.clone()
        } else {
            String::new()
        };
        state.good.insert(access.clone(), scope);
        state.refreshable.push(refresh.clone());
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
        state.seen.push(format!("{what} {shown}"));
        let scope = shown
            .strip_prefix("Bearer ")
            .and_then(|token| state.good.get(token))
            .filter(|_| state.accepts);
        let Some(scope) = scope else {
            return challenge(401, "Bearer");
        };
        if what == "tools/call" && !scope.contains(&state.needs) {
            let error = "error=\"insufficient_scope\"";
            let needs = &state.needs;
            return challenge(403, &format!("Bearer {error}, scope=\"{needs}\""));
        }
        let result = json!({"resultType": "complete", "content": []});
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
        json_response(200, &answer)
    }
}

impl HttpSend for World {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let (world, body) = (self.clone(), body.into_bytes());
        Box::pin(async move {
            world.dawdle().await;
            let response = world.answer(&head, &body);
            world.dawdle().await;
            if head.uri.path() == "/token" {
                let passing = world.0.token_gate.notified();
                if world.state().holds_tokens {
                    passing.await;
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
