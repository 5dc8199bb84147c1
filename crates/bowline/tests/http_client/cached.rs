//! Private results belong to a server and to whoever was signed in when they were asked for.

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

/// A server without a socket whose only tool has the name of whoever asks. Its lists are private, and stay good.
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

/// Whoever sits at the keyboard, and whether they say who they are.
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
async fn whoever_signs_in_does_not_get_what_was_kept_for_somebody_else() {
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
async fn nothing_private_is_kept_for_somebody_unknown() {
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
