//! How sessions begin, whose they are, and how they end.

use std::time::Duration;

use bowline::http::legacy::Legacy;
use serde_json::json;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_and_its_tools_are_called_in_every_version() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let stage = Stage::new();
        let mut client = Conversation::open(&stage.server.http(), version).await;

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
    let stage = Stage::new();
    let service = stage.server.http();
    let client = Conversation::open(&service, "2025-11-25").await;
    let mut without = client.call(1, "echo", "a");
    without.headers_mut().remove("mcp-session-id");
    let unknown = with(client.call(1, "echo", "a"), "mcp-session-id", "nobody");
    let mut get = client.get();
    get.headers_mut().remove("mcp-session-id");
    let version = with(client.get(), "mcp-protocol-version", "1999-01-01");

    for (what, status, request) in [
        ("no session", 400, without),
        ("an unknown one", 404, unknown),
        ("a stream of none", 400, get),
        ("an unknown version", 400, version),
    ] {
        let reply = Link::to(&service).await.send(request).await;

        assert_eq!(reply.status(), status, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_drops_its_handlers_and_is_gone() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    let deleted = client.send(client.delete()).await;

    assert_eq!(deleted.status(), 204);
    stage.dropped("a").await;
    assert_eq!(
        running.messages().await.last().unwrap()["error"]["code"],
        -32800
    );
    assert_eq!(client.send(client.call(2, "echo", "b")).await.status(), 404);
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_handshake_in_a_session_replaces_the_first_until_something_else_is_posted() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let echo = tool_call(&json!(1), "echo", &json!({"name": "a"}), &json!({}));
    let unnamed = |client: &Conversation, body: &Value| {
        let mut request = client.post(body);
        request.headers_mut().remove("mcp-protocol-version");
        request
    };

    let again = unnamed(&client, &initialize("2025-03-26"));
    let again = client.send(again).await;
    let session = again.header("mcp-session-id").map(str::to_owned);
    let agreed = again.json().await;
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ready = client.send(unnamed(&client, &initialized)).await;
    let batch = unnamed(&client, &json!([echo]));
    let batch = client.send(batch).await;
    let late = unnamed(&client, &initialize("2025-11-25"));
    let late = client.send(late).await;

    assert_eq!(agreed["result"]["protocolVersion"], "2025-03-26");
    assert_eq!(ready.status(), 202);
    assert_eq!(session.as_deref(), Some(&*client.id), "the same session");
    assert_eq!(batch.status(), 200, "the version that was agreed on last");
    assert_eq!(late.header("mcp-session-id"), None);
    assert_eq!(late.json().await["error"]["code"], -32600);
    assert_eq!(service.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_opening_leaves_no_session_behind() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut bad = initialize("2025-11-25");
    bad["params"]["clientInfo"] = json!(7);

    let reply = Link::to(&service).await.send(post(&bad)).await;

    assert_eq!(reply.header("mcp-session-id"), None);
    assert_eq!(reply.json().await["error"]["code"], -32602);
    assert_eq!(service.sessions(), 0);
}

/// Whether a session still exists.
async fn lives(client: &mut Conversation) -> bool {
    let ping = json!({"jsonrpc": "2.0", "id": "alive", "method": "ping"});
    client.send(client.post(&ping)).await.status() == 200
}

fn most(sessions: usize) -> bowline::Limits {
    bowline::Limits {
        sessions,
        ..bowline::Limits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_session_takes_the_place_of_the_one_that_was_idle_for_longest() {
    let stage = Stage::new();
    let service = stage.server.http().limits(most(3));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Conversation::open(&service, "2025-11-25").await;
        assert!(lives(&mut client).await);
        clients.push(client);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(lives(&mut clients[0]).await);
    tokio::time::advance(Duration::from_secs(1)).await;

    let mut new = Conversation::open(&service, "2025-11-25").await;

    assert_eq!(service.sessions(), 3);
    assert_eq!(service.usage().sessions, 3);
    assert_eq!(service.usage().refused(bowline::Limit::Sessions), 1);
    assert!(!lives(&mut clients[1]).await, "it was idle for longest");
    assert!(lives(&mut clients[0]).await && lives(&mut clients[2]).await);
    assert!(lives(&mut new).await);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_never_used_goes_before_one_that_was() {
    let stage = Stage::new();
    let service = stage.server.http().limits(most(2));
    let mut used = Conversation::open(&service, "2025-11-25").await;
    assert!(lives(&mut used).await);
    tokio::time::advance(Duration::from_secs(60)).await;

    for _ in 0..10 {
        Conversation::open(&service, "2025-11-25").await;
    }

    assert!(lives(&mut used).await);
    assert_eq!(service.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_running_call_or_an_open_stream_is_not_ended_while_there_is_another() {
    let mut stage = Stage::new();
    let service = stage.server.http().limits(most(4));
    let mut calling = Conversation::open(&service, "2025-11-25").await;
    let running = calling
        .send(calling.call_with_progress(1, "talk", "a"))
        .await;
    stage.started("a").await;
    calling.cut();
    drop(running);
    let mut reading = Conversation::open(&service, "2025-11-25").await;
    let stream = reading.send(reading.get()).await;
    tokio::time::advance(Duration::from_secs(60)).await;

    for _ in 0..10 {
        let mut other = Conversation::open(&service, "2025-11-25").await;
        assert!(lives(&mut other).await);
    }

    assert_eq!(service.sessions(), 4);
    assert!(stage.happened.try_recv().is_err(), "the handler goes on");
    assert!(lives(&mut calling).await && lives(&mut reading).await);
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn beyond_its_share_a_principal_loses_its_own_session() {
    let stage = Stage::new();
    let service = stage.server.http().limits(bowline::Limits {
        principal_sessions: 2,
        ..bowline::Limits::default()
    });
    let open = async |request| {
        let opened = ask(&service, request).await;
        opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let hello = || post(&initialize("2025-11-25"));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let mut of_ada = Vec::new();
    let mut of_nobody = Vec::new();
    let of_bob = open(on_behalf(hello(), "bob")).await;
    for _ in 0..3 {
        of_ada.push(open(on_behalf(hello(), "ada")).await);
        of_nobody.push(open(hello()).await);
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    let answers = async |id: &str, who: Option<&'static str>| {
        let request = with(post(&ping), "mcp-session-id", id);
        let request = match who {
            Some(who) => on_behalf(request, who),
            None => request,
        };
        ask(&service, request).await.status().as_u16()
    };
    assert_eq!(answers(&of_ada[0], Some("ada")).await, 404);
    for id in &of_ada[1..] {
        assert_eq!(answers(id, Some("ada")).await, 200);
    }
    for id in &of_nobody {
        assert_eq!(answers(id, None).await, 200);
    }
    assert_eq!(answers(&of_bob, Some("bob")).await, 200);
    assert_eq!(service.sessions(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends() {
    let stage = Stage::new();
    let legacy = Legacy::sessions().idle_after(Duration::from_secs(60));
    let service = stage.server.http().legacy(legacy);
    let mut client = Conversation::open(&service, "2025-11-25").await;

    tokio::time::advance(Duration::from_secs(50)).await;
    let before = client.send(client.call(1, "echo", "a")).await.status();
    tokio::time::advance(Duration::from_secs(61)).await;

    assert_eq!(before, 200);
    assert_eq!(client.send(client.call(2, "echo", "a")).await.status(), 404);
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_holds_off_the_end_of_an_idle_session() {
    let stage = Stage::new();
    let legacy = Legacy::sessions().idle_after(Duration::from_secs(60));
    let mut client = Conversation::open(&stage.server.http().legacy(legacy), "2025-11-25").await;
    let _stream = client.send(client.get()).await;

    tokio::time::advance(Duration::from_secs(600)).await;

    assert_eq!(client.send(client.call(1, "echo", "a")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_whoever_opened_it() {
    let stage = Stage::new();
    let service = stage.server.http();
    let opened = ask(&service, on_behalf(post(&initialize("2025-11-25")), "ada")).await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap();
    let call = || {
        let call = tool_call(&json!(1), "whose", &json!({}), &json!({}));
        with(post(&call), "mcp-session-id", id)
    };

    let other = ask(&service, on_behalf(call(), "eve")).await;
    let own = ask(&service, on_behalf(call(), "ada")).await;

    assert_eq!(other.status(), 404);
    let answer = whole(own).await;
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, r#"Principal("ada") at Some("localhost")"#);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_sessions_after_their_handlers() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut client = Conversation::open(&service, "2025-11-25").await;
    let stream = client.send(client.get()).await;
    let running = client.send(client.call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    stage.server.shut_down(Duration::from_secs(10));
    stage.release.notify_one();

    assert_eq!(running.messages().await.last().unwrap()["id"], 1);
    stream.text().await;
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn changed_roots_reach_the_server_of_a_session() {
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let server = Stage::new().server.on_roots_changed(move |_| {
        let _ = told.send(());
    });
    let mut client = Conversation::open(&server.http(), "2025-06-18").await;

    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let accepted = client.send(client.post(&changed)).await;

    assert_eq!(accepted.status(), 202);

    assert_eq!(heard.recv().await, Some(()));
}
