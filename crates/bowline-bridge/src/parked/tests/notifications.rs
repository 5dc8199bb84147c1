//! The notifications of a call while no client waits.

use bowline::exchange::{Notification, NotificationSink as _};
use bowline::{Json, RpcError};
use serde_json::{Value, json};

use super::fake::*;
use crate::parked::{KeptNotifications, ParkSettings, Resumed, Retry};

fn progress(value: u64) -> Notification {
    let params = json!({"progressToken": "first", "progress": value, "x": {"y": 1.0}});
    Notification::new("notifications/progress", Some(params.into()))
}

fn log(level: &str, data: &Value) -> Notification {
    let params = json!({"level": level, "data": data});
    Notification::new("notifications/message", Some(params.into()))
}

fn texts(notifications: &[Notification]) -> Vec<&str> {
    let params = notifications.iter().map(|it| it.params.as_ref());
    params
        .map(|params| params.map_or("", Json::as_str))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_last_progress_under_its_own_token() -> Result<(), RpcError> {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    let question = tokio::spawn(it.host.question(elicitation()));
    let (state, _) = input_required(run_front(it.call, it.upstream).await);
    for notification in [progress(1), log("info", &json!("a")), progress(2)] {
        assert!(it.events.send(FakeEvent::Notify(notification)).is_ok());
    }
    settle().await;

    let (request, ada) = (retry(&state, &["q1"]), ada());
    let retry = Retry::read(&request, &ada, "fake")?.unwrap();
    let resumed = calls.resume(&retry).await?;

    let Resumed::Running { notifications, .. } = &resumed else {
        panic!("{resumed:?}");
    };
    let expected = [
        r#"{"data":"a","level":"info"}"#,
        r#"{"progress":2,"progressToken":"second","x":{"y":1.0}}"#,
    ];
    assert_eq!(texts(notifications), expected);
    assert!(question.await.unwrap().is_ok());
    Ok(())
}

#[test]
fn the_last_32_log_messages_of_the_level_are_kept() {
    let kept = KeptNotifications::default();
    for number in 0..40 {
        kept.notify(log("info", &json!(number)));
    }
    kept.notify(log("debug", &json!("below the level")));
    kept.notify(Notification::new("notifications/tools/list_changed", None));

    let notifications = kept.take(&request(&json!({})));

    assert_eq!(notifications.len(), 31);
    assert_eq!(texts(&notifications)[0], r#"{"data":9,"level":"info"}"#);
    assert!(kept.take(&request(&json!({}))).is_empty());
}

#[test]
fn large_log_messages_displace_older_ones() {
    let kept = KeptNotifications::default();
    kept.notify(log("info", &json!("first")));
    kept.notify(log("info", &json!("x".repeat(100_000))));
    for _ in 0..3 {
        kept.notify(log("info", &json!("x".repeat(6_000))));
    }

    let notifications = kept.take(&request(&json!({})));

    assert_eq!(notifications.len(), 2);
}

#[test]
fn progress_is_dropped_if_the_retry_has_no_token() {
    let kept = KeptNotifications::default();
    kept.notify(progress(1));
    let mut request = request(&json!({}));
    request.progress_token = None;

    assert!(kept.take(&request).is_empty());
}
