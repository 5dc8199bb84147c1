//! Handles of tasks.

use bowline::{Client, Error, ErrorCode, testing};
use bowline_tasks::store::TaskStatus;
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle};
use serde_json::json;

use crate::fixture::{Answer, MODERN, TaskServer, asking, completed, pass, secs, task, with};

#[tokio::test(start_paused = true)]
async fn a_handle_has_the_id_and_the_status() {
    let working = with(task("working"), json!({"statusMessage": "reading"}));
    let server = TaskServer::new().states([working, asking("k")]);
    let client = server.client().await;

    let task = client.call_tool("slow", ()).as_task().await.unwrap();
    assert_eq!(server.methods(), ["tools/call"]);
    let working = task.status().await.unwrap();
    let waiting = task.status().await.unwrap();

    assert_eq!(task.id(), Some("A7"));
    assert_eq!(working.id.as_deref(), Some("A7"));
    assert_eq!(working.status, TaskStatus::Working);
    assert_eq!(working.status_message.as_deref(), Some("reading"));
    assert_eq!(working.created_at.as_deref(), Some("2026-07-28T12:00:00Z"));
    assert_eq!(
        working.last_updated_at.as_deref(),
        Some("2026-07-28T12:00:01Z")
    );
    assert_eq!(working.ttl, Some(secs(3600)));
    assert_eq!(working.poll_interval, secs(1));
    assert_eq!(waiting.status, TaskStatus::InputRequired);
    assert!(waiting.input_requests["k"].as_str().contains("How many?"));
}

#[tokio::test(start_paused = true)]
async fn a_handle_waits_and_may_wait_again() {
    let server = TaskServer::new().states([task("working"), completed("done")]);
    let client = server.client().await;
    let task = client.call_tool("slow", ()).as_task().await.unwrap();

    let (first, second) = tokio::join!(task.wait(), task.clone().wait());
    let gets = server.count("tasks/get");
    let third = task.wait().await;

    for reply in [first, second, third] {
        assert_eq!(reply.unwrap().text(), "done");
    }
    assert_eq!(server.count("tasks/get"), gets, "the end is known");
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_dropped_can_be_repeated() {
    let server = TaskServer::new();
    let client = server.client().await;
    let task = client.call_tool("slow", ()).as_task().await.unwrap();
    for _ in 0..3 {
        tokio::select! {
            reply = task.wait() => panic!("{reply:?}"),
            () = pass(secs(2)) => {}
        }
    }

    server.set_answers("tasks/get", [completed("done")]);

    assert_eq!(task.wait().await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn another_client_takes_up_a_task_by_its_id() {
    let server = TaskServer::new().states([task("working"), completed("done")]);
    let first = server.client().await;
    let id = first.call_tool("slow", ()).as_task().await.unwrap();
    let id = id.id().unwrap().to_owned();
    first.close().await.unwrap();

    let second = server.client().await;
    let task = TaskHandle::attach(&second, id);

    assert_eq!(task.status().await.unwrap().status, TaskStatus::Working);
    assert_eq!(task.wait().await.unwrap().text(), "done");
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_direct_answer_is_a_finished_handle() {
    let direct = json!({"content": [{"type": "text", "text": "done"}]});
    let server = TaskServer::new().answers("tools/call", [direct]);
    let client = server.client().await;

    let task = client.call_tool("fast", ()).as_task().await.unwrap();
    let status = task.status().await.unwrap();

    assert_eq!(task.id(), None);
    assert_eq!(status.status, TaskStatus::Completed);
    assert!(status.is_finished());
    assert!(status.result.unwrap().as_str().contains("done"));
    assert_eq!(task.wait().await.unwrap().text(), "done");
    task.cancel().await.unwrap();
    task.update(json!({})).await.unwrap();
    assert_eq!(server.methods(), ["tools/call"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_final_status_is_kept() {
    let server =
        TaskServer::new().states([completed("first"), task("working"), completed("second")]);
    let client = server.client().await;
    let task = client.call_tool("slow", ()).as_task().await.unwrap();

    assert_eq!(task.status().await.unwrap().status, TaskStatus::Completed);
    assert_eq!(task.status().await.unwrap().status, TaskStatus::Completed);
    assert_eq!(task.wait().await.unwrap().text(), "first");
    assert_eq!(server.count("tasks/get"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_arrives_after_the_final_one_is_not_believed() {
    let (wire, mut server) = testing::scripted_peer();
    let client = Client::from_wire(wire).protocol_version(MODERN);
    let client = client.extension(TaskClient::new()).await.unwrap();
    let handle = TaskHandle::attach(&client, "A7");
    let status = |handle: TaskHandle| tokio::spawn(async move { handle.status().await });
    let (first, second) = (status(handle.clone()), status(handle));
    let first_id = server.expect("tasks/get").await.hold();
    let second_id = server.expect("tasks/get").await.hold();

    let complete = json!({"resultType": "complete"});
    server.answer(first_id, with(completed("done"), complete.clone()));
    server.answer(second_id, with(task("working"), complete));

    for status in [first, second] {
        assert_eq!(status.await.unwrap().unwrap().status, TaskStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_cancels_and_waits_for_what_became_of_it() {
    let server = TaskServer::new();
    let client = server.client().await;
    let handle = client.call_tool("slow", ()).as_task().await.unwrap();

    handle.cancel().await.unwrap();
    server.set_answers("tasks/get", [task("cancelled")]);
    let error = handle.wait().await.unwrap_err();

    assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
    assert_eq!(server.params("tasks/cancel")[0]["taskId"], "A7");
    handle.cancel().await.unwrap();
    assert_eq!(server.count("tasks/cancel"), 1, "it has ended");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_is_a_clear_error_of_each_method() {
    let unknown = Answer::Error(ErrorCode::INVALID_PARAMS, "not found");
    let server = TaskServer::new()
        .answers("tasks/get", [unknown.clone()])
        .answers("tasks/update", [unknown.clone()])
        .answers("tasks/cancel", [unknown]);
    let client = server.client().await;
    let task = TaskHandle::attach(&client, "gone");

    let errors = [
        task.status().await.map(drop).unwrap_err(),
        task.wait().await.map(drop).unwrap_err(),
        task.update(json!({"k": {}})).await.unwrap_err(),
        task.cancel().await.unwrap_err(),
    ];

    for error in errors {
        let expected =
            "the server does not know the task `gone`; it may have expired: not found (-32602)";
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_a_client_that_cannot_use_tasks_is_a_misuse() {
    let server = TaskServer::new();
    let without = server.connect().await.unwrap();
    let legacy_server = bowline::Server::new("old", "1.0.0");
    let legacy = Client::in_process(&legacy_server).protocol_version("2025-11-25");
    let legacy = legacy.extension(TaskClient::new()).await.unwrap();
    let with = server.client().await;

    for (client, id, expected) in [
        (
            &without,
            "A7",
            "the client has no `TaskClient`; add it with `ClientBuilder::extension`",
        ),
        (
            &legacy,
            "A7",
            "the protocol version of the server has no extensions, and tasks are one",
        ),
        (&with, "", "invalid task id: it is empty"),
        (
            &with,
            "a\nb",
            "invalid task id: it contains control characters",
        ),
    ] {
        let task = TaskHandle::attach(client, id);
        let errors = [
            task.status().await.map(drop).unwrap_err(),
            task.wait().await.map(drop).unwrap_err(),
            task.cancel().await.unwrap_err(),
            task.update(json!({})).await.unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::Misuse { what } if what == expected),
                "{error:?}"
            );
        }
    }
    assert!(server.methods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_result_that_needs_manual_input_is_not_a_task() {
    let needs = json!({"resultType": "input_required", "requestState": "s"});
    let server = TaskServer::new().answers("tools/call", [needs]);
    let client = server.client().await;

    let task = client.call_tool("slow", ()).manual_input().as_task().await;

    assert!(matches!(&task, Err(Error::Misuse { .. })), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_reports_each_status() {
    let message = |text: &str| with(task("working"), json!({"statusMessage": text}));
    let server = TaskServer::new().states([message("read"), message("written"), completed("done")]);
    let client = server.client().await;
    let task = client.call_tool("slow", ()).as_task().await.unwrap();
    let (sender, seen) = std::sync::mpsc::channel();
    let progress = sender.clone();

    task.wait()
        .on_status(move |task| sender.send(task.status_message.clone()).unwrap())
        .on_progress(move |report| {
            progress
                .send(report.message.map(|text| format!("progress {text}")))
                .unwrap()
        })
        .await
        .unwrap();

    let seen: Vec<_> = seen.iter().flatten().collect();
    assert_eq!(
        seen,
        ["read", "progress read", "written", "progress written"]
    );
}
