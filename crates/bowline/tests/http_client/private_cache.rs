//! Private cached results belong to one server and one signed-in user.

use std::sync::{Arc, Mutex};

use bowline::Client;
use bowline::client::MemoryCache;
use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer, HttpClient, Refusal, RequestBody, ResponseBody};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};

/// A server without a socket whose only tool is named after the user. Its lists are private, with a TTL of one minute.
#[derive(Clone, Default)]
struct PerUserServer {
    requests: Arc<Mutex<usize>>,
}

impl PerUserServer {
    fn request_count(&self) -> usize {
        *self.requests.lock().unwrap()
    }
}

impl HttpClient for PerUserServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        *self.requests.lock().unwrap() += 1;
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.into_bytes()).unwrap();
        let user = head.headers.get(AUTHORIZATION).unwrap().to_str().unwrap();
        let tool = json!({"name": user, "inputSchema": {"type": "object"}});
        let result = json!({
            "resultType": "complete", "tools": [tool], "ttlMs": 60_000, "cacheScope": "private",
        });
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
        let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(answer))));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Box::pin(async { Ok(response) })
    }
}

/// An authorizer whose user can change, with or without an identity.
struct UserAuthorizer {
    user: Mutex<&'static str>,
    has_identity: bool,
}

impl UserAuthorizer {
    fn of(user: &'static str, has_identity: bool) -> Arc<Self> {
        let user = Mutex::new(user);
        Arc::new(Self { user, has_identity })
    }
}

impl Authorizer for UserAuthorizer {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        let user = HeaderValue::from_static(*self.user.lock().unwrap());
        head.headers.insert(AUTHORIZATION, user);
        Box::pin(async { Ok(()) })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async { Err(refusal.to_error()) })
    }

    fn identity(&self) -> Option<String> {
        self.has_identity
            .then(|| (*self.user.lock().unwrap()).to_owned())
    }
}

async fn connect(
    url: &str,
    server: &PerUserServer,
    authorizer: &Arc<UserAuthorizer>,
    cache: &Arc<MemoryCache>,
) -> Client {
    let connect = Client::connect(url)
        .http_client(server.clone())
        .authorizer(authorizer.clone())
        .cache(cache.clone())
        .protocol_version("2026-07-28");
    connect.await.unwrap()
}

async fn first_tool(client: &Client) -> String {
    client.list_tools().await.unwrap()[0].name.clone()
}

#[tokio::test]
async fn private_results_are_not_shared_between_users() {
    let (server, cache) = (PerUserServer::default(), Arc::default());
    let authorizer = UserAuthorizer::of("ann", true);
    let client = connect("http://one.test/mcp", &server, &authorizer, &cache).await;
    assert_eq!(first_tool(&client).await, "ann");

    *authorizer.user.lock().unwrap() = "bob";
    assert_eq!(first_tool(&client).await, "bob");

    *authorizer.user.lock().unwrap() = "ann";
    assert_eq!(first_tool(&client).await, "ann");
    assert_eq!(server.request_count(), 2, "her result was still cached");
}

#[tokio::test]
async fn private_results_are_not_cached_without_an_identity() {
    let (server, cache) = (PerUserServer::default(), Arc::default());
    let authorizer = UserAuthorizer::of("ann", false);
    let client = connect("http://one.test/mcp", &server, &authorizer, &cache).await;

    for user in ["ann", "bob"] {
        *authorizer.user.lock().unwrap() = user;
        assert_eq!(first_tool(&client).await, user);
    }
    assert!(cache.is_empty());
}

#[tokio::test]
async fn private_results_are_cached_per_url_and_user() {
    let (server, cache) = (PerUserServer::default(), Arc::default());
    let authorizer = UserAuthorizer::of("ann", true);

    for (url, expected) in [
        ("http://one.test/mcp", 1),
        ("http://ann:secret@ONE.test/mcp", 1),
        ("http://one.test/mcp?tenant=2", 2),
        ("http://two.test/mcp", 3),
    ] {
        let client = connect(url, &server, &authorizer, &cache).await;
        assert_eq!(first_tool(&client).await, "ann");
        assert_eq!(server.request_count(), expected, "{url}");
    }
}
