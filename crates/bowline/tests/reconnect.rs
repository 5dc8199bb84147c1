//! Clients that reconnect by themselves, against scripted servers on a paused clock.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::future::{Ready, ready};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, ClientBuilder, Reconnect, UnsolicitedEvent};
use bowline::exchange::{CallOptions, Channel, Request};
use bowline::testing::{self, ScriptedPeer};
use bowline::types::LoggingLevel;
use bowline::wire::Memory;
use bowline::{Client, Error, Json, Server};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// The other end of a client's connections, one scripted server after the other.
struct Connections {
    accepted: mpsc::UnboundedReceiver<(Instant, ScriptedPeer)>,
    /// Whether connecting fails.
    refuses: Arc<AtomicBool>,
    refused: Arc<Mutex<Vec<Instant>>>,
}

impl Connections {
    fn new() -> (Self, impl FnMut() -> Ready<io::Result<Memory>> + Send) {
        let (sender, accepted) = mpsc::unbounded_channel();
        let (refuses, refused) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let connections = Self {
            accepted,
            refuses: refuses.clone(),
            refused: Arc::clone(&refused),
        };
        let connect = move || {
            if refuses.load(Ordering::SeqCst) {
                refused.lock().unwrap().push(Instant::now());
                return ready(Err(io::ErrorKind::ConnectionRefused.into()));
            }
            let (wire, peer) = testing::scripted_peer();
            // Fails if the test does not accept any more connections.
            let _ = sender.send((Instant::now(), peer));
            ready(Ok(wire))
        };
        (connections, connect)
    }

    async fn accept(&mut self) -> ScriptedPeer {
        self.accepted.recv().await.unwrap().1
    }

    /// Accepts the next connection and answers its handshake.
    async fn serve(&mut self, version: &str) -> ScriptedPeer {
        let mut server = self.accept().await;
        match version {
            MODERN => server.expect("server/discover").await.answer(discovery()),
            _ => server.accept_handshake(version, capabilities()).await,
        }
        server
    }
}

fn discovery() -> serde_json::Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": capabilities(),
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

fn capabilities() -> serde_json::Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true},
        "logging": {},
    })
}

/// A client that reconnects, its first server, and its later ones.
async fn connect(version: &str) -> (Client, ScriptedPeer, Connections) {
    connect_with(version, |connect| connect).await
}

async fn connect_with(
    version: &str,
    configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Client, ScriptedPeer, Connections) {
    let (mut connections, open) = Connections::new();
    let builder = Client::from_wire_fn(open).protocol_version(version);
    let builder = configure(builder.reconnect(Reconnect::default()));
    let first = async {
        match version {
            MODERN => connections.accept().await, // no handshake, and no probe without a child process
            _ => connections.serve(version).await,
        }
    };
    let (client, server) = tokio::join!(builder.into_future(), first);
    (client.unwrap(), server, connections)
}

/// Lets this time pass, with all that happens in it.
async fn pass(time: Duration) {
    timeout(time, std::future::pending::<()>())
        .await
        .unwrap_err();
}

fn text(text: &str) -> serde_json::Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_fail_and_later_ones_wait_for_the_new_connection() {
    for version in [MODERN, LEGACY] {
        let (client, mut server, mut connections) = connect(version).await;
        let in_flight = client.call_tool("first", ()).start();
        let _ = server.expect("tools/call").await.hold();

        drop(server);
        let error = in_flight.await.unwrap_err();
        let waiting = [(); 3].map(|()| tokio::spawn(client.call_tool("next", ()).into_future()));
        let mut server = connections.serve(version).await;

        assert!(error.is_disconnected(), "{version}: {error:?}");
        for call in waiting {
            let request = server.expect("tools/call").await;
            assert_eq!(
                request.params()["name"],
                "next",
                "{version}: a call was repeated"
            );
            request.answer(text("done"));
            assert_eq!(call.await.unwrap().unwrap().text(), "done", "{version}");
        }
        server.expect_nothing().await;
        assert!(
            connections.accepted.try_recv().is_err(),
            "one attempt for all callers"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_the_old_connection_is_not_sent_over_the_new_one() {
    let (client, mut server, mut connections) = connect(MODERN).await;
    let call = client.call_tool("slow", ()).start();
    let _ = server.expect("tools/call").await.hold();

    drop(server);
    drop(call);
    let mut server = connections.serve(MODERN).await;

    server.expect_nothing().await;
    assert!(client.peer().unwrap().is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_new_connection_within_its_timeout() {
    let (client, server, mut connections) = connect(LEGACY).await;
    connections.refuses.store(true, Ordering::SeqCst);
    drop(server);
    let started = Instant::now();

    let error = client
        .call_tool("any", ())
        .timeout(Duration::from_secs(7))
        .await;

    assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
    assert_eq!(started.elapsed().as_secs(), 7);
    connections.refuses.store(false, Ordering::SeqCst);
    connections.serve(LEGACY).await.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn delays_grow_while_the_server_is_down_and_are_short_again_after_a_stable_connection() {
    let (_client, server, mut connections) = connect(MODERN).await;
    pass(Duration::from_secs(31)).await;
    connections.refuses.store(true, Ordering::SeqCst);
    let lost = Instant::now();
    drop(server);
    pass(Duration::from_secs(90)).await;
    connections.refuses.store(false, Ordering::SeqCst);
    let server = connections.serve(MODERN).await;
    pass(Duration::from_secs(31)).await;
    let lost_again = Instant::now();
    drop(server);
    let (again, _server) = connections.accepted.recv().await.unwrap();

    let attempts = connections.refused.lock().unwrap().clone();
    let before = std::iter::once(&lost).chain(&attempts);
    let delays: Vec<_> = before
        .zip(&attempts)
        .map(|(from, to)| *to - *from)
        .collect();
    assert!((8..=14).contains(&delays.len()), "{delays:?}");
    for (number, delay) in (0..).zip(&delays) {
        let full = Duration::from_millis(200) * 2_u32.pow(number);
        let full = full.min(Duration::from_secs(30));
        let rounding = Duration::from_millis(2);
        assert!((full / 2..=full + rounding).contains(delay), "{delays:?}");
    }
    assert!(again - lost_again <= Duration::from_millis(202));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_after_each_handshake_is_not_restarted_in_a_loop() {
    for version in [MODERN, LEGACY] {
        let (_client, server, mut connections) = connect(version).await;
        drop(server);
        let mut times = Vec::new();

        for _ in 0..8 {
            times.push(Instant::now());
            drop(connections.serve(version).await);
        }

        let took = times[7] - times[0];
        let least = Duration::from_millis(200) * (1 + 2 + 4 + 8 + 16 + 32 + 64) / 2;
        assert!(took >= least, "{version}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_is_closed_and_fails_its_calls() {
    let cases = [
        (0, "connection lost"),
        (1, "connection lost, and 1 attempt failed"),
        (2, "connection lost, and 2 attempts failed"),
    ];
    for lasted in [Duration::ZERO, Duration::from_secs(31)] {
        for (max, expected) in cases {
            let limited =
                |connect: ClientBuilder| connect.reconnect(Reconnect::default().max_attempts(max));
            let (client, server, connections) = connect_with(LEGACY, limited).await;
            pass(lasted).await;
            connections.refuses.store(true, Ordering::SeqCst);
            let closed = client.closed();
            drop(server);

            let error = client.call_tool("any", ()).await.unwrap_err();

            assert!(error.is_disconnected(), "{error:?}");
            assert_eq!(closed.await.to_string(), expected);
            assert_eq!(error.to_string(), expected);
            let is_refused = format!("{error:?}").contains("connection refused");
            assert_eq!(is_refused, max > 0, "{error:?}");
            let refused = connections.refused.lock().unwrap().len();
            assert_eq!(u32::try_from(refused).unwrap(), max, "after {lasted:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_did_not_last_counts_as_a_failure() {
    let once = |connect: ClientBuilder| connect.reconnect(Reconnect::default().max_attempts(1));
    let (client, server, mut connections) = connect_with(LEGACY, once).await;
    drop(server);
    let server = connections.serve(LEGACY).await;
    pass(Duration::from_secs(31)).await;
    drop(server); // it lasted, so that there is another attempt
    let server = connections.serve(LEGACY).await;
    pass(Duration::from_secs(1)).await;

    drop(server);

    let error = client.closed().await;
    assert_eq!(error.to_string(), "connection lost, and 1 attempt failed");
    assert!(connections.accepted.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_agrees_to_another_version_ends_the_client() {
    let (client, server, mut connections) = connect(LEGACY).await;
    drop(server);
    let mut server = connections.accept().await;
    server.expect("initialize").await.answer(json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "serverInfo": {"name": "other", "version": "1"},
    }));

    let error = client.closed().await;

    assert!(
        format!("{error:?}").contains("is 2025-06-18 after a reconnect"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_the_handshake_is_left_after_the_connect_timeout() {
    let (_client, server, mut connections) = connect(MODERN).await;
    drop(server);
    let (first, mut silent) = connections.accepted.recv().await.unwrap();
    let _ = silent.expect("server/discover").await.hold();

    let (second, _server) = connections.accepted.recv().await.unwrap();

    assert!((second - first).as_secs() >= 30);
    assert!(silent.receive_to_end().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_or_closing_the_client_ends_a_pending_attempt() {
    for is_closed in [false, true] {
        let (client, server, mut connections) = connect(MODERN).await;
        connections.refuses.store(true, Ordering::SeqCst);
        drop(server);
        pass(Duration::from_secs(10)).await;
        let (attempts, started) = (connections.refused.lock().unwrap().len(), Instant::now());
        let closed = client.closed();

        match is_closed {
            true => client.close().await.unwrap(),
            false => drop(client),
        }

        let error = closed.await;
        assert!(matches!(error, Error::Closed), "{error:?}");
        assert!(started.elapsed() < Duration::from_millis(10));
        // The function that connects is dropped, and with it the sender.
        assert!(connections.accepted.recv().await.is_none());
        assert_eq!(connections.refused.lock().unwrap().len(), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_subscription_continues_and_yields_missed() {
    let (client, mut server, mut connections) = connect(MODERN).await;
    let subscribing = client.subscribe(ChangeFilter::new().tools()).into_future();
    let subscribing = tokio::spawn(subscribing);
    let _ = server.expect("subscriptions/listen").await.acknowledge();
    let mut changes = subscribing.await.unwrap().unwrap();

    for _ in 0..2 {
        drop(server);
        let next = tokio::spawn(async move { (changes.next().await, changes) });
        server = connections.serve(MODERN).await;
        let id = server.expect("subscriptions/listen").await.acknowledge();
        let (missed, again) = next.await.unwrap();
        changes = again;
        assert_eq!(missed.unwrap(), Some(Change::Missed));

        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        server.notify("notifications/tools/list_changed", json!({"_meta": meta}));
        assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_subscription_is_made_again_and_reports_what_may_have_changed() {
    let (client, mut server, mut connections) = connect(LEGACY).await;
    let filter = ChangeFilter::new().tools().resource("file:///a");
    let subscribing = tokio::spawn(client.subscribe(filter).into_future());
    server.expect("resources/subscribe").await.answer(json!({}));
    let mut changes = subscribing.await.unwrap().unwrap();

    drop(server);
    let next = tokio::spawn(async move { [changes.next().await, changes.next().await] });
    let mut server = connections.serve(LEGACY).await;
    server.expect("resources/subscribe").await.answer(json!({}));

    let resource = Change::Resource("file:///a".into());
    let next = next.await.unwrap().map(|change| change.unwrap().unwrap());
    assert_eq!(next, [Change::Tools, resource]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_in_both_eras() {
    for version in [MODERN, LEGACY] {
        let (client, mut server, mut connections) = connect(version).await;
        let mut changes = client.watch(ChangeFilter::new().tools());
        let next = tokio::spawn(async move { changes.next().await });
        if version == MODERN {
            let _ = server.expect("subscriptions/listen").await.acknowledge();
        }
        tokio::task::yield_now().await;

        drop(server);
        let mut server = connections.serve(version).await;
        if version == MODERN {
            let _ = server.expect("subscriptions/listen").await.acknowledge();
        }

        let change = next.await.unwrap().unwrap();
        let expected = if version == MODERN {
            Change::Missed
        } else {
            Change::Tools
        };
        assert_eq!(change, Some(expected), "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn cached_results_are_dropped() {
    let (client, mut server, mut connections) = connect(MODERN).await;
    let listed = json!({
        "resultType": "complete", "tools": [], "ttlMs": 3_600_000, "cacheScope": "public",
    });
    let listing = tokio::spawn(client.list_tools().into_future());
    server.expect("tools/list").await.answer(listed.clone());
    listing.await.unwrap().unwrap();
    client.list_tools().await.unwrap(); // from the cache

    drop(server);
    let mut server = connections.serve(MODERN).await;
    pass(Duration::from_secs(1)).await;
    let listing = tokio::spawn(client.list_tools().into_future());

    server.expect("tools/list").await.answer(listed);
    listing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_log_level_is_set_again() {
    let (client, mut server, mut connections) = connect(LEGACY).await;
    let setting = tokio::spawn(client.set_log_level(LoggingLevel::Info).into_future());
    server.expect("logging/setLevel").await.answer(json!({}));
    setting.await.unwrap().unwrap();

    drop(server);
    let mut server = connections.serve(LEGACY).await;

    let request = server.expect("logging/setLevel").await;
    assert_eq!(request.params()["level"], "info");
    request.answer(json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_server_during_the_handshake_is_answered_after_it() {
    let (_client, server, mut connections) = connect(LEGACY).await;
    drop(server);
    let mut server = connections.accept().await;
    let initialize = server.expect("initialize").await.hold();
    server.send_json(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
    let result = json!({
        "protocolVersion": LEGACY,
        "capabilities": capabilities(),
        "serverInfo": {"name": "scripted", "version": "1"},
    });
    server.answer(initialize, result);

    server
        .expect_notification("notifications/initialized")
        .await;

    let pong = server.next_message().await;
    assert_eq!(pong["id"], 5);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_while_connecting_is_an_error() {
    let (mut connections, open) = Connections::new();
    let builder = Client::from_wire_fn(open).protocol_version(LEGACY);
    let connecting = tokio::spawn(builder.reconnect(Reconnect::default()).into_future());

    drop(connections.accept().await);

    let error = connecting.await.unwrap().unwrap_err();
    assert!(error.is_disconnected(), "{error:?}");
    assert!(connections.accepted.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn without_reconnect_the_end_of_the_wire_closes_the_client() {
    let (wire, mut server) = testing::scripted_peer();
    let client = Client::from_wire(wire)
        .protocol_version(MODERN)
        .await
        .unwrap();
    let closed = tokio::spawn(client.closed());

    server.close().await;

    assert!(matches!(closed.await.unwrap(), Error::Closed));
    let error = client.call_tool("any", ()).await.unwrap_err();
    assert!(error.is_disconnected(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_a_client_is_closed_when_it_is_closed_or_dropped() {
    for is_closed in [false, true] {
        let client = Client::in_process(&Server::new("here", "1")).await.unwrap();
        let (clone, closed) = (client.clone(), client.closed());
        let mut closed = tokio::spawn(closed);
        let pending = timeout(Duration::from_secs(60), &mut closed).await;
        assert!(pending.is_err(), "{pending:?}");

        match is_closed {
            true => client.close().await.unwrap(),
            false => drop((client, clone)),
        }

        assert!(matches!(closed.await.unwrap(), Error::Closed));
    }
}

#[test]
fn only_a_missing_connection_is_a_disconnect() {
    let transport = Error::Transport {
        what: "connection failed".into(),
        source: None,
    };
    let timeout = Error::Timeout {
        after: Duration::ZERO,
    };

    assert!(transport.is_disconnected() && Error::Closed.is_disconnected());
    assert!(!timeout.is_disconnected() && !Error::Lagged.is_disconnected());
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_client_reports_the_loss_and_goes_on() {
    for version in [MODERN, LEGACY] {
        let (mut connections, open) = Connections::new();
        let builder = Client::from_wire_fn(open).protocol_version(version);
        let builder = builder.reconnect(Reconnect::default());
        let first = async {
            match version {
                MODERN => connections.accept().await,
                _ => connections.serve(version).await,
            }
        };
        let (connection, server) = tokio::join!(builder.connection(), first);
        let connection = connection.unwrap();
        let mut unsolicited = connection.unsolicited();

        drop(server);
        let mut server = connections.serve(version).await;

        let event = unsolicited.next().await;
        assert!(
            matches!(event, Some(UnsolicitedEvent::Reset)),
            "{version}: {event:?}"
        );
        let event = unsolicited.next().await;
        assert!(
            matches!(&event, Some(UnsolicitedEvent::Notification(it)) if it.method.ends_with("list_changed")),
            "{version}: {event:?}"
        );
        let request = Request::new("tools/call", Json::empty_object(), connection.caller());
        let call = connection.open(request, CallOptions::default());
        server.expect("tools/call").await.answer(text("done"));
        assert!(call.answer().await.is_ok(), "{version}");
        assert!(!connection.has_ended(), "{version}");
    }
}
