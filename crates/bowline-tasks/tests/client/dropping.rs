//! What ends a task: dropping its call, its timeouts, its cancel; and what does not.

use bowline::{Call, Client, Error, testing};
use bowline_tasks::{TaskCall as _, TaskClient};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::{Answer, MODERN, TaskServer, asking, completed, pass, secs, task, with};

/// Polls the call for a while.
async fn poll(call: &mut Call) {
    tokio::select! {
        reply = call => panic!("{reply:?}"),
        () = pass(secs(5)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_its_task_once_and_sends_nothing_else() {
    for listens in [false, true] {
        let server = TaskServer::new();
        let _listening = listens.then(|| server.listening());
        let client = server.client().await;
        let mut call = client.call_tool("slow", ()).start();
        poll(&mut call).await;
        let before = server.methods();

        drop(call);
        pass(secs(100)).await;

        let after = server.methods();
        assert_eq!(after[before.len()..], ["tasks/cancel"]);
        let params = &server.params("tasks/cancel")[0];
        assert_eq!(params["taskId"], "A7");
        assert_eq!(client.detached_requests(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn timeouts_cancel_the_task() {
    let server = TaskServer::new();
    let client = server.client().await;
    let error = client
        .call_tool("slow", ())
        .timeout(secs(5))
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after } if after == secs(5)),
        "{error:?}"
    );
    pass(secs(1)).await;
    assert_eq!(server.count("tasks/cancel"), 1);

    let silent = TaskServer::new().states([Answer::Silence]);
    let client = silent.client().await;
    client
        .call_tool("slow", ())
        .idle_timeout(secs(5))
        .await
        .unwrap_err();
    pass(secs(1)).await;
    assert_eq!(silent.count("tasks/cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_opted_out_leaves_its_task() {
    let server = TaskServer::new();
    let client = server.client().await;
    let mut call = client.call_tool("slow", ()).cancel_on_drop(false).start();
    poll(&mut call).await;
    drop(call);
    let call = client.call_tool("slow", ()).cancel_on_drop(false);
    call.timeout(secs(5)).await.unwrap_err();
    pass(secs(10)).await;

    assert_eq!(server.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_call_cancels_its_task_in_any_case() {
    for opted_in in [true, false] {
        let server = TaskServer::new();
        let client = server.client().await;
        let mut call = client
            .call_tool("slow", ())
            .cancel_on_drop(opted_in)
            .start();
        poll(&mut call).await;

        call.cancel("the user closed the tab");
        pass(secs(1)).await;

        assert_eq!(server.count("tasks/cancel"), 1, "{opted_in}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_completed_cancels_nothing() {
    let server = TaskServer::new().states([completed("done")]);
    let client = server.client().await;

    client.call_tool("slow", ()).await.unwrap();
    pass(secs(10)).await;

    assert_eq!(server.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_task_exists_sends_no_cancel_of_a_task() {
    let server = TaskServer::new().answers("tools/call", [Answer::Silence]);
    let client = server.client().await;
    let mut call = client.call_tool("slow", ()).start();
    poll(&mut call).await;

    drop(call);
    pass(secs(10)).await;

    assert_eq!(server.methods(), ["tools/call"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_for_another_reason_cancels_its_task() {
    // This client has no host, so that the server may not ask.
    let server = TaskServer::new().states([asking("k")]);
    let client = server.client().await;

    let error = client.call_tool("slow", ()).await.unwrap_err();
    pass(secs(1)).await;

    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert_eq!(server.count("tasks/cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_handle_sends_nothing() {
    let server = TaskServer::new();
    let client = server.client().await;
    let task = client.call_tool("slow", ()).as_task().await.unwrap();
    let mut wait = task.clone().wait();
    tokio::select! {
        reply = &mut wait => panic!("{reply:?}"),
        () = pass(secs(5)) => {}
    }
    let before = server.methods().len();

    drop(wait);
    drop(task);
    pass(secs(10)).await;

    assert_eq!(server.methods().len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_leaves_the_task() {
    let server = TaskServer::new();
    let client = server.client().await;
    let handle = client.call_tool("slow", ()).as_task().await.unwrap();

    let error = handle.wait().timeout(secs(5)).await.unwrap_err();
    pass(secs(10)).await;
    assert!(
        matches!(error, Error::Timeout { after } if after == secs(5)),
        "{error:?}"
    );
    assert_eq!(server.count("tasks/cancel"), 0);

    server.set_answers("tasks/get", [completed("done")]);
    assert_eq!(handle.wait().await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_new_task_that_is_malformed_is_cancelled_if_it_has_an_id() {
    let created = json!({"resultType": "task", "taskId": "A7", "status": "exploded"});
    let server = TaskServer::new().created(created);
    let client = server.client().await;

    client.call_tool("slow", ()).await.unwrap_err();
    client.call_tool("slow", ()).as_task().await.unwrap_err();
    pass(secs(1)).await;

    assert_eq!(server.count("tasks/cancel"), 2);
    assert_eq!(server.count("tasks/get"), 0);
}

/// Calls the tool, and returns when all calls wait for their tasks.
pub(crate) async fn waiting_calls(
    client: &Client,
    server: &TaskServer,
    count: usize,
) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let call = client.call_tool("slow", ()).timeout(secs(3600));
        calls.spawn(async move { drop(call.await) });
    }
    while server.count("tasks/get") < count {
        pass(secs(1)).await;
    }
    calls
}

#[tokio::test(start_paused = true)]
async fn five_thousand_calls_that_are_dropped_at_once_cancel_all_their_tasks() {
    const CALLS: usize = 5_000;
    let server = TaskServer::new();
    let client = server.client().await;
    let calls = waiting_calls(&client, &server, CALLS).await;

    drop(calls);
    pass(secs(1)).await;

    assert_eq!(server.count("tasks/cancel"), CALLS);
    assert_eq!(client.detached_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn cancels_wait_for_their_turn_while_the_server_is_slow() {
    const CALLS: usize = 200;
    let server = TaskServer::new().answers("tasks/cancel", [Answer::Silence]);
    let client = server.client().await;
    let calls = waiting_calls(&client, &server, CALLS).await;

    drop(calls);
    pass(secs(1)).await;
    assert_eq!(server.count("tasks/cancel"), 64);
    assert_eq!(client.detached_requests(), CALLS);

    // Those in flight time out, and the next ones are answered.
    server.set_answers("tasks/cancel", [json!({})]);
    pass(secs(30)).await;
    assert_eq!(server.count("tasks/cancel"), CALLS);
    assert_eq!(client.detached_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_a_client_waits_until_the_cancels_of_its_tasks_are_answered() {
    let server = TaskServer::new();
    let client = server.client().await;
    let calls = waiting_calls(&client, &server, 300).await;
    // Its tasks are aborted now, and their calls are dropped when the runtime has a turn.
    drop(calls);
    let began = Instant::now();

    client.close().await.unwrap();

    assert_eq!(server.count("tasks/cancel"), 300);
    assert_eq!(began.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn closing_a_client_waits_four_seconds_for_a_server_that_does_not_answer_cancels() {
    let server = TaskServer::new().answers("tasks/cancel", [Answer::Silence]);
    let client = server.client().await;
    let mut call = client.call_tool("slow", ()).start();
    poll(&mut call).await;
    drop(call);
    let began = Instant::now();

    let other = client.clone();
    client.close().await.unwrap();

    assert_eq!(began.elapsed().as_secs(), 4);
    assert_eq!(server.count("tasks/cancel"), 1);
    assert_eq!(other.detached_requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_dropped_while_it_waits_closes_all_the_same() {
    let server = TaskServer::new().answers("tasks/cancel", [Answer::Silence]);
    let client = server.client().await;
    let mut call = client.call_tool("slow", ()).start();
    poll(&mut call).await;
    drop(call);

    let closing = tokio::time::timeout(secs(1), client.clone().close());

    assert!(closing.await.is_err(), "it waits");
    let after = client.call_tool("slow", ()).await;
    assert!(matches!(after, Err(Error::Closed)), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_with_its_calls_cancels_all_tasks_over_a_wire() {
    const CALLS: usize = 100;
    let (wire, mut server) = testing::scripted_peer();
    let client = Client::from_wire(wire)
        .protocol_version(MODERN)
        .extension(TaskClient::new().polling_only());
    let client = client.await.unwrap();
    let mut calls: Vec<_> = (0..CALLS)
        .map(|_| client.call_tool("slow", ()).timeout(secs(3600)).start())
        .collect();
    for _ in 0..CALLS {
        let created = with(task("working"), json!({"resultType": "task"}));
        server.expect("tools/call").await.answer(created);
    }
    for call in &mut calls {
        poll(call).await;
    }

    drop((calls, client));

    let mut cancelled = 0;
    while cancelled < CALLS {
        let message = server.next_message().await;
        if message["method"] == "tasks/cancel" {
            cancelled += 1;
            let id = serde_json::from_value(message["id"].clone()).unwrap();
            server.answer(id, json!({"resultType": "complete"}));
        }
    }
}
