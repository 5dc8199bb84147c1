//! Processes that die or lose their lease. Two servers with one store are two processes.

use std::sync::Arc;

use bowline::exchange::InputError;
use bowline::{CancelMode, Context, Server, Tool, ToolError};
use bowline_tasks::store::MemoryStore;
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::faulty_store::FaultyStore;
use crate::support::{Counter, SECOND, TestClient, accept, hangs, pass, server, store};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Starts a process with a tool.
fn process(store: &Arc<MemoryStore>, tool: &Tool) -> Server {
    server(Tasks::new(store.clone()), [tool.clone()])
}

/// Ends a process, with everything that it runs.
async fn crash(server: Server, client: TestClient) {
    drop(client);
    drop(server);
    pass(SECOND / 1000).await;
}

/// Counts the runs of a handler. The first one ends with its process.
#[derive(Clone, Default)]
struct Runs(Counter);

impl Runs {
    /// Waits for the end of the process if this is the first run.
    async fn hang_first(&self) {
        if self.0.add() == 1 {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_with_a_journalled_result_does_not_run() {
    let (runs, effects) = (Runs::default(), Counter::default());
    let (counted, performed) = (runs.clone(), effects.clone());
    let works = move |cx: Context| {
        let (runs, effects) = (counted.clone(), performed.clone());
        async move {
            let mut sum = 0;
            for _ in 0..2 {
                sum += cx.step("add", async { effects.add() }).await?;
            }
            sum += 10 * cx.once("once", async { effects.add() }).await?;
            runs.hang_first().await;
            sum += 100 * cx.step("add", async { effects.add() }).await?;
            Ok::<_, InputError>(format!("{sum}"))
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().resumable());
    let store = store();
    let first = process(&store, &works);
    let mut client = TestClient::new(&first);
    let id = client.start("works").await;
    pass(SECOND).await;
    assert_eq!(effects.get(), 3);
    crash(first, client).await;

    let second = process(&store, &works);
    let mut client = TestClient::new(&second);
    let started = Instant::now();
    let done = client.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "433");
    assert_eq!((runs.0.get(), effects.get()), (2, 4));
    assert!(started.elapsed() < 9 * SECOND, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_step_runs_again_or_fails_the_task() {
    for is_at_most_once in [false, true] {
        let (runs, effects) = (Runs::default(), Counter::default());
        let (counted, performed) = (runs.clone(), effects.clone());
        let works = move |cx: Context| {
            let (runs, effects) = (counted.clone(), performed.clone());
            async move {
                let step = async {
                    effects.add();
                    runs.hang_first().await;
                };
                // What the handler makes of an error does not matter.
                drop(cx.step("pay", step).await);
                "paid"
            }
        };
        let settings = TaskSettings::new().resumable();
        let settings = if is_at_most_once {
            settings.at_most_once()
        } else {
            settings
        };
        let works = Tool::new("works", works).with_settings(settings);
        let store = store();
        let first = process(&store, &works);
        let mut client = TestClient::new(&first);
        let id = client.start("works").await;
        pass(SECOND).await;
        crash(first, client).await;

        let second = process(&store, &works);
        let mut client = TestClient::new(&second);
        if is_at_most_once {
            let failed = client.wait_for(&id, "failed").await;
            let message = failed["error"]["message"].as_str().unwrap();
            assert!(
                message.starts_with("step `pay` was interrupted; it may have run"),
                "{message}"
            );
            assert_eq!(effects.get(), 1);
        } else {
            let done = client.wait_for(&id, "completed").await;
            assert_eq!(done["result"]["content"][0]["text"], "paid");
            assert_eq!(effects.get(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_failed_may_be_tried_again_in_at_least_once() {
    let attempts = Counter::default();
    let counted = attempts.clone();
    let works = move |cx: Context| {
        let attempts = counted.clone();
        async move {
            let attempt = || {
                cx.try_once("pay", async {
                    match attempts.add() {
                        1 => Err(ToolError::new("out of order")),
                        nth => Ok(nth),
                    }
                })
            };
            let failed = attempt().await.is_err();
            Ok::<_, ToolError>(format!("{failed} {}", attempt().await?))
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().resumable());
    let server = process(&store(), &works);
    let mut client = TestClient::new(&server);

    let id = client.start("works").await;
    let done = client.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "true 2");
}

/// Asks for a name, and greets.
fn greet(runs: &Runs) -> Tool {
    let runs = runs.clone();
    let greet = move |cx: Context| {
        let runs = runs.clone();
        async move {
            let name = cx.elicit::<Name>("name", "Who?").await?.name;
            runs.hang_first().await;
            let whoami = cx.principal().name().unwrap_or("anonymous").to_owned();
            Ok::<_, ToolError>(format!("Hello, {name}, from {whoami}!"))
        }
    };
    Tool::new("greet", greet).with_settings(TaskSettings::new().resumable())
}

#[tokio::test(start_paused = true)]
async fn an_answered_question_is_not_asked_again_after_a_restart() {
    let store = store();
    let greet = greet(&Runs::default());
    let first = process(&store, &greet);
    let mut client = TestClient::of_principal(&first, "ada");
    let id = client.start("greet").await;
    client.wait_for(&id, "input_required").await;
    let answers = json!({"name": accept(json!({"name": "Ada"}))});
    client.update(&id, answers).await.unwrap();
    pass(SECOND).await;
    crash(first, client).await;

    let second = process(&store, &greet);
    let mut client = TestClient::of_principal(&second, "ada");
    client.listen(&[&id]).await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "completed") {
        let task = client.notification("notifications/tasks").await;
        states.push(task["status"].as_str().unwrap().to_owned());
        if task["status"] == "completed" {
            assert_eq!(
                task["result"]["content"][0]["text"],
                "Hello, Ada, from ada!"
            );
        }
    }

    // As it was, claimed, completed.
    assert_eq!(states, ["working", "working", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_open_when_its_process_dies_can_be_answered() {
    let (store, runs) = (store(), Runs::default());
    runs.0.add();
    let greet = greet(&runs);
    let first = process(&store, &greet);
    let mut client = TestClient::new(&first);
    let id = client.start("greet").await;
    client.wait_for(&id, "input_required").await;
    crash(first, client).await;

    // Before the task is claimed.
    let second = process(&store, &greet);
    let mut client = TestClient::new(&second);
    let answers = json!({"name": accept(json!({"name": "Ada"}))});
    client.update(&id, answers).await.unwrap();

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(
        done["result"]["content"][0]["text"],
        "Hello, Ada, from anonymous!"
    );
}

#[tokio::test(start_paused = true)]
async fn a_remembered_value_is_recalled_after_a_restart() {
    let runs = Runs::default();
    let counted = runs.clone();
    let works = move |cx: Context| {
        let runs = counted.clone();
        async move {
            let last: Option<u32> = cx.recall().await?;
            cx.remember(&1).await?;
            cx.remember(&2).await?;
            runs.hang_first().await;
            Ok::<_, InputError>(format!("{last:?}"))
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().resumable());
    let store = store();
    let first = process(&store, &works);
    let mut client = TestClient::new(&first);
    let id = client.start("works").await;
    pass(SECOND).await;
    crash(first, client).await;

    let second = process(&store, &works);
    let done = TestClient::new(&second).wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "Some(2)");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_resumed_fails_when_its_process_dies() {
    let store = store();
    let hangs = hangs(&Counter::default()).with_settings(TaskSettings::new());
    let first = process(&store, &hangs);
    let mut client = TestClient::new(&first);
    let id = client.start("hangs").await;
    crash(first, client).await;

    let second = process(&store, &hangs);
    let failed = TestClient::new(&second).wait_for(&id, "failed").await;

    let reason = "the process that ran the task has ended, and its tool cannot be resumed";
    assert_eq!(failed["error"]["message"], reason);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_tool_is_gone_or_whose_time_has_passed_fails() {
    let store = store();
    let settings = || TaskSettings::new().resumable();
    let dropped = Counter::default();
    let first = process(&store, &hangs(&dropped).with_settings(settings()));
    let mut client = TestClient::new(&first);
    let gone = client.start("hangs").await;
    crash(first, client).await;
    let second = server(Tasks::new(store.clone()), []);
    let failed = TestClient::new(&second).wait_for(&gone, "failed").await;
    let message = failed["error"]["message"].as_str().unwrap();
    assert_eq!(message, "failed to resume the task: unknown tool `hangs`");
    drop(second);

    let brief = hangs(&dropped).with_settings(settings().ttl(3 * SECOND));
    let first = process(&store, &brief);
    let mut client = TestClient::new(&first);
    let id = client.start("hangs").await;
    crash(first, client).await;
    let second = process(&store, &brief);
    let failed = TestClient::new(&second).wait_for(&id, "failed").await;
    assert_eq!(
        failed["error"]["message"],
        "the time to live of the task has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_writes_nothing() {
    let (runs, dropped) = (Counter::default(), Counter::default());
    let (counted, guarded) = (runs.clone(), dropped.clone());
    let works = move |cx: Context| {
        let (run, guard) = (counted.add(), guarded.on_drop());
        async move {
            let _guard = guard;
            pass(SECOND).await;
            let text = cx.step("text", async { format!("of run {run}") }).await?;
            pass(20 * SECOND).await;
            Ok::<_, InputError>(text)
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().resumable());
    let store = store();
    let cut_off = FaultyStore::new(&store);
    let first = server(Tasks::new(cut_off.clone()), [works.clone()]);
    let id = TestClient::new(&first).start("works").await;

    // The first run reaches its step while it cannot reach the store, and the second claims the task.
    cut_off.set_down(true);
    let second = process(&store, &works);
    let mut client = TestClient::new(&second);
    pass(10 * SECOND).await;
    assert_eq!(runs.get(), 2);
    cut_off.set_down(false);
    pass(3 * SECOND).await;
    assert_eq!(dropped.get(), 1);

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "of run 2");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_stored_when_the_store_is_available_again() {
    let counted = Counter::default();
    let counts = counted.clone();
    let works = move || {
        let counts = counts.clone();
        async move {
            pass(SECOND).await;
            counts.add();
            "done"
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new());
    let store = store();
    let faulty = FaultyStore::new(&store);
    let server = server(Tasks::new(faulty.clone()), [works]);
    let mut client = TestClient::new(&server);
    let id = client.start("works").await;

    faulty.set_down(true);
    pass(30 * SECOND).await;
    assert_eq!(counted.get(), 1);
    let error = client.get(&id).await.unwrap_err();
    assert_eq!(error["message"], "the task store is busy; try again later");
    faulty.set_down(false);

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_start_was_stored_without_an_answer_runs_once() {
    let effects = Counter::default();
    let performed = effects.clone();
    let works = move |cx: Context| {
        let effects = performed.clone();
        async move {
            cx.step("effect", async { effects.add() }).await?;
            Ok::<_, InputError>("done")
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().at_most_once());
    let faulty = FaultyStore::new(&store());
    faulty.lose_next_append();
    let server = server(Tasks::new(faulty), [works]);
    let mut client = TestClient::new(&server);

    let id = client.start("works").await;

    client.wait_for(&id, "completed").await;
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_must_happen_at_most_once_does_not_begin_again_in_the_same_run() {
    let effects = Counter::default();
    let performed = effects.clone();
    let works = move |cx: Context| {
        let effects = performed.clone();
        async move {
            let effect = || async {
                effects.add();
                std::future::pending::<()>().await;
            };
            let dropped = tokio::time::timeout(SECOND, cx.once("effect", effect())).await;
            assert!(dropped.is_err());
            cx.once("effect", effect()).await?;
            Ok::<_, InputError>("done")
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().at_most_once());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::new(&server);

    let id = client.start("works").await;
    pass(2 * SECOND).await;

    let failed = client.wait_for(&id, "failed").await;
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("was interrupted"), "{message}");
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_is_found_by_the_next_renewal() {
    let (store, runs) = (store(), Runs::default());
    runs.0.add();
    // Without hints.
    let faulty = FaultyStore::new(&store);
    let server = server(Tasks::new(faulty), [greet(&runs)]);
    let mut client = TestClient::new(&server);
    let id = client.start("greet").await;
    client.wait_for(&id, "input_required").await;
    let answers = json!({"name": accept(json!({"name": "Ada"}))});
    let answered = Instant::now();
    client.update(&id, answers).await.unwrap();

    client.wait_for(&id, "completed").await;

    assert!(answered.elapsed() < 3 * SECOND, "{:?}", answered.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_of_a_dead_process_end_once() {
    let (runs, effects) = (Counter::default(), Counter::default());
    let (counted, performed) = (runs.clone(), effects.clone());
    let works = move |cx: Context| {
        let (run, effects) = (counted.add(), performed.clone());
        async move {
            cx.step("effect", async { effects.add() }).await?;
            if run <= 1000 {
                std::future::pending::<()>().await;
            }
            Ok::<_, InputError>("done")
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().at_most_once());
    let store = store();
    let first = process(&store, &works);
    let mut client = TestClient::new(&first);
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(client.start("works").await);
    }
    pass(SECOND).await;
    assert_eq!(effects.get(), 1000);
    crash(first, client).await;

    let processes = [process(&store, &works), process(&store, &works)];
    let mut client = TestClient::new(&processes[0]);
    let mut other = TestClient::new(&processes[1]);
    other.get(&ids[0]).await.unwrap();
    pass(10 * SECOND).await;

    for id in &ids {
        assert_eq!(client.get(id).await.unwrap()["status"], "completed");
    }
    assert_eq!((runs.get(), effects.get()), (2000, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_on_without_its_lease_begins_no_step() {
    let (runs, effects) = (Counter::default(), Counter::default());
    let (counted, performed) = (runs.clone(), effects.clone());
    let saves = move |cx: Context| {
        let (run, effects) = (counted.add(), performed.clone());
        async move {
            if run == 2 {
                std::future::pending::<()>().await;
            }
            cx.cancelled().await;
            cx.step("save", async { effects.add() }).await
        }
    };
    let saves = Tool::new("saves", saves).cancel_mode(CancelMode::Signal);
    let saves = saves.with_settings(TaskSettings::new().resumable());
    let store = store();
    let faulty = FaultyStore::new(&store);
    let first = server(Tasks::new(faulty.clone()), [saves.clone()]);
    let second = process(&store, &saves);
    let id = TestClient::new(&first).start("saves").await;
    TestClient::new(&second).get(&id).await.unwrap();
    pass(SECOND).await;

    faulty.set_down(true);
    pass(10 * SECOND).await;
    faulty.set_down(false);
    pass(10 * SECOND).await;

    assert_eq!((runs.get(), effects.get()), (2, 0));
}
