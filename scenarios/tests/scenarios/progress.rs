//! Progress notifications and timeouts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::types::{ProgressNotificationParams, ProgressToken};
use bowline::{CallToolResult, Context, Error, Json, Progress, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{any_object, hanging_server, wait_for_handlers};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            progress_is_received_in_order_before_the_response,
            "protocol:progress:callback",
            "protocol:progress:monotonic",
            "tools:call:progress",
            "mcpserver:context:progress",
        ),
        scenario!(
            a_progress_token_is_sent_only_with_a_callback,
            "protocol:progress:token-injected",
            "protocol:progress:no-token",
        )
        .in_memory(),
        scenario!(
            each_call_receives_its_own_progress,
            "protocol:progress:token-unique"
        ),
        scenario!(
            progress_is_not_sent_after_the_response,
            "protocol:progress:stops-after-completion",
        )
        .in_memory(),
        scenario!(
            late_progress_is_dropped,
            "protocol:progress:late-dropped-by-client",
        )
        .in_memory(),
        scenario!(
            a_timed_out_call_fails_and_the_next_one_works,
            "protocol:timeout:basic",
            "protocol:timeout:session-survives",
            "protocol:timeout:session-default",
        )
        .in_one_process(),
        scenario!(
            a_timed_out_call_is_cancelled_at_the_server,
            "protocol:timeout:sends-cancellation",
        )
        .in_memory(),
        scenario!(
            progress_resets_the_idle_timeout_but_not_the_total,
            "protocol:timeout:reset-on-progress",
            "protocol:timeout:max-total",
        )
        .in_one_process(),
    ]
}

#[derive(Clone, Default)]
struct ReceivedProgress(Arc<Mutex<Vec<ProgressNotificationParams>>>);

impl ReceivedProgress {
    fn callback(&self) -> impl FnMut(ProgressNotificationParams) + Send + 'static {
        let received = self.0.clone();
        move |report| received.lock().unwrap().push(report)
    }

    fn values(&self) -> Vec<f64> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|report| report.progress)
            .collect()
    }
}

/// A tool that reports progress, some of it decreasing, and returns.
fn counting_tool() -> Tool {
    Tool::raw(
        "count",
        any_object(),
        async |arguments: Json, cx: Context| {
            let arguments: Value = arguments.decode().unwrap();
            let from = arguments["from"].as_f64().unwrap_or(0.0);
            cx.progress(Progress::new(from + 1.0).total(10.0).message("one"));
            cx.progress(from);
            cx.progress(from + 1.0);
            tokio::task::yield_now().await;
            cx.progress(from + 2.0);
            Ok(CallToolResult::text("counted"))
        },
    )
}

async fn progress_is_received_in_order_before_the_response(env: ScenarioEnv) {
    let client = env
        .connect(&Server::new("s", "1").tool(counting_tool()))
        .await;
    let received = ReceivedProgress::default();

    let reply = client
        .call_tool("count", ())
        .on_progress(received.callback())
        .await
        .unwrap();

    assert_eq!(reply.text(), "counted");
    assert_eq!(
        received.values(),
        [1.0, 2.0],
        "expected increasing progress only"
    );
    let first = received.0.lock().unwrap()[0].clone();
    assert_eq!(first.total, Some(10.0));
    if env.version() > "2024-11-05" {
        assert_eq!(first.message.as_deref(), Some("one"));
    }
}

async fn a_progress_token_is_sent_only_with_a_callback(env: ScenarioEnv) {
    let client = env
        .connect(&Server::new("s", "1").tool(counting_tool()))
        .await;
    let record = env.wire_record().unwrap();

    client.call_tool("count", ()).await.unwrap();
    record.clear();
    client
        .call_tool("count", ())
        .on_progress(|_| ())
        .await
        .unwrap();
    let wanted = record.frames();
    record.clear();
    client.call_tool("count", ()).await.unwrap();
    let unwanted = record.frames();

    let token = |frame: &Value| frame["params"]["_meta"]["progressToken"].clone();
    assert_ne!(token(&wanted[0].json()), Value::Null);
    assert_eq!(
        wanted.len(),
        4,
        "expected a request, two notifications and a response"
    );
    assert_eq!(
        wanted[1].json()["params"]["progressToken"],
        token(&wanted[0].json())
    );
    assert_eq!(token(&unwanted[0].json()), Value::Null);
    assert_eq!(unwanted.len(), 2, "expected a request and a response");
}

async fn each_call_receives_its_own_progress(env: ScenarioEnv) {
    let client = env
        .connect(&Server::new("s", "1").tool(counting_tool()))
        .await;
    let (low, high) = (ReceivedProgress::default(), ReceivedProgress::default());

    let from_low = client
        .call_tool("count", json!({"from": 0}))
        .on_progress(low.callback());
    let from_high = client
        .call_tool("count", json!({"from": 100}))
        .on_progress(high.callback());
    let (one, other) = tokio::join!(from_low, from_high);

    assert!(one.is_ok() && other.is_ok());
    assert_eq!(low.values(), [1.0, 2.0]);
    assert_eq!(high.values(), [101.0, 102.0]);
}

async fn progress_is_not_sent_after_the_response(env: ScenarioEnv) {
    let nudged = Arc::new(Notify::new());
    let nudge = nudged.clone();
    let linger = Tool::raw("linger", any_object(), move |_, cx: Context| {
        let nudged = nudged.clone();
        async move {
            cx.progress(1.0);
            tokio::spawn(async move {
                nudged.notified().await;
                cx.progress(2.0);
            });
            Ok(CallToolResult::text("done"))
        }
    });
    let nudge = Tool::raw("nudge", any_object(), move |_, _| {
        nudge.notify_one();
        async { Ok(CallToolResult::text("nudged")) }
    });
    let server = Server::new("s", "1").tool(linger).tool(nudge);
    let mut client = env.scripted_client(&server, json!({})).await;

    let params = json!({"name": "linger", "_meta": {"progressToken": "t"}});
    client.request(env.dialect(), "a", "tools/call", params);
    let report = client.expect_notification("notifications/progress").await;
    let answer = client.next_message().await;
    client.request(env.dialect(), "b", "tools/call", json!({"name": "nudge"}));
    let nudged = client.next_message().await;

    assert_eq!(
        (&report["progressToken"], &report["progress"]),
        (&json!("t"), &json!(1))
    );
    assert_eq!((&answer["id"], &nudged["id"]), (&json!("a"), &json!("b")));
    client.expect_nothing().await;
}

async fn late_progress_is_dropped(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let received = ReceivedProgress::default();
    let call = client
        .call_tool("count", ())
        .on_progress(received.callback());
    let counting = tokio::spawn(call.into_future());

    let request = server.expect("tools/call").await;
    let token: ProgressToken =
        serde_json::from_value(request.params()["_meta"]["progressToken"].clone()).unwrap();
    let report = |at: u8| json!({"progressToken": token, "progress": at});
    request
        .notify("notifications/progress", report(1))
        .answer(json!({"content": [], "resultType": "complete"}));
    server.notify("notifications/progress", report(2));
    counting.await.unwrap().unwrap();
    let next = tokio::spawn(client.call_tool("next", ()).into_future());
    server
        .expect("tools/call")
        .await
        .answer(json!({"content": [], "resultType": "complete"}));

    assert!(
        next.await.unwrap().is_ok(),
        "late progress affected the next call"
    );
    assert_eq!(received.values(), [1.0]);
}

async fn a_timed_out_call_fails_and_the_next_one_works(env: ScenarioEnv) {
    let limit = Duration::from_secs(7);
    let client = env
        .connect_with(&hanging_server(), |connect| connect.idle_timeout(limit))
        .await;

    let by_default = client.call_tool("hang", ()).await.unwrap_err();
    let by_wish = client
        .call_tool("hang", ())
        .idle_timeout(Duration::from_secs(3))
        .await
        .unwrap_err();
    wait_for_handlers(&client, 2, 2).await;

    assert!(
        matches!(by_default, Error::Timeout { after } if after == limit),
        "{by_default:?}"
    );
    assert!(
        matches!(by_wish, Error::Timeout { after } if after.as_secs() == 3),
        "{by_wish:?}"
    );
}

async fn a_timed_out_call_is_cancelled_at_the_server(env: ScenarioEnv) {
    let (client, mut server) = env.scripted_server(|connect| connect).await;
    let call = client
        .call_tool("slow", ())
        .idle_timeout(Duration::from_secs(3));
    let slow = tokio::spawn(call.into_future());

    let id = server.expect("tools/call").await.hold();

    server.expect_cancel(&id).await;
    assert!(matches!(slow.await.unwrap(), Err(Error::Timeout { .. })));
}

async fn progress_resets_the_idle_timeout_but_not_the_total(env: ScenarioEnv) {
    let steady = Tool::raw("steady", any_object(), async |_, cx: Context| {
        let mut minutes = tokio::time::interval(Duration::from_secs(60));
        for minute in 0..=10 {
            minutes.tick().await;
            cx.progress(f64::from(minute));
        }
        Ok(CallToolResult::text("ten minutes"))
    });
    let client = env.connect(&Server::new("s", "1").tool(steady)).await;
    let wait = Duration::from_secs(90);
    let call = || {
        client
            .call_tool("steady", ())
            .on_progress(|_| ())
            .idle_timeout(wait)
    };

    let patient = call().await;
    let impatient = call().timeout(Duration::from_secs(200)).await.unwrap_err();

    assert_eq!(patient.unwrap().text(), "ten minutes");
    assert!(
        matches!(impatient, Error::Timeout { after } if after.as_secs() == 200),
        "{impatient:?}"
    );
}
