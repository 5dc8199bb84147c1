//! Subscriptions of legacy clients, and a responder whose subscriptions are slow or fail.

use std::future::poll_fn;
use std::time::Duration;

use bowline::exchange::{Context, Notification, Outcome, Request};
use bowline::server::WireService;
use bowline::types::Implementation;
use bowline::wire::{Received, Wire as _};
use bowline::{ErrorCode, Json, RpcError, wire};
use bowline_core::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::support::initialize_params;

/// Long enough for everything; the clock is paused.
const HOUR: Duration = Duration::from_secs(3600);

/// A `subscriptions/listen` that the responder received.
struct Listening {
    cx: Context,
    filter: Value,
    end: oneshot::Sender<Outcome>,
}

impl Listening {
    fn notify(&self, method: &'static str, params: Value) {
        let notification = Notification::new(method, Some(Json::from(params)));
        self.cx.send(notification);
    }

    fn acknowledge(&self, filter: &Value) {
        let params = json!({"notifications": filter});
        self.notify("notifications/subscriptions/acknowledged", params);
    }

    fn acknowledge_all(&self) {
        self.acknowledge(&self.filter);
    }

    fn fail(self, code: ErrorCode) {
        let error = RpcError::new(code, "on purpose");
        let _ = self.end.send(Err(error));
    }
}

/// A legacy client at the wire.
struct Far(wire::Memory);

impl Far {
    fn send(&mut self, message: &Value) {
        let message = Message::decode(&message.to_string().into()).unwrap();
        self.0.send(&message);
    }

    fn request(&mut self, id: i64, method: &str, uri: &str) {
        let params = json!({"uri": uri});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    async fn next(&mut self) -> Value {
        let received = poll_fn(|cx| self.0.poll_receive(cx));
        match tokio::time::timeout(HOUR, received)
            .await
            .expect("a message")
        {
            Received::Frame(frame) => serde_json::from_slice(&frame).unwrap(),
            other => panic!("expected a message, got {other:?}"),
        }
    }

    /// Asserts that nothing was sent that the client has not read.
    async fn assert_silent(&mut self) {
        self.send(&json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"}));
        assert_eq!(self.next().await["id"], "ping");
    }
}

/// Connects a client that has completed the handshake, and returns the subscription to the lists.
async fn connect() -> (Far, UnboundedReceiver<Listening>, Listening) {
    let (sender, mut listening) = unbounded_channel();
    let respond = move |request: Request, cx: Context| {
        let sender = sender.clone();
        async move {
            if request.method == "server/discover" {
                let capabilities = json!({"resources": {"subscribe": true}});
                return Ok(json!({"supportedVersions": [], "capabilities": capabilities}).into());
            }
            assert_eq!(request.method, "subscriptions/listen");
            let params: Value = request.params.decode().unwrap();
            let (end, ended) = oneshot::channel();
            let filter = params["notifications"].clone();
            let _ = sender.send(Listening { cx, filter, end });
            ended.await.unwrap()
        }
    };
    let (near, far) = wire::memory();
    let service = WireService::new(respond, &Implementation::new("s", "1"));
    tokio::spawn(service.serve(far));
    let mut client = Far(near);
    let params = initialize_params();
    client.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
    client.next().await;
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let lists = listening.recv().await.unwrap();
    lists.acknowledge_all();
    (client, listening, lists)
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_subscribed_once_the_responder_has_acknowledged_it() {
    let (mut far, mut listening, _lists) = connect().await;
    far.request(1, "resources/subscribe", "a:1");
    let subscription = listening.recv().await.unwrap();
    far.request(2, "resources/subscribe", "a:1");
    far.assert_silent().await;

    subscription.acknowledge_all();
    subscription.notify("notifications/resources/updated", json!({"uri": "a:1"}));

    assert_eq!(
        far.next().await,
        json!({"jsonrpc": "2.0", "id": 1, "result": {}})
    );
    assert_eq!(
        far.next().await,
        json!({"jsonrpc": "2.0", "id": 2, "result": {}})
    );
    assert_eq!(far.next().await["params"]["uri"], "a:1");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_responder_refuses_a_subscription_which_can_be_tried_again() {
    let (mut far, mut listening, _lists) = connect().await;
    far.request(1, "resources/subscribe", "a:1");
    listening.recv().await.unwrap().fail(ErrorCode(-1));
    let refused = far.next().await;

    far.request(2, "resources/subscribe", "a:1");
    listening.recv().await.unwrap().acknowledge_all();

    assert_eq!(refused["error"]["message"], "on purpose");
    assert_eq!(far.next().await["result"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_not_acknowledged_in_time_is_refused() {
    let (mut far, mut listening, _lists) = connect().await;
    let began = Instant::now();
    far.request(1, "resources/subscribe", "a:1");
    let subscription = listening.recv().await.unwrap();

    let refused = far.next().await;

    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("in time")
    );
    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(subscription.end.is_closed(), "the handler is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_request_to_unsubscribe_refuses_a_subscription_that_waits() {
    let (mut far, mut listening, _lists) = connect().await;
    far.request(1, "resources/subscribe", "a:1");
    let subscription = listening.recv().await.unwrap();

    far.request(2, "resources/unsubscribe", "a:1");
    let mut answers = [far.next().await, far.next().await];
    answers.sort_by_key(|answer| answer["id"].as_i64());

    assert_eq!(answers[0]["error"]["message"], "the subscription has ended");
    assert_eq!(answers[1]["result"], json!({}));
    assert!(subscription.end.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_fails_is_opened_again_and_an_update_fills_the_gap() {
    let (mut far, mut listening, _lists) = connect().await;
    far.request(1, "resources/subscribe", "a:1");
    let subscription = listening.recv().await.unwrap();
    subscription.acknowledge_all();
    far.next().await;

    let mut pauses = Vec::new();
    let mut subscription = Some(subscription);
    for _ in 0..6 {
        let failed = Instant::now();
        subscription.take().unwrap().fail(ErrorCode::INTERNAL_ERROR);
        subscription = listening.recv().await;
        pauses.push(failed.elapsed());
    }
    far.assert_silent().await;
    subscription.unwrap().acknowledge_all();

    let missed = far.next().await;
    assert_eq!(missed["method"], "notifications/resources/updated");
    assert_eq!(missed["params"]["uri"], "a:1");
    assert!(pauses[0] <= Duration::from_secs(1), "{pauses:?}");
    assert!(pauses[5] >= Duration::from_secs(15), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_the_lists_that_are_acknowledged_are_reported_as_changed() {
    let (mut far, mut listening, lists) = connect().await;
    far.assert_silent().await;

    lists.fail(ErrorCode::INTERNAL_ERROR);
    let again = listening.recv().await.unwrap();
    again.acknowledge(&json!({"toolsListChanged": true, "resourcesListChanged": true}));

    let methods = [far.next().await, far.next().await].map(|it| it["method"].clone());
    let expected = ["tools", "resources"];
    assert_eq!(
        methods,
        expected.map(|list| format!("notifications/{list}/list_changed"))
    );
    far.assert_silent().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_with_a_result_or_is_not_supported_is_not_opened_again() {
    let (_far, mut listening, lists) = connect().await;
    lists.end.send(Ok(Json::empty_object())).unwrap();
    let (_other, mut unsupported, lists) = connect().await;
    lists.fail(ErrorCode::METHOD_NOT_FOUND);

    assert!(tokio::time::timeout(HOUR, listening.recv()).await.is_err());
    assert!(
        tokio::time::timeout(HOUR, unsupported.recv())
            .await
            .is_err()
    );
}
