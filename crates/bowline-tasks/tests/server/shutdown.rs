//! Tasks of a server that shuts down.

use bowline::exchange::InputError;
use bowline::{CancelMode, Context, Tool};
use bowline_tasks::{TaskSettings, Tasks};
use tokio::time::Instant;

use crate::support::{Counter, SECOND, TestClient, hangs, pass, server, store};

#[tokio::test(start_paused = true)]
async fn a_resumable_task_is_released_and_another_process_takes_it_over() {
    let (store, dropped) = (store(), Counter::default());
    let hangs = hangs(&dropped).with_settings(TaskSettings::new().resumable());
    let first = server(Tasks::new(store.clone()), [hangs.clone()]);
    let second = server(Tasks::new(store), [hangs]);
    let id = TestClient::new(&first).start("hangs").await;
    let mut client = TestClient::new(&second);
    client.get(&id).await.unwrap();
    pass(SECOND).await;

    first.shut_down(60 * SECOND);
    pass(SECOND / 100).await;
    assert_eq!(dropped.get(), 1);
    // Its lease would last for 5 seconds more.
    pass(2 * SECOND).await;

    client.cancel(&id).await.unwrap();
    pass(SECOND / 100).await;
    assert_eq!(dropped.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_in_progress_is_finished_before_its_task_is_released() {
    let (runs, effects) = (Counter::default(), Counter::default());
    let (counted, performed) = (runs.clone(), effects.clone());
    let works = move |cx: Context| {
        counted.add();
        let effects = performed.clone();
        async move {
            for name in ["one", "two"] {
                let step = async {
                    pass(5 * SECOND).await;
                    effects.add()
                };
                cx.step(name, step).await?;
            }
            Ok::<_, InputError>("done")
        }
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new().at_most_once());
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let second = server(Tasks::new(store), [works]);
    let id = TestClient::new(&first).start("works").await;
    let mut client = TestClient::new(&second);
    client.get(&id).await.unwrap();
    pass(SECOND).await;

    first.shut_down(60 * SECOND);
    let done = client.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!((runs.get(), effects.get()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_resumed_may_end_within_the_grace_period() {
    let works = Tool::new("works", async || {
        pass(20 * SECOND).await;
        "done"
    });
    let works = works.with_settings(TaskSettings::new());
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let second = server(Tasks::new(store), [works]);
    let id = TestClient::new(&first).start("works").await;

    first.shut_down(30 * SECOND);
    let started = Instant::now();
    let done = TestClient::new(&second).wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert!(started.elapsed() > 15 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_within_the_grace_period_is_dropped_and_fails_elsewhere() {
    let (store, dropped) = (store(), Counter::default());
    let hangs = hangs(&dropped).with_settings(TaskSettings::new());
    let first = server(Tasks::new(store.clone()), [hangs.clone()]);
    let second = server(Tasks::new(store), [hangs]);
    let id = TestClient::new(&first).start("hangs").await;

    first.shut_down(10 * SECOND);
    pass(9 * SECOND).await;
    assert_eq!(dropped.get(), 0);
    let failed = TestClient::new(&second).wait_for(&id, "failed").await;

    assert_eq!(dropped.get(), 1);
    let reason = "the process that ran the task has ended, and its tool cannot be resumed";
    assert_eq!(failed["error"]["message"], reason);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_began_before_its_call_became_a_task_is_finished_too() {
    let effects = Counter::default();
    let performed = effects.clone();
    let works = move |cx: Context| {
        let effects = performed.clone();
        async move {
            let step = async {
                pass(10 * SECOND).await;
                effects.add()
            };
            cx.step("pay", step).await?;
            pass(10 * SECOND).await;
            Ok::<_, InputError>("paid")
        }
    };
    let settings = TaskSettings::new().at_most_once().after(SECOND);
    let works = Tool::new("works", works).with_settings(settings);
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let second = server(Tasks::new(store), [works]);
    let id = TestClient::new(&first).start("works").await;
    let mut client = TestClient::new(&second);
    client.get(&id).await.unwrap();

    first.shut_down(60 * SECOND);
    let done = client.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "paid");
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_task_is_taken_over_although_its_handler_runs_on() {
    let runs = Counter::default();
    let counted = runs.clone();
    let saves = Tool::new("saves", move || {
        counted.add();
        std::future::pending::<String>()
    });
    let saves = saves.cancel_mode(CancelMode::Signal);
    let saves = saves.with_settings(TaskSettings::new().resumable());
    let store = store();
    let first = server(Tasks::new(store.clone()), [saves.clone()]);
    let id = TestClient::new(&first).start("saves").await;
    pass(SECOND).await;

    first.shut_down(60 * SECOND);
    pass(3 * SECOND).await;
    let second = server(Tasks::new(store), [saves]);
    TestClient::new(&second).get(&id).await.unwrap();
    pass(3 * SECOND).await;

    assert_eq!(runs.get(), 2);
}
