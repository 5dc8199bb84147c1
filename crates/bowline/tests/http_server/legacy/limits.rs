//! Limits on the resources that the server holds for legacy clients.

use std::time::Duration;

use bowline::http::legacy::Legacy;
use bowline::{Limit, Limits};

use super::*;

fn ping(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

/// Replaces the body of a request.
fn with_body(request: Request<Full<Bytes>>, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    request.map(|_| Full::new(body.into()))
}

/// Yields often enough for every task to become idle.
async fn run_pending_tasks() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_beyond_the_limit_is_refused_with_an_error_that_names_the_limit() {
    let service = ServerFixture::new().server.http();
    let mut client = SessionClient::open(&service, "2025-03-26").await;
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
async fn a_batch_is_decoded_only_in_sessions_of_2025_03_26() {
    let server = ServerFixture::new().server;
    let service = server.http();
    let modern = server
        .http()
        .versions(bowline::exchange::Dialects::modern());
    let newer = SessionClient::open(&service, "2025-06-18").await;
    let older = SessionClient::open(&service, "2025-03-26").await;
    // Decoding it fails with -32700; any other code means that it was not decoded.
    let broken = |request| with_body(request, "[0,0");
    let mut unnamed = newer.post(&json!(null));
    unnamed.headers_mut().remove("mcp-protocol-version");
    let unknown = with_header(older.post(&json!(null)), "mcp-session-id", "unknown");

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
        let response = PlainConnection::http1(service)
            .await
            .send(broken(request))
            .await;

        assert_eq!(response.status(), status, "{what}");
        assert_eq!(response.json().await["error"]["code"], code, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_sessions_a_batch_beyond_the_limit_is_refused_too() {
    let service = ServerFixture::new()
        .server
        .http()
        .legacy(Legacy::stateless());
    let batch = json!((1..=101).map(ping).collect::<Vec<_>>());

    let refused = PlainConnection::http1(&service)
        .await
        .send(post(&batch))
        .await;

    assert_eq!(refused.status(), 400);
    assert_eq!(service.usage().refused(Limit::BatchMessages), 1);
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_batch_counts_against_the_request_limit() {
    for legacy in [Legacy::sessions(), Legacy::stateless()] {
        let mut fixture = ServerFixture::new();
        let limits = Limits {
            requests: 3,
            ..Limits::default()
        };
        let service = fixture.server.http().legacy(legacy.clone()).limits(limits);
        let client = SessionClient::open_with_optional_session(&service, "2025-03-26").await;
        let calls =
            (1..=5).map(|id| tool_call(&json!(id), "wait", &json!({"name": "a"}), &json!({})));
        let batch = json!(calls.collect::<Vec<_>>());
        let request = with_header(
            client.with_session_headers(post(&batch)),
            "accept",
            "application/json",
        );
        let mut connection = PlainConnection::http1(&service).await;

        let answering = tokio::spawn(async move { connection.send(request).await.json().await });
        for _ in 0..3 {
            fixture.handler_started("a").await;
        }
        run_pending_tasks().await;
        let running = service.in_flight();
        fixture.release.notify_waiters();
        let answers = answering.await.unwrap();

        let answers = answers.as_array().unwrap();
        let refused = |answer: &&Value| answer["error"]["data"]["limit"] == "requests";
        assert_eq!((running, answers.len()), (3, 5), "{legacy:?}");
        assert_eq!(answers.iter().filter(refused).count(), 2, "{legacy:?}");
        run_pending_tasks().await;
        assert_eq!(service.in_flight(), 0, "{legacy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_posted_message_is_charged_until_the_driver_receives_it() {
    let service = ServerFixture::new().server.http();
    let client = SessionClient::open(&service, "2025-06-18").await;
    run_pending_tasks().await;
    let before = service.usage();
    let long = json!({"jsonrpc": "2.0", "method": "notifications/long",
        "params": {"text": "a".repeat(1_000_000)}});

    // No other task runs in between, so the message waits for the driver of the session.
    let accepted = call_service(&service, client.post(&long)).await;
    let held = service.usage();
    run_pending_tasks().await;

    assert_eq!(accepted.status(), 202);
    assert!(held.request_bytes > 1_000_000, "{held:?}");
    assert_eq!((before.bytes(), service.usage().bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_post_refused_by_a_limit_leaves_no_state() {
    let limits = Limits {
        peer_requests: 1024,
        ..Limits::default()
    };
    let legacy = Legacy::sessions().idle_timeout(Duration::from_secs(60));
    let service = ServerFixture::new()
        .server
        .http()
        .legacy(legacy)
        .limits(limits);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    run_pending_tasks().await;
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/unknown"});
    for _ in 0..1024 {
        assert_eq!(
            call_service(&service, client.post(&notification))
                .await
                .status(),
            202
        );
    }

    let refused = call_service(&service, client.call(7, "echo", "a")).await;
    run_pending_tasks().await;
    let again = client.send(client.call(7, "echo", "a")).await;

    assert_eq!(refused.status(), 503);
    assert_eq!(again.status(), 200);
    client.close_connections();
    drop(again);
    tokio::time::advance(Duration::from_secs(61)).await;
    run_pending_tasks().await;
    assert_eq!(service.sessions(), 0, "the session expires");
    assert_eq!(service.usage().bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_is_charged_until_it_is_closed() {
    let service = ServerFixture::new()
        .server
        .http()
        .legacy(Legacy::sessions().http_sse());
    let mut client = SessionClient::open(&service, "2025-06-18").await;
    run_pending_tasks().await;

    let stream = client.send(client.get()).await;
    let one = service.usage().request_bytes;
    let mut http_sse = client.get();
    http_sse.headers_mut().remove("mcp-session-id");
    http_sse.headers_mut().remove("mcp-protocol-version");
    let other = client.send(http_sse).await;
    let both = service.usage().request_bytes;
    client.close_connections();
    drop((stream, other));
    run_pending_tasks().await;

    assert!(one > 0 && both > one, "{one} and {both} bytes are charged");
    assert_eq!(service.usage().request_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn the_event_limit_spans_all_sessions() {
    let limits = Limits {
        event_bytes: 100_000,
        ..Limits::default()
    };
    let service = ServerFixture::new().server.http().limits(limits);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = SessionClient::open(&service, "2025-11-25").await;
        let long = "a".repeat(10_000);
        let call = with_header(client.call(1, "echo", &long), "accept", "text/event-stream");
        let mut answer = client.send(call).await;
        let seen = answer.chunk().await.unwrap();
        clients.push((client, last_event_id(&seen).to_owned(), answer));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    for (client, _, _) in &mut clients {
        client.close_connections();
    }
    clients
        .iter_mut()
        .for_each(|(client, ..)| client.close_connections());
    run_pending_tasks().await;

    let usage = service.usage();
    assert!((1..=100_000).contains(&usage.event_bytes), "{usage:?}");
    assert!(usage.refused(Limit::EventBytes) > 0);
    let mut resumed = Vec::new();
    for (mut client, _, _) in clients {
        let again = with_header(client.get(), "last-event-id", "2-0");
        resumed.push(client.send(again).await.status().as_u16());
    }
    assert_eq!(
        resumed[..5],
        [400; 5],
        "the sessions idle for longest lost their events"
    );
    assert_eq!(resumed[15..], [200; 5], "the others kept theirs");
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn a_last_event_id_that_no_event_has_is_refused() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let request = with_header(client.call(7, "wait", "a"), "accept", "application/json");
    let mut connection = PlainConnection::http1(&service).await;
    let waiting = tokio::spawn(async move { connection.send(request).await.json().await });
    fixture.handler_started("a").await;

    // The second names the stream of a POST whose response is JSON.
    for id in ["0-1", "2-0", "2-1", "0-18446744073709551615"] {
        let response = client
            .send(with_header(client.get(), "last-event-id", id))
            .await;

        assert_eq!(response.status(), 400, "{id}");
    }
    fixture.release.notify_one();
    assert!(waiting.await.unwrap()["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn maximum_timeouts_never_expire() {
    let legacy = Legacy::sessions()
        .idle_timeout(Duration::MAX)
        .orphan_timeout(Duration::MAX)
        .retry(Duration::MAX);
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(legacy);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let mut running = client.start_call(&mut fixture, 1, "a").await;
    let first = running.chunk().await.unwrap();
    client.close_connections();
    drop(running);

    tokio::time::advance(Duration::from_secs(365 * 24 * 60 * 60)).await;
    run_pending_tasks().await;

    assert!(first.contains("retry: 2147483647\n"), "{first}");
    assert!(fixture.events.try_recv().is_err(), "the handler still runs");
    fixture.release.notify_one();
    fixture.handler_finished("a").await;
    tokio::time::advance(Duration::from_secs(365 * 24 * 60 * 60)).await;
    assert_eq!(client.send(client.call(2, "echo", "b")).await.status(), 200);
}

fn subscribe(client: &SessionClient, id: i64, uri: &str) -> Request<Full<Bytes>> {
    client.post(
        &json!({"jsonrpc": "2.0", "id": id, "method": "resources/subscribe",
        "params": {"uri": uri}}),
    )
}

#[tokio::test(start_paused = true)]
async fn the_uris_of_a_session_are_limited_and_what_is_refused_is_not_kept() {
    let service = ServerFixture::new().server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let uri = |number: i64| format!("a:{number}{}", "x".repeat(100_000));
    let mut accepted = 0;
    for number in 0..6 {
        let answer = client.send(subscribe(&client, number, &uri(number))).await;
        let answer = answer.json().await;
        match answer["error"]["code"].as_i64() {
            None => accepted += 1,
            Some(code) => assert_eq!(code, -32602, "{answer}"),
        }
    }
    let again = client.send(subscribe(&client, 7, &uri(0))).await;
    let long = client.send(subscribe(&client, 8, &"x".repeat(3_900_000)));
    let long = long.await.json().await;
    let kept = service.usage().kept_bytes;
    let deleted = client.send(client.delete()).await;
    run_pending_tasks().await;

    assert_eq!(accepted, 3);
    assert_eq!(
        again.json().await["result"],
        json!({}),
        "it is there already"
    );
    let why = long["error"]["message"].as_str().unwrap();
    assert_eq!(why, "the URIs of all subscriptions exceed 327680 bytes");
    assert!((1_500_000..2_000_000).contains(&kept), "{kept}");
    assert_eq!(deleted.status(), 204);
    assert_eq!(service.usage().kept_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_subscription_is_not_restored() {
    let limits = Limits {
        peer_subscriptions: 1,
        sessions: 1,
        ..Limits::default()
    };
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(limits);
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let first = client.send(subscribe(&client, 1, "a:2")).await.json().await;
    let second = client.send(subscribe(&client, 2, "a:1")).await.json().await;
    client.close_connections();
    let mut other = SessionClient::open(&service, "2025-11-25").await;
    other.close_connections();

    let mut stream = client.send(client.get()).await;
    run_pending_tasks().await;
    fixture.server.changed().resource_updated("a:1");
    fixture.server.changed().resource_updated("a:2");
    let mut seen = String::new();
    while !seen.contains("\"a:") {
        seen.push_str(&stream.chunk().await.unwrap());
    }

    assert_eq!(first["result"], json!({}));
    assert_eq!(second["error"]["code"], -32603, "{second}");
    assert!(seen.contains("a:2") && !seen.contains("a:1"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn what_clients_say_of_themselves_is_limited_in_each_and_in_all_sessions() {
    let limits = Limits {
        total_bytes: 4 << 20,
        ..Limits::default()
    };
    let service = ServerFixture::new().server.http().limits(limits);
    let opening = |bytes: usize| {
        let mut request = initialize("2025-11-25");
        request["params"]["clientInfo"]["name"] = json!("x".repeat(bytes));
        post(&request)
    };

    let mut connection = PlainConnection::http1(&service).await;
    let refused = connection.send(opening(65_536)).await.json().await;
    let (sessions, kept) = (service.sessions(), service.usage().kept_bytes);
    let mut most = 0;
    for _ in 0..100 {
        let mut connection = PlainConnection::http1(&service).await;
        let opened = connection.send(opening(65_000)).await;
        assert_eq!(opened.status(), 200);
        run_pending_tasks().await;
        most = most.max(service.usage().kept_bytes);
    }
    let usual = connection.send(opening(10)).await;

    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!((sessions, kept), (0, 0));
    assert!((60_000..=1 << 20).contains(&most), "{most}");
    assert!(service.sessions() < 20, "{}", service.sessions());
    assert!(usual.header("mcp-session-id").is_some());
}
