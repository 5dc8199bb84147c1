//! Private cached results belong to one server and one signed-in user.

use std::sync::{Arc, Mutex};

use bowline::Client;
use bowline::client::MemoryCache;
use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer, HttpSend, Refusal, RequestBody, ResponseBody};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};

/// A server without a socket whose only tool is named after the caller. Its lists are private, and fresh for a minute.
#[derive(Clone, Default)]
struct Greeter {
    asked: Arc<Mutex<usize>>,
}

impl Greeter {
    fn was_asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

impl HttpSend for Greeter {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        *self.asked.lock().unwrap() += 1;
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.into_bytes()).unwrap();
        let asker = head.headers.get(AUTHORIZATION).unwrap().to_str().unwrap();
        let tool = json!({"name": asker, "inputSchema": {"type": "object"}});
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

/// An authorizer whose user can change, and whether it reports who that is.
struct Keyboard {
    user: Mutex<&'static str>,
    is_known: bool,
}

impl Keyboard {
    fn of(user: &'static str, is_known: bool) -> Arc<Self> {
        let user = Mutex::new(user);
        Arc::new(Self { user, is_known })
    }
}

impl Authorizer for Keyboard {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        let user = HeaderValue::from_static(*self.user.lock().unwrap());
        head.headers.insert(AUTHORIZATION, user);
        Box::pin(async { Ok(()) })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async { Err(refusal.to_error()) })
    }

    fn identity(&self) -> Option<String> {
        self.is_known
            .then(|| (*self.user.lock().unwrap()).to_owned())
    }
}

async fn connect(
    url: &str,
    greeter: &Greeter,
    keyboard: &Arc<Keyboard>,
    cache: &Arc<MemoryCache>,
) -> Client {
    let connect = Client::connect(url)
        .http(greeter.clone())
        .authorizer(keyboard.clone())
        .cache(cache.clone())
        .speaking("2026-07-28");
    connect.await.unwrap()
}

async fn first_tool(client: &Client) -> String {
    client.list_tools().await.unwrap()[0].name.clone()
}

#[tokio::test]
async fn a_user_does_not_get_the_private_results_of_another() {
    let (greeter, cache) = (Greeter::default(), Arc::default());
    let keyboard = Keyboard::of("ann", true);
    let client = connect("http://one.test/mcp", &greeter, &keyboard, &cache).await;
    assert_eq!(first_tool(&client).await, "ann");

    *keyboard.user.lock().unwrap() = "bob";
    assert_eq!(first_tool(&client).await, "bob");

    *keyboard.user.lock().unwrap() = "ann";
    assert_eq!(first_tool(&client).await, "ann");
    assert_eq!(greeter.was_asked(), 2, "hers was still good");
}

#[tokio::test]
async fn private_results_are_not_cached_without_an_identity() {
    let (greeter, cache) = (Greeter::default(), Arc::default());
    let keyboard = Keyboard::of("ann", false);
    let client = connect("http://one.test/mcp", &greeter, &keyboard, &cache).await;

    for user in ["ann", "bob"] {
        *keyboard.user.lock().unwrap() = user;
        assert_eq!(first_tool(&client).await, user);
    }
    assert!(cache.is_empty());
}

#[tokio::test]
async fn clients_of_one_url_share_what_is_kept_for_one_user_and_those_of_another_do_not() {
    let (greeter, cache) = (Greeter::default(), Arc::default());
    let keyboard = Keyboard::of("ann", true);

    for (url, asked) in [
        ("http://one.test/mcp", 1),
        ("http://ann:secret@ONE.test/mcp", 1),
        ("http://one.test/mcp?tenant=2", 2),
        ("http://two.test/mcp", 3),
    ] {
        let client = connect(url, &greeter, &keyboard, &cache).await;
        assert_eq!(first_tool(&client).await, "ann");
        assert_eq!(greeter.was_asked(), asked, "{url}");
    }
}
