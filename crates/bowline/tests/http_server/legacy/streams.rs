//! Which messages a stream carries, and how it is read again.

use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn changes_are_told_on_the_stream_that_a_client_gets() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-06-18").await;
    let mut stream = client.send(client.get()).await;
    assert!(stream.is_events());

    stage.server.changed().tools();

    let event = stream.chunk().await.unwrap();
    assert_eq!(
        messages(&event)[0]["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_nobody_listens_is_told_later() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-06-18").await;
    stage.server.changed().tools();
    client.send(client.call(1, "echo", "a")).await;

    let mut stream = client.send(client.get()).await;

    let event = stream.chunk().await.unwrap();
    assert_eq!(
        messages(&event)[0]["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_goes_on_after_the_last_event_that_was_seen() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-06-18").await;
    let mut stream = client.send(client.get()).await;
    stage.server.changed().tools();
    let seen = stream.chunk().await.unwrap();
    client.cut();
    drop(stream);
    stage.server.changed().tools();
    stage.server.changed().tools();

    let again = with(client.get(), "last-event-id", last_event_id(&seen));
    let mut stream = client.send(again).await;
    let mut rest = Vec::new();
    while rest.len() < 2 {
        rest.extend(messages(&stream.chunk().await.unwrap()));
    }

    assert_eq!(rest.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_one_reader_unless_the_second_comes_to_resume_it() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-06-18").await;
    let mut first = client.send(client.get()).await;
    stage.server.changed().tools();
    let seen = first.chunk().await.unwrap();

    let refused = client.send(client.get()).await;
    let again = with(client.get(), "last-event-id", last_event_id(&seen));
    let mut second = client.send(again).await;
    stage.server.changed().tools();

    assert_eq!(refused.status(), 409);
    assert_eq!(first.text().await, "");
    assert_eq!(messages(&second.chunk().await.unwrap()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_saw_no_event_takes_over_a_stream_that_has_been_open_for_a_while() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-06-18").await;
    let first = client.send(client.get()).await;
    tokio::time::advance(Duration::from_secs(6)).await;

    let mut second = client.send(client.get()).await;
    let refused = client.send(client.get()).await;
    stage.server.changed().tools();

    assert_eq!(second.status(), 200);
    assert_eq!(refused.status(), 409, "it was only just taken over");
    assert_eq!(first.text().await, "");
    assert_eq!(messages(&second.chunk().await.unwrap()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_primed_where_the_version_has_that() {
    for (version, primed) in [("2025-11-25", true), ("2025-06-18", false)] {
        let mut stage = Stage::new();
        let mut client = Conversation::open(&stage.server.http(), version).await;
        let mut stream = client.send(client.call_with_progress(1, "talk", "a")).await;
        stage.started("a").await;

        let first = stream.chunk().await.unwrap();

        assert_eq!(
            first.starts_with("id: 2-0\nretry: 1000\ndata: \n\n"),
            primed,
            "{first}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_knows_cannot_be_followed() {
    let stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;

    for id in ["99-0", "nonsense", "1-x"] {
        let reply = client.send(with(client.get(), "last-event-id", id)).await;

        assert_eq!(reply.status(), 400, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_rides_the_stream_of_the_request_and_its_answer_is_posted() {
    let stage = Stage::new();
    let service = asks(stage.server).http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let mut stream = client.send(client.call(1, "asks", "a")).await;
    assert!(stream.is_events());
    let mut seen = Vec::new();
    while seen.is_empty() {
        seen = messages(&stream.chunk().await.unwrap());
    }

    let answer = json!({"jsonrpc": "2.0", "id": seen[0]["id"], "result": {"roots": []}});
    let accepted = client.send(client.post(&answer)).await;

    assert_eq!(seen[0]["method"], "roots/list");
    assert_eq!(accepted.status(), 202);
    let rest = stream.messages().await;
    assert!(
        rest[0]["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("roots")
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_for_more_of_a_finished_stream_is_not_given_another() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let stream = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    client.send(client.cancel(1)).await;
    let events = stream.text().await;
    let (first, last) = (events.find("id: ").unwrap(), last_event_id(&events));
    let first = events[first + 4..].lines().next().unwrap();

    let from_the_start = client
        .send(with(client.get(), "last-event-id", first))
        .await;
    let from_the_end = client.send(with(client.get(), "last-event-id", last)).await;
    let unsolicited = client.send(client.get()).await;

    let again = from_the_start.messages().await;
    assert_eq!(again.last().unwrap()["error"]["code"], -32800);
    assert_eq!(from_the_end.status(), 405, "{last}");
    assert_eq!(unsolicited.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_takes_its_question_along() {
    let stage = Stage::new();
    let service = asks(stage.server).http();
    let mut client = Conversation::open(&service, "2025-06-18").await;
    let mut unsolicited = client.send(client.get()).await;
    let mut stream = client.send(client.call(1, "asks", "a")).await;
    let question = messages(&stream.chunk().await.unwrap());

    client.send(client.cancel(1)).await;

    assert_eq!(stream.messages().await[0]["error"]["code"], -32800);
    let told = messages(&unsolicited.chunk().await.unwrap());
    assert_eq!(told[0]["method"], "notifications/cancelled");
    assert_eq!(told[0]["params"]["requestId"], question[0]["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_wants_progress_gets_its_head_without_waiting_for_a_timer() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;
    // Timers ring on the millisecond.
    tokio::time::advance(Duration::from_micros(1500)).await;
    let begun = tokio::time::Instant::now();

    let running = client.send(client.call_with_progress(1, "wait", "a")).await;

    assert!(running.is_events());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    stage.started("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_its_handler_drops_is_cancelled_on_the_stream_of_the_request() {
    let stage = Stage::new();
    let release = stage.release.clone();
    let gives_up = Tool::raw(
        "gives up",
        json!({"type": "object"}),
        move |_, cx: bowline::Context| {
            let release = release.clone();
            async move {
                tokio::select! {
                    _ = cx.roots() => Ok(CallToolResult::text("answered")),
                    () = release.notified() => Ok(CallToolResult::text("gave up")),
                }
            }
        },
    );
    let service = stage.server.tool(gives_up).http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let mut stream = client.send(client.call(1, "gives up", "a")).await;
    let mut question = Vec::new();
    while question.is_empty() {
        question = messages(&stream.chunk().await.unwrap());
    }

    stage.release.notify_one();

    let rest = stream.messages().await;
    assert_eq!(rest[0]["method"], "notifications/cancelled");
    assert_eq!(rest[0]["params"]["requestId"], question[0]["id"]);
    assert_eq!(rest[1]["result"]["content"][0]["text"], "gave up");
    assert_eq!(rest.len(), 2);
}
