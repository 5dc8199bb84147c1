//! The messages that a stream carries, and how a stream is resumed.

use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn list_changed_is_sent_on_the_get_stream() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-06-18").await;
    let mut stream = client.send(client.get()).await;
    assert!(stream.is_event_stream());

    fixture.server.changed().tools();

    let event = stream.chunk().await.unwrap();
    assert_eq!(
        messages(&event)[0]["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test(start_paused = true)]
async fn notifications_without_a_get_stream_are_sent_on_the_next_one() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-06-18").await;
    fixture.server.changed().tools();
    client.send(client.call(1, "echo", "a")).await;

    let mut stream = client.send(client.get()).await;

    let event = stream.chunk().await.unwrap();
    assert_eq!(
        messages(&event)[0]["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_resumes_after_its_last_event_id() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-06-18").await;
    let mut stream = client.send(client.get()).await;
    fixture.server.changed().tools();
    let seen = stream.chunk().await.unwrap();
    client.close_connections();
    drop(stream);
    fixture.server.changed().tools();
    fixture.server.changed().tools();

    let again = with_header(client.get(), "last-event-id", last_event_id(&seen));
    let mut stream = client.send(again).await;
    let mut rest = Vec::new();
    while rest.len() < 2 {
        rest.extend(messages(&stream.chunk().await.unwrap()));
    }

    assert_eq!(rest.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_get_is_refused_unless_it_resumes_the_stream() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-06-18").await;
    let mut first = client.send(client.get()).await;
    fixture.server.changed().tools();
    let seen = first.chunk().await.unwrap();

    let refused = client.send(client.get()).await;
    let again = with_header(client.get(), "last-event-id", last_event_id(&seen));
    let mut second = client.send(again).await;
    fixture.server.changed().tools();

    assert_eq!(refused.status(), 409);
    assert_eq!(first.text().await, "");
    assert_eq!(messages(&second.chunk().await.unwrap()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_get_without_last_event_id_takes_over_a_stream_that_was_open_for_a_while() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-06-18").await;
    let first = client.send(client.get()).await;
    tokio::time::advance(Duration::from_secs(6)).await;

    let mut second = client.send(client.get()).await;
    let refused = client.send(client.get()).await;
    fixture.server.changed().tools();

    assert_eq!(second.status(), 200);
    assert_eq!(
        refused.status(),
        409,
        "the stream was taken over a moment ago"
    );
    assert_eq!(first.text().await, "");
    assert_eq!(messages(&second.chunk().await.unwrap()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_starts_with_a_priming_event_where_the_version_has_one() {
    for (version, primed) in [("2025-11-25", true), ("2025-06-18", false)] {
        let mut fixture = ServerFixture::new();
        let mut client = SessionClient::open(&fixture.server.http(), version).await;
        let mut stream = client.start_call(&mut fixture, 1, "a").await;

        let first = stream.chunk().await.unwrap();

        assert_eq!(
            first.starts_with("id: 2-0\nretry: 1000\ndata: \n\n"),
            primed,
            "{first}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_last_event_id_is_refused() {
    let fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;

    for id in ["99-0", "nonsense", "1-x"] {
        let response = client
            .send(with_header(client.get(), "last-event-id", id))
            .await;

        assert_eq!(response.status(), 400, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_request_is_sent_on_the_stream_of_its_request_and_answered_by_a_post() {
    let fixture = ServerFixture::new();
    let service = with_roots_tool(fixture.server).http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let mut stream = client.send(client.call(1, "list_roots", "a")).await;
    assert!(stream.is_event_stream());
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
async fn resuming_a_finished_stream_does_not_open_the_get_stream() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let stream = client.start_call(&mut fixture, 1, "a").await;
    client.send(client.cancel(1)).await;
    let events = stream.text().await;
    let (first, last) = (events.find("id: ").unwrap(), last_event_id(&events));
    let first = events[first + 4..].lines().next().unwrap();

    let from_the_start = client
        .send(with_header(client.get(), "last-event-id", first))
        .await;
    let from_the_end = client
        .send(with_header(client.get(), "last-event-id", last))
        .await;
    let unsolicited = client.send(client.get()).await;

    let again = from_the_start.messages().await;
    assert_eq!(again.last().unwrap()["error"]["code"], -32800);
    assert_eq!(from_the_end.status(), 405, "{last}");
    assert_eq!(unsolicited.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_request_cancels_its_server_request() {
    let fixture = ServerFixture::new();
    let service = with_roots_tool(fixture.server).http();
    let mut client = SessionClient::open(&service, "2025-06-18").await;
    let mut unsolicited = client.send(client.get()).await;
    let mut stream = client.send(client.call(1, "list_roots", "a")).await;
    let request = messages(&stream.chunk().await.unwrap());

    client.send(client.cancel(1)).await;

    assert_eq!(stream.messages().await[0]["error"]["code"], -32800);
    let cancel = messages(&unsolicited.chunk().await.unwrap());
    assert_eq!(cancel[0]["method"], "notifications/cancelled");
    assert_eq!(cancel[0]["params"]["requestId"], request[0]["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_progress_token_gets_its_head_without_a_timer_delay() {
    let mut fixture = ServerFixture::new();
    let mut client = SessionClient::open(&fixture.server.http(), "2025-11-25").await;
    // Timers expire on a full millisecond.
    tokio::time::advance(Duration::from_micros(1500)).await;
    let begun = tokio::time::Instant::now();

    let running = client.send(client.call_with_progress(1, "wait", "a")).await;

    assert!(running.is_event_stream());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    fixture.handler_started("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_request_dropped_by_its_handler_is_cancelled_on_the_stream_of_the_request() {
    let fixture = ServerFixture::new();
    let release = fixture.release.clone();
    let drops_request = Tool::raw(
        "drops_request",
        json!({"type": "object"}),
        move |_, cx: bowline::Context| {
            let release = release.clone();
            async move {
                tokio::select! {
                    _ = cx.roots() => Ok(CallToolResult::text("answered")),
                    () = release.notified() => Ok(CallToolResult::text("dropped")),
                }
            }
        },
    );
    let service = fixture.server.tool(drops_request).http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let mut stream = client.send(client.call(1, "drops_request", "a")).await;
    let mut request = Vec::new();
    while request.is_empty() {
        request = messages(&stream.chunk().await.unwrap());
    }

    fixture.release.notify_one();

    let rest = stream.messages().await;
    assert_eq!(rest[0]["method"], "notifications/cancelled");
    assert_eq!(rest[0]["params"]["requestId"], request[0]["id"]);
    assert_eq!(rest[1]["result"]["content"][0]["text"], "dropped");
    assert_eq!(rest.len(), 2);
}

/// Reads events as chuk-mcp 0.9.4 does: it ignores those without a line `event:`.
fn read_named_events(stream: &str) -> Vec<Value> {
    let (mut name, mut data, mut read) = (None, Vec::new(), Vec::new());
    for line in stream.lines() {
        if let Some(own) = line.strip_prefix("event: ") {
            name = Some(own.trim());
        } else if let Some(own) = line.strip_prefix("data: ") {
            data.push(own);
        } else if line.is_empty() {
            if name.is_some_and(|name| ["message", "response"].contains(&name)) {
                read.extend(serde_json::from_str::<Value>(&data.join("\n")));
            }
            (name, data) = (None, Vec::new());
        }
    }
    read
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ignores_events_without_a_name_gets_each_message() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let mut client = SessionClient::open(&service, version).await;
        let call = client.call(1, "echo", "a");
        let call = with_header(call, "accept", "text/event-stream");

        let stream = client.send(call).await.text().await;

        let read = read_named_events(&stream);
        assert_eq!(read.last().unwrap()["id"], 1, "{version}: {stream}");
    }
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern_request("L1", "subscriptions/listen", filter);
    let mut connection = PlainConnection::http1(&service).await;
    let stream = connection.send(listen).await.chunk().await.unwrap();

    let read = read_named_events(&stream);
    let acknowledged = "notifications/subscriptions/acknowledged";
    assert_eq!(read[0]["method"], acknowledged, "modern: {stream}");
}
