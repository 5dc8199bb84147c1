//! One subscription to several servers.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bowline::Json;
use bowline::client::{Change, ChangeFilter, Subscription};
use bowline::exchange::{
    Caller, Channel, ConnectionState, Dialect, Notification, NotificationSink, Outcome, Request,
    Responder,
};
use bowline::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use crate::world::{ERAS, MODERN, TWO, World, connect, named, settle};

fn extra(name: &'static str) -> Tool {
    Tool::new(name, async || "x")
}

pub(crate) async fn next(changes: &mut Subscription) -> Change {
    let next = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
    next.expect("a change in time").unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn changes_of_all_servers_arrive_in_every_pair_of_eras() {
    for front in ERAS {
        for back in ERAS {
            let (first, second) = (named("first"), named("second"));
            let world = World::default();
            world.serve("a", &first, back);
            world.serve("b", &second, back);
            let client = connect(&world.bridge(TWO), front).await;
            let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

            for server in [&first, &second] {
                server.tools().add(extra("more")).unwrap();
                assert_eq!(next(&mut changes).await, Change::Tools, "{front} → {back}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_holds_up_no_acknowledgement() {
    let second = named("second");
    let world = World::default();
    world.hang("a");
    world.serve("b", &second, MODERN);
    let client = connect(&world.bridge(TWO), MODERN).await;
    let start = Instant::now();

    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    assert!(
        start.elapsed() <= Duration::from_millis(5100),
        "{:?}",
        start.elapsed()
    );
    second.tools().add(extra("more")).unwrap();
    assert_eq!(next(&mut changes).await, Change::Tools);
}

#[tokio::test(start_paused = true)]
async fn the_subscription_to_a_server_that_died_is_opened_again() {
    for back in ERAS {
        let world = World::default();
        world.serve("a", &named("first"), back);
        world.serve("b", &named("second"), back);
        let client = connect(&world.bridge(TWO), MODERN).await;
        let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        let again = named("again");
        world.serve("a", &again, back);

        // What may have been missed in between.
        assert_eq!(next(&mut changes).await, Change::Tools, "{back}");
        again.tools().add(extra("more")).unwrap();
        assert_eq!(next(&mut changes).await, Change::Tools, "{back}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_subscribed_to_at_its_server() {
    for front in ERAS {
        for back in ERAS {
            let notes = Server::new("notes", "1.0.0")
                .resource_subscriptions()
                .resource(Resource::text("note:1", "one", "first"));
            let other = Server::new("other", "1.0.0").resource(Resource::text("x:1", "x", "x"));
            let world = World::default();
            world.serve("a", &other, back);
            world.serve("b", &notes, back);
            let client = connect(&world.bridge(TWO), front).await;
            let filter = ChangeFilter::new().resource("note:1");
            let mut changes = client.subscribe(filter).await.unwrap();

            notes.changed().resource_updated("note:1");

            let expected = Change::Resource("note:1".to_owned());
            assert_eq!(next(&mut changes).await, expected, "{front} → {back}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_on_a_wire_hears_of_changes_of_all_servers() {
    let (first, second) = (named("first"), named("second"));
    let world = World::default();
    world.serve("a", &first, MODERN);
    world.serve("b", &second, crate::world::LEGACY);
    let (near, far) = bowline::wire::memory();
    tokio::spawn(world.bridge(TWO).wire().serve(far));
    let client = Client::from_wire(near).protocol_version(crate::world::LEGACY);
    let client = client.await.unwrap();
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    client.list_tools().await.unwrap();
    settle().await;

    for server in [&first, &second] {
        server.tools().add(extra("more")).unwrap();
        assert_eq!(next(&mut changes).await, Change::Tools);
    }
}

/// Where the notifications of a client go whose connection takes them all.
#[derive(Default)]
struct Received(Mutex<Vec<Notification>>);

impl NotificationSink for Received {
    fn notify(&self, notification: Notification) {
        self.0.lock().unwrap().push(notification);
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

/// Lets a request run only as long as it does not wait, as a response whose client stopped reading.
async fn run_once(response: &mut (impl Future<Output = Outcome> + Unpin)) -> Option<Outcome> {
    let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *response).poll(cx))).await;
    match polled {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_told_that_notifications_were_lost() {
    let notes = Server::new("notes", "1.0.0")
        .resource_subscriptions()
        .resource(Resource::text("note:1", "one", "first"));
    let world = World::default();
    world.serve("a", &named("first"), MODERN);
    world.serve("b", &notes, MODERN);
    let bridge = world.bridge(TWO);
    let params = json!({"notifications": {"resourceSubscriptions": ["note:1"]}});
    let caller = Arc::new(Caller::new(Dialect::of(MODERN).unwrap()));
    let request = Request::new("subscriptions/listen", Json::from(params), caller);
    let received = Arc::new(Received::default());
    let cx = Context::new(1.into(), &request, received.clone());
    let mut response = Box::pin(bridge.respond(request, cx));
    while received.0.lock().unwrap().is_empty() {
        assert!(run_once(&mut response).await.is_none());
        settle().await;
    }

    for _ in 0..1100 {
        notes.changed().resource_updated("note:1");
        tokio::task::yield_now().await;
    }
    settle().await;
    let outcome = run_once(&mut response).await;

    let error = outcome.expect("an end").unwrap_err();
    assert_eq!(
        error.message,
        "upstream `b`: subscription lagged; notifications were lost"
    );
}
