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
use crate::limits::{Account, Limit, Limits};
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

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_asking_and_does_not_read_is_cut_off() {
    let limits = Limits {
        output_bytes: 100_000,
        ..Limits::default()
    };
    let (sender, _news) = mpsc::unbounded_channel();
    let (peer, mut far) = connect_within(limits, moody_server(sender));

    let mut asked = 0;
    let cut_off = async {
        while !peer.has_ended() {
            asked += 1;
            let line = format!("{}\n", asks(asked, "quick"));
            if far.0.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        peer.ended().await;
    };
    timeout(SOON, cut_off).await.expect("it is cut off");
    // Those that were at work are dropped at their next turn.
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
async fn a_server_that_keeps_asking_and_does_not_read_is_cut_off() {
    let limits = Limits {
        output_bytes: 100_000,
        ..Limits::default()
    };
    let host = Arc::new(Moody(mpsc::unbounded_channel().0));
    let server = Arc::new(std::sync::OnceLock::from(Arc::new(Caller::new(
        Dialect::LATEST_LEGACY,
    ))));
    let (peer, mut far) = connect_within(limits, Role::Client { server, host });

    let cut_off = async {
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
    timeout(SOON, cut_off).await.expect("it is cut off");

    let usage = peer.shared.account.usage();
    assert!(usage.refused(Limit::OutputBytes) > 0, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_in_progress_are_counted_by_their_bytes() {
    let limits = Limits {
        peer_bytes: 100_000,
        ..Limits::default()
    };
    let (sender, mut news) = mpsc::unbounded_channel();
    let (peer, mut far) = connect_within(limits, moody_server(sender));
    let long = |id: i64| {
        let mut request = request("wait");
        request.params = Json::encode(&json!({"text": "x".repeat(40_000)}))
            .unwrap()
            .into();
        Message::from(stamp(&request).with_id(id)).to_frame()
    };

    for id in 1..=3 {
        far.says(std::str::from_utf8(&long(id)).unwrap()).await;
    }
    let refused = far.hears().await;

    assert_eq!(refused["id"], 3);
    assert_eq!(refused["error"]["data"]["limit"], "peer_bytes", "{refused}");
    assert_eq!(news.recv().await, Some(Waiter::Began));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    far.says(&cancel.to_string()).await;
    while news.recv().await != Some(Waiter::Gone) {}
    far.asks(4, "quick").await;
    assert_eq!(far.hears().await["id"], 4);
    assert!(peer.shared.account.usage().request_bytes < 50_000);
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
        self.says(&asks(id, method)).await;
    }

    /// The next line. The clock is paused, so waiting in vain takes no time.
    async fn hears(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(SOON, self.0.read_line(&mut line)).await;
        read.expect("a line arrives").expect("the wire is open");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }
}

/// A request as a line.
fn asks(id: i64, method: &'static str) -> String {
    let message = Message::from(stamp(&request(method)).with_id(id)).to_frame();
    String::from_utf8(message.into()).unwrap()
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

    fn roots_changed(&self, _: &Caller) {}
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
    let (_, far) = connect(moody_server(sender));
    (News(receiver), far)
}

fn moody_server(sender: mpsc::UnboundedSender<Waiter>) -> Role {
    Role::Server {
        door: Door::new(Dialects::all(), Offers::default()),
        responder: Arc::new(Moody(sender)),
        identity: Json::empty_object(),
    }
}

fn connect(role: Role) -> (Peer, Far) {
    connect_within(Limits::default(), role)
}

fn connect_within(limits: Limits, role: Role) -> (Peer, Far) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(near);
    let account = Account::total(limits).peer();
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
