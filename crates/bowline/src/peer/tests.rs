//! Tests of [`Peer`] and its driver, observed line by line at the other end of the wire.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::Message;
use bowline_core::era::{Caller, Dialect, Dialects, DuplexAdmission, Request, stamp};
use bowline_core::mux::TableSizes;
use bowline_types::Json;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{LocalRole, Peer};
use crate::exchange::{CallOptions, Channel, Context, Responder};
use crate::limits::{Account, Limit, Limits};
use crate::wire::Lines;

#[tokio::test(start_paused = true)]
async fn dropping_a_call_that_was_sent_sends_one_cancel_in_its_place() {
    let (peer, mut far) = client();
    let call = peer.open(request("slow"), CallOptions::default());
    let sent = far.receive().await;

    drop(call);
    let _next = peer.open(request("next"), CallOptions::default());

    let cancel = far.receive().await;
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], sent["id"]);
    assert_eq!(far.receive().await["method"], "next");
    assert_eq!(peer.shared.state.lock().mailboxes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_that_was_not_sent_sends_nothing() {
    let (peer, mut far) = client();
    let call = peer.open(request("hasty"), CallOptions::default());

    drop(call); // the driver was not polled in between
    let _next = peer.open(request("next"), CallOptions::default());

    assert_eq!(far.receive().await["method"], "next");
    assert_eq!(peer.sizes().pending, 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_call_sends_the_reason_once() {
    let (peer, mut far) = client();
    let call = peer.open(request("slow"), CallOptions::default());
    far.receive().await;

    call.cancel("the user pressed stop");
    let _next = peer.open(request("next"), CallOptions::default());

    let cancel = far.receive().await;
    assert_eq!(cancel["params"]["reason"], "the user pressed stop");
    assert_eq!(far.receive().await["method"], "next");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_the_handler_and_its_request_is_not_answered() {
    let (mut events, mut far) = server();
    far.send_request(1, "wait").await;
    assert_eq!(events.next().await, WaitEvent::Started);

    far.send_line(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    )
    .await;

    assert_eq!(events.next().await, WaitEvent::Dropped);
    far.send_request(2, "echo").await;
    assert_eq!(far.receive().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_fails_only_its_request() {
    let (_events, mut far) = server();

    far.send_request(1, "panic at once").await;
    far.send_request(2, "panic later").await;

    let (one, other) = (far.receive().await, far.receive().await);
    assert_eq!([&one["id"], &other["id"]], [1, 2]);
    assert_eq!(
        [one, other].map(|answer| answer["error"]["code"].clone()),
        [-32603, -32603]
    );
    far.send_request(3, "echo").await;
    assert_eq!(far.receive().await["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_frame_does_not_affect_other_requests() {
    let (_events, mut far) = server();
    far.send_request(1, "wait").await;

    far.send_line("nonsense").await;

    let error = far.receive().await;
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&Value::Null, &json!(-32700))
    );
    far.send_request(2, "echo").await;
    assert_eq!(far.receive().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_wire_ends_calls_and_handlers_and_leaves_nothing() {
    let (mut events, mut far) = server();
    far.send_request(1, "wait").await;
    assert_eq!(events.next().await, WaitEvent::Started);
    let (peer, other_far) = client();
    let call = peer.open(request("slow"), CallOptions::default());

    drop((far, other_far));

    assert_eq!(events.next().await, WaitEvent::Dropped);
    assert!(
        timeout(SOON, call.answer())
            .await
            .expect("the call ends")
            .is_err()
    );
    timeout(SOON, peer.ended()).await.expect("the driver ends");
    assert_eq!(peer.sizes(), TableSizes::default());
    assert!(peer.shared.state.lock().mailboxes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_requests_but_does_not_read_is_disconnected() {
    let limits = Limits {
        output_bytes: 100_000,
        ..Limits::default()
    };
    let (sender, _events) = mpsc::unbounded_channel();
    let (peer, mut far) = connect_within(limits, test_server(sender));

    let mut sent = 0;
    let disconnect = async {
        while !peer.has_ended() {
            sent += 1;
            let line = format!("{}\n", request_line(sent, "quick"));
            if far.0.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        peer.ended().await;
    };
    timeout(SOON, disconnect).await.expect("the wire is closed");
    // Running handlers are dropped when the runtime polls their tasks.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }

    let usage = peer.shared.account.usage();
    assert!(usage.refused(Limit::OutputBytes) > 0, "{usage:?}");
    assert_eq!(
        (usage.requests, usage.bytes()),
        (0, 0),
        "nothing is held any more"
    );
    assert!(peer.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_requests_but_does_not_read_is_disconnected() {
    let limits = Limits {
        output_bytes: 100_000,
        ..Limits::default()
    };
    let host = test_responder(mpsc::unbounded_channel().0);
    let server = Arc::new(std::sync::OnceLock::from(Arc::new(Caller::new(
        Dialect::LATEST_LEGACY,
    ))));
    let (peer, mut far) = connect_within(limits, LocalRole::Client { server, host });

    let disconnect = async {
        for id in 1.. {
            let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            if peer.has_ended()
                || far
                    .0
                    .write_all(format!("{ping}\n").as_bytes())
                    .await
                    .is_err()
            {
                break;
            }
        }
        peer.ended().await;
    };
    timeout(SOON, disconnect).await.expect("the wire is closed");

    let usage = peer.shared.account.usage();
    assert!(usage.refused(Limit::OutputBytes) > 0, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_in_progress_are_counted_by_their_bytes() {
    let limits = Limits {
        peer_bytes: 100_000,
        ..Limits::default()
    };
    let (sender, mut events) = mpsc::unbounded_channel();
    let (peer, mut far) = connect_within(limits, test_server(sender));
    let long = |id: i64| {
        let mut request = request("wait");
        request.params = Json::encode(&json!({"text": "x".repeat(40_000)}))
            .unwrap()
            .into();
        Message::from(stamp(&request).with_id(id)).to_frame()
    };

    for id in 1..=3 {
        far.send_line(std::str::from_utf8(&long(id)).unwrap()).await;
    }
    let refused = far.receive().await;

    assert_eq!(refused["id"], 3);
    assert_eq!(refused["error"]["data"]["limit"], "peer_bytes", "{refused}");
    assert_eq!(events.recv().await, Some(WaitEvent::Started));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    far.send_line(&cancel.to_string()).await;
    while events.recv().await != Some(WaitEvent::Dropped) {}
    far.send_request(4, "quick").await;
    assert_eq!(far.receive().await["id"], 4);
    assert!(peer.shared.account.usage().request_bytes < 50_000);
}

/// The other end of a wire, as lines.
pub(super) struct RemoteEnd(BufReader<DuplexStream>);

impl RemoteEnd {
    pub(super) async fn send_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0
            .write_all(line.as_bytes())
            .await
            .expect("the wire is open");
    }

    async fn send_request(&mut self, id: i64, method: &'static str) {
        self.send_line(&request_line(id, method)).await;
    }

    /// Returns the next line. The clock is paused, so a timeout takes no real time.
    pub(super) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(SOON, self.0.read_line(&mut line)).await;
        read.expect("a line arrives").expect("the wire is open");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }
}

/// Encodes a request as a line.
fn request_line(id: i64, method: &'static str) -> String {
    let message = Message::from(stamp(&request(method)).with_id(id)).to_frame();
    String::from_utf8(message.into()).unwrap()
}

/// The events of handlers that wait.
struct WaitEvents(mpsc::UnboundedReceiver<WaitEvent>);

impl WaitEvents {
    async fn next(&mut self) -> WaitEvent {
        let event = timeout(SOON, self.0.recv()).await;
        event
            .expect("an event arrives")
            .expect("the responder is alive")
    }
}

#[derive(Debug, PartialEq)]
enum WaitEvent {
    Started,
    Dropped,
}

/// Answers, waits or panics, depending on the method, and reports when a waiting handler begins and is dropped.
fn test_responder(sender: mpsc::UnboundedSender<WaitEvent>) -> Arc<dyn Responder> {
    Arc::new(move |request: Request, _: Context| {
        assert_ne!(request.method, "panic at once");
        let sender = sender.clone();
        async move {
            tokio::task::yield_now().await;
            assert_ne!(request.method, "panic later");
            if request.method == "wait" {
                let _reporter = DropReporter::new(&sender);
                std::future::pending::<()>().await;
            }
            Ok(Json::empty_object())
        }
    })
}

struct DropReporter<'a>(&'a mpsc::UnboundedSender<WaitEvent>);

impl<'a> DropReporter<'a> {
    fn new(sender: &'a mpsc::UnboundedSender<WaitEvent>) -> Self {
        let _ = sender.send(WaitEvent::Started); // fails if the test dropped the receiver
        Self(sender)
    }
}

impl Drop for DropReporter<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(WaitEvent::Dropped);
    }
}

pub(super) fn client() -> (Peer, RemoteEnd) {
    let host = test_responder(mpsc::unbounded_channel().0);
    let server = Arc::default();
    connect(LocalRole::Client { server, host })
}

fn server() -> (WaitEvents, RemoteEnd) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (_, far) = connect(test_server(sender));
    (WaitEvents(receiver), far)
}

fn test_server(sender: mpsc::UnboundedSender<WaitEvent>) -> LocalRole {
    LocalRole::Server {
        admission: DuplexAdmission::new(Dialects::all()),
        responder: test_responder(sender),
        identity: Json::empty_object(),
        list_watch: super::ListWatch::default(),
        shutdown: crate::shutdown::Shutdown::default(),
    }
}

fn connect(role: LocalRole) -> (Peer, RemoteEnd) {
    connect_within(Limits::default(), role)
}

fn connect_within(limits: Limits, role: LocalRole) -> (Peer, RemoteEnd) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(near);
    let account = Account::total(limits).peer();
    let (peer, driver) = Peer::new(Box::new(Lines::new(read, write)), role, account);
    tokio::spawn(driver);
    (peer, RemoteEnd(BufReader::new(far)))
}

pub(super) fn request(method: &'static str) -> Request {
    Request::new(
        method,
        Json::empty_object(),
        Arc::new(Caller::new(Dialect::LATEST)),
    )
}

/// Longer than any step of these tests takes on the paused clock.
const SOON: Duration = Duration::from_secs(60);
