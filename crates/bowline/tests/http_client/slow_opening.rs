//! Opening a connection to a server that is starting, or that does not answer the probe, on a paused clock.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{ClientBuilder, ConnectTimeout, EraCache};
use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpClient, RequestBody, ResponseBody};
use bowline::{Client, Error, Result, testing};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// When a request is answered, after the server was started, and how. `None` is silence.
type Reaction = Option<(Duration, Reply)>;

#[derive(Clone)]
enum Reply {
    Result(Value),
    /// A JSON-RPC error with this status and code.
    Error(u16, i64),
    Status(u16),
}

type Script = dyn Fn(&str, usize) -> Reaction + Send + Sync;

/// A server that answers as its script says. The script gets the method, and how often it was requested before.
#[derive(Clone)]
struct SlowServer {
    started: Instant,
    script: Arc<Script>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl SlowServer {
    fn new(script: impl Fn(&str, usize) -> Reaction + Send + Sync + 'static) -> Self {
        Self {
            started: Instant::now(),
            script: Arc::new(script),
            requests: Arc::default(),
        }
    }

    fn client(&self) -> ClientBuilder {
        let connect = Client::connect("http://slow.invalid/mcp").http_client(self.clone());
        connect.era_cache(&EraCache::new())
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

impl HttpClient for SlowServer {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let message: Value = serde_json::from_slice(&body.into_bytes()).unwrap_or_default();
        let method = message["method"].as_str();
        let label = method.unwrap_or(head.method.as_str()).to_owned();
        let mut requests = self.requests.lock().unwrap();
        let before = requests.iter().filter(|it| **it == label).count();
        requests.push(label.clone());
        let started = self.started;
        let reaction = match &*label {
            _ if head.method == Method::GET => Some((Duration::ZERO, Reply::Status(405))),
            _ if head.method == Method::DELETE => Some((Duration::ZERO, Reply::Status(200))),
            "notifications/initialized" => Some((Duration::ZERO, Reply::Status(202))),
            label => (self.script)(label, before),
        };
        Box::pin(async move {
            let Some((at, reply)) = reaction else {
                return std::future::pending().await;
            };
            sleep_until(started + at).await;
            let (status, body) = match reply {
                Reply::Result(result) => (
                    200,
                    json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
                ),
                Reply::Error(status, code) => {
                    let error = json!({"code": code, "message": "refused"});
                    (
                        status,
                        json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                    )
                }
                Reply::Status(status) => (status, Value::Null),
            };
            let body = match body {
                Value::Null => String::new(),
                body => body.to_string(),
            };
            let mut response = Response::new(ResponseBody::new(Full::from(body)));
            *response.status_mut() = status.try_into().unwrap();
            let headers = response.headers_mut();
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            if label == "initialize" && status == 200 {
                headers.insert("mcp-session-id", HeaderValue::from_static("s1"));
            }
            Ok(response)
        })
    }
}

fn discovery() -> Reply {
    Reply::Result(
        json!({"resultType": "complete", "supportedVersions": [MODERN],
        "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
    )
}

fn handshake() -> Reply {
    Reply::Result(
        json!({"protocolVersion": LEGACY, "capabilities": {"tools": {}},
        "serverInfo": {"name": "slow", "version": "1"}}),
    )
}

/// A legacy server that is up after this time.
fn legacy(up_after: Duration) -> SlowServer {
    SlowServer::new(move |method, _| match method {
        "initialize" => Some((up_after, handshake())),
        _ => Some((up_after, Reply::Error(404, -32601))),
    })
}

/// A modern server that is up after this time.
fn modern(up_after: Duration) -> SlowServer {
    SlowServer::new(move |method, _| match method {
        "server/discover" => Some((up_after, discovery())),
        _ => Some((up_after, Reply::Error(404, -32601))),
    })
}

type Start = fn(Duration) -> SlowServer;

/// A server of each era, and its version.
const ERAS: [(Start, &str); 2] = [(legacy, LEGACY), (modern, MODERN)];

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_server_of_any_era_may_take_seven_seconds_for_its_first_answer() {
    for (start, version) in ERAS {
        let server = start(secs(7));
        let client = server.client().await.unwrap();

        assert_eq!(client.dialect().version, version);
        assert_eq!(server.seconds(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn the_connect_timeout_limits_the_whole_opening() {
    for (start, _) in ERAS {
        let server = start(secs(40));
        let error = server.client().await.map(drop).unwrap_err();
        assert_eq!(server.seconds(), 30, "the default");
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
        let expected = "failed to connect within 30s: the server did not answer";
        assert_eq!(error.to_string(), expected);
        let source = error.source().unwrap();
        let timeout: &ConnectTimeout = source.downcast_ref().unwrap();
        assert_eq!(timeout.after, secs(30));
        assert!(source.to_string().contains("`connect_timeout`"));
    }
    for (start, version) in ERAS {
        let server = start(secs(40));
        let client = server.client().connect_timeout(secs(60)).await.unwrap();
        assert_eq!(client.dialect().version, version);
        assert_eq!(server.seconds(), 40);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_may_be_less_than_the_time_after_which_a_handshake_is_tried() {
    let server = legacy(secs(7));

    let error = server.client().connect_timeout(secs(2)).await;

    let error = error.map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to connect within 2s: the server did not answer"
    );
    assert_eq!(server.seconds(), 2);
    assert_eq!(server.requests(), ["server/discover"]);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_that_hangs_at_unknown_methods_gets_a_handshake_and_is_remembered() {
    let server = SlowServer::new(|method, _| {
        (method == "initialize").then(|| (Duration::ZERO, handshake()))
    });
    let eras = EraCache::new();

    let client = server.client().era_cache(&eras).await.unwrap();

    assert_eq!(client.dialect().version, LEGACY);
    assert_eq!(
        server.seconds(),
        6,
        "and a second for a late answer to the probe"
    );
    let client = server.client().era_cache(&eras).await.unwrap();
    assert_eq!(client.dialect().version, LEGACY);
    assert_eq!(server.seconds(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_both_eras_that_was_starting_is_modern_whichever_answer_comes_first() {
    for (probe, initialize) in [(7_000, 7_000), (7_000, 7_100), (7_500, 7_000)] {
        let server = SlowServer::new(move |method, _| match method {
            "server/discover" => Some((Duration::from_millis(probe), discovery())),
            _ => Some((Duration::from_millis(initialize), handshake())),
        });

        let client = server.client().await.unwrap();

        assert_eq!(client.dialect().version, MODERN, "{probe} {initialize}");
        sleep(secs(1)).await;
        if initialize < probe {
            let requests = server.requests();
            assert_eq!(requests.last().unwrap(), "DELETE", "{requests:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_has_lost_the_probe_is_probed_again() {
    let server = SlowServer::new(|method, before| match (method, before) {
        ("server/discover", 0) => None,
        ("server/discover", _) => Some((Duration::ZERO, discovery())),
        _ => Some((secs(8), Reply::Error(404, -32601))),
    });

    let client = server.client().await.unwrap();

    assert_eq!(client.dialect().version, MODERN);
    assert_eq!(server.seconds(), 9);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_handshake_leaves_the_probe_its_time() {
    let server = SlowServer::new(|method, _| match method {
        "server/discover" => Some((secs(12), discovery())),
        _ => Some((secs(6), Reply::Status(502))),
    });

    let client = server.client().await.unwrap();

    assert_eq!(client.dialect().version, MODERN);
    assert_eq!(server.seconds(), 12);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_probe_leaves_the_handshake_its_time() {
    let server = SlowServer::new(|method, _| match method {
        "server/discover" => Some((secs(6), Reply::Status(504))),
        _ => Some((secs(12), handshake())),
    });

    let client = server.client().await.unwrap();

    assert_eq!(client.dialect().version, LEGACY);
    assert_eq!(server.seconds(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_handshake_and_never_answers_the_probe_is_given_up() {
    let server = SlowServer::new(|method, _| {
        (method == "initialize").then_some((Duration::ZERO, Reply::Status(403)))
    });

    let error = server.client().await.map(drop).unwrap_err();

    assert!(error.to_string().contains("within 30s"), "{error:?}");
    assert_eq!(server.seconds(), 30);
}

/// The idle timeout of 60 s would end the handshake before.
#[tokio::test(start_paused = true)]
async fn a_connect_timeout_that_is_set_is_the_limit_of_a_handshake_on_a_wire_too() {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).connect_timeout(secs(120));

    let (client, ()) = tokio::join!(connect.into_future(), async {
        sleep(secs(100)).await;
        assert_eq!(server.next_message().await["method"], "server/discover");
        server.accept_handshake(LEGACY, json!({})).await;
    });

    assert_eq!(client.unwrap().dialect().version, LEGACY);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_silent_wire_names_the_connect_timeout() {
    let (wire, _server) = testing::scripted_peer();
    let began = Instant::now();

    let error = Client::from_wire(wire).await.map(drop).unwrap_err();

    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(error.source().unwrap().is::<ConnectTimeout>(), "{error:?}");
}
