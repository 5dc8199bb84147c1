//! Responders that are not a `Server`, served over a wire by `WireService`.

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{
    BoxFuture, CallOptions, Caller, Channel as _, Context, Dialect, Dialects, InProcess,
    Notification, NotifiedContext, Outcome, Params, Request, Responder,
};
use bowline::server::WireService;
use bowline::telemetry::Telemetry;
use bowline::types::{
    CancelledNotification, CancelledNotificationParams, Implementation, NotificationMethod as _,
};
use bowline::wire::Wire as _;
use bowline::{Client, Error, Json, RequestId, wire};
use bowline_core::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::{RawClient, in_time, initialize_params};

/// A responder without types: answers the handshake with its capabilities, and reports what it receives.
struct RawResponder {
    capabilities: Value,
    events: UnboundedSender<String>,
}

/// Sends the reason of a cancel when its handler is dropped.
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
            let result = match &*request.method {
                "server/discover" => json!({"supportedVersions": ["2026-07-28"],
                    "capabilities": self.capabilities, "ttlMs": 0, "cacheScope": "private"}),
                "level" => json!({"level": cx.caller().least_log_level()}),
                "state" => {
                    let state = cx.connection_state().unwrap().get::<String>();
                    json!({"state": state.as_deref()})
                }
                "wait" => {
                    let _reason = ReportReason(cx, self.events.clone());
                    let _ = self.events.send("started".to_owned());
                    std::future::pending().await
                }
                _ => json!({"method": request.method}),
            };
            Ok(Json::from(result))
        })
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> bowline::Result<()> {
        Ok(())
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        cx.connection_state()
            .unwrap()
            .insert(notification.method.to_string());
        let version = cx.caller().dialect.version;
        let _ = self
            .events
            .send(format!("{} {version}", notification.method));
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

fn responder(capabilities: Value) -> (RawResponder, UnboundedReceiver<String>) {
    let (events, received) = unbounded_channel();
    let responder = RawResponder {
        capabilities,
        events,
    };
    (responder, received)
}

fn service(capabilities: Value) -> (WireService, UnboundedReceiver<String>) {
    let (responder, received) = responder(capabilities);
    let service = WireService::new(responder, &Implementation::new("raw", "1"));
    (service, received)
}

fn serve(service: &WireService) -> wire::Memory {
    let (near, far) = wire::memory();
    tokio::spawn(service.clone().serve(far));
    near
}

fn notify(client: &mut RawClient, method: &'static str, params: Option<Json>) {
    client
        .0
        .send(&Message::from(Notification::new(method, params)));
}

#[tokio::test(start_paused = true)]
async fn a_wire_service_serves_a_responder_with_its_identity_in_both_eras() {
    for version in ["2026-07-28", "2025-11-25", "2024-11-05"] {
        let (service, _events) = service(json!({}));
        let client = Client::from_wire(serve(&service)).protocol_version(version);
        let client = client.await.unwrap();

        let answer = client.request_raw("com.example/own", ()).await.unwrap();

        let received = format!("{answer:?} {:?}", client.server_info());
        assert!(
            received.contains("com.example/own"),
            "{version}: {received}"
        );
        // A modern client of a fixed version does not discover the server, but every result names it.
        assert!(received.contains("raw"), "{version}: {received}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wire_service_serves_only_its_versions() {
    let (service, _events) = service(json!({}));
    let service = service.versions(Dialects::only(|row| row.version == "2025-06-18"));
    let client = Client::from_wire(serve(&service)).await.unwrap();

    assert_eq!(client.dialect(), Dialect::of("2025-06-18").unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_wire_service_that_shuts_down_drops_handlers_after_the_grace_period() {
    let (service, mut events) = service(json!({}));
    let (near, far) = wire::memory();
    let serving = tokio::spawn(service.clone().serve(far));
    let client = Client::from_wire(near).protocol_version("2026-07-28");
    let client = client.await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.request_raw("wait", ()).await }
    });
    assert_eq!(events.recv().await.unwrap(), "started");

    service.shut_down(Duration::from_secs(3));
    let refused = client.request_raw("other", ()).await;
    let began = tokio::time::Instant::now();
    serving.await.unwrap().unwrap();

    assert!(matches!(refused, Err(Error::Rpc(_))), "{refused:?}");
    assert_eq!(began.elapsed().as_secs(), 3);
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(
        events.recv().await.unwrap(),
        r#"cancelled: Some("the connection has ended")"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_responder_whose_check_fails_is_not_served() {
    struct Invalid(RawResponder);

    impl Responder for Invalid {
        fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
            self.0.respond(request, cx)
        }

        fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
            self.0.required_scopes(method, params)
        }

        fn check(&self) -> bowline::Result<()> {
            Err(Error::Misuse {
                what: "invalid".into(),
            })
        }

        fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
            self.0.notified(notification, cx);
        }

        fn telemetry(&self) -> Option<&Telemetry> {
            None
        }

        fn open_calls(&self) -> usize {
            0
        }
    }
    let (responder, _events) = responder(json!({}));
    let service = WireService::new(Invalid(responder), &Implementation::new("raw", "1"));

    let served = service.serve(wire::memory().1).await;

    assert_eq!(served.unwrap_err().to_string(), "invalid");
}

#[tokio::test(start_paused = true)]
async fn the_capabilities_of_the_handshake_decide_what_a_legacy_client_may_use() {
    let everything = json!({"logging": {}, "resources": {"subscribe": true}});
    for (capabilities, is_declared) in [(everything, true), (json!({"resources": {}}), false)] {
        let (service, _events) = service(capabilities);
        let mut client = RawClient(serve(&service));
        client.request(1, "initialize", initialize_params()).await;

        let level = json!({"level": "error"});
        let set = client.request(2, "logging/setLevel", level).await;
        let subscribed = client
            .request(3, "resources/unsubscribe", json!({"uri": "a:b"}))
            .await;
        let level = client.request(4, "level", json!({})).await;

        assert_eq!(set.contains("-32601"), !is_declared, "{set}");
        assert_eq!(subscribed.contains("-32601"), !is_declared, "{subscribed}");
        let expected = if is_declared { "error" } else { "debug" };
        assert!(level.contains(expected), "{level}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_responder_is_notified_with_the_caller_and_the_state_of_its_connection() {
    let (service, mut events) = service(json!({}));
    let mut client = RawClient(serve(&service));
    client.request(1, "initialize", initialize_params()).await;
    notify(&mut client, "notifications/initialized", None);
    notify(&mut client, "notifications/roots/list_changed", None);
    notify(&mut client, "notifications/progress", None);
    notify(&mut client, "notifications/own", Some(Json::empty_object()));

    let version = initialize_params()["protocolVersion"].clone();
    let version = version.as_str().unwrap();
    let received = [events.recv().await, events.recv().await].map(Option::unwrap);
    let state = client.request(2, "state", json!({})).await;

    let expected = ["notifications/roots/list_changed", "notifications/own"];
    assert_eq!(
        received,
        expected.map(|method| format!("{method} {version}"))
    );
    assert!(state.contains("notifications/own"), "{state}");
    assert!(events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_handler_knows_the_reason_of_its_cancel_when_it_is_dropped() {
    for (reason, expected) in [
        (Some("too slow"), r#"cancelled: Some("too slow")"#),
        (None, "cancelled: None"),
    ] {
        let (service, mut events) = service(json!({}));
        let mut client = RawClient(serve(&service));
        client.request(1, "initialize", initialize_params()).await;
        let wait = json!({"jsonrpc": "2.0", "id": 2, "method": "wait"}).to_string();
        client.0.send(&Message::decode(&wait.into()).unwrap());
        assert_eq!(events.recv().await.unwrap(), "started");

        let mut params = CancelledNotificationParams::new(RequestId::from(2));
        params.reason = reason.map(str::to_owned);
        let params = Json::encode(&params).ok();
        notify(&mut client, CancelledNotification::NAME, params);

        assert_eq!(in_time(events.recv()).await.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_is_a_responder_that_ignores_notifications() {
    async fn respond(request: Request, _: Context) -> Outcome {
        Ok(Json::from(json!({"method": request.method})))
    }
    let service = WireService::new(respond, &Implementation::new("function", "1"));
    let client = Client::from_wire(serve(&service)).protocol_version("2026-07-28");
    let client = Arc::new(client.await.unwrap());

    assert!(client.request_raw("com.example/own", ()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_handler_in_process_knows_the_reason_of_its_cancel() {
    let (responder, mut events) = responder(json!({}));
    let channel = InProcess::new(Arc::new(responder));
    let caller = Arc::new(Caller::new(Dialect::LATEST));
    let request = Request::new("wait", Json::empty_object(), caller);
    let mut waiting = channel.open(request, CallOptions::default());
    tokio::select! {
        biased;
        event = waiting.next_event() => panic!("{event:?}"),
        started = events.recv() => assert_eq!(started.unwrap(), "started"),
    }

    waiting.cancel("enough");

    assert_eq!(events.recv().await.unwrap(), r#"cancelled: Some("enough")"#);
}
