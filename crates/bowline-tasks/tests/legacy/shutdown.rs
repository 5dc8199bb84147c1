//! Clients that wait for a task of a server that shuts down.

use bowline_tasks::{TaskSettings, Tasks};
use tokio::time::{Instant, sleep};

use crate::support::{SECOND, TestClient, server, store, works_for};

#[tokio::test(start_paused = true)]
async fn a_client_gets_the_result_of_a_task_that_must_end_in_this_process() {
    let works = works_for(5 * SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;
    let id = client.start("works").await;
    let wait = client.send_result(&id);
    sleep(SECOND).await;

    server.shut_down(60 * SECOND);

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_here_for_a_task_that_another_process_resumes() {
    let works = works_for(30 * SECOND).with_settings(TaskSettings::new().resumable());
    let store = store();
    let first = server(Tasks::new(store.clone()), [works.clone()]);
    let mut client = TestClient::connect(&first).await;
    let id = client.start("works").await;
    let wait = client.send_result(&id);
    sleep(SECOND).await;
    let started = Instant::now();

    first.shut_down(60 * SECOND);

    let error = client.answer(wait).await.unwrap_err();
    assert_eq!(error["code"], -32603, "{error}");
    assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
    let second = server(Tasks::new(store), [works]);
    let mut client = TestClient::connect(&second).await;
    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}
