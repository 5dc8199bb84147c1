//! Subscriptions, and the changes that were recorded.

use bowline::client::Change;
use bowline::types::SubscriptionFilter;
use serde_json::json;

use crate::recorded::{Era, PAIRS, Recorded, call, connect, content};

const URI: &str = "fixture://counter";

/// A client that subscribes to a resource, and a tool that changes it and another one.
fn recorded(era: Era) -> Recorded {
    changes(Recorded::new(era))
}

fn changes(mut recorded: Recorded) -> Recorded {
    let era = recorded.era;
    let notified =
        |recorded: &mut Recorded, id: i64, method: &str, mut params: serde_json::Value| {
            if era == Era::Modern {
                params["_meta"]["io.modelcontextprotocol/subscriptionId"] = json!(id);
            }
            let method = format!("notifications/{method}");
            recorded.server(json!({"jsonrpc": "2.0", "method": method, "params": params}));
        };
    let filter = json!({"resourceSubscriptions": [URI], "toolsListChanged": true});
    let id = match era {
        Era::Modern => {
            let id = recorded.request("subscriptions/listen", json!({"notifications": filter}));
            let acknowledged = json!({"notifications": filter});
            notified(
                &mut recorded,
                id,
                "subscriptions/acknowledged",
                acknowledged,
            );
            id
        }
        Era::Legacy => {
            recorded.exchange("resources/subscribe", json!({"uri": URI}), json!({}));
            0
        }
    };
    let touch = recorded.request("tools/call", call("touch", json!({})));
    notified(&mut recorded, id, "resources/updated", json!({"uri": URI}));
    notified(&mut recorded, id, "tools/list_changed", json!({}));
    recorded.answer(touch, content("touched"));
    notified(&mut recorded, id, "resources/updated", json!({"uri": URI}));
    recorded
}

fn filter(uris: &[&str]) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(uris.iter().map(|&uri| uri.to_owned()).collect());
    filter
}

#[tokio::test]
async fn a_subscriber_gets_the_recorded_changes_that_it_wants() {
    for (recorded_era, era) in PAIRS {
        let client = connect(&recorded(recorded_era).mock(), era).await;

        let mut updates = client.subscribe(filter(&[URI])).await.unwrap();
        for _ in 0..2 {
            let update = updates.next().await.unwrap();
            assert!(matches!(update, Some(Change::Resource(uri)) if uri == URI));
        }

        let mut lists = SubscriptionFilter::default();
        lists.tools_list_changed = Some(true);
        let mut lists = client.subscribe(lists).await.unwrap();
        let change = lists.next().await.unwrap();
        assert!(
            matches!(change, Some(Change::Tools)),
            "{recorded_era:?} {era:?}"
        );
        assert_eq!(
            client.call_tool("touch", ()).await.unwrap().text(),
            "touched"
        );
    }
}

#[tokio::test]
async fn a_recording_without_a_handshake_has_subscriptions_too() {
    for (recorded_era, era) in PAIRS {
        let mock = changes(Recorded::without_handshake(recorded_era)).mock();
        let (near, far) = bowline::wire::memory();
        tokio::spawn(mock.wire().serve(far));
        let client = bowline::Client::from_wire(near).protocol_version(era.version());
        let client = client.await.unwrap();

        let mut updates = client.subscribe(filter(&[URI])).await.unwrap();

        let update = updates.next().await.unwrap();
        assert!(
            matches!(update, Some(Change::Resource(uri)) if uri == URI),
            "{recorded_era:?} {era:?}"
        );
    }
}

#[tokio::test]
async fn a_legacy_client_over_a_wire_gets_the_changes_that_it_subscribed_to() {
    for recorded_era in [Era::Modern, Era::Legacy] {
        let (near, far) = bowline::wire::memory();
        tokio::spawn(recorded(recorded_era).mock().wire().serve(far));
        let client = bowline::Client::from_wire(near).protocol_version("2025-11-25");
        let client = client.await.unwrap();

        let mut updates = client.subscribe(filter(&[URI])).await.unwrap();

        let update = updates.next().await.unwrap();
        assert!(matches!(update, Some(Change::Resource(uri)) if uri == URI));
    }
}

#[tokio::test]
async fn a_subscription_that_was_refused_is_refused() {
    let mut recorded = Recorded::new(Era::Modern);
    let filter = json!({"resourceSubscriptions": ["a://b"]});
    let id = recorded.request("subscriptions/listen", json!({"notifications": filter}));
    recorded.refuse(id, json!({"code": -32602, "message": "no such resource"}));

    let client = connect(&recorded.mock(), Era::Modern).await;
    let Err(error) = client.subscribe(self::filter(&["a://b"])).await else {
        panic!("expected an error");
    };

    assert!(error.to_string().contains("no such resource"), "{error}");
}
