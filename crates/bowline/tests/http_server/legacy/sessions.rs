//! The lifecycle of sessions, and the principal that they belong to.

use std::time::Duration;

use bowline::http::legacy::Legacy;
use serde_json::json;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_and_its_tools_are_called_in_every_version() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let fixture = ServerFixture::new();
        let mut client = SessionClient::open(&fixture.server.http(), version).await;

        let answer = client.send(client.call(1, "echo", "a")).await.json().await;

        assert_eq!(
            answer["result"]["content"][0]["text"], r#"{"name":"a"}"#,
            "{version}"
        );
        assert_eq!(answer["result"].get("resultType"), None, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_its_session_is_refused() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let client = SessionClient::open(&service, "2025-11-25").await;
    let mut without = client.call(1, "echo", "a");
    without.headers_mut().remove("mcp-session-id");
    let unknown = with_header(client.call(1, "echo", "a"), "mcp-session-id", "unknown");
    let mut get = client.get();
    get.headers_mut().remove("mcp-session-id");
    let version = with_header(client.get(), "mcp-protocol-version", "1999-01-01");

    for (what, status, request) in [
        ("no session", 400, without),
        ("unknown session", 404, unknown),
        ("stream without session", 400, get),
        ("unknown version", 400, version),
    ] {
        let response = PlainConnection::http1(&service).await.send(request).await;

        assert_eq!(response.status(), status, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_drops_its_handlers_and_is_not_found() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let running = client.start_call(&mut fixture, 1, "a").await;

    let deleted = client.send(client.delete()).await;

    assert_eq!(deleted.status(), 204);
    fixture.handler_dropped("a").await;
    assert_eq!(
        running.messages().await.last().unwrap()["error"]["code"],
        -32800
    );
    assert_eq!(client.send(client.call(2, "echo", "b")).await.status(), 404);
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_initialize_with_the_id_of_a_session_opens_another_one() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let running = client.start_call(&mut fixture, 1, "a").await;

    let mut again = client.post(&initialize("2025-03-26"));
    again.headers_mut().remove("mcp-protocol-version");
    let again = client.send(again).await;
    let session = again.header("mcp-session-id").map(str::to_owned);
    let agreed = again.json().await;
    let echo = tool_call(&json!(1), "echo", &json!({"name": "a"}), &json!({}));
    let mut batch = client.post(&json!([echo]));
    batch.headers_mut().remove("mcp-protocol-version");
    let batch = client.send(batch).await;
    let late = client.send(client.call(2, "echo", "b")).await;
    fixture.release.notify_one();

    assert_eq!(agreed["result"]["protocolVersion"], "2025-03-26");
    assert!(session.is_some_and(|other| other != client.id));
    assert_eq!(service.sessions(), 2);
    assert_eq!(batch.status(), 400, "the first goes on with its version");
    assert_eq!(late.status(), 200);
    let answer = running.messages().await;
    assert_eq!(answer.last().unwrap()["id"], 1);
    assert!(answer.last().unwrap()["result"].is_object(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn an_initialize_in_a_batch_is_refused() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-03-26").await;
    let echo = tool_call(&json!(1), "echo", &json!({"name": "a"}), &json!({}));

    let batch = client.post(&json!([echo, initialize("2024-11-05")]));
    let batch = client.send(batch).await;

    assert_eq!(batch.json().await["error"]["code"], -32600);
    let after = client.send(client.call(2, "echo", "b")).await;
    assert_eq!(after.status(), 200);
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_initialize_leaves_no_session() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut bad = initialize("2025-11-25");
    bad["params"]["clientInfo"] = json!(7);

    let response = PlainConnection::http1(&service)
        .await
        .send(post(&bad))
        .await;

    assert_eq!(response.header("mcp-session-id"), None);
    assert_eq!(response.json().await["error"]["code"], -32602);
    assert_eq!(service.sessions(), 0);
}

/// Returns whether the session answers, and keeps it in use.
async fn is_alive(client: &mut SessionClient) -> bool {
    let ping = json!({"jsonrpc": "2.0", "id": "alive", "method": "ping"});
    client.send(client.post(&ping)).await.status() == 200
}

fn max_sessions(sessions: usize) -> bowline::Limits {
    bowline::Limits {
        sessions,
        ..bowline::Limits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_session_evicts_the_one_idle_for_longest() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(max_sessions(3));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = SessionClient::open(&service, "2025-11-25").await;
        assert!(is_alive(&mut client).await);
        clients.push(client);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(is_alive(&mut clients[0]).await);
    tokio::time::advance(Duration::from_secs(1)).await;

    let mut new = SessionClient::open(&service, "2025-11-25").await;

    assert_eq!(service.sessions(), 3);
    assert_eq!(service.usage().sessions, 3);
    assert_eq!(service.usage().refused(bowline::Limit::Sessions), 1);
    for live in [&mut clients[0], &mut new] {
        assert!(is_alive(live).await);
    }
    assert!(is_alive(&mut clients[2]).await);
    assert_eq!(service.usage().refused(bowline::Limit::Sessions), 1);
    assert!(is_alive(&mut clients[1]).await);
    let refused = service.usage().refused(bowline::Limit::Sessions);
    assert_eq!(refused, 2, "it was idle for longest, and is revived");
}

#[tokio::test(start_paused = true)]
async fn an_unused_session_is_evicted_before_a_used_one() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(max_sessions(2));
    let mut used = SessionClient::open(&service, "2025-11-25").await;
    assert!(is_alive(&mut used).await);
    tokio::time::advance(Duration::from_secs(60)).await;

    for _ in 0..10 {
        SessionClient::open(&service, "2025-11-25").await;
    }

    let evicted = service.usage().refused(bowline::Limit::Sessions);
    assert!(is_alive(&mut used).await);
    assert_eq!(service.sessions(), 2);
    assert_eq!(service.usage().refused(bowline::Limit::Sessions), evicted);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_running_call_or_an_open_stream_is_evicted_last() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http().limits(max_sessions(4));
    let mut calling = SessionClient::open(&service, "2025-11-25").await;
    let running = calling.start_call(&mut fixture, 1, "a").await;
    calling.close_connections();
    drop(running);
    let mut reading = SessionClient::open(&service, "2025-11-25").await;
    let stream = reading.send(reading.get()).await;
    tokio::time::advance(Duration::from_secs(60)).await;

    for _ in 0..10 {
        let mut other = SessionClient::open(&service, "2025-11-25").await;
        assert!(is_alive(&mut other).await);
    }

    assert_eq!(service.sessions(), 4);
    assert!(fixture.events.try_recv().is_err(), "the handler still runs");
    let evicted = service.usage().refused(bowline::Limit::Sessions);
    assert!(is_alive(&mut calling).await && is_alive(&mut reading).await);
    assert_eq!(service.usage().refused(bowline::Limit::Sessions), evicted);
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn beyond_its_limit_a_principal_evicts_its_own_session() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(bowline::Limits {
        principal_sessions: 2,
        ..bowline::Limits::default()
    });
    let open = async |request| {
        let opened = call_service(&service, request).await;
        opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let opening = || post(&initialize("2025-11-25"));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let mut of_ada = Vec::new();
    let mut of_anonymous = Vec::new();
    let of_bob = open(with_principal(opening(), "bob")).await;
    for _ in 0..3 {
        of_ada.push(open(with_principal(opening(), "ada")).await);
        of_anonymous.push(open(opening()).await);
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    let answers = async |id: &str, who: Option<&'static str>| {
        let request = with_header(post(&ping), "mcp-session-id", id);
        let request = match who {
            Some(who) => with_principal(request, who),
            None => request,
        };
        call_service(&service, request).await.status().as_u16()
    };
    let evicted = || {
        let usage = service.usage();
        usage.refused(bowline::Limit::PrincipalSessions)
    };
    for id in &of_ada[1..] {
        assert_eq!(answers(id, Some("ada")).await, 200);
    }
    for id in &of_anonymous {
        assert_eq!(answers(id, None).await, 200);
    }
    assert_eq!(answers(&of_bob, Some("bob")).await, 200);
    assert_eq!((service.sessions(), evicted()), (6, 1));
    assert_eq!(answers(&of_ada[0], Some("ada")).await, 200);
    assert_eq!((service.sessions(), evicted()), (6, 2), "it was revived");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_freed_and_comes_back() {
    let fixture = ServerFixture::new();
    let legacy = Legacy::sessions().idle_timeout(Duration::from_secs(60));
    let service = fixture.server.http().legacy(legacy);
    let mut client = SessionClient::open(&service, "2025-11-25").await;

    tokio::time::advance(Duration::from_secs(50)).await;
    let before = client.send(client.call(1, "echo", "a")).await.status();
    tokio::time::advance(Duration::from_secs(61)).await;

    assert_eq!(before, 200);
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.send(client.call(2, "echo", "a")).await.status(), 200);
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_prevents_the_idle_timeout_of_its_session() {
    let fixture = ServerFixture::new();
    let legacy = Legacy::sessions().idle_timeout(Duration::from_secs(60));
    let mut client = SessionClient::open(&fixture.server.http().legacy(legacy), "2025-11-25").await;
    let _stream = client.send(client.get()).await;

    tokio::time::advance(Duration::from_secs(600)).await;

    assert_eq!(client.send(client.call(1, "echo", "a")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_the_principal_that_opened_it() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let opened = call_service(
        &service,
        with_principal(post(&initialize("2025-11-25")), "ada"),
    )
    .await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap();
    let call = || {
        let call = tool_call(&json!(1), "principal", &json!({}), &json!({}));
        with_header(post(&call), "mcp-session-id", id)
    };

    let other = call_service(&service, with_principal(call(), "eve")).await;
    let own = call_service(&service, with_principal(call(), "ada")).await;

    assert_eq!(other.status(), 404);
    let answer = response_json(own).await;
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, r#"Principal("ada") at Some("localhost")"#);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_sessions_after_their_handlers() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let stream = client.send(client.get()).await;
    let running = client.start_call(&mut fixture, 1, "a").await;

    fixture.server.shut_down(Duration::from_secs(10));
    fixture.release.notify_one();

    assert_eq!(running.messages().await.last().unwrap()["id"], 1);
    stream.text().await;
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_roots_list_changed_notification_reaches_the_server() {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let server = ServerFixture::new().server.on_roots_changed(move |_| {
        let _ = sender.send(());
    });
    let mut client = SessionClient::open(&server.http(), "2025-06-18").await;

    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let accepted = client.send(client.post(&changed)).await;

    assert_eq!(accepted.status(), 202);

    assert_eq!(received.recv().await, Some(()));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_ends_its_resource_subscriptions() {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let subscribed = sender.clone();
    let server = Server::new("s", "1")
        .on_subscribe(move |uri, _| subscribed.send(format!("+{uri}")).unwrap())
        .on_unsubscribe(move |uri, _| sender.send(format!("-{uri}")).unwrap());
    let service = server.http();
    let mut client = SessionClient::open(&service, "2025-11-25").await;
    let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe",
        "params": {"uri": "a:1"}});

    assert_eq!(client.send(client.post(&subscribe)).await.status(), 200);
    assert_eq!(events.recv().await.unwrap(), "+a:1");
    client.close_connections();
    assert!(is_alive(&mut client).await);
    assert!(
        events.try_recv().is_err(),
        "a disconnect does not end a session"
    );
    client.send(client.delete()).await;
    assert_eq!(events.recv().await.unwrap(), "-a:1");
    drop((server, service, client));
    assert_eq!(events.recv().await, None);
}
