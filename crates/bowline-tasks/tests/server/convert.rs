//! Calls that become tasks when they take long.

use std::time::Duration;

use bowline::exchange::InputError;
use bowline::types::CreateMessageRequestParams;
use bowline::{CancelMode, Context, Progress, Tool, ToolError};
use bowline_tasks::store::StoreLimits;
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use crate::support::{Counter, SECOND, TestClient, accept, server, store, store_with};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// A tool that takes so many seconds, and reports each.
fn works(seconds: u64, runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("works", move |cx: Context| {
        runs.add();
        async move {
            for second in 1..=seconds {
                sleep(SECOND).await;
                cx.progress(Progress::new(second).message(format!("second {second}")));
            }
            "done"
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_short_call_stays_a_call() {
    let tool = works(2, &Counter::default()).with_settings(TaskSettings::new().after(3 * SECOND));
    let server = server(Tasks::new(store()), [tool]);
    let mut client = TestClient::new(&server);

    let result = client.call("works", json!({})).await.unwrap();

    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["content"][0]["text"], "done");
    // Without a progress token there are no progress notifications.
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_call_becomes_a_task_and_runs_on() {
    let runs = Counter::default();
    let after = Duration::from_millis(2500);
    let tool = works(5, &runs).with_settings(TaskSettings::new().after(after));
    let server = server(Tasks::new(store()), [tool]);
    let mut client = TestClient::new(&server);

    let params = json!({"name": "works", "_meta": {"progressToken": "t"}});
    let created = client.request("tools/call", params).await.unwrap();

    assert_eq!(created["resultType"], "task");
    assert_eq!(created["createdAt"], "2026-07-28T12:00:02.500Z");
    for second in 1..=2 {
        let progress = client.notification("notifications/progress").await;
        assert_eq!(
            (&progress["progress"], &progress["progressToken"]),
            (&json!(second), &json!("t"))
        );
    }
    let id = created["taskId"].as_str().unwrap();
    sleep(SECOND / 10).await;
    assert_eq!(client.get(id).await.unwrap()["statusMessage"], "second 2");
    let done = client.wait_for(id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(done["statusMessage"], "second 5");
    assert_eq!(runs.get(), 1);
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn tools_without_settings_become_tasks_if_the_extension_says_so() {
    let server = server(
        Tasks::new(store()).task_after(SECOND),
        [works(3, &Counter::default())],
    );
    let mut client = TestClient::new(&server);

    let id = client.start("works").await;

    client.wait_for(&id, "completed").await;
}

/// Asks for a name, works for a while, and asks for another one.
fn greets(runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("greets", move |cx: Context| {
        runs.add();
        async move {
            let first = cx.elicit::<Name>("first", "Who?").await?.name;
            sleep(SECOND).await;
            let second = cx.elicit::<Name>("second", "Who else?").await?.name;
            Ok::<_, ToolError>(format!("Hello, {first} and {second}!"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_question_before_the_task_is_an_ordinary_round() {
    let runs = Counter::default();
    let settings = TaskSettings::new().required().after(Duration::ZERO);
    let server = server(Tasks::new(store()), [greets(&runs).with_settings(settings)]);
    let mut client = TestClient::new(&server);

    let round = client.call("greets", json!({})).await.unwrap();
    assert_eq!(round["resultType"], "input_required");
    assert_eq!(round.get("taskId"), None);
    let first = json!({"first": accept(json!({"name": "Ada"}))});
    let params = json!({
        "name": "greets", "arguments": {},
        "inputResponses": first, "requestState": round["requestState"],
    });
    let created = client.request("tools/call", params).await.unwrap();
    assert_eq!(created["resultType"], "task");

    let id = created["taskId"].as_str().unwrap();
    let waiting = client.wait_for(id, "input_required").await;
    let keys: Vec<_> = waiting["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(keys, ["second"]);
    let second = json!({"second": accept(json!({"name": "Bo"}))});
    client.update(id, second).await.unwrap();
    let done = client.wait_for(id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada and Bo!");
    assert_eq!(runs.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_as_a_call_is_journalled() {
    let (runs, effects) = (Counter::default(), Counter::default());
    let (counted, performed) = (runs.clone(), effects.clone());
    let works = move |cx: Context| {
        let (run, effects) = (counted.add(), performed.clone());
        async move {
            let before: Option<usize> = cx.recall().await?;
            cx.remember(&run).await?;
            let first = cx.step("first", async { effects.add() }).await?;
            // Begins as a call and ends as a task.
            let step = async {
                sleep(3 * SECOND).await;
                effects.add()
            };
            let second = cx.step("second", step).await?;
            if run == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, InputError>(format!("{first} {second} {before:?}"))
        }
    };
    let settings = TaskSettings::new().at_most_once().after(2 * SECOND);
    let works = Tool::new("works", works).with_settings(settings);
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let mut client = TestClient::new(&first);
    let id = client.start("works").await;
    sleep(3 * SECOND).await;
    drop((client, first));

    let second = server(Tasks::new(store), [works]);
    let done = TestClient::new(&second).wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "1 2 Some(1)");
    assert_eq!((runs.get(), effects.get()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_interrupted_after_the_conversion_is_not_run_again() {
    let effects = Counter::default();
    let performed = effects.clone();
    let works = move |cx: Context| {
        let effects = performed.clone();
        async move {
            let step = async {
                effects.add();
                std::future::pending::<()>().await;
            };
            cx.step("pay", step).await
        }
    };
    let settings = TaskSettings::new().at_most_once().after(2 * SECOND);
    let works = Tool::new("works", works).with_settings(settings);
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let mut client = TestClient::new(&first);
    let id = client.start("works").await;
    drop((client, first));

    let second = server(Tasks::new(store), [works]);
    let failed = TestClient::new(&second).wait_for(&id, "failed").await;

    let message = failed["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("step `pay` was interrupted"),
        "{message}"
    );
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_become_a_task_stays_a_call() {
    let limits = StoreLimits::new().max_unfinished_per_principal(0);
    let tool = works(5, &Counter::default()).with_settings(TaskSettings::new().after(SECOND));
    let server = server(Tasks::new(store_with(limits)), [tool]);
    let mut client = TestClient::new(&server);

    let result = client.call("works", json!({})).await.unwrap();

    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_missing_capability_is_a_protocol_error_as_in_any_call() {
    let asks = Tool::new("asks", async |cx: Context| -> Result<String, ToolError> {
        let params = CreateMessageRequestParams::new(Vec::new(), 10);
        cx.sample("prompt", &params).await?;
        Ok("sampled".to_owned())
    });
    let server = server(
        Tasks::new(store()),
        [asks.with_settings(TaskSettings::new().after(SECOND))],
    );
    let mut client = TestClient::new(&server);

    let error = client.call("asks", json!({})).await.unwrap_err();

    assert_eq!(error["code"], -32021, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_drops_its_handler_or_signals_it() {
    for mode in [CancelMode::Drop, CancelMode::Signal] {
        let (dropped, ended) = (Counter::default(), Counter::default());
        let (guarded, counted) = (dropped.clone(), ended.clone());
        let works = move |cx: Context| {
            let (guard, ended) = (guarded.on_drop(), counted.clone());
            async move {
                cx.cancelled().await;
                sleep(SECOND).await;
                ended.add();
                drop(guard);
            }
        };
        let works = Tool::new("works", works).cancel_mode(mode);
        let works = works.with_settings(TaskSettings::new().after(10 * SECOND));
        let server = server(Tasks::new(store()), [works]);
        let mut client = TestClient::new(&server);

        let id = client.send("tools/call", json!({"name": "works"}));
        sleep(SECOND).await;
        client.cancel_request(id);
        sleep(2 * SECOND).await;

        assert_eq!(dropped.get(), 1);
        let expected = usize::from(mode == CancelMode::Signal);
        assert_eq!(ended.get(), expected, "{mode:?}");
        client.expect_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_round_before_the_task_is_not_asked_for_again_after_a_restart() {
    let runs = Counter::default();
    let counted = runs.clone();
    let greets = move |cx: Context| {
        let run = counted.add();
        async move {
            let name = cx.elicit::<Name>("name", "Who?").await?.name;
            if run == 2 {
                std::future::pending::<()>().await;
            }
            Ok::<_, ToolError>(format!("Hello, {name}!"))
        }
    };
    let settings = TaskSettings::new().resumable().after(SECOND);
    let greets = Tool::new("greets", greets).with_settings(settings);
    let store = store();
    let first = server(Tasks::new(store.clone()), [greets.clone()]);
    let mut client = TestClient::new(&first);
    let round = client.call("greets", json!({})).await.unwrap();
    let params = json!({
        "name": "greets", "arguments": {},
        "inputResponses": {"name": accept(json!({"name": "Ada"}))},
        "requestState": round["requestState"],
    });
    let created = client.request("tools/call", params).await.unwrap();
    let id = created["taskId"].as_str().unwrap().to_owned();
    drop((client, first));

    let second = server(Tasks::new(store), [greets]);
    let done = TestClient::new(&second).wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!");
    assert_eq!(runs.get(), 3);
}
