//! Clients that open too much, and go without a word.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use std::time::Duration;

use bowline::ErrorCode;
use bowline::exchange::{
    Caller, Channel, ConnectionState, Dialect, Notification, NotificationSink, Outcome, Principal,
    Request, Responder as _,
};
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::{PipeConnector, ResourceCounts, ScriptedPeer, eventually, scripted_peer};
use bowline::types::SubscriptionFilter;
use bowline::wire::{self, Message, Received, Wire};
use bowline_bridge::{Bridge, Target};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::scripted::{LEGACY, MODERN, bridge, builder, over_http, text, user};

#[tokio::test(start_paused = true)]
async fn a_legacy_client_that_ends_its_session_ends_its_connection_to_the_server() {
    let (bridge, mut upstreams) = bridge();
    let service = bridge.http();
    let connect = tokio::spawn(async move { over_http(&service, LEGACY).await });
    let mut upstream = upstreams.accept().await;
    let client = connect.await.unwrap().unwrap();
    let call = tokio::spawn(client.call_tool("wait", ()).start());
    let id = upstream.expect("tools/call").await.hold();

    client.close().await.unwrap();

    let rest = upstream.receive_to_end().await;
    assert!(rest.len() <= 1, "{rest:?}");
    assert!(
        rest.iter().all(|it| it["params"]["requestId"] == json!(id)),
        "{rest:?}"
    );
    assert!(call.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_that_drops_its_wire_leaves_nothing_behind() {
    let (bridge, mut upstreams) = bridge();
    // The task that closes idle connections starts with the first request.
    let before = ResourceCounts::now();
    let (near, far) = wire::memory();
    let served = tokio::spawn(bridge.wire().serve(far));
    let connect =
        tokio::spawn(async move { Client::from_wire(near).protocol_version(LEGACY).await });
    let mut upstream = upstreams.accept().await;
    let client = connect.await.unwrap().unwrap();
    let call = tokio::spawn(client.call_tool("wait", ()).start());
    let _ = upstream.expect("tools/call").await.hold();

    drop(client);
    call.abort();

    upstream.receive_to_end().await;
    served.await.unwrap().unwrap();
    drop(bridge);
    let is_clean = eventually(|| ResourceCounts::now().tasks == before.tasks).await;
    assert!(is_clean, "{:?}", ResourceCounts::now().since(before));
}

#[tokio::test(start_paused = true)]
async fn connections_of_legacy_clients_count_against_the_limit_and_are_free_again_afterwards() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.max_connections(2).build();
    let connect = || Client::in_process(&bridge).protocol_version(LEGACY);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let connect = tokio::spawn(connect().into_future());
        let upstream = upstreams.accept().await;
        clients.push((connect.await.unwrap().unwrap(), upstream));
    }

    let refused = connect().await.unwrap_err().to_string();
    let (client, mut upstream) = clients.pop().unwrap();
    drop(client);
    upstream.receive_to_end().await;
    let third = tokio::spawn(connect().into_future());
    let _third = upstreams.accept().await;

    assert!(refused.contains("the limit of 2 connections"), "{refused}");
    third.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_principal_whose_clients_declare_ever_other_capabilities_leaves_connections_for_others() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.max_principal_connections(2).build();
    let call = |name: &'static str, capability: &'static str| {
        let bridge = bridge.clone();
        tokio::spawn(async move { call_as(&bridge, name, capability).await })
    };
    let first = call("ada", "first");
    let mut first_upstream = upstreams.accept().await;
    let first_id = first_upstream.expect("tools/call").await.hold();
    let _second = call("ada", "second");
    let mut second_upstream = upstreams.accept().await;
    let _ = second_upstream.expect("tools/call").await.hold();

    let refused = call("ada", "third").await.unwrap().unwrap_err();
    let _other = call("bob", "third");
    let mut of_bob = upstreams.accept().await;
    let _ = of_bob.expect("tools/call").await.hold();
    first_upstream.answer(first_id, text("done"));
    first.await.unwrap().unwrap();
    let _fourth = call("ada", "fourth");
    let mut fourth_upstream = upstreams.accept().await;
    let _ = fourth_upstream.expect("tools/call").await.hold();

    let what = "the limit of 2 connections of one principal is reached by `ada`";
    assert!(refused.message.contains(what), "{refused:?}");
    assert!(first_upstream.receive_to_end().await.is_empty());
    assert_eq!(bridge.usage().connections, 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_declares_too_much_gets_no_connection_that_would_keep_it() {
    let (bridge, upstreams) = bridge();

    let refused = call_as(&bridge, "ada", &"x".repeat(64 * 1024)).await;

    let refused = refused.unwrap_err();
    assert_eq!(refused.code, ErrorCode::INVALID_PARAMS);
    let what = "exceeds the limit of 65536 bytes";
    assert!(refused.message.contains(what), "{refused:?}");
    assert!(upstreams.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_not_read_from_does_not_delay_the_connection_of_others() {
    let (bridge, mut upstreams) = bridge();
    let mut stalled = Box::pin(call_as(&bridge, "ada", "same"));
    // Polled until it connects, and never again.
    let polled = tokio::time::timeout(Duration::ZERO, &mut stalled).await;
    assert!(polled.is_err());

    let other = bridge.clone();
    let other = tokio::spawn(async move { call_as(&other, "ada", "same").await });
    let mut upstream = upstreams.accept().await;
    upstream.expect("tools/call").await.answer(text("done"));

    other.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_counts_until_it_is_closed() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let (peers, mut upstreams) = mpsc::unbounded_channel();
    let target = Target::new("slow to close", move |_| {
        let (wire, peer) = scripted_peer();
        let _ = (sender.send("opened"), peers.send(peer));
        let closed = sender.clone();
        let wire = SlowToClose { wire, closed };
        Ok(Client::from_wire(wire).protocol_version(LEGACY))
    });
    let bridge = Bridge::builder(target).max_connections(1).build();
    let mut kept = Vec::new();

    for capability in ["first", "second"] {
        let bridge = bridge.clone();
        let call = tokio::spawn(async move { call_as(&bridge, "ada", capability).await });
        let mut upstream: ScriptedPeer = upstreams.recv().await.unwrap();
        upstream
            .accept_handshake(LEGACY, json!({"tools": {}}))
            .await;
        upstream.expect("tools/call").await.answer(text("done"));
        call.await.unwrap().unwrap();
        kept.push(upstream);
    }

    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        seen.push(event);
    }
    assert_eq!(seen, ["opened", "closed", "opened"]);
}

/// A wire to a server that does not end when it is told to.
struct SlowToClose<W> {
    wire: W,
    closed: mpsc::UnboundedSender<&'static str>,
}

impl<W> Drop for SlowToClose<W> {
    fn drop(&mut self) {
        // Fails if the test has ended.
        let _ = self.closed.send("closed");
    }
}

impl<W: Wire> Wire for SlowToClose<W> {
    fn poll_receive(&mut self, cx: &mut task::Context<'_>) -> Poll<Received> {
        self.wire.poll_receive(cx)
    }

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn a_limit_beyond_every_machine_is_accepted() {
    let (builder, _upstreams) = builder();

    let bridge = builder.max_connections(usize::MAX).build();

    assert_eq!(bridge.usage().connections, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_no_client_asks_for_keeps_its_connection_for_its_time_to_live() {
    let (bridge, mut upstreams) = bridge();
    let mut caller = Caller::new(Dialect::of(MODERN).unwrap());
    let extensions = caller.capabilities.extensions.get_or_insert_default();
    extensions.insert(
        "io.modelcontextprotocol/tasks".to_owned(),
        Default::default(),
    );
    let called = bridge.clone();
    let call = tokio::spawn(async move { call_with(&called, "ada", caller).await });
    let mut upstream = upstreams.next().await;
    let tasks = json!({"requests": {"tools": {"call": {}}}});
    let offered = json!({"tools": {}, "tasks": tasks});
    upstream.accept_handshake(LEGACY, offered).await;
    let execution = json!({"taskSupport": "required"});
    let tool = json!({"name": "wait", "inputSchema": {"type": "object"}, "execution": execution});
    let listed = json!({"tools": [tool]});
    upstream.expect("tools/list").await.answer(listed);
    let times = json!("2026-01-01T00:00:00Z");
    let task = json!({
        "taskId": "7", "status": "working", "ttl": 120_000, "createdAt": times, "lastUpdatedAt": times,
    });
    upstream
        .expect("tools/call")
        .await
        .answer(json!({"task": task}));
    let created = call.await.unwrap().unwrap();
    assert!(
        created.as_str().contains(r#""resultType":"task""#),
        "{created:?}"
    );

    pass_time(Duration::from_secs(60)).await;
    assert_eq!(bridge.usage().requests, 1);
    pass_time(Duration::from_secs(180)).await;

    assert_eq!(bridge.usage().requests, 0);
}

/// Lets time pass, and the tasks that were waiting for it run.
async fn pass_time(time: Duration) {
    let step = Duration::from_secs(10);
    for _ in 0..time.as_secs() / step.as_secs() {
        tokio::time::advance(step).await;
        tokio::task::yield_now().await;
    }
}

/// Makes a call as a modern client without a connection that declares an experimental capability.
async fn call_as(bridge: &Bridge, name: &str, capability: &str) -> Outcome {
    let mut caller = Caller::new(Dialect::of(MODERN).unwrap());
    let experimental = caller.capabilities.experimental.get_or_insert_default();
    experimental.insert(capability.to_owned(), Default::default());
    call_with(bridge, name, caller).await
}

/// Makes a call as a modern client without a connection.
async fn call_with(bridge: &Bridge, name: &str, caller: Caller) -> Outcome {
    let params = json!({"name": "wait", "arguments": {}});
    let request = Request::new("tools/call", bowline::Json::from(params), Arc::new(caller));
    let cx = Context::new(1.into(), &request, Arc::new(NoConnection));
    let cx = cx.with_principal(Principal::named(name));
    bridge.respond(request, cx).await
}

/// A request over HTTP, each of which may be of another client.
struct NoConnection;

impl NotificationSink for NoConnection {
    fn notify(&self, _: Notification) {}

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn legacy_clients_that_vanish_without_a_word_make_room_for_others() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.max_connections(4).build();
    let service = bridge.http();
    let mut vanished = Vec::new();

    for _ in 0..20 {
        let connect = tokio::spawn(over_http(&service, LEGACY).into_future());
        let upstream = upstreams.accept().await;
        // Kept: a client that is dropped would end its session.
        vanished.push((connect.await.unwrap().unwrap(), upstream));
    }

    assert!(bridge.usage().connections <= 4, "{:?}", bridge.usage());
}

#[tokio::test(start_paused = true)]
async fn the_call_of_a_legacy_client_whose_stream_is_cut_ends_after_the_orphan_timeout() {
    let (bridge, mut upstreams) = bridge();
    let orphan_timeout = Duration::from_secs(20);
    let legacy = Legacy::sessions().orphan_timeout(orphan_timeout);
    let service = bridge.http().legacy(legacy);
    let (connections, is_cut) = (
        Arc::new(Mutex::new(JoinSet::new())),
        watch::Sender::new(false),
    );
    let (accepted, cut) = (connections.clone(), is_cut.subscribe());
    let connector = PipeConnector::with(move |far| {
        let service = service.clone();
        // A client that is cut off cannot come back either.
        if !*cut.borrow() {
            let serve = async move { service.serve_connection(far).await };
            accepted.lock().unwrap().spawn(serve);
        }
    });
    let http = HyperClient::with_connector(connector);
    let connect = Client::connect("http://localhost/mcp").http_client(http);
    let connect = tokio::spawn(connect.protocol_version(LEGACY).into_future());
    let mut upstream = upstreams.accept().await;
    let client = connect.await.unwrap().unwrap();
    let _call = tokio::spawn(client.call_tool("wait", ()).start());
    let id = upstream.expect("tools/call").await.hold();

    is_cut.send_replace(true);
    *connections.lock().unwrap() = JoinSet::new();
    let cut_at = Instant::now();
    upstream.expect_cancel(&id).await;

    let waited = cut_at.elapsed();
    let limits = orphan_timeout..2 * orphan_timeout;
    assert!(limits.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_uses_the_connection_of_the_calls_that_follow_and_precede_it() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(user("Ada"));
    let client = client.await.unwrap();
    let first = tokio::spawn(client.call_tool("wait", ()).start());
    let mut upstream = upstreams.accept().await;
    let waiting = upstream.expect("tools/call").await.hold();

    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    let mut subscription = client.subscribe(filter).await.unwrap();
    upstream.answer(waiting, text("first"));
    first.await.unwrap().unwrap();
    let second = tokio::spawn(client.call_tool("add tool", ()).start());
    upstream.expect("tools/call").await.answer(text("second"));
    upstream.notify("notifications/tools/list_changed", json!({}));

    second.await.unwrap().unwrap();
    subscription.next().await.unwrap();
    assert!(
        upstreams.is_empty(),
        "the bridge opened a second connection"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_when_it_was_idle_and_not_while_a_subscription_uses_it() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.idle_timeout(Duration::from_secs(20)).build();
    let client = over_http(&bridge.http(), MODERN).host(user("Ada"));
    let client = client.await.unwrap();
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    let subscribing = client.subscribe(filter);
    let subscribing = tokio::spawn(subscribing.into_future());
    let mut upstream = upstreams.accept().await;
    let subscription = subscribing.await.unwrap().unwrap();

    tokio::time::advance(Duration::from_secs(600)).await;
    upstream.expect_nothing().await;
    drop(subscription);

    assert!(upstream.receive_to_end().await.is_empty());
}
