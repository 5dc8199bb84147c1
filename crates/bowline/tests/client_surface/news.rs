//! What a server says of its own accord: changes, log messages, and words that nobody knows.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bowline::client::{Change, Changes, Ended, Subscription};
use bowline::exchange::{BoxFuture, Outcome, Request, Responder};
use bowline::testing::Scripted;
use bowline::types::{
    LoggingLevel, NotificationParams, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, ToolListChangedNotification,
};
use bowline::{CallToolResult, Client, Context, Error, RequestId, Server, Tool};
use futures_core::Stream;
use serde_json::json;
use tokio::sync::mpsc;

use super::{legacy, legacy_with, modern, modern_with};

async fn subscribed(client: &Client, server: &mut Scripted) -> (Subscription, RequestId) {
    let subscribing = client.subscribe(Changes::lists().resource("file:///a"));
    let subscribing = tokio::spawn(subscribing.into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    (subscribing.await.unwrap().unwrap(), id)
}

fn tell(server: &mut Scripted, id: &RequestId, method: &str) {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.notify(method, json!({"_meta": meta, "uri": "file:///a"}));
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_written_down_and_what_was_granted_is_told() {
    let (client, mut server) = modern().await;

    let wish = Changes::new()
        .tools()
        .resource("file:///a")
        .resource("file:///b");
    let subscribing = tokio::spawn(client.subscribe(wish).into_future());
    let asked = server.expect("subscriptions/listen").await;
    let uris = json!(["file:///a", "file:///b"]);
    let expected = json!({"toolsListChanged": true, "resourceSubscriptions": uris});
    assert_eq!(asked.params()["notifications"], expected);
    let meta = json!({"io.modelcontextprotocol/subscriptionId": asked.id()});
    let granted = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let _ = asked
        .notify("notifications/subscriptions/acknowledged", granted)
        .hold();
    let subscription = subscribing.await.unwrap().unwrap();

    assert_eq!(subscription.honoured(), &Changes::new().tools().into());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_stream_that_ends_gracefully_after_its_backlog() {
    let (client, mut server) = modern().await;
    let (mut subscription, id) = subscribed(&client, &mut server).await;

    tell(&mut server, &id, "notifications/tools/list_changed");
    tell(&mut server, &id, "notifications/prompts/list_changed");
    tell(&mut server, &id, "notifications/resources/list_changed");
    tell(&mut server, &id, "notifications/resources/updated");
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.answer(id, json!({"resultType": "complete", "_meta": meta}));
    let mut heard = Vec::new();
    while let Some(change) = poll_fn(|cx| Pin::new(&mut subscription).poll_next(cx)).await {
        heard.push(change.unwrap());
    }

    let resource = Change::Resource("file:///a".into());
    let expected = [Change::Tools, Change::Prompts, Change::Resources, resource];
    assert_eq!(heard, expected);
    assert_eq!(subscription.ended(), Some(Ended::Graceful));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_says_whether_it_was_cancelled_or_lost() {
    let (client, mut server) = modern().await;
    let (mut cancelled, id) = subscribed(&client, &mut server).await;
    let (mut lost, _) = subscribed(&client, &mut server).await;

    server.notify("notifications/cancelled", json!({"requestId": id}));
    let cancelled_by = cancelled.next().await.unwrap_err();
    drop(server);
    let lost_by = lost.next().await.unwrap_err();

    assert!(matches!(cancelled_by, Error::Cancelled { .. }));
    assert_eq!(cancelled.ended(), Some(Ended::Cancelled));
    assert!(matches!(lost_by, Error::Closed | Error::Transport { .. }));
    assert_eq!(lost.ended(), Some(Ended::Lost));
    assert_eq!(lost.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_falls_behind_says_so_after_what_it_still_has_and_is_given_up() {
    let (client, mut server) = modern().await;
    let (mut subscription, id) = subscribed(&client, &mut server).await;

    for _ in 0..1_100 {
        tell(&mut server, &id, "notifications/tools/list_changed");
    }
    server.expect_nothing().await;
    let mut heard = 0;
    let hearing = async {
        loop {
            match subscription.next().await {
                Ok(Some(_)) => heard += 1,
                end => break end,
            }
        }
    };
    let end = tokio::time::timeout(Duration::from_secs(1), hearing).await;

    assert_eq!(heard, 1_024);
    assert!(matches!(end.expect("it ends"), Err(Error::Lagged)));
    assert_eq!(subscription.ended(), Some(Ended::Lagged));
    server.expect_cancel(&id).await;
}

/// Acknowledges a subscription, and says so much at once that nobody can take it in.
#[derive(Clone)]
struct Flood;

impl Responder for Flood {
    fn respond<'a>(&'a self, _: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let tools = Changes::new().tools().into();
            let granted = SubscriptionsAcknowledgedNotificationParams::new(tools);
            cx.notify::<SubscriptionsAcknowledgedNotification>(&granted);
            tokio::task::yield_now().await;
            for _ in 0..1_100 {
                let params = NotificationParams::default();
                cx.notify::<ToolListChangedNotification>(&params);
            }
            std::future::pending().await
        })
    }

    fn roots_changed(&self, _: &bowline::exchange::Caller) {}
}

#[tokio::test(start_paused = true)]
async fn a_subscription_in_process_that_falls_behind_says_so_too() {
    let client = Client::to(&Flood).speaking("2026-07-28").await.unwrap();
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();

    let hearing = async { while let Ok(Some(_)) = subscription.next().await {} };
    let heard = tokio::time::timeout(Duration::from_secs(1), hearing).await;

    assert!(heard.is_ok(), "it ends");
    assert_eq!(subscription.ended(), Some(Ended::Lagged));
}

#[tokio::test(start_paused = true)]
async fn a_legacy_subscription_that_falls_behind_says_so_too() {
    let (client, mut server) = legacy(json!({"tools": {"listChanged": true}})).await;
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();

    for _ in 0..1_100 {
        server.notify("notifications/tools/list_changed", json!({}));
    }
    server.expect_nothing().await;
    let mut heard = 0;
    while let Ok(Some(_)) = subscription.next().await {
        heard += 1;
    }

    assert_eq!((heard, subscription.ended()), (1_024, Some(Ended::Lagged)));
}

#[tokio::test(start_paused = true)]
async fn two_subscriptions_hear_what_is_theirs() {
    let (client, mut server) = modern().await;
    let (mut one, one_id) = subscribed(&client, &mut server).await;
    let (mut other, other_id) = subscribed(&client, &mut server).await;

    tell(&mut server, &other_id, "notifications/prompts/list_changed");
    tell(&mut server, &one_id, "notifications/tools/list_changed");

    assert_eq!(one.next().await.unwrap(), Some(Change::Tools));
    assert_eq!(other.next().await.unwrap(), Some(Change::Prompts));
}

#[tokio::test(start_paused = true)]
async fn watching_goes_on_after_a_loss_and_says_that_something_may_have_been_missed() {
    let (client, mut server) = modern().await;
    let (sender, mut heard) = mpsc::unbounded_channel();
    let mut watch = client.watch(Changes::new().tools());
    let watching = tokio::spawn(async move {
        while let Ok(Some(change)) = watch.next().await {
            sender.send(change).unwrap();
        }
    });

    let id = server.expect("subscriptions/listen").await.acknowledge();
    tell(&mut server, &id, "notifications/tools/list_changed");
    assert_eq!(heard.recv().await, Some(Change::Tools));
    server.notify("notifications/cancelled", json!({"requestId": id}));
    let id = server.expect("subscriptions/listen").await.acknowledge();
    assert_eq!(heard.recv().await, Some(Change::Missed));
    tell(&mut server, &id, "notifications/tools/list_changed");

    assert_eq!(heard.recv().await, Some(Change::Tools));
    watching.abort();
    assert_eq!(server.expect_cancel(&id).await, "caller cancelled");
}

#[tokio::test(start_paused = true)]
async fn watching_gives_up_when_the_server_refuses_time_after_time_and_waits_longer_each_time() {
    let (client, mut server) = modern().await;
    let mut watch = client.watch(Changes::new().tools()).most_failures(4);
    let watching = tokio::spawn(async move { watch.next().await });

    let mut waited = Vec::new();
    for _ in 0..4 {
        let since = tokio::time::Instant::now();
        let asked = server.expect("subscriptions/listen").await;
        waited.push(since.elapsed());
        asked.refuse(bowline::ErrorCode::INTERNAL_ERROR, "not today");
    }

    assert!(matches!(watching.await.unwrap(), Err(Error::Peer(_))));
    server.expect_nothing().await;
    assert!(waited[1] >= Duration::from_millis(100) && waited[1] <= Duration::from_millis(201));
    assert!(waited[3] >= Duration::from_millis(400) && waited[3] <= Duration::from_millis(801));
}

#[tokio::test(start_paused = true)]
async fn watching_ends_at_once_with_its_wire() {
    let (client, mut server) = modern().await;
    let mut watch = client.watch(Changes::new().tools());
    let watching = tokio::spawn(async move { (watch.next().await, watch.next().await) });
    let _ = server.expect("subscriptions/listen").await.acknowledge();

    let since = tokio::time::Instant::now();
    drop(server);
    let (first, second) = watching.await.unwrap();

    assert!(first.is_err());
    assert_eq!(second.unwrap(), None);
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn log_messages_reach_their_callback_in_both_eras() {
    let log = json!({"level": "warning", "logger": "db", "data": {"slow": true}});
    for is_modern in [true, false] {
        let (sender, mut logs) = mpsc::unbounded_channel();
        let on_log = move |log| sender.send(log).unwrap();
        let (client, mut server) = match is_modern {
            true => modern_with(|it| it.on_log(on_log)).await,
            false => legacy_with(json!({"tools": {}}), |it| it.on_log(on_log)).await,
        };

        let call = client.call_tool("x", ()).start();
        let asked = server.expect("tools/call").await;
        let asked = asked.notify("notifications/message", log.clone());
        asked.answer(json!({"content": []}));
        call.await.unwrap();
        let heard = logs.try_recv().expect("it comes before the answer");

        assert_eq!(heard.level, LoggingLevel::Warning);
        assert_eq!(heard.logger.as_deref(), Some("db"));
    }
}

#[tokio::test(start_paused = true)]
async fn log_messages_reach_their_callback_in_process() {
    let chatty = Tool::raw("chatty", json!({"type": "object"}), async |_, cx| {
        cx.log(LoggingLevel::Debug, json!("unheard"));
        cx.log(LoggingLevel::Error, json!("heard"));
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("chatty", "1.0.0").logging().tool(chatty);
    let (sender, mut logs) = mpsc::unbounded_channel();
    let connect = Client::to(&server).on_log(move |log| sender.send(log.data).unwrap());
    let client = connect.log_level(LoggingLevel::Warning).await.unwrap();

    client.call_tool("chatty", ()).await.unwrap();

    assert_eq!(logs.try_recv().unwrap(), json!("heard").into());
    assert!(logs.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn words_that_nobody_knows_reach_their_callback_once_and_so_do_changes() {
    for is_modern in [true, false] {
        let (sender, mut heard) = mpsc::unbounded_channel();
        let on_notification = move |notification: &bowline::exchange::Notification| {
            sender.send(notification.method.clone()).unwrap();
        };
        let choose = |it: bowline::client::Connect| it.on_notification(on_notification);
        let tools = json!({"tools": {"listChanged": true}});
        let (client, mut server) = match is_modern {
            true => modern_with(choose).await,
            false => legacy_with(tools, choose).await,
        };
        let (mut subscription, meta) = if is_modern {
            let (subscription, id) = subscribed(&client, &mut server).await;
            let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
            (subscription, meta)
        } else {
            let subscription = client.subscribe(Changes::new().tools()).await.unwrap();
            (subscription, json!({}))
        };

        server.notify("notifications/acme/moon", json!({}));
        server.notify("notifications/tools/list_changed", json!({"_meta": meta}));
        assert_eq!(subscription.next().await.unwrap(), Some(Change::Tools));

        assert_eq!(heard.try_recv().unwrap(), "notifications/acme/moon");
        assert_eq!(
            heard.try_recv().unwrap(),
            "notifications/tools/list_changed"
        );
        assert!(heard.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_does_not_take_the_connection_down() {
    let (client, mut server) = modern_with(|it| it.on_notification(|_| panic!("oh no"))).await;

    server.notify("notifications/acme/moon", json!({}));
    let call = client.call_tool("x", ()).start();
    server
        .expect("tools/call")
        .await
        .answer(json!({"content": []}));

    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_real_server_is_watched_in_process_and_over_a_wire_in_every_era() {
    for version in ["2026-07-28", "2025-11-25", "in process"] {
        let tool = Tool::raw("t", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("done"))
        });
        let server = Server::new("real", "1.0.0").tool(tool);
        let (near, far) = bowline::wire::memory();
        tokio::spawn(server.clone().serve(far));
        let client = match version {
            "in process" => Client::to(&server).await.unwrap(),
            version => Client::over(near).speaking(version).await.unwrap(),
        };
        let mut changes = client.subscribe(Changes::new().tools()).await.unwrap();
        // A legacy server listens for itself from `notifications/initialized` on, which this follows.
        client.list_tools().await.unwrap();

        server.changed().tools();

        assert_eq!(
            changes.next().await.unwrap(),
            Some(Change::Tools),
            "{version}"
        );
    }
}
