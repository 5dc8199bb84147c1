//! `tasks/cancel`.

use bowline::{Args, CancelMode, Context, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::json;

use crate::support::{Counter, SECOND, TestClient, hangs, pass, server, store};

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_cancelled_at_once_and_its_handler_is_dropped() {
    let dropped = Counter::default();
    let server = server(
        Tasks::new(store()),
        [hangs(&dropped).with_settings(TaskSettings::new())],
    );
    let mut client = TestClient::new(&server);
    let id = client.start("hangs").await;
    pass(SECOND).await;

    let ack = client.cancel(&id).await.unwrap();
    assert_eq!(ack["resultType"], "complete");
    assert_eq!(ack.get("status"), None);

    let cancelled = client.get(&id).await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled.get("result"), None);
    pass(SECOND / 100).await;
    assert_eq!(dropped.get(), 1);
    // A finished task acknowledges a cancel, too.
    client.cancel(&id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_at_once_whatever_ran_before() {
    let dropped = Counter::default();
    let fast = Tool::new("fast", async || "done");
    let tools = [hangs(&dropped), fast].map(|tool| tool.with_settings(TaskSettings::new()));
    let server = server(Tasks::new(store()), tools);
    let mut client = TestClient::new(&server);

    for nth in 1..=3 {
        // The process follows the changes of its store only while it runs tasks.
        pass(9 * SECOND).await;
        client.start("fast").await;
        let id = client.start("hangs").await;
        client.cancel(&id).await.unwrap();
        // The next renewal is later.
        pass(SECOND / 100).await;
        assert_eq!(dropped.get(), nth);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_by_another_process() {
    let (store, dropped) = (store(), Counter::default());
    let owner = server(
        Tasks::new(store.clone()),
        [hangs(&dropped).with_settings(TaskSettings::new())],
    );
    let other = server(
        Tasks::new(store),
        [hangs(&dropped).with_settings(TaskSettings::new())],
    );
    let id = TestClient::new(&owner).start("hangs").await;
    pass(SECOND).await;

    TestClient::new(&other).cancel(&id).await.unwrap();
    pass(SECOND / 100).await;

    assert_eq!(dropped.get(), 1);
    let cancelled = TestClient::new(&owner).get(&id).await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_task_state_is_written_once() {
    let finishes = Tool::new("finishes", async || {
        pass(SECOND).await;
        "done"
    });
    let finishes = finishes.with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [finishes]);
    let mut client = TestClient::new(&server);
    let (early, late) = (
        client.start("finishes").await,
        client.start("finishes").await,
    );

    client.cancel(&early).await.unwrap();
    pass(2 * SECOND).await;
    client.cancel(&late).await.unwrap();

    assert_eq!(client.get(&early).await.unwrap()["status"], "cancelled");
    assert_eq!(client.get(&late).await.unwrap()["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_wants_to_be_told_ends_by_itself() {
    let dropped = Counter::default();
    let guard = dropped.clone();
    let saves = move |cx: Context, arguments: Args<Saves>| {
        let guard = guard.on_drop();
        async move {
            cx.cancelled().await;
            pass(5 * SECOND).await;
            drop(guard);
            match arguments.0.fails {
                true => Err(ToolError::new("stopped")),
                false => Ok("saved a part"),
            }
        }
    };
    let saves = Tool::new("saves", saves).cancel_mode(CancelMode::Signal);
    let server = server(
        Tasks::new(store()),
        [saves.with_settings(TaskSettings::new())],
    );
    let mut client = TestClient::new(&server);
    let start = async |client: &mut TestClient, fails| {
        let created = client.call("saves", json!({"fails": fails})).await.unwrap();
        created["taskId"].as_str().unwrap().to_owned()
    };
    let (succeeds, fails) = (
        start(&mut client, false).await,
        start(&mut client, true).await,
    );
    pass(SECOND).await;

    for id in [&succeeds, &fails] {
        client.cancel(id).await.unwrap();
        pass(SECOND / 10).await;
        assert_eq!(client.get(id).await.unwrap()["status"], "working");
    }
    assert_eq!(dropped.get(), 0);

    let done = client.wait_for(&succeeds, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "saved a part");
    client.wait_for(&fails, "cancelled").await;
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Saves {
    fails: bool,
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_the_handler_did_not_live_to_see_ends_the_task() {
    let store = store();
    let ignores = || {
        Tool::new("ignores", async || std::future::pending::<String>().await)
            .cancel_mode(CancelMode::Signal)
            .with_settings(TaskSettings::new().resumable())
    };
    let first = server(Tasks::new(store.clone()), [ignores()]);
    let mut client = TestClient::new(&first);
    let id = client.start("ignores").await;
    client.cancel(&id).await.unwrap();
    assert_eq!(client.get(&id).await.unwrap()["status"], "working");
    drop((client, first));

    let second = server(Tasks::new(store), [ignores()]);
    let mut client = TestClient::new(&second);

    client.wait_for(&id, "cancelled").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_wants_to_be_told_ends_although_it_can_store_nothing_any_more() {
    let dropped = Counter::default();
    let guard = dropped.clone();
    let saves = move |cx: Context| {
        let guard = guard.on_drop();
        async move {
            let _guard = guard;
            cx.cancelled().await;
            cx.step("save", async {}).await
        }
    };
    let saves = Tool::new("saves", saves).cancel_mode(CancelMode::Signal);
    let settings = TaskSettings::new().resumable().ttl(5 * SECOND);
    let server = server(Tasks::new(store()), [saves.with_settings(settings)]);
    let mut client = TestClient::new(&server);
    let id = client.start("saves").await;

    client.wait_for(&id, "failed").await;
    pass(SECOND).await;

    assert_eq!(dropped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_has_spawned_ends_with_its_task() {
    let dropped = Counter::default();
    let guard = dropped.clone();
    let spawns = move |cx: Context| {
        let guard = guard.on_drop();
        async move {
            tokio::spawn(async move {
                let _guard = guard;
                pass(5 * SECOND).await;
                cx.step("save", async {}).await
            });
            std::future::pending::<String>().await
        }
    };
    let spawns = Tool::new("spawns", spawns).with_settings(TaskSettings::new().resumable());
    let server = server(Tasks::new(store()), [spawns]);
    let mut client = TestClient::new(&server);
    let id = client.start("spawns").await;
    pass(SECOND).await;

    client.cancel(&id).await.unwrap();
    pass(5 * SECOND).await;

    assert_eq!(dropped.get(), 1);
}
