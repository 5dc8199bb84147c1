//! In the legacy era a disconnect is no cancel; what is posted is, within its session.

use std::time::Duration;

use bowline::http::legacy::Legacy;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_posted_cancel_drops_the_handler_and_ends_the_stream_with_a_terminator() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;
    let running = client.send(client.call_with_progress(7, "talk", "a")).await;
    stage.started("a").await;

    let accepted = client.send(client.cancel(7)).await;

    assert_eq!(accepted.status(), 202);
    stage.dropped("a").await;
    let messages = running.messages().await;
    let last = messages.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_the_head_is_out_ends_the_post_with_json() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let request = with(client.call(7, "wait", "a"), "accept", "application/json");
    let mut link = Link::to(&service).await;
    let waiting = tokio::spawn(async move { link.send(request).await.json().await });
    stage.started("a").await;

    client.send(client.cancel(7)).await;

    let answer = waiting.await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
    stage.dropped("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_one_session_does_not_reach_the_same_id_in_another() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut first = Conversation::open(&service, "2025-11-25").await;
    let mut second = Conversation::open(&service, "2025-11-25").await;
    let kept = first
        .send(first.call_with_progress(3, "talk", "kept"))
        .await;
    stage.started("kept").await;
    let lost = second
        .send(second.call_with_progress(3, "talk", "lost"))
        .await;
    stage.started("lost").await;

    second.send(second.cancel(3)).await;

    stage.dropped("lost").await;
    assert_eq!(
        lost.messages().await.last().unwrap()["error"]["code"],
        -32800
    );
    stage.release.notify_one();
    stage.finished("kept").await;
    assert!(kept.messages().await.last().unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_cancels_nothing_and_the_answer_can_be_fetched() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;
    let mut running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    let mut seen = running.chunk().await.unwrap();
    if messages(&seen).is_empty() {
        seen = running.chunk().await.unwrap(); // the first event only has an id
    }

    client.cut();
    drop(running);
    stage.release.notify_one();

    stage.finished("a").await;
    let again = with(client.get(), "last-event-id", last_event_id(&seen));
    let rest = client.send(again).await.messages().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["result"]["content"][0]["text"], "released");
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_before_the_head_is_out_cancels_nothing_either() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let client = Conversation::open(&service, "2025-11-25").await;
    let request = with(client.call(7, "wait", "a"), "accept", "application/json");
    let mut link = Link::to(&service).await;
    tokio::select! {
        biased;
        reply = link.send(request) => panic!("too early: {reply:?}"),
        () = stage.started("a") => {}
    }

    drop(link);
    stage.release.notify_one();

    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_has_waited_for_is_dropped_in_the_end() {
    let mut stage = Stage::new();
    let legacy = Legacy::sessions().orphan_limit(Duration::from_secs(60));
    let service = stage.server.http().legacy(legacy);
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    let begun = tokio::time::Instant::now();

    client.cut();
    drop(running);

    stage.dropped("a").await;
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_call_holds_off_the_end_of_an_idle_session() {
    let mut stage = Stage::new();
    let legacy = Legacy::sessions().idle_after(Duration::from_secs(10));
    let service = stage.server.http().legacy(legacy);
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    client.cut();
    drop(running);

    tokio::time::advance(Duration::from_secs(100)).await;

    let next = client.send(client.call(2, "echo", "b")).await;
    assert_eq!(next.status(), 200);
    stage.release.notify_one();
    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn an_id_in_flight_is_refused_on_its_own_post_and_the_first_is_still_answered() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;
    let first = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    let second = client.send(client.call(1, "echo", "b")).await;

    assert_eq!(second.status(), 400);
    assert_eq!(second.json().await["error"]["code"], -32600);
    stage.release.notify_one();
    assert!(first.messages().await.last().unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn one_principals_cancel_never_touches_anothers_request() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let opened = ask(&service, on_behalf(post(&initialize("2025-11-25")), "ada")).await;
    let id = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let within = |body: &Value, who| {
        let request = with(post(body), "mcp-session-id", &id);
        on_behalf(with(request, "mcp-protocol-version", "2025-11-25"), who)
    };
    let call = tool_call(
        &json!(3),
        "talk",
        &json!({"name": "a"}),
        &json!({"progressToken": 3}),
    );
    let running = ask(&service, within(&call, "ada")).await;
    stage.started("a").await;

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 3}});
    let foreign = ask(&service, within(&cancel, "eve")).await;

    assert_eq!(foreign.status(), 404);
    assert!(stage.happened.try_recv().is_err(), "the handler goes on");
    let own = ask(&service, within(&cancel, "ada")).await;
    assert_eq!(own.status(), 202);
    stage.dropped("a").await;
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_overtakes_its_request_still_stops_it() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;

    let accepted = client.send(client.cancel(7)).await;
    let overtaken = client.send(client.call(7, "wait", "a")).await;

    assert_eq!(accepted.status(), 202);
    let answer = tokio::time::timeout(Duration::from_secs(60), overtaken.json());
    let answer = answer.await.expect("the request ends");
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32800))
    );
    // Verbatim: `"7"` is another request.
    let other = client.send(client.call("7", "wait", "b")).await;
    stage.started("b").await;
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_without_its_request_is_forgotten_after_ten_seconds() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;

    client.send(client.cancel(7)).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    let request = client.send(client.call_with_progress(7, "wait", "a")).await;

    stage.started("a").await;
    drop(request);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_after_the_answer_spares_the_successor() {
    let mut stage = Stage::new();
    let mut client = Conversation::open(&stage.server.http(), "2025-11-25").await;
    for id in [json!(7), json!("seven")] {
        let first = client.send(client.call(id.clone(), "echo", "a")).await;
        assert!(first.json().await["result"].is_object());

        client.send(client.cancel(id.clone())).await;
        let second = client.send(client.call(id, "wait", "b")).await;

        stage.started("b").await;
        drop(second);
    }
}
