//! How much a legacy client can make a server hold and do.

use std::time::Duration;

use bowline::http::legacy::Legacy;
use bowline::{Limit, Limits};

use super::*;

fn ping(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

/// The same request with this text as its body.
fn saying(request: Request<Full<Bytes>>, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    request.map(|_| Full::new(body.into()))
}

/// Lets every task run until all of them wait.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_beyond_the_limit_is_refused_by_an_error_that_names_it() {
    let service = Stage::new().server.http();
    let mut client = Conversation::open(&service, "2025-03-26").await;
    let batch = |of: i64| json!((1..=of).map(ping).collect::<Vec<_>>());

    let longest = client.send(client.post(&batch(100))).await;
    let refused = client.send(client.post(&batch(101))).await;

    assert_eq!(longest.json().await.as_array().unwrap().len(), 100);
    assert_eq!(refused.status(), 400);
    let error = refused.json().await["error"].clone();
    assert_eq!(error["code"], -32600);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("batch_messages"),
        "{error}"
    );
    assert_eq!(service.usage().refused(Limit::BatchMessages), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_decoded_only_for_those_who_may_send_one() {
    let server = Stage::new().server;
    let service = server.http();
    let modern = server
        .http()
        .versions(bowline::exchange::Dialects::modern());
    let newer = Conversation::open(&service, "2025-06-18").await;
    let older = Conversation::open(&service, "2025-03-26").await;
    // Whoever decodes it says so: a parse error has the code -32700.
    let broken = |request| saying(request, "[0,0");
    let mut unnamed = newer.post(&json!(null));
    unnamed.headers_mut().remove("mcp-protocol-version");
    let unknown = with(older.post(&json!(null)), "mcp-session-id", "unknown");

    for (what, service, request, status, code) in [
        ("modern only", &modern, post(&json!(null)), 400, -32600),
        ("no session", &service, post(&json!(null)), 400, -32600),
        ("an unknown session", &service, unknown, 404, -32600),
        ("a newer version", &service, unnamed, 400, -32600),
        (
            "2025-03-26",
            &service,
            older.post(&json!(null)),
            400,
            -32700,
        ),
    ] {
        let reply = Link::to(service).await.send(broken(request)).await;

        assert_eq!(reply.status(), status, "{what}");
        assert_eq!(reply.json().await["error"]["code"], code, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_sessions_a_batch_beyond_the_limit_is_refused_too() {
    let service = Stage::new().server.http().legacy(Legacy::stateless());
    let batch = json!((1..=101).map(ping).collect::<Vec<_>>());

    let refused = Link::to(&service).await.send(post(&batch)).await;

    assert_eq!(refused.status(), 400);
    assert_eq!(service.usage().refused(Limit::BatchMessages), 1);
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_batch_takes_a_place() {
    for legacy in [Legacy::sessions(), Legacy::stateless()] {
        let mut stage = Stage::new();
        let limits = Limits {
            requests: 3,
            ..Limits::default()
        };
        let service = stage.server.http().legacy(legacy.clone()).limits(limits);
        let client = Conversation::open_if(&service, "2025-03-26").await;
        let calls =
            (1..=5).map(|id| tool_call(&json!(id), "wait", &json!({"name": "a"}), &json!({})));
        let batch = json!(calls.collect::<Vec<_>>());
        let request = with(client.dress(post(&batch)), "accept", "application/json");
        let mut link = Link::to(&service).await;

        let answering = tokio::spawn(async move { link.send(request).await.json().await });
        for _ in 0..3 {
            stage.started("a").await;
        }
        settle().await;
        let running = service.in_flight();
        stage.release.notify_waiters();
        let answers = answering.await.unwrap();

        let answers = answers.as_array().unwrap();
        let refused = |answer: &&Value| answer["error"]["data"]["limit"] == "requests";
        assert_eq!((running, answers.len()), (3, 5), "{legacy:?}");
        assert_eq!(answers.iter().filter(refused).count(), 2, "{legacy:?}");
        settle().await;
        assert_eq!(service.in_flight(), 0, "{legacy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_posted_is_charged_until_the_driver_has_taken_it() {
    let service = Stage::new().server.http();
    let client = Conversation::open(&service, "2025-06-18").await;
    settle().await;
    let before = service.usage();
    let long = json!({"jsonrpc": "2.0", "method": "notifications/long",
        "params": {"text": "a".repeat(1_000_000)}});

    // No task runs in between: what is posted waits for the driver of the session.
    let accepted = ask(&service, client.post(&long)).await;
    let held = service.usage();
    settle().await;

    assert_eq!(accepted.status(), 202);
    assert!(held.request_bytes > 1_000_000, "{held:?}");
    assert_eq!((before.bytes(), service.usage().bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_post_that_is_refused_as_overloaded_leaves_nothing_behind() {
    let limits = Limits {
        peer_requests: 1024,
        ..Limits::default()
    };
    let legacy = Legacy::sessions().idle_after(Duration::from_secs(60));
    let service = Stage::new().server.http().legacy(legacy).limits(limits);
    let mut client = Conversation::open(&service, "2025-11-25").await;
    settle().await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/whatever"});
    for _ in 0..1024 {
        assert_eq!(ask(&service, client.post(&told)).await.status(), 202);
    }

    let refused = ask(&service, client.call(7, "echo", "a")).await;
    settle().await;
    let again = client.send(client.call(7, "echo", "a")).await;

    assert_eq!(refused.status(), 503);
    assert_eq!(again.status(), 200);
    client.cut();
    drop(again);
    tokio::time::advance(Duration::from_secs(61)).await;
    settle().await;
    assert_eq!(service.sessions(), 0, "the session comes to its end");
    assert_eq!(service.usage().bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_is_charged_until_it_is_closed() {
    let service = Stage::new()
        .server
        .http()
        .legacy(Legacy::sessions().http_sse());
    let mut client = Conversation::open(&service, "2025-06-18").await;
    settle().await;

    let stream = client.send(client.get()).await;
    let one = service.usage().request_bytes;
    let mut oldest = client.get();
    oldest.headers_mut().remove("mcp-session-id");
    oldest.headers_mut().remove("mcp-protocol-version");
    let other = client.send(oldest).await;
    let both = service.usage().request_bytes;
    client.cut();
    drop((stream, other));
    settle().await;

    assert!(one > 0 && both > one, "{one} and {both} bytes are charged");
    assert_eq!(service.usage().request_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn events_of_all_sessions_together_have_a_bound() {
    let limits = Limits {
        event_bytes: 100_000,
        ..Limits::default()
    };
    let service = Stage::new().server.http().limits(limits);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = Conversation::open(&service, "2025-11-25").await;
        let long = "a".repeat(10_000);
        let call = with(client.call(1, "echo", &long), "accept", "text/event-stream");
        let mut answer = client.send(call).await;
        let seen = answer.chunk().await.unwrap();
        clients.push((client, last_event_id(&seen).to_owned(), answer));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    for (client, _, _) in &mut clients {
        client.cut();
    }
    clients.iter_mut().for_each(|(client, ..)| client.cut());
    settle().await;

    let usage = service.usage();
    assert!((1..=100_000).contains(&usage.event_bytes), "{usage:?}");
    assert!(usage.refused(Limit::EventBytes) > 0);
    let mut resumed = Vec::new();
    for (mut client, _, _) in clients {
        let again = with(client.get(), "last-event-id", "2-0");
        resumed.push(client.send(again).await.status().as_u16());
    }
    assert_eq!(
        resumed[..5],
        [400; 5],
        "those that were idle for longest lost theirs"
    );
    assert_eq!(resumed[15..], [200; 5], "the others did not");
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn places_that_no_event_has_cannot_be_followed() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let request = with(client.call(7, "wait", "a"), "accept", "application/json");
    let mut link = Link::to(&service).await;
    let waiting = tokio::spawn(async move { link.send(request).await.json().await });
    stage.started("a").await;

    // The second names the stream of a POST whose answer is JSON.
    for id in ["0-1", "2-0", "2-1", "0-18446744073709551615"] {
        let reply = client.send(with(client.get(), "last-event-id", id)).await;

        assert_eq!(reply.status(), 400, "{id}");
    }
    stage.release.notify_one();
    assert!(waiting.await.unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_mean_never() {
    let legacy = Legacy::sessions()
        .idle_after(Duration::MAX)
        .orphan_limit(Duration::MAX)
        .retry(Duration::MAX);
    let mut stage = Stage::new();
    let service = stage.server.http().legacy(legacy);
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let mut running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    let first = running.chunk().await.unwrap();
    client.cut();
    drop(running);

    tokio::time::advance(Duration::from_secs(365 * 24 * 60 * 60)).await;
    settle().await;

    assert!(first.contains("retry: 2147483647\n"), "{first}");
    assert!(stage.happened.try_recv().is_err(), "the handler goes on");
    stage.release.notify_one();
    stage.finished("a").await;
    tokio::time::advance(Duration::from_secs(365 * 24 * 60 * 60)).await;
    assert_eq!(client.send(client.call(2, "echo", "b")).await.status(), 200);
}
