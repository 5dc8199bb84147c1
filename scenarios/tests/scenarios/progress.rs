//! Progress, and how long a call may take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::types::{ProgressNotificationParams, ProgressToken};
use bowline::{CallToolResult, Context, Error, Json, Progress, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{anything, hanging, tally};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            progress_is_heard_in_order_before_the_answer,
            "protocol:progress:callback",
            "protocol:progress:monotonic",
            "tools:call:progress",
            "mcpserver:context:progress",
        ),
        scenario!(
            only_who_wants_progress_sends_a_token,
            "protocol:progress:token-injected",
            "protocol:progress:no-token",
        )
        .in_memory(),
        scenario!(
            each_call_hears_its_own_progress,
            "protocol:progress:token-unique"
        ),
        scenario!(
            after_the_answer_there_is_no_progress,
            "protocol:progress:stops-after-completion",
        )
        .in_memory(),
        scenario!(
            progress_that_comes_too_late_is_not_heard,
            "protocol:progress:late-dropped-by-client",
        )
        .in_memory(),
        scenario!(
            a_call_that_takes_too_long_fails_and_the_next_one_works,
            "protocol:timeout:basic",
            "protocol:timeout:session-survives",
            "protocol:timeout:session-default",
        )
        .in_one_process(),
        scenario!(
            a_call_that_takes_too_long_is_cancelled_at_the_other_end,
            "protocol:timeout:sends-cancellation",
        )
        .in_memory(),
        scenario!(
            progress_starts_the_wait_anew_but_not_the_total,
            "protocol:timeout:reset-on-progress",
            "protocol:timeout:max-total",
        )
        .in_one_process(),
    ]
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<ProgressNotificationParams>>>);

impl Heard {
    fn hear(&self) -> impl FnMut(ProgressNotificationParams) + Send + 'static {
        let heard = self.0.clone();
        move |report| heard.lock().unwrap().push(report)
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

/// A tool that counts, backwards too, and answers.
fn counting() -> Tool {
    Tool::raw("count", anything(), async |arguments: Json, cx: Context| {
        let arguments: Value = arguments.decode().unwrap();
        let from = arguments["from"].as_f64().unwrap_or(0.0);
        cx.progress(Progress::at(from + 1.0).of(10.0).message("one"));
        cx.progress(from);
        cx.progress(from + 1.0);
        tokio::task::yield_now().await;
        cx.progress(from + 2.0);
        Ok(CallToolResult::text("counted"))
    })
}

async fn progress_is_heard_in_order_before_the_answer(world: World) {
    let client = world.connect(&Server::new("s", "1").tool(counting())).await;
    let heard = Heard::default();

    let reply = client
        .call_tool("count", ())
        .on_progress(heard.hear())
        .await
        .unwrap();

    assert_eq!(reply.text(), "counted");
    assert_eq!(heard.values(), [1.0, 2.0], "what does not grow is not sent");
    let first = heard.0.lock().unwrap()[0].clone();
    assert_eq!(first.total, Some(10.0));
    if world.version() > "2024-11-05" {
        assert_eq!(first.message.as_deref(), Some("one"));
    }
}

async fn only_who_wants_progress_sends_a_token(world: World) {
    let client = world.connect(&Server::new("s", "1").tool(counting())).await;
    let tapped = world.tapped().unwrap();

    client.call_tool("count", ()).await.unwrap();
    tapped.clear();
    client
        .call_tool("count", ())
        .on_progress(|_| ())
        .await
        .unwrap();
    let wanted = tapped.frames();
    tapped.clear();
    client.call_tool("count", ()).await.unwrap();
    let unwanted = tapped.frames();

    let token = |frame: &Value| frame["params"]["_meta"]["progressToken"].clone();
    assert_ne!(token(&wanted[0].json()), Value::Null);
    assert_eq!(wanted.len(), 4, "a request, two reports and an answer");
    assert_eq!(
        wanted[1].json()["params"]["progressToken"],
        token(&wanted[0].json())
    );
    assert_eq!(token(&unwanted[0].json()), Value::Null);
    assert_eq!(unwanted.len(), 2, "a request and an answer");
}

async fn each_call_hears_its_own_progress(world: World) {
    let client = world.connect(&Server::new("s", "1").tool(counting())).await;
    let (low, high) = (Heard::default(), Heard::default());

    let from_low = client
        .call_tool("count", json!({"from": 0}))
        .on_progress(low.hear());
    let from_high = client
        .call_tool("count", json!({"from": 100}))
        .on_progress(high.hear());
    let (one, other) = tokio::join!(from_low, from_high);

    assert!(one.is_ok() && other.is_ok());
    assert_eq!(low.values(), [1.0, 2.0]);
    assert_eq!(high.values(), [101.0, 102.0]);
}

async fn after_the_answer_there_is_no_progress(world: World) {
    let nudged = Arc::new(Notify::new());
    let nudge = nudged.clone();
    let linger = Tool::raw("linger", anything(), move |_, cx: Context| {
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
    let nudge = Tool::raw("nudge", anything(), move |_, _| {
        nudge.notify_one();
        async { Ok(CallToolResult::text("nudged")) }
    });
    let server = Server::new("s", "1").tool(linger).tool(nudge);
    let mut client = world.scripted_client(&server, json!({})).await;

    let params = json!({"name": "linger", "_meta": {"progressToken": "t"}});
    client.request(world.dialect(), "a", "tools/call", params);
    let report = client.expect_notification("notifications/progress").await;
    let answer = client.hear().await;
    client.request(world.dialect(), "b", "tools/call", json!({"name": "nudge"}));
    let nudged = client.hear().await;

    assert_eq!(
        (&report["progressToken"], &report["progress"]),
        (&json!("t"), &json!(1))
    );
    assert_eq!((&answer["id"], &nudged["id"]), (&json!("a"), &json!("b")));
    client.expect_nothing().await;
}

async fn progress_that_comes_too_late_is_not_heard(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| connect)
        .await;
    let heard = Heard::default();
    let call = client.call_tool("count", ()).on_progress(heard.hear());
    let counting = tokio::spawn(call.into_future());

    let asked = server.expect("tools/call").await;
    let token: ProgressToken =
        serde_json::from_value(asked.params()["_meta"]["progressToken"].clone()).unwrap();
    let report = |at: u8| json!({"progressToken": token, "progress": at});
    asked
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
        "what came too late does no harm"
    );
    assert_eq!(heard.values(), [1.0]);
}

async fn a_call_that_takes_too_long_fails_and_the_next_one_works(world: World) {
    let limit = Duration::from_secs(7);
    let client = world
        .connect_with(&hanging(), |connect| connect.timeout(limit))
        .await;

    let by_default = client.call_tool("hang", ()).await.unwrap_err();
    let by_wish = client
        .call_tool("hang", ())
        .timeout(Duration::from_secs(3))
        .await
        .unwrap_err();
    tally(&client, 2, 2).await;

    assert!(
        matches!(by_default, Error::Timeout { after } if after == limit),
        "{by_default:?}"
    );
    assert!(
        matches!(by_wish, Error::Timeout { after } if after.as_secs() == 3),
        "{by_wish:?}"
    );
}

async fn a_call_that_takes_too_long_is_cancelled_at_the_other_end(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({"tools": {}}), |connect| connect)
        .await;
    let call = client.call_tool("slow", ()).timeout(Duration::from_secs(3));
    let slow = tokio::spawn(call.into_future());

    let id = server.expect("tools/call").await.hold();

    server.expect_cancel(&id).await;
    assert!(matches!(slow.await.unwrap(), Err(Error::Timeout { .. })));
}

async fn progress_starts_the_wait_anew_but_not_the_total(world: World) {
    let steady = Tool::raw("steady", anything(), async |_, cx: Context| {
        let mut minutes = tokio::time::interval(Duration::from_secs(60));
        for minute in 0..=10 {
            minutes.tick().await;
            cx.progress(f64::from(minute));
        }
        Ok(CallToolResult::text("ten minutes"))
    });
    let client = world.connect(&Server::new("s", "1").tool(steady)).await;
    let wait = Duration::from_secs(90);
    let call = || {
        client
            .call_tool("steady", ())
            .on_progress(|_| ())
            .timeout(wait)
    };

    let patient = call().await;
    let impatient = call()
        .total_timeout(Duration::from_secs(200))
        .await
        .unwrap_err();

    assert_eq!(patient.unwrap().text(), "ten minutes");
    assert!(
        matches!(impatient, Error::Timeout { after } if after.as_secs() == 200),
        "{impatient:?}"
    );
}
