//! Subscriptions on a shared wire: whose news it is, and who ends them how.

use std::future::IntoFuture;

use bowline::client::Change;
use bowline::types::SubscriptionFilter;
use bowline::{Error, RequestId};
use serde_json::{Value, json};

use crate::world::{NOTHING, World, cancel_text, poll_once, scripted_server};

fn tools() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter
}

fn resources(uris: &[&str]) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(uris.iter().map(|uri| (*uri).to_owned()).collect());
    filter
}

everywhere!(a_subscription_hears_of_changes_until_it_is_dropped);
async fn a_subscription_hears_of_changes_until_it_is_dropped(world: World) {
    let mut first = world.client.subscribe(resources(&["a:1"])).await.unwrap();
    let mut second = world.client.subscribe(resources(&["a:2"])).await.unwrap();

    world.server.changed().resource_updated("a:2");
    world.server.changed().resource_updated("a:1");

    let news = (first.next().await.unwrap(), second.next().await.unwrap());
    let change = |uri: &str| Some(Change::Resource(uri.to_owned()));
    assert_eq!(news, (change("a:1"), change("a:2")));
    drop((first, second));
    world.catch_up().await;
    world.server.changed().resource_updated("a:1");
    world.catch_up().await;
    let frames = match world.client.dialect().is_modern() {
        true => modern_frames(&world),
        false => legacy_frames(&world),
    };
    world.end(&frames).await;
}

fn modern_frames(world: &World) -> Vec<String> {
    vec![
        world.request(1, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        world.request(2, "subscriptions/listen"),
        "← notifications/subscriptions/acknowledged".to_owned(),
        "← notifications/resources/updated".to_owned(),
        "← notifications/resources/updated".to_owned(),
        world.cancel(1, "caller cancelled"),
        world.cancel(2, "caller cancelled"),
        world.request(3, "tools/call quick"),
        world.result(3),
        world.request(4, "tools/call quick"),
        world.result(4),
    ]
}

fn legacy_frames(world: &World) -> Vec<String> {
    vec![
        world.request(1, "resources/subscribe a:1"),
        world.result(1),
        world.request(2, "resources/subscribe a:2"),
        world.result(2),
        "← notifications/resources/updated".to_owned(),
        "← notifications/resources/updated".to_owned(),
        world.request(3, "resources/unsubscribe a:1"),
        world.request(4, "resources/unsubscribe a:2"),
        world.request(5, "tools/call quick"),
        world.result(3),
        world.result(4),
        world.result(5),
        world.request(6, "tools/call quick"),
        world.result(6),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_notification_whose_meta_names_a_subscription_goes_to_that_call() {
    let (client, mut script) = scripted_server("2026-07-28").await;
    let mut subscriptions = Vec::new();
    for id in [RequestId::from("a"), RequestId::from(70)] {
        let subscribe = client.subscribe(tools()).id(id).into_future();
        let (subscription, ()) = tokio::join!(subscribe, async {
            let request = script.hear().await;
            script.say(&acknowledged(&request["id"]));
        });
        subscriptions.push(subscription.unwrap());
    }

    // `"70"` is `70`; a subscription that nobody has is nobody's.
    script.say(&tools_changed(&json!("70")));
    script.say(&tools_changed(&json!("b")));

    assert_eq!(subscriptions[1].next().await.unwrap(), Some(Change::Tools));
    let mut none = Box::pin(subscriptions[0].next());
    assert!(poll_once(&mut none).await.is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_peers_cancel_ends_our_subscription_of_that_id_and_no_other_call() {
    let (client, mut script) = scripted_server("2026-07-28").await;
    let mut plain = client.raw("x/y", ()).id("plain").start();
    assert!(poll_once(&mut plain).await.is_pending());
    let request = script.hear().await;
    let subscribe = client.subscribe(tools()).id("s").into_future();
    let (subscription, ()) = tokio::join!(subscribe, async {
        let request = script.hear().await;
        script.say(&acknowledged(&request["id"]));
    });

    script.say_text(&cancel_text("\"plain\"", "no subscription"));
    script.say_text(&cancel_text("\"s\"", "the server is tired"));

    let ended = subscription.unwrap().next().await;
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
    script.answer(&request, &json!({"resultType": "complete"}));
    assert!(plain.await.is_ok());
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_client_accepts_a_result_a_cancel_or_both_as_the_end_of_a_subscription() {
    for ends in [&["result", "cancel"][..], &["result"], &["cancel"]] {
        let (client, mut script) = scripted_server("2026-07-28").await;
        let subscribe = client.subscribe(tools()).id("s").into_future();
        let (subscription, request) = tokio::join!(subscribe, async {
            let request = script.hear().await;
            script.say(&acknowledged(&request["id"]));
            request
        });

        for end in ends {
            match *end {
                "result" => script.answer(&request, &json!({"resultType": "complete"})),
                _ => script.say_text(&cancel_text("\"s\"", "over")),
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
async fn a_subscription_that_is_let_go_before_it_is_acknowledged_is_cancelled() {
    let (client, mut script) = scripted_server("2026-07-28").await;
    let mut subscribe = client.subscribe(tools()).id("s").into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());
    assert_eq!(script.hear_in_short().await, "\"s\" subscriptions/listen");

    drop(subscribe);

    assert_eq!(
        script.hear_in_short().await,
        cancel_text("\"s\"", "caller cancelled")
    );
    assert!(client.peer().unwrap().is_idle());
}

in_every_legacy_era!(a_legacy_subscription_sends_one_unsubscribe_per_uri_when_its_last_holder_goes);
async fn a_legacy_subscription_sends_one_unsubscribe_per_uri_when_its_last_holder_goes(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    let subscribe = client
        .subscribe(resources(&["a:1", "a:2", "a:1"]))
        .into_future();
    let (first, ()) = tokio::join!(subscribe, async {
        for uri in ["a:1", "a:2"] {
            let request = script.hear().await;
            assert_eq!(request["params"]["uri"], uri);
            script.answer(&request, &json!({}));
        }
    });
    let second = client.subscribe(resources(&["a:2"])).await.unwrap();

    drop(first);
    let unsubscribe = script.hear().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    assert_eq!(unsubscribe["params"]["uri"], "a:1");
    script.answer(&unsubscribe, &json!({}));
    drop(second);
    let unsubscribe = script.hear().await;
    assert_eq!(unsubscribe["params"]["uri"], "a:2");
    script.answer(&unsubscribe, &json!({}));

    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

in_every_legacy_era!(a_legacy_subscription_that_never_left_is_withdrawn_and_nothing_is_sent);
async fn a_legacy_subscription_that_never_left_is_withdrawn_and_nothing_is_sent(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    let mut subscribe = client.subscribe(resources(&["a:1"])).into_future();
    assert!(poll_once(&mut subscribe).await.is_pending());

    drop(subscribe);

    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

in_every_legacy_era!(a_second_holder_of_a_legacy_subscription_is_not_left_without_it);
async fn a_second_holder_of_a_legacy_subscription_is_not_left_without_it(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    let mut first = client.subscribe(resources(&["a:1"])).into_future();
    let mut second = client.subscribe(resources(&["a:1"])).into_future();
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());

    drop(first);

    let subscribe = script.hear().await;
    assert_eq!(subscribe["method"], "resources/subscribe");
    script.answer(&subscribe, &json!({}));
    drop(second.await.unwrap());
    let unsubscribe = script.hear().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    script.answer(&unsubscribe, &json!({}));
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

in_every_legacy_era!(a_legacy_subscription_that_was_let_go_unanswered_or_refused_is_left_tidily);
async fn a_legacy_subscription_that_was_let_go_unanswered_or_refused_is_left_tidily(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    let mut unanswered = client.subscribe(resources(&["a:1"])).into_future();
    assert!(poll_once(&mut unanswered).await.is_pending());
    assert_eq!(script.hear().await["method"], "resources/subscribe");
    let refused = client.subscribe(resources(&["a:2"])).into_future();

    drop(unanswered);
    let unsubscribe = script.hear().await;
    assert_eq!(unsubscribe["method"], "resources/unsubscribe");
    assert_eq!(unsubscribe["params"]["uri"], "a:1");
    script.answer(&unsubscribe, &json!({}));
    let (refused, ()) = tokio::join!(refused, async {
        let id = script.hear().await["id"].clone();
        let error = json!({"code": -32602, "message": "no such resource"});
        script.say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    });

    assert!(matches!(refused, Err(Error::Peer(_))));
    assert!(client.peer().unwrap().is_idle());
    client.close().await.unwrap();
    assert_eq!(script.hear_all().await, NOTHING);
}

fn acknowledged(id: &Value) -> Value {
    about("notifications/subscriptions/acknowledged", id)
}

fn tools_changed(id: &Value) -> Value {
    about("notifications/tools/list_changed", id)
}

fn about(method: &str, id: &Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta, "notifications": {}}})
}
