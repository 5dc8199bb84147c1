//! Notifications of a server: changes, log messages, and unknown methods.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Host, Subscription, SubscriptionEnd};
use bowline::exchange::{Outcome, Request};
use bowline::testing::ScriptedPeer;
use bowline::types::{
    LoggingLevel, NotificationParams, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, ToolListChangedNotification,
};
use bowline::{CallToolResult, Client, Context, Error, RequestId, Server, Tool};
use futures_core::Stream;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{call_x, legacy, legacy_with, modern, modern_with};

async fn subscribed(client: &Client, server: &mut ScriptedPeer) -> (Subscription, RequestId) {
    let subscribing = client.subscribe(ChangeFilter::lists().resource("file:///a"));
    let subscribing = tokio::spawn(subscribing.into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    (subscribing.await.unwrap().unwrap(), id)
}

fn notify_subscription(server: &mut ScriptedPeer, id: &RequestId, method: &str) {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.notify(method, json!({"_meta": meta, "uri": "file:///a"}));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_sends_its_filter_and_returns_the_acknowledged_one() {
    let (client, mut server) = modern().await;

    let filter = ChangeFilter::new()
        .tools()
        .resource("file:///a")
        .resource("file:///b");
    let subscribing = tokio::spawn(client.subscribe(filter).into_future());
    let request = server.expect("subscriptions/listen").await;
    let uris = json!(["file:///a", "file:///b"]);
    let expected = json!({"toolsListChanged": true, "resourceSubscriptions": uris});
    assert_eq!(request.params()["notifications"], expected);
    let meta = json!({"io.modelcontextprotocol/subscriptionId": request.id()});
    let granted = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let _ = request
        .notify("notifications/subscriptions/acknowledged", granted)
        .hold();
    let subscription = subscribing.await.unwrap().unwrap();

    assert_eq!(
        subscription.acknowledged_filter(),
        &ChangeFilter::new().tools().into()
    );
}

/// A legacy server requests the roots twice before it answers `resources/subscribe`, and the host takes 50 s each time.
#[tokio::test(start_paused = true)]
async fn the_time_of_the_host_does_not_count_towards_an_acknowledgement() {
    let host = Host::new().roots(async || {
        sleep(Duration::from_secs(50)).await;
        Vec::new()
    });
    let capabilities = json!({"resources": {"subscribe": true}});
    let (client, mut server) = legacy_with(capabilities, |connect| connect.host(host)).await;
    let subscribing = client.subscribe(ChangeFilter::new().resource("file:///a"));
    let subscribing = tokio::spawn(subscribing.into_future());
    let id = server.expect("resources/subscribe").await.hold();

    for request in ["1", "2"] {
        server.call(request, "roots/list", json!({})).await;
    }
    server.answer(id, json!({}));

    let subscription = subscribing.await.unwrap();
    assert!(subscription.is_ok(), "{subscription:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_yields_queued_changes_before_its_graceful_end() {
    let (client, mut server) = modern().await;
    let (mut subscription, id) = subscribed(&client, &mut server).await;

    notify_subscription(&mut server, &id, "notifications/tools/list_changed");
    notify_subscription(&mut server, &id, "notifications/prompts/list_changed");
    notify_subscription(&mut server, &id, "notifications/resources/list_changed");
    notify_subscription(&mut server, &id, "notifications/resources/updated");
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.answer(id, json!({"resultType": "complete", "_meta": meta}));
    let mut received = Vec::new();
    while let Some(change) = poll_fn(|cx| Pin::new(&mut subscription).poll_next(cx)).await {
        received.push(change.unwrap());
    }

    let resource = Change::Resource("file:///a".into());
    let expected = [Change::Tools, Change::Prompts, Change::Resources, resource];
    assert_eq!(received, expected);
    assert_eq!(subscription.ended(), Some(SubscriptionEnd::Graceful));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_reports_whether_it_was_cancelled_or_lost() {
    let (client, mut server) = modern().await;
    let (mut cancelled, id) = subscribed(&client, &mut server).await;
    let (mut lost, _) = subscribed(&client, &mut server).await;

    server.notify("notifications/cancelled", json!({"requestId": id}));
    let cancelled_by = cancelled.next().await.unwrap_err();
    drop(server);
    let lost_by = lost.next().await.unwrap_err();

    assert!(matches!(cancelled_by, Error::Cancelled { .. }));
    assert_eq!(cancelled.ended(), Some(SubscriptionEnd::Cancelled));
    assert!(matches!(lost_by, Error::Closed | Error::Transport { .. }));
    assert_eq!(lost.ended(), Some(SubscriptionEnd::Lost));
    assert_eq!(lost.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lagging_subscription_yields_its_queue_then_fails_and_is_cancelled() {
    let (client, mut server) = modern().await;
    let (mut subscription, id) = subscribed(&client, &mut server).await;

    for _ in 0..1_100 {
        notify_subscription(&mut server, &id, "notifications/tools/list_changed");
    }
    server.expect_nothing().await;
    let mut received = 0;
    let receiving = async {
        loop {
            match subscription.next().await {
                Ok(Some(_)) => received += 1,
                end => break end,
            }
        }
    };
    let end = tokio::time::timeout(Duration::from_secs(1), receiving).await;

    assert_eq!(received, 1_024);
    assert!(matches!(
        end.expect("the subscription ends"),
        Err(Error::Lagged)
    ));
    assert_eq!(subscription.ended(), Some(SubscriptionEnd::Lagged));
    server.expect_cancel(&id).await;
}

/// Acknowledges a subscription, then sends more notifications than the queue holds.
async fn flood(_: Request, cx: Context) -> Outcome {
    let tools = ChangeFilter::new().tools().into();
    let granted = SubscriptionsAcknowledgedNotificationParams::new(tools);
    cx.notify::<SubscriptionsAcknowledgedNotification>(&granted);
    tokio::task::yield_now().await;
    for _ in 0..1_100 {
        let params = NotificationParams::default();
        cx.notify::<ToolListChangedNotification>(&params);
    }
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_lagging_in_process_subscription_fails() {
    let client = Client::in_process(&flood)
        .protocol_version("2026-07-28")
        .await
        .unwrap();
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    let receiving = async { while let Ok(Some(_)) = subscription.next().await {} };
    let received = tokio::time::timeout(Duration::from_secs(1), receiving).await;

    assert!(received.is_ok(), "the subscription ends");
    assert_eq!(subscription.ended(), Some(SubscriptionEnd::Lagged));
}

#[tokio::test(start_paused = true)]
async fn a_lagging_legacy_subscription_fails() {
    let (client, mut server) = legacy(json!({"tools": {"listChanged": true}})).await;
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    for _ in 0..1_100 {
        server.notify("notifications/tools/list_changed", json!({}));
    }
    server.expect_nothing().await;
    let mut received = 0;
    while let Ok(Some(_)) = subscription.next().await {
        received += 1;
    }

    assert_eq!(
        (received, subscription.ended()),
        (1_024, Some(SubscriptionEnd::Lagged))
    );
}

#[tokio::test(start_paused = true)]
async fn notifications_are_routed_by_subscription_id() {
    let (client, mut server) = modern().await;
    let (mut one, one_id) = subscribed(&client, &mut server).await;
    let (mut other, other_id) = subscribed(&client, &mut server).await;

    notify_subscription(&mut server, &other_id, "notifications/prompts/list_changed");
    notify_subscription(&mut server, &one_id, "notifications/tools/list_changed");

    assert_eq!(one.next().await.unwrap(), Some(Change::Tools));
    assert_eq!(other.next().await.unwrap(), Some(Change::Prompts));
}

#[tokio::test(start_paused = true)]
async fn a_watch_resubscribes_after_a_loss_and_reports_missed_changes() {
    let (client, mut server) = modern().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let mut watch = client.watch(ChangeFilter::new().tools());
    let watching = tokio::spawn(async move {
        while let Ok(Some(change)) = watch.next().await {
            sender.send(change).unwrap();
        }
    });

    let id = server.expect("subscriptions/listen").await.acknowledge();
    notify_subscription(&mut server, &id, "notifications/tools/list_changed");
    assert_eq!(received.recv().await, Some(Change::Tools));
    server.notify("notifications/cancelled", json!({"requestId": id}));
    let id = server.expect("subscriptions/listen").await.acknowledge();
    assert_eq!(received.recv().await, Some(Change::Missed));
    notify_subscription(&mut server, &id, "notifications/tools/list_changed");

    assert_eq!(received.recv().await, Some(Change::Tools));
    watching.abort();
    assert_eq!(server.expect_cancel(&id).await, "caller cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_its_acknowledgement_and_loses_no_change() {
    let (client, mut server) = modern().await;
    let mut watch = client.watch(ChangeFilter::new().tools());
    let watching = tokio::spawn(async move {
        let acknowledged = watch.subscribed().await;
        (watch, acknowledged)
    });
    let request = server.expect("subscriptions/listen").await;
    assert!(!watching.is_finished());
    let id = request.acknowledge();
    let (mut watch, acknowledged) = watching.await.unwrap();
    acknowledged.unwrap();

    notify_subscription(&mut server, &id, "notifications/tools/list_changed");
    watch.subscribed().await.unwrap();

    assert_eq!(watch.next().await.unwrap(), Some(Change::Tools));
}

#[tokio::test(start_paused = true)]
async fn a_watch_backs_off_and_fails_after_the_maximum_of_failures() {
    let (client, mut server) = modern().await;
    let mut watch = client.watch(ChangeFilter::new().tools()).max_failures(4);
    let watching = tokio::spawn(async move { watch.next().await });

    let mut waited = Vec::new();
    for _ in 0..4 {
        let since = tokio::time::Instant::now();
        let request = server.expect("subscriptions/listen").await;
        waited.push(since.elapsed());
        request.answer_error(bowline::ErrorCode::INTERNAL_ERROR, "not today");
    }

    assert!(matches!(watching.await.unwrap(), Err(Error::Rpc(_))));
    server.expect_nothing().await;
    assert!(waited[1] >= Duration::from_millis(100) && waited[1] <= Duration::from_millis(201));
    assert!(waited[3] >= Duration::from_millis(400) && waited[3] <= Duration::from_millis(801));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_immediately_when_its_wire_closes() {
    let (client, mut server) = modern().await;
    let mut watch = client.watch(ChangeFilter::new().tools());
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
        let request = server.expect("tools/call").await;
        let request = request.notify("notifications/message", log.clone());
        request.answer(json!({"content": []}));
        call.await.unwrap();
        let received = logs
            .try_recv()
            .expect("the log message precedes the result");

        assert_eq!(received.level, LoggingLevel::Warning);
        assert_eq!(received.logger.as_deref(), Some("db"));
    }
}

#[tokio::test(start_paused = true)]
async fn log_messages_reach_their_callback_in_process() {
    let logger = Tool::raw("logger", json!({"type": "object"}), async |_, cx| {
        cx.log(LoggingLevel::Debug, json!("filtered"));
        cx.log(LoggingLevel::Error, json!("logged"));
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("logger", "1.0.0").logging().tool(logger);
    let (sender, mut logs) = mpsc::unbounded_channel();
    let connect = Client::in_process(&server).on_log(move |log| sender.send(log.data).unwrap());
    let client = connect.log_level(LoggingLevel::Warning).await.unwrap();

    client.call_tool("logger", ()).await.unwrap();

    assert_eq!(logs.try_recv().unwrap(), json!("logged").into());
    assert!(logs.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn unknown_notifications_and_changes_reach_the_callback_once() {
    for is_modern in [true, false] {
        let (sender, mut received) = mpsc::unbounded_channel();
        let on_notification = move |notification: &bowline::exchange::Notification| {
            sender.send(notification.method.clone()).unwrap();
        };
        let configure = |it: bowline::client::ClientBuilder| it.on_notification(on_notification);
        let tools = json!({"tools": {"listChanged": true}});
        let (client, mut server) = match is_modern {
            true => modern_with(configure).await,
            false => legacy_with(tools, configure).await,
        };
        let (mut subscription, meta) = if is_modern {
            let (subscription, id) = subscribed(&client, &mut server).await;
            let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
            (subscription, meta)
        } else {
            let subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
            (subscription, json!({}))
        };

        server.notify("notifications/acme/moon", json!({}));
        server.notify("notifications/tools/list_changed", json!({"_meta": meta}));
        assert_eq!(subscription.next().await.unwrap(), Some(Change::Tools));

        assert_eq!(received.try_recv().unwrap(), "notifications/acme/moon");
        assert_eq!(
            received.try_recv().unwrap(),
            "notifications/tools/list_changed"
        );
        assert!(received.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_callback_does_not_close_the_connection() {
    let (client, mut server) = modern_with(|it| it.on_notification(|_| panic!("oh no"))).await;

    server.notify("notifications/acme/moon", json!({}));
    call_x(&client, &mut server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_subscription_receives_changes_in_process_and_over_a_wire_in_every_era() {
    for version in ["2026-07-28", "2025-11-25", "in process"] {
        let tool = Tool::raw("t", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("done"))
        });
        let server = Server::new("real", "1.0.0").tool(tool);
        let (near, far) = bowline::wire::memory();
        tokio::spawn(server.clone().serve(far));
        let client = match version {
            "in process" => Client::in_process(&server).await.unwrap(),
            version => Client::from_wire(near)
                .protocol_version(version)
                .await
                .unwrap(),
        };
        let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
        // A legacy server sends notifications after `notifications/initialized`, which precedes this request.
        client.list_tools().await.unwrap();

        server.changed().tools();

        assert_eq!(
            changes.next().await.unwrap(),
            Some(Change::Tools),
            "{version}"
        );
    }
}
