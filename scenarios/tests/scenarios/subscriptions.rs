//! Being told of changes: of a resource, in both eras, and what becomes of a subscription.

use bowline::client::{Change, Changes};
use bowline::types::SubscriptionFilter;
use bowline::{ErrorCode, Resource, Server};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{echo, refusal, tools, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            the_client_hears_of_the_resources_that_it_asked_for,
            "resources:updated-notification",
            "resources:subscribe:updated",
        ),
        scenario!(
            a_resource_is_subscribed_to_and_let_go_by_requests,
            "resources:subscribe",
            "resources:unsubscribe",
            "resources:unsubscribe:stops-updates",
            "subscriptions:listen:client:era-guard",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_server_that_tells_of_no_resource_refuses_to_be_asked,
            "resources:subscribe:capability-required",
        )
        .legacy(),
        scenario!(
            the_client_learns_what_of_its_wish_is_granted,
            "subscriptions:listen:client:honored-surfacing",
            "client:list-changed:capability-gated",
        ),
        scenario!(
            of_two_subscriptions_each_hears_its_own,
            "subscriptions:listen:client:concurrent-demux",
        )
        .modern(),
        scenario!(
            changes_come_one_after_the_other_as_what_they_are,
            "subscriptions:listen:client:iteration",
        )
        .modern(),
        scenario!(
            a_subscription_that_the_server_ends_comes_to_its_end_after_what_was_told,
            "subscriptions:listen:client:graceful-close",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_subscription_whose_wire_breaks_is_lost_and_not_begun_anew,
            "subscriptions:listen:client:lost",
        )
        .modern()
        .in_memory(),
    ]
}

fn telling() -> Server {
    let server = Server::new("telling", "1")
        .resource(Resource::text("docs://a", "a", "text"))
        .resource(Resource::text("docs://b", "b", "text"))
        .resource_updates();
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

async fn the_client_hears_of_the_resources_that_it_asked_for(world: World) {
    let client = world.connect(&telling()).await;
    let mut changes = client.subscribe(resource("docs://a")).await.unwrap();

    let (told, changed) = tokio::join!(changes.next(), client.call_tool("change", ()));

    assert!(changed.is_ok());
    assert_eq!(told.unwrap(), Some(Change::Resource("docs://a".into())));
}

async fn a_resource_is_subscribed_to_and_let_go_by_requests(world: World) {
    let client = world.connect(&telling()).await;
    let tapped = world.tapped().unwrap();

    let mut changes = client.subscribe(resource("docs://a")).await.unwrap();
    client.call_tool("change", ()).await.unwrap();
    assert!(changes.next().await.unwrap().is_some());
    drop(changes);
    tools(&client).await;
    tapped.clear();
    client.call_tool("change", ()).await.unwrap();
    tools(&client).await;

    let updates = tapped.received();
    let is_update = |frame: &Value| frame["method"] == "notifications/resources/updated";
    assert!(!updates.iter().any(is_update), "{updates:?}");
    let again = client.subscribe(resource("docs://a")).await.unwrap();
    drop(again);
    tools(&client).await;
    let sent = tapped.sent();
    let about = |method: &str| {
        let asked = sent.iter().filter(|frame| frame["method"] == method);
        asked
            .map(|frame| frame["params"]["uri"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(about("resources/subscribe"), ["docs://a"]);
    assert_eq!(about("resources/unsubscribe"), ["docs://a"]);
    assert!(about("subscriptions/listen").is_empty());
}

async fn a_server_that_tells_of_no_resource_refuses_to_be_asked(world: World) {
    let server = Server::new("s", "1").resource(Resource::text("docs://a", "a", "text"));
    let client = world.connect(&server).await;

    let error = refusal(
        client
            .raw("resources/subscribe", json!({"uri": "docs://a"}))
            .await,
    );

    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
}

async fn the_client_learns_what_of_its_wish_is_granted(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;
    let mut wish = SubscriptionFilter::default();
    wish.tools_list_changed = Some(true);
    wish.prompts_list_changed = Some(true);

    let subscription = client.subscribe(wish).await.unwrap();

    let granted = serde_json::to_value(subscription.honoured()).unwrap();
    assert_eq!(granted, json!({"toolsListChanged": true}));
}

async fn changes_come_one_after_the_other_as_what_they_are(world: World) {
    let server = Server::new("busy", "1")
        .resource(Resource::text("docs://a", "a", "text"))
        .resource_updates();
    let server = with_change(server, |server| {
        server.changed().resource_updated("docs://a");
        server.tools().add(echo("second")).unwrap();
        server.changed().resource_updated("docs://a");
        server.resources().remove("docs://a");
    });
    let client = world.connect(&server).await;
    let wanted = Changes::new().tools().resources().resource("docs://a");
    let mut changes = client.subscribe(wanted).await.unwrap();

    client.call_tool("change", ()).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..4 {
        told.extend(changes.next().await.unwrap());
    }

    let of_a = Change::Resource("docs://a".into());
    assert_eq!(told, [of_a.clone(), Change::Tools, of_a, Change::Resources]);
}

async fn of_two_subscriptions_each_hears_its_own(world: World) {
    let client = world.connect(&telling()).await;
    let mut one = client.subscribe(resource("docs://a")).await.unwrap();
    let mut other = client.subscribe(resource("docs://b")).await.unwrap();

    let changing = client.call_tool("change", ());
    let (of_one, of_other, changed) = tokio::join!(one.next(), other.next(), changing);

    assert!(changed.is_ok());
    assert_eq!(of_one.unwrap(), Some(Change::Resource("docs://a".into())));
    assert_eq!(of_other.unwrap(), Some(Change::Resource("docs://b".into())));
}

async fn a_subscription_that_the_server_ends_comes_to_its_end_after_what_was_told(world: World) {
    let (client, mut server) = world.scripted_server(json!({}), |connect| connect).await;
    let subscribing = tokio::spawn(client.subscribe(resource("docs://a")).into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    let mut subscription = subscribing.await.unwrap().unwrap();

    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let update = json!({"uri": "docs://a", "_meta": meta});
    server.notify("notifications/resources/updated", update);
    server.answer(id, json!({"resultType": "complete", "_meta": meta}));

    let told = subscription.next().await.unwrap();
    assert_eq!(told, Some(Change::Resource("docs://a".into())));
    assert_eq!(subscription.next().await.unwrap(), None);
}

async fn a_subscription_whose_wire_breaks_is_lost_and_not_begun_anew(world: World) {
    let client = world.connect(&telling()).await;
    let mut subscription = client.subscribe(resource("docs://a")).await.unwrap();
    let tapped = world.tapped().unwrap();
    tapped.clear();

    tapped.cut();

    assert!(subscription.next().await.is_err());
    assert_eq!(tapped.frames(), []);
}
