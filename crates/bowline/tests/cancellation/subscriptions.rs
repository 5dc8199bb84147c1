//! Subscriptions on a shared wire: delivery of notifications, and the ways a subscription ends.

use bowline::client::Change;
use bowline::testing::ScriptedPeer;
use bowline::types::SubscriptionFilter;
use bowline::{Client, Error, ErrorCode, RequestId};
use bowline_core::era::Dialect;
use serde_json::json;

use crate::scripted_peers::{next, scripted_server, send_cancel};
use crate::test_pair::{NO_FRAMES, TestPair, poll_once};

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

run!(
    everywhere,
    a_subscription_receives_changes_until_it_is_dropped
);
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
    let (client, mut peer) = scripted_server(Dialect::LATEST).await;
    let mut subscriptions = Vec::new();
    for id in [RequestId::from("a"), RequestId::from(70)] {
        let subscribe = client.subscribe(tools_filter()).id(id).into_future();
        let (subscription, ()) = tokio::join!(subscribe, async {
            let _ = peer.expect("subscriptions/listen").await.acknowledge();
        });
        subscriptions.push(subscription.unwrap());
    }

    // `"70"` matches `70`; a notification for an unknown subscription is ignored.
    for id in ["70", "b"] {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        peer.notify("notifications/tools/list_changed", json!({"_meta": meta}));
    }

    assert_eq!(subscriptions[1].next().await.unwrap(), Some(Change::Tools));
    let mut none = Box::pin(subscriptions[0].next());
    assert!(poll_once(&mut none).await.is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_from_the_server_ends_its_subscription_and_no_other_call() {
    let (client, mut peer) = scripted_server(Dialect::LATEST).await;
    let mut plain = client.request_raw("x/y", ()).id("plain").start();
    assert!(poll_once(&mut plain).await.is_pending());
    let request = peer.expect("x/y").await.hold();
    let subscribe = client.subscribe(tools_filter()).id("s").into_future();
    let (subscription, _) = tokio::join!(subscribe, async {
        peer.expect("subscriptions/listen").await.acknowledge()
    });

    send_cancel(&mut peer, "plain", "no subscription");
    send_cancel(&mut peer, "s", "too many subscriptions");

    let ended = subscription.unwrap().next().await;
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
    peer.answer(request, json!({"resultType": "complete"}));
    assert!(plain.await.is_ok());
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

#[tokio::test(start_paused = true)]
async fn a_client_accepts_a_result_a_cancel_or_both_as_the_end_of_a_subscription() {
    for ends in [&["result", "cancel"][..], &["result"], &["cancel"]] {
        let (client, mut peer) = scripted_server(Dialect::LATEST).await;
        let subscribe = client.subscribe(tools_filter()).id("s").into_future();
        let (subscription, request) = tokio::join!(subscribe, async {
            peer.expect("subscriptions/listen").await.acknowledge()
        });

        for end in ends {
            match *end {
                "result" => peer.answer(request.clone(), json!({"resultType": "complete"})),
                _ => send_cancel(&mut peer, "s", "over"),
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
    let (client, mut peer) = scripted_server(Dialect::LATEST).await;
    let mut subscribe = client.subscribe(tools_filter()).id("s").into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());
    assert_eq!(next(&mut peer).await, "\"s\" subscriptions/listen");

    drop(subscribe);

    assert_eq!(next(&mut peer).await, "cancel \"s\": caller cancelled");
    assert!(client.peer().unwrap().is_idle());
}

run!(
    with_scripted_legacy_server,
    a_legacy_client_unsubscribes_once_per_uri_with_its_last_subscription
);
async fn a_legacy_client_unsubscribes_once_per_uri_with_its_last_subscription(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let subscribe = client
        .subscribe(resources_filter(&["a:1", "a:2", "a:1"]))
        .into_future();
    let (first, ()) = tokio::join!(subscribe, async {
        for uri in ["a:1", "a:2"] {
            answer_request(&mut peer, "resources/subscribe", uri).await;
        }
    });
    let second = client.subscribe(resources_filter(&["a:2"])).await.unwrap();

    drop(first);
    answer_request(&mut peer, "resources/unsubscribe", "a:1").await;
    drop(second);
    answer_request(&mut peer, "resources/unsubscribe", "a:2").await;

    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    with_scripted_legacy_server,
    a_legacy_subscription_dropped_before_it_is_sent_sends_nothing
);
async fn a_legacy_subscription_dropped_before_it_is_sent_sends_nothing(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let mut subscribe = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());

    drop(subscribe);

    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    with_scripted_legacy_server,
    dropping_one_of_two_pending_legacy_subscriptions_keeps_the_other
);
async fn dropping_one_of_two_pending_legacy_subscriptions_keeps_the_other(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let mut first = client.subscribe(resources_filter(&["a:1"])).into_future();
    let mut second = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());

    drop(first);

    answer_request(&mut peer, "resources/subscribe", "a:1").await;
    drop(second.await.unwrap());
    answer_request(&mut peer, "resources/unsubscribe", "a:1").await;
    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

run!(
    with_scripted_legacy_server,
    a_dropped_legacy_subscription_is_unsubscribed_and_a_refused_one_is_not
);
async fn a_dropped_legacy_subscription_is_unsubscribed_and_a_refused_one_is_not(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let mut unanswered = client.subscribe(resources_filter(&["a:1"])).into_future();
    assert!(poll_once(&mut unanswered).await.is_pending());
    let _ = peer.expect("resources/subscribe").await.hold();
    let refused = client.subscribe(resources_filter(&["a:2"])).into_future();

    drop(unanswered);
    answer_request(&mut peer, "resources/unsubscribe", "a:1").await;
    let (refused, ()) = tokio::join!(refused, async {
        let request = peer.expect("resources/subscribe").await;
        request.answer_error(ErrorCode::INVALID_PARAMS, "no such resource");
    });

    assert!(matches!(refused, Err(Error::Rpc(_))));
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(peer.receive_to_end().await, NO_FRAMES);
}

/// Answers the next request, which must be for `method` with this URI.
async fn answer_request(peer: &mut ScriptedPeer, method: &str, uri: &str) {
    let request = peer.expect(method).await;
    assert_eq!(request.params()["uri"], uri);
    request.answer(json!({}));
}
