//! Input requests of tasks.

use std::sync::{Arc, Mutex};

use bowline::client::Host;
use bowline::types::ElicitResult;
use bowline::{Error, ErrorCode, RpcError};
use bowline_tasks::TaskCall as _;
use serde_json::json;
use tokio::sync::Notify;

use crate::fixture::{
    Answer, TaskServer, answering_host, asking, completed, pass, secs, task, with,
};

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_once_and_answered_once() {
    // The server shows the question for a while after it was answered.
    let server = TaskServer::new().states([
        task("working"),
        asking("k"),
        asking("k"),
        asking("k"),
        task("working"),
        completed("done"),
    ]);
    let (host, asked) = answering_host();
    let client = server.client_with_host(host).await;

    let reply = client.call_tool("slow", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    assert_eq!(*asked.lock().unwrap(), 1);
    let updates = server.params("tasks/update");
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0]["taskId"], "A7");
    let expected = json!({"k": {"action": "accept", "content": {"n": 3}}});
    assert_eq!(updates[0]["inputResponses"], expected);
}

#[tokio::test(start_paused = true)]
async fn questions_arrive_by_notification_too() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let (host, asked) = answering_host();
    let client = server.client_with_host(host).await;

    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(1)).await;
    for _ in 0..3 {
        notifications.send(asking("k")).unwrap();
        pass(secs(1)).await;
    }
    notifications.send(asking("l")).unwrap();
    pass(secs(1)).await;
    notifications.send(completed("done")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    assert_eq!(*asked.lock().unwrap(), 2);
    let updates = server.params("tasks/update");
    let keys: Vec<_> = updates
        .iter()
        .map(|params| params["inputResponses"].clone())
        .collect();
    assert!(
        keys.len() == 2 && keys[0]["k"].is_object() && keys[1]["l"].is_object(),
        "{keys:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_did_not_arrive_is_sent_again_and_not_asked_again() {
    let broken = Answer::Error(ErrorCode::INTERNAL_ERROR, "locked");
    let server = TaskServer::new()
        .states([asking("k")])
        .answers("tasks/update", [broken.clone(), broken, json!({}).into()]);
    let (host, asked) = answering_host();
    let client = server.client_with_host(host).await;

    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(10)).await;
    server.set_answers("tasks/get", [completed("done")]);
    call.await.unwrap().unwrap();

    assert_eq!(*asked.lock().unwrap(), 1);
    let updates = server.params("tasks/update");
    assert_eq!(updates.len(), 3);
    assert!(
        updates
            .iter()
            .all(|params| params["inputResponses"] == updates[0]["inputResponses"])
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_server_refuses_fails_the_call() {
    let refused = Answer::Error(ErrorCode::INVALID_PARAMS, "`n` is too small");
    let server = TaskServer::new()
        .states([asking("k")])
        .answers("tasks/update", [refused]);
    let (host, _) = answering_host();
    let client = server.client_with_host(host).await;

    let error = client.call_tool("slow", ()).await.unwrap_err();
    pass(secs(1)).await;

    assert_eq!(error.to_string(), "`n` is too small (-32602)");
    assert_eq!(server.count("tasks/cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_too_late_does_not_matter() {
    let refused = Answer::Error(ErrorCode::INVALID_PARAMS, "the task has ended");
    let server = TaskServer::new()
        .states([asking("k"), completed("done")])
        .answers("tasks/update", [refused]);
    let (host, _) = answering_host();
    let client = server.client_with_host(host).await;

    assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_refuses_ends_the_call_and_the_task() {
    let sampling = json!({
        "method": "sampling/createMessage",
        "params": {"messages": [], "maxTokens": 10},
    });
    let needs_model = with(
        task("input_required"),
        json!({"inputRequests": {"k": sampling}}),
    );
    let server = TaskServer::new().states([needs_model]);
    let refusal = RpcError::new(ErrorCode::USER_REJECTED, "not today");
    let host = Host::new().sampling(move |_| {
        let refusal = refusal.clone();
        async { Err(refusal) }
    });
    let client = server.client_with_host(host).await;

    let error = client.call_tool("slow", ()).await.unwrap_err();
    pass(secs(1)).await;

    assert!(
        matches!(&error, Error::Cancelled { reason } if reason == "the host refused `k`: not today"),
        "{error:?}"
    );
    assert_eq!(server.count("tasks/cancel"), 1);
    assert_eq!(server.count("tasks/update"), 0);
}

/// How many questions a host was asked, and how many are open.
type Counts = Arc<Mutex<(usize, usize)>>;

/// A host that answers when it is told to.
fn slow_host() -> (Host, Arc<Notify>, Counts) {
    struct Open(Counts);
    impl Drop for Open {
        fn drop(&mut self) {
            self.0.lock().unwrap().1 -= 1;
        }
    }
    let (answer, counts) = (Arc::new(Notify::new()), Counts::default());
    let (notify, asked) = (answer.clone(), counts.clone());
    let host = Host::new().elicitation(move |_| {
        {
            let mut counts = asked.lock().unwrap();
            *counts = (counts.0 + 1, counts.1 + 1);
        }
        let (open, notify) = (Open(asked.clone()), notify.clone());
        async move {
            notify.notified().await;
            drop(open);
            ElicitResult::accept(json!({"n": 3}))
        }
    });
    (host, answer, counts)
}

#[tokio::test(start_paused = true)]
async fn a_user_may_take_longer_than_the_timeouts() {
    let server = TaskServer::new().states([asking("k")]);
    let (host, answer, _) = slow_host();
    let client = server.client_with_host(host).await;

    let call = client
        .call_tool("slow", ())
        .timeout(secs(10))
        .idle_timeout(secs(5));
    let call = tokio::spawn(call);
    pass(secs(600)).await;
    answer.notify_one();
    pass(secs(1)).await;
    server.set_answers("tasks/get", [completed("done")]);

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    assert_eq!(server.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_the_task_ends() {
    let server = TaskServer::new().states([asking("k"), asking("k"), task("cancelled")]);
    let (host, _, counts) = slow_host();
    let client = server.client_with_host(host).await;

    let error = client.call_tool("slow", ()).await.unwrap_err();

    assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
    assert_eq!(*counts.lock().unwrap(), (1, 0));
    assert_eq!(server.count("tasks/update"), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_drops_the_question() {
    let server = TaskServer::new().states([asking("k")]);
    let (host, _, counts) = slow_host();
    let client = server.client_with_host(host).await;
    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(5)).await;
    assert_eq!(*counts.lock().unwrap(), (1, 1));

    call.abort();
    pass(secs(1)).await;

    assert_eq!(*counts.lock().unwrap(), (1, 0));
    assert_eq!(server.count("tasks/cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_answers_with_the_host_and_a_dropped_one_is_asked_again() {
    let server = TaskServer::new().states([asking("k")]);
    let (host, answer, counts) = slow_host();
    let client = server.client_with_host(host).await;
    let handle = client.call_tool("slow", ()).as_task().await.unwrap();
    tokio::select! {
        reply = handle.wait() => panic!("{reply:?}"),
        () = pass(secs(5)) => {}
    }
    assert_eq!(*counts.lock().unwrap(), (1, 0));

    let waits = [handle.wait(), handle.wait()].map(|wait| tokio::spawn(wait));
    pass(secs(5)).await;
    assert_eq!(*counts.lock().unwrap(), (2, 1), "two waits ask once");
    answer.notify_one();
    pass(secs(5)).await;
    server.set_answers("tasks/get", [completed("done")]);

    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap().text(), "done");
    }
    assert_eq!(server.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_application_answers_by_itself() {
    let server = TaskServer::new().states([asking("k")]);
    let client = server.client().await;
    let handle = client.call_tool("slow", ()).as_task().await.unwrap();

    let wait = tokio::spawn(handle.wait().manual_input());
    pass(secs(5)).await;
    let open = handle.status().await.unwrap().input_requests;
    assert!(open.contains_key("k"));
    handle
        .update(json!({"k": {"action": "decline"}}))
        .await
        .unwrap();
    server.set_answers("tasks/get", [completed("done")]);

    assert_eq!(wait.await.unwrap().unwrap().text(), "done");
    let updates = server.params("tasks/update");
    assert_eq!(
        updates[0]["inputResponses"],
        json!({"k": {"action": "decline"}})
    );
    let not_an_object = handle.update("yes").await.unwrap_err();
    assert!(
        matches!(not_an_object, Error::Misuse { .. }),
        "{not_an_object:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_application_answered_is_not_passed_to_the_host() {
    let server = TaskServer::new().states([asking("k"), asking("k"), completed("done")]);
    let (host, asked) = answering_host();
    let client = server.client_with_host(host).await;
    let handle = client.call_tool("slow", ()).as_task().await.unwrap();

    handle
        .update(json!({"k": {"action": "decline"}}))
        .await
        .unwrap();
    handle.wait().await.unwrap();

    assert_eq!(*asked.lock().unwrap(), 0);
    assert_eq!(server.count("tasks/update"), 1);
}
