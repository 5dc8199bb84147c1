//! The hooks for the start and the end of subscriptions to resources.

use std::time::Duration;

use bowline::client::{Change, ChangeFilter};
use bowline::testing;
use bowline::{Client, Context, Resource, ResourceTemplate, Server};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{ClientTransport, RawClient, in_time, initialize_params, serve};

/// The state that hooks send their events to.
#[derive(Clone)]
struct Events(mpsc::UnboundedSender<String>);

fn send(sign: &str, uri: &str, cx: &Context) {
    let events = cx.state::<Events>().unwrap();
    // The server is available in both hooks.
    assert!(cx.server().tools().names().is_empty());
    events.0.send(format!("{sign}{uri}")).unwrap();
}

/// A server whose hooks send `+` and `-` with the URI.
fn server() -> (Server, mpsc::UnboundedReceiver<String>) {
    let (sender, events) = mpsc::unbounded_channel();
    let server = Server::new("s", "1")
        .resource(Resource::text("a:1", "1", "text"))
        .on_subscribe(|uri, cx| send("+", uri, cx))
        .on_unsubscribe(|uri, cx| send("-", uri, cx))
        .state(Events(sender));
    (server, events)
}

async fn next(events: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        received.push(in_time(events.recv()).await.unwrap());
    }
    received.sort();
    received
}

/// Drops the server and asserts that no event is left.
async fn assert_no_more(server: Server, mut events: mpsc::UnboundedReceiver<String>) {
    drop(server);
    assert_eq!(in_time(events.recv()).await, None);
}

#[tokio::test]
async fn a_subscription_that_the_client_ends_is_reported_once() {
    for case in testing::matrix() {
        let (server, mut events) = server();
        let client = case.serve(&server).connect.await.unwrap();
        let filter = || ChangeFilter::new().resource("a:1").resource("a:2");

        let mut subscription = client.subscribe(filter()).await.unwrap();
        assert_eq!(next(&mut events, 2).await, ["+a:1", "+a:2"], "{case}");
        server.changed().resource_updated("a:2");
        let change = in_time(subscription.next()).await.unwrap();
        assert_eq!(change, Some(Change::Resource("a:2".to_owned())), "{case}");
        drop(subscription);
        assert_eq!(next(&mut events, 2).await, ["-a:1", "-a:2"], "{case}");

        let again = client.subscribe(filter()).await.unwrap();
        assert_eq!(next(&mut events, 2).await, ["+a:1", "+a:2"], "{case}");
        drop(again);
        assert_eq!(next(&mut events, 2).await, ["-a:1", "-a:2"], "{case}");
        client.close().await.unwrap();
        assert_no_more(server, events).await;
    }
}

#[tokio::test]
async fn a_subscription_that_a_shutdown_ends_is_reported_once() {
    for case in testing::matrix() {
        let (server, mut events) = server();
        let client = case.serve(&server).connect.await.unwrap();
        let filter = ChangeFilter::new().resource("a:1");
        let mut subscription = client.subscribe(filter).await.unwrap();
        assert_eq!(next(&mut events, 1).await, ["+a:1"], "{case}");

        server.shut_down(Duration::ZERO);
        // In process, the subscription makes progress only while it is polled.
        let polled = async {
            while let Ok(Some(_)) = subscription.next().await {}
            std::future::pending().await
        };
        let unsubscribed = tokio::select! {
            biased;
            unsubscribed = next(&mut events, 1) => unsubscribed,
            () = polled => unreachable!("it never completes"),
        };

        assert_eq!(unsubscribed, ["-a:1"], "{case}");
        drop((subscription, client));
        assert_no_more(server, events).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_ends_the_subscriptions_of_a_wire() {
    let (server, mut events) = server();
    let mut legacy = RawClient(serve(&server));
    legacy.request(1, "initialize", initialize_params()).await;
    for id in [2, 3] {
        // The second one has no effect.
        legacy
            .request(id, "resources/subscribe", json!({"uri": "a:1"}))
            .await;
    }
    legacy
        .request(4, "resources/subscribe", json!({"uri": "a:2"}))
        .await;
    legacy
        .request(5, "resources/unsubscribe", json!({"uri": "a:2"}))
        .await;
    assert_eq!(next(&mut events, 3).await, ["+a:1", "+a:2", "-a:2"]);
    drop(legacy);
    assert_eq!(next(&mut events, 1).await, ["-a:1"]);

    let modern = ClientTransport::Wire("2026-07-28").connect(&server).await;
    let filter = ChangeFilter::new().resource("a:1");
    let subscription = modern.subscribe(filter).await.unwrap();
    assert_eq!(next(&mut events, 1).await, ["+a:1"]);
    modern.close().await.unwrap();
    assert_eq!(next(&mut events, 1).await, ["-a:1"]);
    drop(subscription);
    assert_no_more(server, events).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_was_sent_twice_is_one_subscription_and_a_panic_loses_none() {
    let (inner, mut events) = server();
    let server = Server::new("outer", "1")
        .on_subscribe(|_, _| panic!("on purpose"))
        .mount("inner", &inner);
    drop(inner);
    let client = Client::in_process(&server).await.unwrap();
    let filter = ChangeFilter::new().resource("a:1").resource("a:1");

    let subscription = client.subscribe(filter).await.unwrap();
    assert_eq!(next(&mut events, 1).await, ["+a:1"]);
    drop((subscription, client));
    assert_eq!(next(&mut events, 1).await, ["-a:1"]);
    assert_no_more(server, events).await;
}

#[tokio::test(start_paused = true)]
async fn updates_of_a_resource_that_a_subscriber_does_not_see_are_not_sent_to_it() {
    let (server, mut events) = server();
    let hidden = ResourceTemplate::raw("b:{x}", "b", async |_, _| Ok("text")).unwrap();
    let server = server
        .resource(Resource::text("a:2", "2", "text").visible_to(|_| false))
        .resource_template(hidden.visible_to(|_| false));
    for transport in [
        ClientTransport::InProcess,
        ClientTransport::Wire("2025-11-25"),
    ] {
        let client = transport.connect(&server).await;
        let uris = ["a:1", "a:2", "b:1", "c:1"];
        let filter = uris
            .iter()
            .fold(ChangeFilter::new(), |filter, uri| filter.resource(*uri));

        let mut subscription = client.subscribe(filter).await.unwrap();
        for uri in ["a:2", "b:1", "c:1", "a:1"] {
            server.changed().resource_updated(uri);
        }

        let acknowledged = &subscription.acknowledged_filter().resource_subscriptions;
        assert_eq!(
            acknowledged.as_ref().unwrap().len(),
            4,
            "as unknown ones are"
        );
        let mut updated = Vec::new();
        while updated.len() < 2 {
            match in_time(subscription.next()).await.unwrap() {
                Some(Change::Resource(uri)) => updated.push(uri),
                other => panic!("expected an update, got {other:?}"),
            }
        }
        // In the legacy era each resource has a subscription of its own, and their order is not kept.
        updated.sort();
        assert_eq!(updated, ["a:1", "c:1"], "{transport:?}");
        assert_eq!(
            next(&mut events, 2).await,
            ["+a:1", "+c:1"],
            "{transport:?}"
        );
        drop(subscription);
        assert_eq!(
            next(&mut events, 2).await,
            ["-a:1", "-c:1"],
            "{transport:?}"
        );
    }
}
