//! Cancelled tasks, and clients that stop waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::{CancelMode, Context, Tool};
use bowline_tasks::{TaskSettings, Tasks};
use tokio::time::sleep;

use crate::support::{SECOND, TestClient, server, store, works_for};

/// Counts how often it was dropped.
struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_returned_and_its_handler_is_dropped() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let hangs = move || {
        let guard = CountsDrop(counter.clone());
        async move {
            let _guard = guard;
            std::future::pending::<String>().await
        }
    };
    let hangs = Tool::new("hangs", hangs).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [hangs]);
    let mut client = TestClient::connect(&server).await;
    let mut waiting = TestClient::connect(&server).await;
    let id = client.start("hangs").await;
    let wait = waiting.send_result(&id);
    sleep(SECOND).await;
    assert_eq!(dropped.load(Ordering::SeqCst), 0);

    let cancelled = client.cancel(&id).await.unwrap();

    assert_eq!(cancelled["taskId"], id);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(client.get(&id).await.unwrap(), cancelled);
    sleep(SECOND).await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let error = waiting.answer(wait).await.unwrap_err();
    assert_eq!(error["message"], "the task was cancelled");
    assert_eq!(client.result(&id).await.unwrap_err(), error);
}

#[tokio::test(start_paused = true)]
async fn a_finished_task_cannot_be_cancelled() {
    let works = works_for(SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;
    let (completed, cancelled) = (client.start("works").await, client.start("works").await);
    client.cancel(&cancelled).await.unwrap();
    client.result(&completed).await.unwrap();

    for (id, status) in [(&completed, "completed"), (&cancelled, "cancelled")] {
        let error = client.cancel(id).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
        assert_eq!(client.get(id).await.unwrap()["status"], status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_wants_to_be_told_is_cancelled_at_once_and_ends_by_itself() {
    let ended = Arc::new(AtomicUsize::new(0));
    let counter = ended.clone();
    let saves = move |cx: Context| {
        let counter = counter.clone();
        async move {
            cx.cancelled().await;
            sleep(5 * SECOND).await;
            counter.fetch_add(1, Ordering::SeqCst);
            "saved a part"
        }
    };
    let saves = Tool::new("saves", saves).cancel_mode(CancelMode::Signal);
    let server = server(
        Tasks::new(store()),
        [saves.with_settings(TaskSettings::new())],
    );
    let mut client = TestClient::connect(&server).await;
    let id = client.start("saves").await;
    sleep(SECOND).await;

    let cancelled = client.cancel(&id).await.unwrap();

    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    sleep(10 * SECOND).await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert_eq!(client.get(&id).await.unwrap(), cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_waiting_does_not_cancel_the_task() {
    let works = works_for(5 * SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;
    let id = client.start("works").await;
    let wait = client.send_result(&id);
    sleep(SECOND).await;

    client.cancel_request(wait);
    sleep(SECOND).await;

    assert_eq!(client.get(&id).await.unwrap()["status"], "working");
    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
    // The cancelled request has no answer.
    client.expect_nothing().await;
}
