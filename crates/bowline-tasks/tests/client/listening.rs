//! Calls that receive notifications of their task.

use std::time::Duration;

use bowline::exchange::{Outcome, Request};
use bowline::{Client, Context, Error, ErrorCode};
use bowline_tasks::TaskClient;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::{Answer, MODERN, TaskServer, completed, pass, secs, send, task, with};

#[tokio::test(start_paused = true)]
async fn a_notification_ends_the_call() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = server.client().await;

    let began = Instant::now();
    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(2)).await;
    notifications
        .send(with(task("working"), json!({"statusMessage": "half"})))
        .unwrap();
    pass(secs(2)).await;
    notifications.send(completed("done")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    assert_eq!(began.elapsed().as_secs(), 4);
    let expected = [
        "tools/call",
        "tasks/get",
        "subscriptions/listen",
        "tasks/get",
    ];
    assert_eq!(
        server.methods(),
        expected,
        "one request in case the task is short, and one for what was before the subscription"
    );
    let filter = &server.params("subscriptions/listen")[0]["notifications"];
    assert_eq!(*filter, json!({"taskIds": ["A7"]}));
}

#[tokio::test(start_paused = true)]
async fn a_short_task_costs_one_request_and_no_subscription() {
    let server = TaskServer::new().states([completed("done")]);
    server.listening();
    let client = server.client().await;

    let began = Instant::now();
    let reply = client.call_tool("fast", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    assert_eq!(began.elapsed(), secs(0));
    assert_eq!(server.methods(), ["tools/call", "tasks/get"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ended_before_the_subscription_is_found_immediately() {
    let server = TaskServer::new().states([task("working"), completed("done")]);
    server.listening();
    let client = server.client().await;

    let began = Instant::now();
    let reply = client.call_tool("fast", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    assert_eq!(server.count("subscriptions/listen"), 1);
    assert!(began.elapsed().as_millis() < 200, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lost_notification_is_found_by_the_slow_poll() {
    let mut states = vec![task("working"); 3];
    states.push(completed("done"));
    let server = TaskServer::new().states(states);
    server.listening();
    let client = server.client().await;

    let began = Instant::now();
    let reply = client.call_tool("slow", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    let times = server.times("tasks/get");
    let after: Vec<_> = times.iter().map(|at| (*at - began).as_secs()).collect();
    assert_eq!(after, [0, 0, 15, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_is_opened_again() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = server.client().await;

    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(3)).await;
    let polls = server.count("tasks/get");
    notifications.send(Value::Null).unwrap();
    pass(secs(1)).await;
    assert_eq!(server.count("subscriptions/listen"), 2);
    assert!(
        server.count("tasks/get") > polls,
        "what happened in between is requested"
    );
    notifications.send(completed("done")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_subscription_ended_for_good_is_polled_at_its_interval() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = server.client().await;
    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(10)).await;
    assert_eq!(server.count("tasks/get"), 2);

    let refused = Answer::Error(ErrorCode::METHOD_NOT_FOUND, "not any more");
    server.set_answers("subscriptions/listen", [refused]);
    notifications.send(Value::Null).unwrap();
    pass(secs(10)).await;

    assert!(
        server.count("tasks/get") >= 10,
        "{}",
        server.count("tasks/get")
    );
    assert!(!call.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_subscription_is_not_asked_in_a_loop() {
    let server = TaskServer::new().answers("subscriptions/listen", [json!({})]);
    let client = server.client().await;

    let call = client.call_tool("slow", ()).timeout(secs(600));
    call.await.unwrap_err();

    assert!(server.count("subscriptions/listen") <= 20);
    assert!(
        server.count("tasks/get") <= 601,
        "{}",
        server.count("tasks/get")
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_without_notifications_of_tasks_is_not_asked_for_them_again() {
    let refusing = TaskServer::new();
    let ignoring = TaskServer::new().acknowledging(json!({}));
    ignoring.listening();
    for server in [refusing, ignoring] {
        let client = server.client().await;

        for _ in 0..3 {
            server.set_answers("tasks/get", [task("working"), completed("done")]);
            assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "done");
        }

        assert_eq!(server.count("subscriptions/listen"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_acknowledge_is_polled_meanwhile() {
    let server = TaskServer::new()
        .answers("subscriptions/listen", [Answer::Silence])
        .states([task("working"), task("working"), completed("done")]);
    let client = server.client().await;

    let began = Instant::now();
    client.call_tool("slow", ()).await.unwrap();

    assert_eq!(server.count("subscriptions/listen"), 1);
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn notifications_that_are_not_of_the_task_are_ignored() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = server.client().await;

    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(1)).await;
    let other = with(completed("wrong"), json!({"taskId": "B8"}));
    for ignored in [
        other,
        json!({"status": "completed"}),
        with(task("exploded"), json!({})),
    ] {
        notifications.send(ignored).unwrap();
    }
    pass(secs(1)).await;
    notifications.send(completed("right")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "right");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_does_not_delay_a_notification() {
    let server = TaskServer::new().states([Answer::Silence]);
    let notifications = server.listening();
    let client = server.client().await;

    let began = Instant::now();
    let call = tokio::spawn(client.call_tool("slow", ()));
    server.received("subscriptions/listen").await;
    assert_eq!(
        server.methods(),
        ["tools/call", "tasks/get", "subscriptions/listen"]
    );
    notifications.send(completed("done")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    assert!(began.elapsed() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_refused_is_polled_for() {
    let refused = Answer::Error(ErrorCode::INVALID_PARAMS, "no");
    let server = TaskServer::new()
        .answers("subscriptions/listen", [refused])
        .states([task("working"), completed("done")]);
    let client = server.client().await;

    assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "done");
    assert_eq!(server.count("subscriptions/listen"), 1);
}

/// With the real clock: the paused one stands still while there is work to do.
#[tokio::test]
async fn a_server_that_always_has_a_notification_does_not_defeat_the_timeout() {
    async fn respond(request: Request, cx: Context) -> Outcome {
        let created = with(task("working"), json!({"resultType": "task"}));
        match &*request.method {
            "subscriptions/listen" => {}
            "tasks/get" => return Ok(task("working").into()),
            _ => return Ok(created.into()),
        }
        let filter = json!({"notifications": {"taskIds": ["A7"]}});
        send(&cx, "notifications/subscriptions/acknowledged", filter);
        loop {
            tokio::task::yield_now().await;
            send(&cx, "notifications/tasks", task("working"));
        }
    }
    let client = Client::in_process(&respond).protocol_version(MODERN);
    let client = client.extension(TaskClient::new()).await.unwrap();

    let limit = Duration::from_millis(100);
    let error = client.call_tool("slow", ()).timeout(limit).await;

    assert!(
        matches!(error, Err(Error::Timeout { after }) if after == limit),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn frequent_notifications_do_not_defeat_the_timeout() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = server.client().await;
    let flood = tokio::spawn(async move {
        loop {
            let _ = notifications.send(task("working"));
            pass(Duration::from_millis(1)).await;
        }
    });

    let error = client
        .call_tool("slow", ())
        .timeout(secs(5))
        .await
        .unwrap_err();

    assert!(
        matches!(error, Error::Timeout { after } if after == secs(5)),
        "{error:?}"
    );
    flood.abort();
}
