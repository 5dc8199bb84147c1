//! Connections that are lost, and servers that restart, while a task runs.

use std::future::{Ready, ready};
use std::io;

use bowline::client::Reconnect;
use bowline::testing::{self, ScriptedPeer};
use bowline::wire::Memory;
use bowline::{Client, Error};
use bowline_tasks::TaskClient;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::fixture::{MODERN, completed, pass, secs, task, with};

/// Connections to scripted servers, which the test accepts one after the other.
fn connections() -> (
    mpsc::UnboundedReceiver<ScriptedPeer>,
    impl FnMut() -> Ready<io::Result<Memory>> + Send,
) {
    let (sender, accepted) = mpsc::unbounded_channel();
    let connect = move || {
        let (wire, peer) = testing::scripted_peer();
        match sender.send(peer) {
            Ok(()) => ready(Ok(wire)),
            Err(_) => ready(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    };
    (accepted, connect)
}

async fn connect() -> (Client, ScriptedPeer, mpsc::UnboundedReceiver<ScriptedPeer>) {
    let (mut accepted, connect) = connections();
    let client = Client::from_wire_fn(connect).protocol_version(MODERN);
    let client = client
        .reconnect(Reconnect::default())
        .extension(TaskClient::new().polling_only());
    let client = client.await.unwrap();
    let server = accepted.recv().await.unwrap();
    (client, server, accepted)
}

/// Accepts the next connection and answers its handshake.
async fn accept(accepted: &mut mpsc::UnboundedReceiver<ScriptedPeer>) -> ScriptedPeer {
    let mut server = accepted.recv().await.unwrap();
    server.expect("server/discover").await.answer(json!({
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }));
    server
}

fn complete(task: Value) -> Value {
    with(task, json!({"resultType": "complete"}))
}

async fn create(server: &mut ScriptedPeer) {
    let created = with(task("working"), json!({"resultType": "task"}));
    server.expect("tools/call").await.answer(created);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_end_the_call() {
    let (client, mut server, mut accepted) = connect().await;
    let call = tokio::spawn(client.call_tool("slow", ()));
    create(&mut server).await;

    for _ in 0..3 {
        // Once with a request in flight, which fails, and then between two requests.
        let _ = server.expect("tasks/get").await.hold();
        drop(server);
        server = accept(&mut accepted).await;
        server
            .expect("tasks/get")
            .await
            .answer(complete(task("working")));
        drop(server);
        server = accept(&mut accepted).await;
    }
    server
        .expect("tasks/get")
        .await
        .answer(complete(completed("done")));

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_longer_is_waited_for_within_the_timeout() {
    let (client, mut server, mut accepted) = connect().await;
    let call = client
        .call_tool("slow", ())
        .timeout(secs(600))
        .idle_timeout(secs(20));
    let call = tokio::spawn(call);
    create(&mut server).await;

    let _ = server.expect("tasks/get").await.hold();
    drop(server);
    pass(secs(300)).await; // new connections are not answered
    while accepted.try_recv().is_ok() {}
    let mut server = accept(&mut accepted).await;
    server
        .expect("tasks/get")
        .await
        .answer(complete(completed("done")));

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_the_idle_timeout_limits_how_long_a_server_is_away() {
    let (client, mut server, accepted) = connect().await;
    let call = tokio::spawn(client.call_tool("slow", ()).idle_timeout(secs(20)));
    create(&mut server).await;
    let _ = server.expect("tasks/get").await.hold();
    let began = tokio::time::Instant::now();

    drop((server, accepted));
    let error = call.await.unwrap().unwrap_err();

    assert!(
        matches!(error, Error::Timeout { after } if after == secs(20)),
        "{error:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_cannot_be_opened_again_ends_the_call() {
    let (wire, mut server) = testing::scripted_peer();
    let client = Client::from_wire(wire).protocol_version(MODERN);
    let client = client
        .extension(TaskClient::new().polling_only())
        .await
        .unwrap();
    let call = tokio::spawn(client.call_tool("slow", ()));
    create(&mut server).await;
    let began = tokio::time::Instant::now();

    drop(server);
    let error = call.await.unwrap().unwrap_err();

    assert!(error.is_disconnected(), "{error:?}");
    assert!(began.elapsed() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_continues_after_a_lost_connection() {
    let (mut accepted, connect) = connections();
    let client = Client::from_wire_fn(connect).protocol_version(MODERN);
    let client = client
        .reconnect(Reconnect::default())
        .extension(TaskClient::new());
    let client = client.await.unwrap();
    let mut server = accepted.recv().await.unwrap();
    let call = tokio::spawn(client.call_tool("slow", ()));
    create(&mut server).await;
    let asked = server.expect("tasks/get").await;
    asked.answer(complete(task("working")));
    let listening = server.expect("subscriptions/listen").await;
    assert_eq!(
        listening.params()["notifications"],
        json!({"taskIds": ["A7"]})
    );
    let id = listening.hold();
    server.notify(
        "notifications/subscriptions/acknowledged",
        acknowledgement(&id),
    );
    server
        .expect("tasks/get")
        .await
        .answer(complete(task("working")));

    drop(server);
    let mut server = accept(&mut accepted).await;
    let id = server.expect("subscriptions/listen").await.hold();
    server.notify(
        "notifications/subscriptions/acknowledged",
        acknowledgement(&id),
    );
    server
        .expect("tasks/get")
        .await
        .answer(complete(completed("done")));

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
}

fn acknowledgement(id: &bowline::RequestId) -> Value {
    json!({
        "notifications": {"taskIds": ["A7"]},
        "_meta": {"io.modelcontextprotocol/subscriptionId": id},
    })
}
