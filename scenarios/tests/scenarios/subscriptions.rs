//! Subscriptions to changes, in both eras.

use bowline::client::{Change, ChangeFilter};
use bowline::types::SubscriptionFilter;
use bowline::{ErrorCode, Resource, Server};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{echo, peer_error, tools, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_client_receives_updates_of_subscribed_resources,
            "resources:updated-notification",
            "resources:subscribe:updated",
        ),
        scenario!(
            a_legacy_subscription_sends_subscribe_and_unsubscribe_requests,
            "resources:subscribe",
            "resources:unsubscribe",
            "resources:unsubscribe:stops-updates",
            "subscriptions:listen:client:era-guard",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_server_without_resource_updates_rejects_subscriptions,
            "resources:subscribe:capability-required",
        )
        .legacy(),
        scenario!(
            a_subscription_reports_the_acknowledged_filter,
            "subscriptions:listen:client:honored-surfacing",
            "client:list-changed:capability-gated",
        ),
        scenario!(
            each_subscription_receives_its_own_changes,
            "subscriptions:listen:client:concurrent-demux",
        )
        .modern(),
        scenario!(
            changes_are_delivered_in_order_with_their_kind,
            "subscriptions:listen:client:iteration",
        )
        .modern(),
        scenario!(
            a_subscription_ended_by_the_server_delivers_pending_changes_first,
            "subscriptions:listen:client:graceful-close",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_subscription_on_a_broken_wire_fails_and_is_not_restarted,
            "subscriptions:listen:client:lost",
        )
        .modern()
        .in_memory(),
    ]
}

fn updating_server() -> Server {
    let server = Server::new("updating", "1")
        .resource(Resource::text("docs://a", "a", "text"))
        .resource(Resource::text("docs://b", "b", "text"))
        .resource_subscriptions();
    with_change(server, |server| {
        server.changed().resource_updated("docs://b");
        server.changed().resource_updated("docs://a");
    })
}

fn resource(uri: &str) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(vec![uri.to_owned()]);
    filter
}

async fn a_client_receives_updates_of_subscribed_resources(env: ScenarioEnv) {
    let client = env.connect(&updating_server()).await;
    let mut changes = client.subscribe(resource("docs://a")).await.unwrap();

    let (received, changed) = tokio::join!(changes.next(), client.call_tool("change", ()));

    assert!(changed.is_ok());
    assert_eq!(received.unwrap(), Some(Change::Resource("docs://a".into())));
}

async fn a_legacy_subscription_sends_subscribe_and_unsubscribe_requests(env: ScenarioEnv) {
    let client = env.connect(&updating_server()).await;
    let record = env.wire_record().unwrap();

    let mut changes = client.subscribe(resource("docs://a")).await.unwrap();
    client.call_tool("change", ()).await.unwrap();
    assert!(changes.next().await.unwrap().is_some());
    drop(changes);
    tools(&client).await;
    record.clear();
    client.call_tool("change", ()).await.unwrap();
    tools(&client).await;

    let updates = record.received();
    let is_update = |frame: &Value| frame["method"] == "notifications/resources/updated";
    assert!(!updates.iter().any(is_update), "{updates:?}");
    let again = client.subscribe(resource("docs://a")).await.unwrap();
    drop(again);
    tools(&client).await;
    let sent = record.sent();
    let about = |method: &str| {
        let matching = sent.iter().filter(|frame| frame["method"] == method);
        matching
            .map(|frame| frame["params"]["uri"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(about("resources/subscribe"), ["docs://a"]);
    assert_eq!(about("resources/unsubscribe"), ["docs://a"]);
    assert!(about("subscriptions/listen").is_empty());
}

async fn a_server_without_resource_updates_rejects_subscriptions(env: ScenarioEnv) {
    let server = Server::new("s", "1").resource(Resource::text("docs://a", "a", "text"));
    let client = env.connect(&server).await;

    let error = peer_error(
        client
            .request_raw("resources/subscribe", json!({"uri": "docs://a"}))
            .await,
    );

    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
}

async fn a_subscription_reports_the_acknowledged_filter(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter.prompts_list_changed = Some(true);

    let subscription = client.subscribe(filter).await.unwrap();

    let granted = serde_json::to_value(subscription.acknowledged_filter()).unwrap();
    assert_eq!(granted, json!({"toolsListChanged": true}));
}

async fn changes_are_delivered_in_order_with_their_kind(env: ScenarioEnv) {
    let server = Server::new("busy", "1")
        .resource(Resource::text("docs://a", "a", "text"))
        .resource_subscriptions();
    let server = with_change(server, |server| {
        server.changed().resource_updated("docs://a");
        server.tools().add(echo("second")).unwrap();
        server.changed().resource_updated("docs://a");
        server.resources().remove("docs://a");
    });
    let client = env.connect(&server).await;
    let wanted = ChangeFilter::new().tools().resources().resource("docs://a");
    let mut changes = client.subscribe(wanted).await.unwrap();

    client.call_tool("change", ()).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..4 {
        received.extend(changes.next().await.unwrap());
    }

    let of_a = Change::Resource("docs://a".into());
    assert_eq!(
        received,
        [of_a.clone(), Change::Tools, of_a, Change::Resources]
    );
}

async fn each_subscription_receives_its_own_changes(env: ScenarioEnv) {
    let client = env.connect(&updating_server()).await;
    let mut one = client.subscribe(resource("docs://a")).await.unwrap();
    let mut other = client.subscribe(resource("docs://b")).await.unwrap();

    let changing = client.call_tool("change", ());
    let (of_one, of_other, changed) = tokio::join!(one.next(), other.next(), changing);

    assert!(changed.is_ok());
    assert_eq!(of_one.unwrap(), Some(Change::Resource("docs://a".into())));
    assert_eq!(of_other.unwrap(), Some(Change::Resource("docs://b".into())));
}

async fn a_subscription_ended_by_the_server_delivers_pending_changes_first(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let subscribing = tokio::spawn(client.subscribe(resource("docs://a")).into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    let mut subscription = subscribing.await.unwrap().unwrap();

    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let update = json!({"uri": "docs://a", "_meta": meta});
    server.notify("notifications/resources/updated", update);
    server.answer(id, json!({"resultType": "complete", "_meta": meta}));

    let received = subscription.next().await.unwrap();
    assert_eq!(received, Some(Change::Resource("docs://a".into())));
    assert_eq!(subscription.next().await.unwrap(), None);
}

async fn a_subscription_on_a_broken_wire_fails_and_is_not_restarted(env: ScenarioEnv) {
    let client = env.connect(&updating_server()).await;
    let mut subscription = client.subscribe(resource("docs://a")).await.unwrap();
    let record = env.wire_record().unwrap();
    record.clear();

    record.cut();

    assert!(subscription.next().await.is_err());
    assert_eq!(record.frames(), []);
}
