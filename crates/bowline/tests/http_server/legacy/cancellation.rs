//! In the legacy era a disconnect does not cancel; a posted `notifications/cancelled` does, within its session.

use std::time::Duration;

use bowline::http::legacy::Legacy;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_posted_cancel_drops_the_handler_and_ends_the_stream_with_a_terminator() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;
    let running = client.start_call(&mut fixture, 7, "a").await;

    let accepted = client.send(client.cancel(7)).await;

    assert_eq!(accepted.status(), 202);
    fixture.handler_dropped("a").await;
    let messages = running.messages().await;
    let last = messages.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_the_head_is_sent_ends_the_post_with_json() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let request = with_header(client.call(7, "wait", "a"), "accept", "application/json");
    let mut connection = PlainConnection::http1(&service).await;
    let waiting = tokio::spawn(async move { connection.send(request).await.json().await });
    fixture.handler_started("a").await;

    client.send(client.cancel(7)).await;

    let answer = waiting.await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
    fixture.handler_dropped("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_one_session_does_not_reach_the_same_id_in_another() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut first = SessionClient::open(&service, "2025-11-25").await;
    let mut second = SessionClient::open(&service, "2025-11-25").await;
    let kept = first.start_call(&mut fixture, 3, "kept").await;
    let lost = second.start_call(&mut fixture, 3, "lost").await;

    second.send(second.cancel(3)).await;

    fixture.handler_dropped("lost").await;
    assert_eq!(
        lost.messages().await.last().unwrap()["error"]["code"],
        -32800
    );
    fixture.release.notify_one();
    fixture.handler_finished("kept").await;
    assert!(kept.messages().await.last().unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_does_not_cancel_and_the_response_can_be_resumed() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;
    let mut running = client.start_call(&mut fixture, 1, "a").await;
    let mut seen = running.chunk().await.unwrap();
    if messages(&seen).is_empty() {
        seen = running.chunk().await.unwrap(); // the priming event has no data
    }

    client.close_connections();
    drop(running);
    fixture.release.notify_one();

    fixture.handler_finished("a").await;
    let again = with_header(client.get(), "last-event-id", last_event_id(&seen));
    let rest = client.send(again).await.messages().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["result"]["content"][0]["text"], "released");
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_before_the_head_is_sent_does_not_cancel() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let client = SessionClient::open(&service, "2025-11-25").await;
    let request = with_header(client.call(7, "wait", "a"), "accept", "application/json");
    let mut connection = PlainConnection::http1(&service).await;
    tokio::select! {
        biased;
        response = connection.send(request) => panic!("too early: {response:?}"),
        () = fixture.handler_started("a") => {}
    }

    drop(connection);
    fixture.release.notify_one();

    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_call_is_dropped_after_the_orphan_timeout() {
    let mut fixture = ServerFixture::new();
    let legacy = Legacy::sessions().orphan_timeout(Duration::from_secs(60));
    let service = fixture.server.http().legacy(legacy);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let running = client.start_call(&mut fixture, 1, "a").await;
    let begun = tokio::time::Instant::now();

    client.close_connections();
    drop(running);

    fixture.handler_dropped("a").await;
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_call_prevents_the_idle_timeout_of_its_session() {
    let mut fixture = ServerFixture::new();
    let legacy = Legacy::sessions().idle_timeout(Duration::from_secs(10));
    let service = fixture.server.http().legacy(legacy);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let running = client.start_call(&mut fixture, 1, "a").await;
    client.close_connections();
    drop(running);

    tokio::time::advance(Duration::from_secs(100)).await;

    let next = client.send(client.call(2, "echo", "b")).await;
    assert_eq!(next.status(), 200);
    fixture.release.notify_one();
    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn an_id_in_flight_is_refused_on_its_own_post_and_the_first_is_still_answered() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;
    let first = client.start_call(&mut fixture, 1, "a").await;

    let second = client.send(client.call(1, "echo", "b")).await;

    assert_eq!(second.status(), 400);
    assert_eq!(second.json().await["error"]["code"], -32600);
    fixture.release.notify_one();
    assert!(first.messages().await.last().unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_one_principal_never_touches_a_request_of_another() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let opened = call_service(
        &service,
        with_principal(post(&initialize("2025-11-25")), "ada"),
    )
    .await;
    let id = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let within = |body: &Value, who| {
        let request = with_header(post(body), "mcp-session-id", &id);
        with_principal(
            with_header(request, "mcp-protocol-version", "2025-11-25"),
            who,
        )
    };
    let call = tool_call(
        &json!(3),
        "progress",
        &json!({"name": "a"}),
        &json!({"progressToken": 3}),
    );
    let running = call_service(&service, within(&call, "ada")).await;
    fixture.handler_started("a").await;

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 3}});
    let foreign = call_service(&service, within(&cancel, "eve")).await;

    assert_eq!(foreign.status(), 404);
    assert!(fixture.events.try_recv().is_err(), "the handler still runs");
    let own = call_service(&service, within(&cancel, "ada")).await;
    assert_eq!(own.status(), 202);
    fixture.handler_dropped("a").await;
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_overtakes_its_request_still_cancels_it() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;

    let accepted = client.send(client.cancel(7)).await;
    let overtaken = client.send(client.call(7, "wait", "a")).await;

    assert_eq!(accepted.status(), 202);
    let answer = tokio::time::timeout(Duration::from_secs(60), overtaken.json());
    let answer = answer.await.expect("the request ends in time");
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
    // Ids are compared verbatim: `"7"` is another request.
    let other = client.send(client.call("7", "wait", "b")).await;
    fixture.handler_started("b").await;
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_without_a_request_expires_after_ten_seconds() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;

    client.send(client.cancel(7)).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    let request = client.send(client.call_with_progress(7, "wait", "a")).await;

    fixture.handler_started("a").await;
    drop(request);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_the_response_does_not_cancel_the_next_request_with_that_id() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;
    for id in [json!(7), json!("seven")] {
        let first = client.send(client.call(id.clone(), "echo", "a")).await;
        assert!(first.json().await["result"].is_object());

        client.send(client.cancel(id.clone())).await;
        let second = client.send(client.call(id, "wait", "b")).await;

        fixture.handler_started("b").await;
        drop(second);
    }
}
