//! Tasks whose id no caller got must not run.

use bowline::exchange::InputError;
use bowline::{Context, Tool};
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::json;

use crate::faulty_store::FaultyStore;
use crate::support::{Counter, SECOND, TestClient, pass, server, store};

/// A resumable tool that works for a while and counts its runs.
fn counts(runs: &Counter) -> Tool {
    let runs = runs.clone();
    let counts = Tool::new("counts", move || {
        runs.add();
        async {
            pass(40 * SECOND).await;
            "done"
        }
    });
    counts.with_settings(TaskSettings::new().resumable())
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_stored_although_its_creation_failed_never_runs() {
    let (store, runs) = (FaultyStore::new(&store()), Counter::default());
    store.lose_creations();
    let server = server(Tasks::new(store), [counts(&runs)]);
    let mut client = TestClient::new(&server);

    let error = client.call("counts", json!({})).await.unwrap_err();
    pass(30 * SECOND).await;

    assert_eq!(error["data"]["isRetryable"], true, "{error}");
    assert_eq!(runs.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_stays_a_call_does_not_run_as_a_task_too() {
    let (store, effects) = (FaultyStore::new(&store()), Counter::default());
    store.lose_creations();
    let performed = effects.clone();
    let pays = move |cx: Context| {
        let effects = performed.clone();
        async move {
            pass(2 * SECOND).await;
            cx.step("pay", async { effects.add() }).await?;
            Ok::<_, InputError>("paid")
        }
    };
    let settings = TaskSettings::new().at_most_once().after(SECOND);
    let pays = Tool::new("pays", pays).with_settings(settings);
    let server = server(Tasks::new(store), [pays]);

    let result = TestClient::new(&server).call("pays", json!({})).await;
    pass(30 * SECOND).await;

    assert_eq!(result.unwrap()["resultType"], "complete");
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_task_does_not_run_after_the_store_was_away() {
    let (store, runs) = (FaultyStore::new(&store()), Counter::default());
    store.delay_creation(5 * SECOND);
    let server = server(Tasks::new(store.clone()), [counts(&runs)]);
    let mut client = TestClient::new(&server);

    let params = json!({"name": "counts", "arguments": {}});
    let id = client.send("tools/call", params);
    pass(SECOND).await;
    store.set_down(true);
    client.cancel_request(id);
    pass(60 * SECOND).await;
    store.set_down(false);
    pass(30 * SECOND).await;

    assert_eq!(runs.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_claimed_before_its_creator_knew_it_runs_once() {
    let (store, runs) = (FaultyStore::new(&store()), Counter::default());
    // Between two renewals.
    store.delay_creation(21 * SECOND);
    let server = server(Tasks::new(store), [counts(&runs)]);
    let mut client = TestClient::new(&server);

    let params = json!({"name": "counts", "arguments": {}});
    let request = client.send("tools/call", params);
    pass(15 * SECOND).await;
    assert_eq!(runs.get(), 1);
    let created = client.answer(request).await.unwrap();
    let id = created["taskId"].as_str().unwrap().to_owned();

    client.wait_for(&id, "completed").await;
    assert_eq!(runs.get(), 1);
}
