//! A server that requires authorization: a refused call waits for the authorizer, its timeouts pause, and it is
//! retried.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::ChangeFilter;
use bowline::exchange::BoxFuture;
use bowline::http::client::{
    Authorizer, HttpClient, Refusal, RefusalReason, RequestBody, ResponseBody,
};
use bowline::{Client, Error};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// A server without a socket, for tests with a paused clock. It accepts one value of `Authorization`.
#[derive(Clone)]
struct GuardedServer {
    /// The method and the `Authorization` header of each request.
    seen: Arc<Mutex<Vec<String>>>,
    accepted: &'static str,
    /// Whether tool calls are answered; otherwise they wait.
    answers_calls: watch::Sender<bool>,
}

impl GuardedServer {
    fn accepting(accepted: &'static str) -> Self {
        Self {
            seen: Arc::default(),
            accepted,
            answers_calls: watch::Sender::new(true),
        }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn answer(&self, head: &request::Parts, body: &[u8]) -> Response<ResponseBody> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let method = body["method"].as_str().unwrap_or(head.method.as_str());
        let authorization = head
            .headers
            .get(AUTHORIZATION)
            .map(|it| it.to_str().unwrap());
        let line = format!("{method} {}", authorization.unwrap_or("-"));
        self.seen.lock().unwrap().push(line);
        if authorization != Some(self.accepted) {
            let mut refused = empty(if authorization.is_some() { 403 } else { 401 });
            let challenge = "Bearer error=\"insufficient_scope\", scope=\"more\"";
            let challenge = HeaderValue::from_static(challenge);
            refused.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            return refused;
        }
        let result = match method {
            "tools/call" if body["params"]["name"] == "structured" => {
                json!({"resultType": "complete", "content": [], "structuredContent": {}})
            }
            "tools/call" => json!({"resultType": "complete", "content": []}),
            "tools/list" => {
                let schema = json!({"type": "object", "required": ["n"]});
                let tool = json!({"name": "structured", "inputSchema": {}, "outputSchema": schema});
                json!({"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"})
            }
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {"subscribe": true}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }),
            "resources/subscribe" => json!({}),
            "subscriptions/listen" => return subscription(&body["id"]),
            "GET" => return empty(405),
            "server/discover" => return empty(400),
            _ => return empty(202),
        };
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
        let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(answer))));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        if method == "initialize" {
            // Without a session a dropped call closes its POST, so that its refusal would never arrive.
            let session = HeaderValue::from_static("s1");
            response.headers_mut().insert("mcp-session-id", session);
        }
        response
    }
}

/// A stream that acknowledges a subscription and stays open.
fn subscription(id: &Value) -> Response<ResponseBody> {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let acknowledged = json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": meta, "notifications": {}},
    });
    let event = format!("data: {acknowledged}\n\n");
    let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(event))));
    let events = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, events);
    response
}

fn empty(status: u16) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(Full::new(Bytes::new())));
    *response.status_mut() = status.try_into().unwrap();
    response
}

impl HttpClient for GuardedServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let body = body.into_bytes();
        let response = self.answer(&head, &body);
        let mut answers_calls = self.answers_calls.subscribe();
        let is_call = String::from_utf8_lossy(&body).contains("tools/call");
        Box::pin(async move {
            drop(answers_calls.wait_for(|answers| *answers || !is_call).await);
            Ok(response)
        })
    }
}

/// Answers each refusal with the next credential, after a delay.
#[derive(Clone)]
struct ScriptedAuthorizer {
    credential: Arc<Mutex<&'static str>>,
    credentials: &'static [&'static str],
    delay: Duration,
    refusals: Arc<Mutex<Vec<RefusalReason>>>,
    is_answering: watch::Sender<bool>,
}

impl ScriptedAuthorizer {
    fn with_credentials(credentials: &'static [&'static str]) -> Self {
        Self {
            credential: Arc::default(),
            credentials,
            delay: Duration::ZERO,
            refusals: Arc::default(),
            is_answering: watch::Sender::new(false),
        }
    }

    fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

impl Authorizer for ScriptedAuthorizer {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let credential = *self.credential.lock().unwrap();
            if !credential.is_empty() {
                let credential = HeaderValue::from_static(credential);
                head.headers.insert(AUTHORIZATION, credential);
            }
            Ok(())
        })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let mut index = self.refusals.lock().unwrap().len();
            self.refusals.lock().unwrap().push(refusal.reason);
            self.is_answering.send_replace(true);
            let reset = ResetOnDrop(&self.is_answering);
            let _ = timeout(self.delay, pending::<()>()).await;
            drop(reset);
            index = index.min(self.credentials.len() - 1);
            *self.credential.lock().unwrap() = self.credentials[index];
            Ok(())
        })
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

/// Resets a flag when it is dropped.
struct ResetOnDrop<'a>(&'a watch::Sender<bool>);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

async fn connect(
    server: &GuardedServer,
    authorizer: &ScriptedAuthorizer,
    version: &str,
) -> bowline::Result<Client> {
    Client::connect("http://guarded.test/mcp")
        .http_client(server.clone())
        .authorizer(authorizer.clone())
        .protocol_version(version)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_retried_after_authorization() {
    for version in VERSIONS {
        let server = GuardedServer::accepting("yes");
        let authorizer = ScriptedAuthorizer::with_credentials(&["yes"]);

        let client = connect(&server, &authorizer, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();

        let seen = server.seen();
        assert_eq!(
            *authorizer.refusals.lock().unwrap(),
            [RefusalReason::Unauthenticated]
        );
        assert!(seen[0].ends_with(" -"), "{seen:?}");
        assert!(seen[1..].iter().all(|it| it.ends_with(" yes")), "{seen:?}");
        assert_eq!(seen.last().unwrap(), "tools/call yes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_retried_once_per_refusal_reason() {
    for version in VERSIONS {
        let server = GuardedServer::accepting("yes");
        let authorizer = ScriptedAuthorizer::with_credentials(&["perhaps", "perhaps", "yes"]);

        let outcome = match connect(&server, &authorizer, version).await {
            Ok(client) => client.call_tool("x", ()).await.map(|_| ()),
            Err(error) => Err(error),
        };

        let Err(Error::Unauthorized { challenges, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(challenges[0].scope(), Some("more"));
        assert_eq!(
            *authorizer.refusals.lock().unwrap(),
            [
                RefusalReason::Unauthenticated,
                RefusalReason::InsufficientScope
            ]
        );
        assert_eq!(server.seen().len(), 3);
    }
}

/// A connected client that has lost its credential, and whose authorizer takes ten minutes to get another one.
async fn client_without_credential(version: &str) -> (Client, ScriptedAuthorizer) {
    let server = GuardedServer::accepting("yes");
    let authorizer =
        ScriptedAuthorizer::with_credentials(&["yes"]).with_delay(Duration::from_secs(600));
    *authorizer.credential.lock().unwrap() = "yes";
    let client = connect(&server, &authorizer, version).await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    *authorizer.credential.lock().unwrap() = "";
    (client, authorizer)
}

#[tokio::test(start_paused = true)]
async fn time_spent_on_authorization_does_not_count_towards_timeouts() {
    for version in VERSIONS {
        let (client, authorizer) = client_without_credential(version).await;

        let limited = client
            .call_tool("x", ())
            .idle_timeout(Duration::from_secs(1))
            .timeout(Duration::from_secs(2))
            .await;

        assert!(limited.is_ok(), "{limited:?}");
        assert_eq!(authorizer.refusals.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn time_spent_on_authorization_does_not_count_towards_the_acknowledgement() {
    for version in VERSIONS {
        let (client, authorizer) = client_without_credential(version).await;

        let subscription = client.subscribe(ChangeFilter::new().resource("a:b")).await;

        assert!(subscription.is_ok(), "{version}: {subscription:?}");
        assert_eq!(authorizer.refusals.lock().unwrap().len(), 1);
    }
}

/// The output of a call is invalid only if the tools were listed in time.
#[tokio::test(start_paused = true)]
async fn time_spent_on_authorization_of_the_list_that_a_call_causes_does_not_count() {
    for version in VERSIONS {
        let server = GuardedServer::accepting("yes");
        let authorizer =
            ScriptedAuthorizer::with_credentials(&["yes"]).with_delay(Duration::from_secs(600));
        *authorizer.credential.lock().unwrap() = "yes";
        let client = connect(&server, &authorizer, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();
        server.answers_calls.send_replace(false);
        server.seen();
        let call = client
            .call_tool("structured", ())
            .timeout(Duration::from_secs(2));
        let signing_out = async {
            while !server.seen().contains(&"tools/call yes".to_owned()) {
                tokio::task::yield_now().await;
            }
            *authorizer.credential.lock().unwrap() = "";
            server.answers_calls.send_replace(true);
        };

        let (reply, ()) = tokio::join!(call.into_future(), signing_out);

        assert!(matches!(reply, Err(Error::Protocol { .. })), "{reply:?}");
        assert_eq!(authorizer.refusals.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_probe_waits_for_authorization() {
    let server = GuardedServer::accepting("yes");
    let authorizer =
        ScriptedAuthorizer::with_credentials(&["yes"]).with_delay(Duration::from_secs(600));

    let client = Client::connect("http://guarded.test/mcp")
        .http_client(server.clone())
        .authorizer(authorizer)
        .await
        .unwrap();

    client.call_tool("x", ()).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        seen[..3],
        ["server/discover -", "server/discover yes", "initialize yes"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_get_stream_of_a_legacy_server_is_authorized() {
    let server = GuardedServer::accepting("yes");
    let authorizer = ScriptedAuthorizer::with_credentials(&["yes"]);

    let client = connect(&server, &authorizer, "2025-11-25").await.unwrap();

    let mut seen = server.seen();
    while !seen.iter().any(|it| it.starts_with("GET")) {
        tokio::task::yield_now().await;
        seen.extend(server.seen());
    }
    assert!(seen.contains(&"GET yes".to_owned()), "{seen:?}");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_its_authorization_and_sends_nothing() {
    for version in VERSIONS {
        let server = GuardedServer::accepting("yes");
        let authorizer = ScriptedAuthorizer::with_credentials(&["yes"]);
        *authorizer.credential.lock().unwrap() = "yes";
        let client = connect(&server, &authorizer, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();
        *authorizer.credential.lock().unwrap() = "";
        server.seen();
        let authorizer = ScriptedAuthorizer {
            delay: Duration::from_secs(3600),
            ..authorizer
        };
        let slow = connect(&server, &authorizer, version);
        let mut is_answering = authorizer.is_answering.subscribe();
        let has_started = async { drop(is_answering.wait_for(|it| *it).await.unwrap()) };

        let call = async { slow.await.unwrap().call_tool("x", ()).await };
        tokio::select! {
            outcome = call => panic!("the call ended: {outcome:?}"),
            () = has_started => {}
        }

        is_answering.wait_for(|it| !*it).await.unwrap();
        assert_eq!(server.seen().len(), 1, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_dropped_during_authorization_is_never_sent() {
    let server = GuardedServer::accepting("yes");
    let authorizer =
        ScriptedAuthorizer::with_credentials(&["yes"]).with_delay(Duration::from_secs(3600));
    *authorizer.credential.lock().unwrap() = "yes";
    let client = connect(&server, &authorizer, "2025-11-25").await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    *authorizer.credential.lock().unwrap() = "";
    let mut is_answering = authorizer.is_answering.subscribe();
    server.seen();

    let call = client.call_tool("x", ()).start();
    is_answering.wait_for(|it| *it).await.unwrap();
    drop(call);
    is_answering.wait_for(|it| !*it).await.unwrap();
    *authorizer.credential.lock().unwrap() = "yes";
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(server.seen(), ["tools/call -", "tools/call yes"]);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_dropped_before_its_refusal_does_not_start_authorization() {
    let server = GuardedServer::accepting("yes");
    let authorizer = ScriptedAuthorizer::with_credentials(&["yes"]);
    *authorizer.credential.lock().unwrap() = "yes";
    let client = connect(&server, &authorizer, "2025-11-25").await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    *authorizer.credential.lock().unwrap() = "";
    server.answers_calls.send_replace(false);
    server.seen();

    let call = client.call_tool("x", ()).start();
    let mut seen = Vec::new();
    while seen.is_empty() {
        tokio::task::yield_now().await;
        seen.extend(server.seen());
    }
    drop(call);
    while seen.len() < 2 {
        tokio::time::advance(Duration::from_millis(10)).await;
        seen.extend(server.seen());
    }
    server.answers_calls.send_replace(true);
    *authorizer.credential.lock().unwrap() = "yes";
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(seen, ["tools/call -", "notifications/cancelled -"]);
    assert!(authorizer.refusals.lock().unwrap().is_empty());
}

/// A server that answers every request with this status and body, without a challenge.
#[derive(Clone, Copy)]
struct RefusingServer(u16, &'static str, &'static str);

impl HttpClient for RefusingServer {
    fn send(
        &self,
        _: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let Self(status, content_type, body) = *self;
        let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(body))));
        *response.status_mut() = status.try_into().unwrap();
        let content_type = HeaderValue::from_static(content_type);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Box::pin(async move { Ok(response) })
    }
}

#[tokio::test]
async fn status_403_without_a_challenge_is_no_demand_for_a_token() {
    let (page, json) = ("text/plain", "application/json");
    let rpc = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the host is not allowed"}}"#;
    for (server, expected) in [
        (
            RefusingServer(403, page, "no\u{1b}[31m\r\nentry"),
            ": no [31m entry",
        ),
        (
            RefusingServer(403, json, r#"{"error":"not you"}"#),
            r#": {"error":"not you"}"#,
        ),
        (RefusingServer(403, json, rpc), ": the host is not allowed"),
        (RefusingServer(403, page, ""), "/mcp"),
        (
            RefusingServer(500, page, "Traceback: database"),
            ": Traceback: database",
        ),
    ] {
        let client = Client::connect("http://mcp.test/mcp").http_client(server);

        let error = client.await.unwrap_err();

        let text = error.to_string();
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        let status = format!("unexpected HTTP status {}", server.0);
        assert!(text.contains(&status) && text.ends_with(expected), "{text}");
    }
}

#[tokio::test]
async fn only_the_beginning_of_the_body_of_an_error_is_shown() {
    let long: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    for content_type in ["text/plain", "application/json"] {
        let server = RefusingServer(403, content_type, long);

        let error = Client::connect("http://mcp.test/mcp").http_client(server);

        let text = error.await.unwrap_err().to_string();
        assert!(text.len() < 2000, "{} bytes", text.len());
    }
}
