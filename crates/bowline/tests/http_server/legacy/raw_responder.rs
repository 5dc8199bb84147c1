//! A responder that is not a `Server`, and legacy clients.

use bowline::Context;
use bowline::exchange::{
    BoxFuture, Notification, NotifiedContext, Outcome, Params, Request, Responder,
};
use bowline::http::legacy::Legacy;
use bowline::http::server::AnyMethod;
use bowline::telemetry::Telemetry;
use bowline::types::Implementation;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

/// Declares its capabilities, waits for ever for other requests, and reports what it receives.
struct RawResponder(Value, UnboundedSender<String>);

struct ReportReason(Context, UnboundedSender<String>);

impl Drop for ReportReason {
    fn drop(&mut self) {
        let _ = self
            .1
            .send(format!("cancelled: {:?}", self.0.cancel_reason()));
    }
}

impl Responder for RawResponder {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if request.method == "server/discover" {
                return Ok(Json::from(
                    json!({"supportedVersions": [], "capabilities": self.0}),
                ));
            }
            if request.method == "subscriptions/listen" {
                return std::future::pending().await; // that of the session
            }
            let _reason = ReportReason(cx, self.1.clone());
            let _ = self.1.send(request.method.to_string());
            std::future::pending().await
        })
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> bowline::Result<()> {
        Ok(())
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        let (method, has_state) = (&notification.method, cx.connection_state().is_some());
        let version = cx.caller().dialect.version;
        let _ = self.1.send(format!("{method} {version} {has_state}"));
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

fn service(capabilities: Value) -> (HttpService, UnboundedReceiver<String>) {
    let (events, received) = unbounded_channel();
    let responder = RawResponder(capabilities, events);
    let service = HttpService::new(responder, AnyMethod, &Implementation::new("raw", "1"));
    (service, received)
}

fn everything() -> Value {
    json!({"logging": {}, "resources": {"subscribe": true}})
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn own_notification() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/own"})
}

#[tokio::test(start_paused = true)]
async fn the_handshake_decides_what_a_session_may_use() {
    for (capabilities, is_declared) in [(everything(), true), (json!({}), false)] {
        let (service, _events) = service(capabilities);
        let mut client = SessionClient::open(&service, "2025-11-25").await;

        for (method, params) in [
            ("logging/setLevel", json!({"level": "error"})),
            ("resources/unsubscribe", json!({"uri": "a:b"})),
        ] {
            let answer = client.send(client.post(&request(method, &params))).await;
            let is_answered = answer.json().await.get("result").is_some();

            assert_eq!(is_answered, is_declared, "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_sessions_the_responder_decides_whether_a_level_can_be_set() {
    for (capabilities, is_declared) in [(everything(), true), (json!({}), false)] {
        let (service, _events) = service(capabilities);
        let service = service.legacy(Legacy::stateless());
        let mut connection = PlainConnection::http1(&service).await;

        let set_level = request("logging/setLevel", &json!({"level": "error"}));
        let answer = connection.send(post(&set_level)).await.json().await;

        assert_eq!(answer.get("result").is_some(), is_declared, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_responder_is_notified_over_http_in_every_mode() {
    let (sessions, mut events) = service(everything());
    let mut client = SessionClient::open(&sessions, "2025-06-18").await;
    client.send(client.post(&own_notification())).await;
    assert_eq!(
        events.recv().await.unwrap(),
        "notifications/own 2025-06-18 true"
    );

    let (stateless, mut events) = service(everything());
    let stateless = stateless.legacy(Legacy::stateless());
    let mut connection = PlainConnection::http1(&stateless).await;
    let versioned =
        |version| with_header(post(&own_notification()), "mcp-protocol-version", version);
    connection.send(versioned("2025-06-18")).await;
    assert_eq!(
        events.recv().await.unwrap(),
        "notifications/own 2025-06-18 false"
    );

    connection.send(versioned("2026-07-28")).await;
    assert_eq!(
        events.recv().await.unwrap(),
        "notifications/own 2026-07-28 false"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_a_session_knows_the_reason_of_its_cancel() {
    let (service, mut events) = service(everything());
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let _response = client
        .send(client.post(&request("own/wait", &json!({}))))
        .await;
    assert_eq!(events.recv().await.unwrap(), "own/wait");

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "enough"}});
    client.send(client.post(&cancel)).await;

    assert_eq!(events.recv().await.unwrap(), r#"cancelled: Some("enough")"#);
}

#[tokio::test(start_paused = true)]
async fn a_closed_response_is_the_reason_of_a_cancel_in_the_modern_era() {
    let (service, mut events) = service(everything());
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.send(call_with_progress(1, "own", "a")).await;
    assert_eq!(events.recv().await.unwrap(), "tools/call");

    drop((response, connection));

    let expected = r#"cancelled: Some("the response stream was closed")"#;
    assert_eq!(events.recv().await.unwrap(), expected);
}
