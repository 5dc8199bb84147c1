//! Subscriptions on a shared wire: delivery of notifications, and the ways a subscription ends.

use std::future::IntoFuture;

use bowline::client::Change;
use bowline::types::SubscriptionFilter;
use bowline::{Error, RequestId};
use serde_json::{Value, json};

use crate::test_pair::{NO_FRAMES, TestPair, cancel_json, poll_once, scripted_server};

fn tools_filter() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter
}

fn resources_filter(uris: &[&str]) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(uris.iter().map(|uri| (*uri).to_owned()).collect());
    filter
}

everywhere!(a_subscription_receives_changes_until_it_is_dropped);
async fn a_subscription_receives_changes_until_it_is_dropped(pair: TestPair) {
    let mut first = pair
        .client
        .subscribe(resources_filter(&["a:1"]))
        .await
        .unwrap();
    let mut second = pair
        .client
        .subscribe(resources_filter(&["a:2"]))
        .await
        .unwrap();

    pair.server.changed().resource_updated("a:2");
    pair.server.changed().resource_updated("a:1");

    let changes = (first.next().await.unwrap(), second.next().await.unwrap());
    let change = |uri: &str| Some(Change::Resource(uri.to_owned()));
    assert_eq!(changes, (change("a:1"), change("a:2")));
    drop((first, second));
    pair.round_trip().await;
    pair.server.changed().resource_updated("a:1");
    pair.round_trip().await;
    let frames = match pair.client.dialect().is_modern() {
        true => modern_frames(&pair),
        false => legacy_frames(&pair),
    };
    pair.finish(&frames).await;
}

fn modern_frames(pair: &TestPair) -> Vec<String> {
    vec![
        pair.request(1, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        pair.request(2, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        "← notifications/resources/updated".to_owned(),
        "← notifications/resources/updated".to_owned(),
        pair.cancel(1, "caller cancelled"),
        pair.cancel(2, "caller cancelled"),
        pair.request(3, "tools/call quick"),
        pair.result(3),
        pair.request(4, "tools/call quick"),
        pair.result(4),
    ]
}

fn legacy_frames(pair: &TestPair) -> Vec<String> {
    vec![
        pair.request(1, "resources/subscribe a:1"),
        pair.result(1),
        pair.request(2, "resources/subscribe a:2"),
        pair.result(2),
        "← notifications/resources/updated".to_owned(),
        "← notifications/resources/updated".to_owned(),
        pair.request(3, "resources/unsubscribe a:1"),
        pair.request(4, "resources/unsubscribe a:2"),
        pair.request(5, "tools/call quick"),
        pair.result(3),
        pair.result(4),
        pair.result(5),
        pair.request(6, "tools/call quick"),
        pair.result(6),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_delivered_to_the_subscription_in_its_meta() {
    let (client, mut peer) = scripted_server("2026-07-28").await;
    let mut subscriptions = Vec::new();
    for id in [RequestId::from("a"), RequestId::from(70)] {
        let subscribe = client.subscribe(tools_filter()).id(id).into_future();
        let (subscription, ()) = tokio::join!(subscribe, async {
            let request = peer.receive().await;
            peer.send(&acknowledged(&request["id"]));
        });
        subscriptions.push(subscription.unwrap());
    }

    // `"70"` matches `70`; a notification for an unknown subscription is ignored.
    peer.send(&tools_changed(&json!("70")));
    peer.send(&tools_changed(&json!("b")));

    assert_eq!(subscriptions[1].next().await.unwrap(), Some(Change::Tools));
    let mut none = Box::pin(subscriptions[0].next());
    assert!(poll_once(&mut none).await.is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_from_the_server_ends_its_subscription_and_no_other_call() {
    let (client, mut peer) = scripted_server("2026-07-28").await;
    let mut plain = client.raw("x/y", ()).id("plain").start();
    assert!(poll_once(&mut plain).await.is_pending());
    let request = peer.receive().await;
    let subscribe = client.subscribe(tools_filter()).id("s").into_future();
    let (subscription, ()) = tokio::join!(subscribe, async {
        let request = peer.receive().await;
        peer.send(&acknowledged(&request["id"]));
    });

    peer.send_text(&cancel_json("\"plain\"", "no subscription"));
    peer.send_text(&cancel_json("\"s\"", "too many subscriptions"));

    let ended = subscription.unwrap().next().await;
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
    peer.answer(&request, &json!({"resultType": "complete"}));
    assert!(plain.await.is_ok());
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

#[tokio::test(start_paused = true)]
async fn a_client_accepts_a_result_a_cancel_or_both_as_the_end_of_a_subscription() {
    for ends in [&["result", "cancel"][..], &["result"], &["cancel"]] {
        let (client, mut peer) = scripted_server("2026-07-28").await;
        let subscribe = client.subscribe(tools_filter()).id("s").into_future();
        let (subscription, request) = tokio::join!(subscribe, async {
            let request = peer.receive().await;
            peer.send(&acknowledged(&request["id"]));
            request
        });

        for end in ends {
            match *end {
                "result" => peer.answer(&request, &json!({"resultType": "complete"})),
                _ => peer.send_text(&cancel_json("\"s\"", "over")),
            }
        }

        let mut subscription = subscription.unwrap();
        let ended = subscription.next().await;
        assert_eq!(ended.is_ok(), ends.contains(&"result"), "{ended:?}");
        assert_eq!(subscription.next().await.unwrap(), None);
        assert!(client.peer().unwrap().is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_dropped_before_its_acknowledgement_is_cancelled() {
    let (client, mut peer) = scripted_server("2026-07-28").await;
    let mut subscribe = client.subscribe(tools_filter()).id("s").into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());
    assert_eq!(peer.receive_summary().await, "\"s\" subscriptions/listen");

    drop(subscribe);

    assert_eq!(
        peer.receive_summary().await,
        cancel_json("\"s\"", "caller cancelled")
    );
    assert!(client.peer().unwrap().is_idle());
}

in_every_legacy_version!(a_legacy_client_unsubscribes_once_per_uri_with_its_last_subscription);
async fn a_legacy_client_unsubscribes_once_per_uri_with_its_last_subscription(
    version: &'static str,
) {
    let (client, mut peer) = scripted_server(version).await;
    let subscribe = client
        .subscribe(resources_filter(&["a:1", "a:2", "a:1"]))
        .into_future();
    let (first, ()) = tokio::join!(subscribe, async {
        for uri in ["a:1", "a:2"] {
            let request = peer.receive().await;
            assert_eq!(request["params"]["uri"], uri);
            peer.answer(&request, &json!({}));
        }
    });
    let second = client.subscribe(resources_filter(&["a:2"])).await.unwrap();

    drop(first);
    let unsubscribe = peer.receive().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    assert_eq!(unsubscribe["params"]["uri"], "a:1");
    peer.answer(&unsubscribe, &json!({}));
    drop(second);
    let unsubscribe = peer.receive().await;
    assert_eq!(unsubscribe["params"]["uri"], "a:2");
    peer.answer(&unsubscribe, &json!({}));

    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

in_every_legacy_version!(a_legacy_subscription_dropped_before_it_is_sent_sends_nothing);
async fn a_legacy_subscription_dropped_before_it_is_sent_sends_nothing(version: &'static str) {
    let (client, mut peer) = scripted_server(version).await;
    let mut subscribe = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());

    drop(subscribe);

    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

in_every_legacy_version!(dropping_one_of_two_pending_legacy_subscriptions_keeps_the_other);
async fn dropping_one_of_two_pending_legacy_subscriptions_keeps_the_other(version: &'static str) {
    let (client, mut peer) = scripted_server(version).await;
    let mut first = client.subscribe(resources_filter(&["a:1"])).into_future();
    let mut second = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());

    drop(first);

    let subscribe = peer.receive().await;
    assert_eq!(subscribe["method"], "resources/subscribe");
    peer.answer(&subscribe, &json!({}));
    drop(second.await.unwrap());
    let unsubscribe = peer.receive().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    peer.answer(&unsubscribe, &json!({}));
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

in_every_legacy_version!(a_dropped_legacy_subscription_is_unsubscribed_and_a_refused_one_is_not);
async fn a_dropped_legacy_subscription_is_unsubscribed_and_a_refused_one_is_not(
    version: &'static str,
) {
    let (client, mut peer) = scripted_server(version).await;
    let mut unanswered = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut unanswered).await.is_pending());
    assert_eq!(peer.receive().await["method"], "resources/subscribe");
    let refused = client.subscribe(resources_filter(&["a:2"])).into_future();

    drop(unanswered);
    let unsubscribe = peer.receive().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    assert_eq!(unsubscribe["params"]["uri"], "a:1");
    peer.answer(&unsubscribe, &json!({}));
    let (refused, ()) = tokio::join!(refused, async {
        let id = peer.receive().await["id"].clone();
        let error = json!({"code": -32602, "message": "no such resource"});
        peer.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    });

    assert!(matches!(refused, Err(Error::Peer(_))));
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_all().await, NO_FRAMES);
}

fn acknowledged(id: &Value) -> Value {
    notification_for("notifications/subscriptions/acknowledged", id)
}

fn tools_changed(id: &Value) -> Value {
    notification_for("notifications/tools/list_changed", id)
}

fn notification_for(method: &str, id: &Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta, "notifications": {}}})
}
