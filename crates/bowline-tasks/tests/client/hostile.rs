//! Servers that send what they must not.

use bowline::Error;
use bowline_tasks::TaskCall as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::{TaskServer, asking, completed, secs, task, with};

/// The error of a call whose task has these states.
async fn error_of(states: impl IntoIterator<Item = Value>) -> Error {
    let server = TaskServer::new().states(states);
    let client = server.client().await;
    let call = client.call_tool("slow", ()).timeout(secs(3600));
    call.await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn states_that_are_not_of_the_task_are_refused() {
    let other_id = with(completed("wrong"), json!({"taskId": "B8"}));
    let no_result = task("completed");
    let new_task = with(completed("done"), json!({"resultType": "task"}));
    for (state, expected) in [
        (other_id, "expected the task `A7`, got `B8`"),
        (no_result, "expected the `result` of a completed task"),
        (task("paused"), "unknown status `paused` of a task"),
        (json!({"status": "completed"}), "failed to decode a task"),
        (new_task, "`task` is not allowed as a result of `tasks/get`"),
        (
            with(task("completed"), json!({"result": 7})),
            "expected a complete result of `tools/call` from its extension",
        ),
        (
            with(
                task("completed"),
                json!({"result": {"resultType": "input_required"}}),
            ),
            "expected a complete result of `tools/call` from its extension",
        ),
        (
            with(task("input_required"), json!({"inputRequests": 7})),
            "expected an object as `inputRequests` of a task",
        ),
    ] {
        let error = error_of([state.clone()]).await;
        assert!(
            matches!(&error, Error::Protocol { what, .. } if what == expected),
            "{state}: {error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn new_tasks_without_a_valid_id_are_refused() {
    for id in [
        json!(""),
        json!("a\u{0}b"),
        json!("x".repeat(2000)),
        json!(7),
        json!(null),
    ] {
        let created = with(task("working"), json!({"resultType": "task", "taskId": id}));
        let server = TaskServer::new().created(created);
        let client = server.client().await;

        let error = client.call_tool("slow", ()).await.unwrap_err();
        let as_task = client.call_tool("slow", ()).as_task().await.unwrap_err();

        for error in [error, as_task] {
            assert!(matches!(error, Error::Protocol { .. }), "{id}: {error:?}");
        }
        assert_eq!(server.methods(), ["tools/call", "tools/call"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_for_another_method_is_refused() {
    let created = with(task("working"), json!({"resultType": "task"}));
    let server = TaskServer::new().answers("prompts/get", [created]);
    let client = server.client().await;

    let error = client.get_prompt("p", ()).await.unwrap_err();

    assert!(
        matches!(&error, Error::Protocol { what, .. } if what == "`task` is not allowed as a result of `prompts/get`"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn poll_intervals_neither_spin_nor_hang() {
    for (interval, after) in [
        (json!(0), 1),
        (json!(-1e300), 1),
        (json!(1e300), 3000),
        (json!("x"), 10),
    ] {
        let working = with(
            task("working"),
            json!({"pollIntervalMs": interval, "resultType": "task"}),
        );
        let mut states = vec![with(working.clone(), json!({"resultType": "complete"})); 10];
        states.push(completed("done"));
        let server = TaskServer::new().created(working).states(states);
        let client = server.client().await;

        let began = Instant::now();
        client.call_tool("slow", ()).await.unwrap();

        assert_eq!(began.elapsed().as_secs(), after, "{interval}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_without_end_is_stopped() {
    let questions = (0..1000).map(|number| asking(&format!("k{number}")));
    let server = TaskServer::new().states(questions);
    let (host, asked) = crate::fixture::answering_host();
    let client = server.client_with_host(host).await;

    let error = client.call_tool("slow", ()).await.unwrap_err();

    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert_eq!(
        *asked.lock().unwrap(),
        10,
        "as many as `ClientBuilder::max_rounds`"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_input_without_input_requests_is_polled_at_its_interval() {
    let mut states = vec![task("input_required"); 11];
    states.push(completed("done"));
    let server = TaskServer::new().states(states);
    let client = server.client().await;

    let began = Instant::now();
    client.call_tool("slow", ()).await.unwrap();

    assert_eq!(began.elapsed().as_secs(), 11);
}

#[tokio::test(start_paused = true)]
async fn texts_of_the_server_cannot_control_a_terminal() {
    let message = json!({"statusMessage": "\u{1b}]0;title\u{7}"});
    let error = error_of([with(task("cancelled"), message)]).await;

    assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
}
