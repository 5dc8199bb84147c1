//! Tests of the exchange with a token endpoint in memory and the paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer as _, RequestBody, ResponseBody};
use serde_json::json;
use tokio::sync::Notify;

use super::*;

/// A token endpoint that returns `NUMBER for SUBJECT_TOKEN`, and refuses the token `revoked`.
#[derive(Clone, Default)]
struct FakeEndpoint(Arc<EndpointState>);

#[derive(Default)]
struct EndpointState {
    requests: AtomicUsize,
    is_down: AtomicBool,
    forms: Mutex<Vec<BTreeMap<String, String>>>,
    authorization: Mutex<Option<String>>,
    /// Holds requests back, if it is set.
    gate: Mutex<Option<Arc<Notify>>>,
}

impl HttpClient for FakeEndpoint {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let body = body.into_bytes();
        let form = url::form_urlencoded::parse(&body).into_owned();
        let form: BTreeMap<String, String> = form.collect();
        let state = self.0.clone();
        Box::pin(async move {
            let number = state.requests.fetch_add(1, Ordering::SeqCst) + 1;
            let authorization = head.headers.get(http::header::AUTHORIZATION);
            let authorization = authorization.and_then(|value| value.to_str().ok());
            *state.authorization.lock() = authorization.map(str::to_owned);
            let gate = state.gate.lock().clone();
            if let Some(gate) = gate {
                gate.notified().await;
            }
            let subject = form["subject_token"].clone();
            state.forms.lock().push(form);
            let (status, answer) = if state.is_down.load(Ordering::SeqCst) {
                (503, json!("down"))
            } else if subject == "revoked" {
                let description = format!("the token {subject} of hunter2 expired");
                (
                    400,
                    json!({"error": "invalid_grant", "error_description": description}),
                )
            } else {
                let token = format!("{number}-for-{subject}");
                (
                    200,
                    json!({"access_token": token, "token_type": "Bearer", "expires_in": 100,
                    "issued_token_type": ACCESS_TOKEN}),
                )
            };
            let response = Response::builder().status(status);
            Ok(response
                .body(ResponseBody::new(http_body_util::Full::new(Bytes::from(
                    answer.to_string(),
                ))))
                .unwrap())
        })
    }
}

impl FakeEndpoint {
    fn exchange(&self) -> TokenExchange {
        TokenExchange::new("https://id.example/token").http_client(self.clone())
    }

    fn requests(&self) -> usize {
        self.0.requests.load(Ordering::SeqCst)
    }
}

fn subject(principal: &str, token: &str) -> SubjectToken {
    SubjectToken::new(principal, Secret::new(token))
}

#[tokio::test(start_paused = true)]
async fn the_request_follows_rfc_8693_and_authenticates_the_client() {
    let endpoint = FakeEndpoint::default();
    let client = RegisteredClient::new("https://id.example", "gateway").secret("hunter2");
    let exchange = endpoint
        .exchange()
        .client(client)
        .audience("files")
        .resource("https://files.example/mcp")
        .scopes(["read", "write"]);

    let token = exchange.exchange(&subject("ada", "a1")).await.unwrap();

    assert_eq!(token.expose(), "1-for-a1");
    let form = endpoint.0.forms.lock().remove(0);
    let expected = [
        ("audience", "files"),
        ("client_id", "gateway"),
        ("grant_type", GRANT_TYPE),
        ("requested_token_type", ACCESS_TOKEN),
        ("resource", "https://files.example/mcp"),
        ("scope", "read write"),
        ("subject_token", "a1"),
        ("subject_token_type", ACCESS_TOKEN),
    ];
    let form: Vec<_> = form.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(form, expected);
    let authorization = endpoint.0.authorization.lock().clone();
    assert_eq!(
        authorization.as_deref(),
        // gateway:hunter2
        Some(concat!("Basic ", "Z2F0ZXdheTpodW50ZXI", "y"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_reused_until_shortly_before_it_expires() {
    let endpoint = FakeEndpoint::default();
    let exchange = endpoint.exchange();
    let ada = subject("ada", "a1");

    let first = exchange.exchange(&ada).await.unwrap();
    tokio::time::advance(Duration::from_secs(89)).await;
    let second = exchange.exchange(&ada).await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    let third = exchange.exchange(&ada).await.unwrap();

    assert_eq!(
        [first.expose(), second.expose(), third.expose()],
        ["1-for-a1", "1-for-a1", "2-for-a1"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_down_costs_nothing_while_the_old_token_is_valid() {
    let endpoint = FakeEndpoint::default();
    let exchange = endpoint.exchange();
    let ada = subject("ada", "a1");
    exchange.exchange(&ada).await.unwrap();
    endpoint.0.is_down.store(true, Ordering::SeqCst);

    tokio::time::advance(Duration::from_secs(95)).await;
    let old = exchange.exchange(&ada).await.unwrap();
    tokio::time::advance(Duration::from_secs(6)).await;
    let error = exchange.exchange(&ada).await.unwrap_err();

    assert_eq!(old.expose(), "1-for-a1");
    assert!(
        matches!(error, Error::Unavailable { status: 503, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_principal_and_no_later_token_gets_the_token_of_another() {
    let endpoint = FakeEndpoint::default();
    let exchange = endpoint.exchange();
    let subjects = [
        subject("ada", "a1"),
        subject("bob", "b1"),
        subject("ada", "a2"),
        // Two principals with the same token, which no issuer should produce.
        subject("bob", "a1"),
    ];

    let mut got = Vec::new();
    for subject in subjects.iter().chain(&subjects) {
        got.push(exchange.exchange(subject).await.unwrap());
    }

    let got: Vec<_> = got.iter().map(Secret::expose).collect();
    let expected = ["1-for-a1", "2-for-b1", "3-for-a2", "4-for-a1"];
    assert_eq!(got[..4], expected);
    assert_eq!(got[4..], expected);
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_and_drops_the_least_recently_used_token() {
    let endpoint = FakeEndpoint::default();
    let exchange = endpoint
        .exchange()
        .max_cached(NonZeroUsize::new(2).unwrap());
    let of = |token: &str| subject("ada", token);

    for token in ["a", "b", "a", "c", "a"] {
        exchange.exchange(&of(token)).await.unwrap();
    }
    assert_eq!(endpoint.requests(), 3);
    assert_eq!(exchange.cache.lock().len(), 2);

    exchange.exchange(&of("b")).await.unwrap();
    assert_eq!(endpoint.requests(), 4);
}

#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_share_an_exchange_and_survive_a_dropped_one() {
    let endpoint = FakeEndpoint::default();
    let gate = Arc::new(Notify::new());
    *endpoint.0.gate.lock() = Some(gate.clone());
    let exchange = Arc::new(endpoint.exchange());
    let start = || {
        let exchange = exchange.clone();
        tokio::spawn(async move { exchange.exchange(&subject("ada", "a1")).await.unwrap() })
    };
    let (first, second, third) = (start(), start(), start());
    tokio::task::yield_now().await;
    assert_eq!(endpoint.requests(), 1);

    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.notify_one();

    assert_eq!(second.await.unwrap().expose(), "2-for-a1");
    assert_eq!(third.await.unwrap().expose(), "2-for-a1");
    assert_eq!(endpoint.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_exchange_is_an_error_without_secrets() {
    let endpoint = FakeEndpoint::default();
    let client = RegisteredClient::new("https://id.example", "gateway").secret("hunter2");
    let exchange = Arc::new(endpoint.exchange().client(client));
    let revoked = subject("ada", "revoked");

    let error = exchange.exchange(&revoked).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the token request failed: the authorization server returned `invalid_grant`: the token … of … expired"
    );
    let debug = format!("{error:?} {exchange:?} {revoked:?}");
    assert!(!debug.contains("hunter2"), "{debug}");
    assert!(!debug.contains("\"revoked\""), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_server_refuses_is_exchanged_again() {
    let endpoint = FakeEndpoint::default();
    let exchange = Arc::new(endpoint.exchange());
    let ada = subject("ada", "a1");

    exchange.exchange(&ada).await.unwrap();
    exchange.forget(&ada, "an older token").await;
    assert_eq!(exchange.exchange(&ada).await.unwrap().expose(), "1-for-a1");
    exchange.forget(&ada, "1-for-a1").await;
    assert_eq!(exchange.exchange(&ada).await.unwrap().expose(), "2-for-a1");
}

#[tokio::test(start_paused = true)]
async fn the_token_is_sent_to_the_origin_of_the_server_only() {
    let endpoint = FakeEndpoint::default();
    let exchange = Arc::new(endpoint.exchange());
    let authorizer = exchange.authorizer("https://files.example/mcp", || Ok(subject("ada", "a1")));
    let authorizer = authorizer.unwrap();
    let signed = async |uri: &str| {
        let (mut head, ()) = Request::get(uri).body(()).unwrap().into_parts();
        authorizer.sign(&mut head).await.unwrap();
        let header = head.headers.remove(http::header::AUTHORIZATION);
        header.inspect(|header| assert!(header.is_sensitive()))
    };

    let own = signed("https://files.example/other").await.unwrap();

    assert_eq!(own.to_str().unwrap(), "Bearer 1-for-a1");
    assert_eq!(signed("https://evil.example/mcp").await, None);
    assert_eq!(signed("http://files.example/mcp").await, None);
    assert_eq!(signed("https://files.example:444/mcp").await, None);
    assert!(!format!("{authorizer:?}").contains("a1"));
    let identity = authorizer.identity();
    assert_eq!(identity.as_deref(), Some("https://files.example/mcp ada"));
}

#[test]
fn tokens_are_not_sent_unencrypted_unless_that_is_allowed() {
    let create = |exchange: TokenExchange, server: &str| {
        let created = Arc::new(exchange).authorizer(server, || Ok(subject("ada", "a1")));
        created.map(drop).map_err(|error| error.to_string())
    };
    let at = |endpoint: &str| TokenExchange::new(endpoint);
    let (secure, plain) = ("https://id.example/token", "http://id.internal/token");

    create(at(secure), "https://a.example/mcp").unwrap();
    create(at("http://127.0.0.1:9/token"), "http://localhost:1/mcp").unwrap();
    create(at("https://10.0.0.1/token"), "https://a.example/mcp").unwrap();
    create(at(plain).allow_plain_http(), "http://a.internal/mcp").unwrap();

    let server = create(at(secure), "http://a.internal/mcp").unwrap_err();
    assert!(server.contains("would be sent unencrypted"), "{server}");
    let endpoint = create(at(plain), "https://a.example/mcp").unwrap_err();
    assert!(endpoint.contains("is not an https:// URL"), "{endpoint}");
    let metadata = at("http://169.254.169.254/token").allow_plain_http();
    create(metadata, "https://a.example/mcp").unwrap_err();
    create(at(secure), "files").unwrap_err();
}
