//! The drain of a server over HTTP: readiness ends, new requests are taken for a while and then refused, and what
//! continues running work is taken to the end.

use std::net::SocketAddr;
use std::time::Duration;

use bowline::server::DrainPhase;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A fixture whose drain goes on only when a test says so.
async fn bound(fixture: &ServerFixture) -> (SocketAddr, JoinHandle<bowline::Result<()>>) {
    let service = fixture.server.http().drain_delay(Duration::MAX);
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    let addr = bound.local_addr();
    (addr, tokio::spawn(bound.serve()))
}

/// A client that opens a connection for each request, and keeps them open.
struct Caller {
    addr: SocketAddr,
    connections: Vec<PlainConnection>,
}

impl Caller {
    fn new(addr: SocketAddr) -> Self {
        let connections = Vec::new();
        Self { addr, connections }
    }

    async fn connect(&self) -> PlainConnection {
        let stream = TcpStream::connect(self.addr).await;
        PlainConnection::over_io(stream.expect("an open listener"), Vec::new()).await
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> PlainResponse {
        let mut connection = self.connect().await;
        let response = connection.send(request).await;
        self.connections.push(connection);
        response
    }

    async fn probe(&mut self, path: &str) -> StatusCode {
        let request = Request::get(path).header("host", "localhost");
        let response = self.send(request.body(Full::default()).unwrap()).await;
        response.status()
    }
}

#[tokio::test]
async fn new_requests_are_taken_during_the_delay_and_then_refused() {
    let mut fixture = ServerFixture::new();
    let (addr, serving) = bound(&fixture).await;
    let mut caller = Caller::new(addr);
    let mut connection = caller.connect().await;
    let running = connection.start_call(&mut fixture, 1, "a").await;
    assert_eq!(running.header("connection"), None);
    assert_eq!(caller.probe("/readyz").await, 200);

    fixture.server.drain();

    assert_eq!(fixture.server.drain_report().phase, DrainPhase::Draining);
    assert_eq!(caller.probe("/readyz").await, 503);
    assert_eq!(caller.probe("/livez").await, 200);
    let taken = caller.send(call(2, "echo", "b")).await;
    assert_eq!(taken.status(), 200);
    assert_eq!(taken.header("connection"), Some("close"));

    fixture.server.shut_down(MINUTE);

    let refused = caller.send(call(3, "echo", "c")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("connection"), Some("close"));
    assert_eq!(
        refused.json().await,
        json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "shutting down",
            "data": {"retryable": true, "retryAfter": 1}}})
    );
    assert_eq!(caller.probe("/readyz").await, 503);
    assert_eq!(caller.probe("/livez").await, 200);
    assert!(!serving.is_finished());

    fixture.release.notify_one();
    assert_eq!(running.messages().await.last().unwrap()["id"], 1);
    serving.await.unwrap().unwrap();
    let report = fixture.server.drain_report();
    assert_eq!((report.refused, report.cancelled), (1, 0));
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_continues_work_is_never_refused() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http1(&service).await;
    let _running = connection.start_call(&mut fixture, 1, "a").await;
    fixture.server.shut_down(MINUTE);

    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    let cancel = with_header(post(&cancelled), "mcp-protocol-version", "2026-07-28");
    let cancel = with_header(cancel, "mcp-method", "notifications/cancelled");
    let task = modern_request(2, "tasks/get", json!({"taskId": "1"}));
    let retry = json!({"name": "echo", "arguments": {}, "requestState": "sealed"});
    let retry = modern_request(3, "tools/call", retry);
    let new = call(4, "echo", "b");

    let mut statuses = Vec::new();
    for request in [cancel, task, retry, new] {
        let mut connection = PlainConnection::http1(&service).await;
        statuses.push(connection.send(request).await.status().as_u16());
    }

    // The server has no tasks, and says so; `echo` does not look at the state.
    assert_eq!(statuses, [202, 404, 200, 503]);
    assert_eq!(fixture.server.drain_report().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_do_not_finish_within_the_grace_period_are_counted() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connections = Vec::new();
    let mut running = Vec::new();
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let mut connection = PlainConnection::http1(&service).await;
        running.push(connection.start_call(&mut fixture, id, name).await);
        connections.push(connection);
    }

    fixture.server.shut_down(MINUTE);
    fixture.release.notify_one();
    let report = service.drained().await;

    assert_eq!((report.phase, report.cancelled), (DrainPhase::Closed, 2));
    let mut outcomes = Vec::new();
    for response in running {
        let last = response.messages().await.pop().unwrap();
        outcomes.push(last["error"]["message"].as_str().map(str::to_owned));
    }
    let ended = Some("shutting down".to_owned());
    assert_eq!(outcomes, [None, ended.clone(), ended]);
}

#[tokio::test]
async fn an_http2_connection_ends_when_the_drain_begins_and_a_new_one_is_served() {
    use http_body_util::BodyExt as _;
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let mut fixture = ServerFixture::new();
    let (addr, serving) = bound(&fixture).await;
    let open = async || {
        let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        (sender, tokio::spawn(connection))
    };
    let http2 = |mut request: Request<Full<Bytes>>| {
        *request.uri_mut() = format!("http://{addr}/mcp").parse().unwrap();
        request.headers_mut().remove("host");
        request
    };
    let (mut old, old_ends) = open().await;
    let request = http2(call_with_progress(1, "progress", "a"));
    let running = old.send_request(request).await.unwrap();
    fixture.handler_started("a").await;

    fixture.server.drain();
    let (mut new, new_ends) = open().await;
    let taken = new.send_request(http2(call(2, "echo", "b"))).await.unwrap();
    assert_eq!(taken.status(), 200);
    assert_eq!(taken.headers().get("connection"), None);
    drop(taken);

    fixture.release.notify_one();
    let answer = running.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&answer).contains("released"));
    old_ends.await.unwrap().unwrap(); // by GOAWAY, although the client keeps it
    assert!(old.is_closed());
    assert!(!new_ends.is_finished());

    fixture.server.shut_down(MINUTE);
    new_ends.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drained_service_without_requests_needs_no_grace_period() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let begun = tokio::time::Instant::now();

    service.drain();
    let report = service.drained().await;

    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(report.phase, DrainPhase::Refusing);
}

#[tokio::test]
async fn a_request_that_is_on_its_way_when_the_drain_begins_is_refused_and_not_lost() {
    let fixture = ServerFixture::new();
    let (addr, serving) = bound(&fixture).await;
    let mut connection = Caller::new(addr).connect().await;
    assert_eq!(connection.send(call(1, "echo", "a")).await.status(), 200);

    // One thread: the server sees the end before it can read the request.
    fixture.server.shut_down(MINUTE);
    let refused = connection.send(call(2, "echo", "b")).await;

    assert_eq!(refused.status(), 503);
    serving.await.unwrap().unwrap();
    assert_eq!(fixture.server.drain_report().refused, 1);
}
