//! What the shell adds to the engine, seen from the other end of the wire, line by line.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Caller, Dialect, Dialects, Door, Offers, Request, stamp};
use bowline_core::mux::{CallOptions, Sizes};
use bowline_core::{Message, Outcome};
use bowline_types::Json;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Peer, Role};
use crate::exchange::{BoxFuture, Channel, Context, Responder};
use crate::limits::{Account, Limits};
use crate::wire::Lines;

#[tokio::test(start_paused = true)]
async fn dropping_a_call_that_was_sent_sends_one_cancel_in_its_place() {
    let (peer, mut far) = client();
    let call = peer.open(request("slow"), CallOptions::default());
    let sent = far.hears().await;

    drop(call);
    let _next = peer.open(request("next"), CallOptions::default());

    let cancel = far.hears().await;
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], sent["id"]);
    assert_eq!(far.hears().await["method"], "next");
    assert_eq!(peer.shared.lock().mailboxes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_that_was_not_sent_sends_nothing() {
    let (peer, mut far) = client();
    let call = peer.open(request("hasty"), CallOptions::default());

    drop(call); // the driver has had no turn in between
    let _next = peer.open(request("next"), CallOptions::default());

    assert_eq!(far.hears().await["method"], "next");
    assert_eq!(peer.sizes().pending, 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_call_gives_the_reason_and_is_said_once() {
    let (peer, mut far) = client();
    let call = peer.open(request("slow"), CallOptions::default());
    far.hears().await;

    call.cancel("the user pressed stop");
    let _next = peer.open(request("next"), CallOptions::default());

    let cancel = far.hears().await;
    assert_eq!(cancel["params"]["reason"], "the user pressed stop");
    assert_eq!(far.hears().await["method"], "next");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_the_handler_and_its_request_is_not_answered() {
    let (mut waiter, mut far) = server();
    far.asks(1, "wait").await;
    assert_eq!(waiter.next().await, Waiter::Began);

    far.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;

    assert_eq!(waiter.next().await, Waiter::Gone);
    far.asks(2, "echo").await;
    assert_eq!(far.hears().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_handler_costs_only_its_request() {
    let (_waiter, mut far) = server();

    far.asks(1, "panic at once").await;
    far.asks(2, "panic later").await;

    let (one, other) = (far.hears().await, far.hears().await);
    assert_eq!([&one["id"], &other["id"]], [1, 2]);
    assert_eq!(
        [one, other].map(|answer| answer["error"]["code"].clone()),
        [-32603, -32603]
    );
    far.asks(3, "echo").await;
    assert_eq!(far.hears().await["id"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_no_message_costs_only_itself() {
    let (_waiter, mut far) = server();
    far.asks(1, "wait").await;

    far.says("nonsense").await;

    let complaint = far.hears().await;
    assert_eq!(
        (&complaint["id"], &complaint["error"]["code"]),
        (&Value::Null, &json!(-32700))
    );
    far.asks(2, "echo").await;
    assert_eq!(far.hears().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_wire_ends_calls_and_handlers_and_leaves_nothing() {
    let (mut waiter, mut far) = server();
    far.asks(1, "wait").await;
    assert_eq!(waiter.next().await, Waiter::Began);
    let (peer, other_far) = client();
    let call = peer.open(request("slow"), CallOptions::default());

    drop((far, other_far));

    assert_eq!(waiter.next().await, Waiter::Gone);
    assert!(
        timeout(SOON, call.answer())
            .await
            .expect("the call ends")
            .is_err()
    );
    timeout(SOON, peer.ended()).await.expect("the driver ends");
    assert_eq!(peer.sizes(), Sizes::default());
    assert!(peer.shared.lock().mailboxes.is_empty());
}

/// The other end of a wire, by hand.
struct Far(BufReader<DuplexStream>);

impl Far {
    async fn says(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0
            .write_all(line.as_bytes())
            .await
            .expect("the wire is open");
    }

    async fn asks(&mut self, id: i64, method: &'static str) {
        let message = Message::from(stamp(&request(method)).with_id(id)).to_frame();
        self.says(std::str::from_utf8(&message).unwrap()).await;
    }

    /// The next line. The clock is paused, so waiting in vain takes no time.
    async fn hears(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(SOON, self.0.read_line(&mut line)).await;
        read.expect("a line arrives").expect("the wire is open");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }
}

/// What the responder tells of a handler that waits.
struct News(mpsc::UnboundedReceiver<Waiter>);

impl News {
    async fn next(&mut self) -> Waiter {
        let told = timeout(SOON, self.0.recv()).await;
        told.expect("it is told").expect("the responder lives")
    }
}

/// Answers, waits or panics, as the method says, and tells what becomes of whoever waits.
struct Moody(mpsc::UnboundedSender<Waiter>);

#[derive(Debug, PartialEq)]
enum Waiter {
    Began,
    Gone,
}

impl Responder for Moody {
    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        assert_ne!(request.method, "panic at once");
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert_ne!(request.method, "panic later");
            if request.method == "wait" {
                let _tells = TellsWhenGone::new(&self.0);
                std::future::pending::<()>().await;
            }
            Ok(Json::empty_object())
        })
    }
}

struct TellsWhenGone<'a>(&'a mpsc::UnboundedSender<Waiter>);

impl<'a> TellsWhenGone<'a> {
    fn new(teller: &'a mpsc::UnboundedSender<Waiter>) -> Self {
        let _ = teller.send(Waiter::Began); // a test that does not listen does not care
        Self(teller)
    }
}

impl Drop for TellsWhenGone<'_> {
    fn drop(&mut self) {
        let _ = self.0.send(Waiter::Gone);
    }
}

fn client() -> (Peer, Far) {
    let host = Arc::new(Moody(mpsc::unbounded_channel().0));
    let server = Arc::default();
    connect(Role::Client { server, host })
}

fn server() -> (News, Far) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (_, far) = connect(Role::Server {
        door: Door::new(Dialects::all(), Offers::default()),
        responder: Arc::new(Moody(sender)),
        identity: Json::empty_object(),
    });
    (News(receiver), far)
}

fn connect(role: Role) -> (Peer, Far) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(near);
    let account = Account::total(Limits::default()).peer();
    let (peer, driver) = Peer::new(Box::new(Lines::new(read, write)), role, account);
    tokio::spawn(driver);
    (peer, Far(BufReader::new(far)))
}

fn request(method: &'static str) -> Request {
    Request::new(
        method,
        Json::empty_object(),
        Arc::new(Caller::new(Dialect::LATEST)),
    )
}

/// Longer than anything here takes on the paused clock.
const SOON: Duration = Duration::from_secs(60);
