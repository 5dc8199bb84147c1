//! Calls that wait for their task by requesting its status.

use std::sync::{Arc, Mutex};

use bowline::{Error, ErrorCode};
use bowline_tasks::TaskClient;
use bowline_tasks::store::TaskStatus;
use serde_json::json;
use tokio::time::Instant;

use crate::fixture::{Answer, TaskServer, completed, secs, task, with};

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_task_by_polling_at_its_interval() {
    let slower = with(task("working"), json!({"pollIntervalMs": 5000}));
    let server = TaskServer::new().states([task("working"), slower, completed("done")]);
    let client = server.client().await;

    let began = Instant::now();
    let reply = client.call_tool("slow", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    let times = server.times("tasks/get");
    let after: Vec<_> = times.iter().map(|at| (*at - began).as_secs()).collect();
    assert_eq!(after, [0, 1, 6]);
    assert_eq!(
        server.methods(),
        [
            "tools/call",
            "tasks/get",
            "subscriptions/listen",
            "tasks/get",
            "tasks/get"
        ]
    );
    assert!(
        server
            .params("tasks/get")
            .iter()
            .all(|params| params["taskId"] == "A7")
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_polls_sends_no_subscription() {
    let server = TaskServer::new().states([completed("done")]);
    server.listening();
    let client = server.connect().extension(TaskClient::new().polling_only());
    let client = client.await.unwrap();

    client.call_tool("slow", ()).await.unwrap();

    assert_eq!(server.methods(), ["tools/call", "tasks/get"]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_new_task_that_has_ended_is_fetched_immediately() {
    for status in ["completed", "failed", "input_required"] {
        let created = with(task(status), json!({"resultType": "task"}));
        let server = TaskServer::new()
            .created(created)
            .states([completed("done")]);
        let client = server.client().await;

        let began = Instant::now();
        let reply = client.call_tool("fast", ()).await.unwrap();

        assert_eq!(reply.text(), "done");
        assert_eq!(began.elapsed(), secs(0), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_the_error_of_the_call() {
    let error = json!({"code": -32050, "message": "no such film", "data": {"film": 7}});
    let server = TaskServer::new().states([with(task("failed"), json!({"error": error}))]);
    let client = server.client().await;

    let error = client.call_tool("slow", ()).await.unwrap_err();

    let Error::Rpc(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode(-32050), "no such film")
    );
    assert_eq!(error.data.unwrap().as_str(), r#"{"film":7}"#);
    assert_eq!(server.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_a_cancelled_call() {
    let cancelled = with(
        task("cancelled"),
        json!({"statusMessage": "by an operator"}),
    );
    let server = TaskServer::new().states([cancelled]);
    let client = server.client().await;

    let error = client.call_tool("slow", ()).await.unwrap_err();

    assert!(
        matches!(&error, Error::Cancelled { reason } if reason == "the task was cancelled: by an operator"),
        "{error:?}"
    );
    assert_eq!(server.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_server_forgot_is_a_clear_error() {
    let gone = Answer::Error(ErrorCode::INVALID_PARAMS, "not found");
    let server = TaskServer::new().states([task("working").into(), gone]);
    let client = server.client().await;

    let error = client.call_tool("slow", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the server does not know the task `A7`; it may have expired: not found (-32602)"
    );
    assert_eq!(
        server.count("tasks/cancel"),
        0,
        "there is no task to cancel"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_error_is_a_result() {
    let result = json!({"content": [{"type": "text", "text": "no disk"}], "isError": true});
    let server = TaskServer::new().states([with(task("completed"), json!({"result": result}))]);
    let client = server.client().await;

    let reply = client.call_tool("slow", ()).await.unwrap();

    assert!(reply.is_error());
    assert_eq!(reply.text(), "no disk");
}

#[tokio::test(start_paused = true)]
async fn each_status_message_is_reported_once() {
    let message = |text: &str| with(task("working"), json!({"statusMessage": text}));
    let states = [
        message("read"),
        message("read"),
        message("written"),
        completed("done"),
    ];
    let server = TaskServer::new().states(states);
    let (statuses, progress) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let seen = statuses.clone();
    let tasks = TaskClient::new().on_status(move |task| {
        seen.lock()
            .unwrap()
            .push((task.status, task.status_message.clone()));
    });
    let client = server.connect().extension(tasks).await.unwrap();

    let seen = progress.clone();
    let call = client.call_tool("slow", ());
    let call = call
        .on_progress(move |report| seen.lock().unwrap().push((report.progress, report.message)));
    call.await.unwrap();

    assert_eq!(
        *statuses.lock().unwrap(),
        [
            (TaskStatus::Working, None),
            (TaskStatus::Working, Some("read".into())),
            (TaskStatus::Working, Some("written".into())),
            (TaskStatus::Completed, None),
        ]
    );
    assert_eq!(
        *progress.lock().unwrap(),
        [(1.0, Some("read".into())), (2.0, Some("written".into()))]
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_takes_longer_than_the_idle_timeout_is_waited_for() {
    for interval in [1000, 40_000] {
        let working = with(task("working"), json!({"pollIntervalMs": interval}));
        let mut states = vec![working; 30];
        states.push(completed("done"));
        let server = TaskServer::new().states(states);
        let client = server.client().await;

        let call = client.call_tool("slow", ()).idle_timeout(secs(10));

        assert_eq!(call.await.unwrap().text(), "done", "{interval}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_runs_into_the_idle_timeout() {
    let server = TaskServer::new().states([task("working").into(), Answer::Silence]);
    let client = server.client().await;

    let began = Instant::now();
    let error = client
        .call_tool("slow", ())
        .idle_timeout(secs(10))
        .await
        .unwrap_err();

    assert!(
        matches!(error, Error::Timeout { after } if after == secs(10)),
        "{error:?}"
    );
    assert_eq!(
        began.elapsed().as_secs(),
        11,
        "10 s after the request at 1 s"
    );
}

#[tokio::test(start_paused = true)]
async fn internal_errors_are_ridden_out_unless_they_persist() {
    let broken = Answer::Error(ErrorCode::INTERNAL_ERROR, "database is locked");
    let mut states = vec![broken.clone(); 4];
    states.push(completed("done").into());
    let server = TaskServer::new().states(states);
    let client = server.client().await;
    assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "done");
    assert_eq!(server.count("tools/call"), 1);

    server.set_answers("tasks/get", [broken]);
    let error = client.call_tool("slow", ()).await.unwrap_err();

    assert_eq!(error.to_string(), "database is locked (-32603)");
    assert_eq!(server.count("tasks/get"), 10);
}
