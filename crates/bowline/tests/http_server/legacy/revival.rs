//! Sessions whose live state was freed, and replicas that share the keys of session ids.

use std::time::Duration;

use bowline::Limits;
use bowline::http::legacy::Legacy;

use super::*;

const KEY: [u8; 32] = [7; 32];

fn replica(fixture: &ServerFixture) -> HttpService {
    let legacy = Legacy::sessions().shared_keys(KEY);
    with_roots_tool(fixture.server.clone())
        .http()
        .legacy(legacy)
}

/// Two replicas, and a client that has opened a session at the first.
async fn two_replicas(version: &'static str) -> (SessionClient, SessionClient) {
    let [first, second] = [ServerFixture::new(), ServerFixture::new()].map(|own| replica(&own));
    let client = SessionClient::open(&first, version).await;
    let other = client.at(&second);
    (client, other)
}

#[allow(clippy::needless_pass_by_value, reason = "called with `json!`")]
pub(super) fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Calls `list_roots`, and returns the id of the request that the client gets, and the response.
pub(super) async fn asked(client: &mut SessionClient, id: i64) -> (Value, PlainResponse) {
    let call = client.call_with_progress(id, "list_roots", "a");
    let mut response = client.send(call).await;
    let mut seen = Vec::new();
    loop {
        seen.extend(messages(&response.chunk().await.expect("a request")));
        if let Some(request) = seen
            .iter()
            .find(|message| message["method"] == "roots/list")
        {
            return (request["id"].clone(), response);
        }
    }
}

pub(super) fn roots(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}})
}

#[tokio::test(start_paused = true)]
async fn a_revived_session_answers_every_request_that_the_first_replica_would_have_answered() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let (mut client, mut other) = two_replicas(version).await;
        for (id, (method, params)) in (1..).zip([
            ("ping", json!({})),
            ("tools/list", json!({})),
            ("tools/call", json!({"name": "echo", "arguments": {"a": 1}})),
            ("tools/call", json!({"name": "principal", "arguments": {}})),
            ("tools/call", json!({"name": "unknown", "arguments": {}})),
            ("logging/setLevel", json!({"level": "error"})),
            ("resources/subscribe", json!({"uri": "a:1"})),
            ("resources/list", json!({})),
            ("initialize", initialize(version)["params"].clone()),
        ]) {
            let body = request(id, method, params);

            let here = client.send(client.post(&body)).await;
            let there = other.send(other.post(&body)).await;

            assert_eq!(here.status(), there.status(), "{version} {method}");
            assert_eq!(here.json().await, there.json().await, "{version} {method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_revived_session_knows_its_client() {
    let server = Server::new("s", "1").tool(Tool::raw(
        "who",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            let caller = cx.caller();
            Ok(CallToolResult::text(format!(
                "{:?} {:?} {}",
                caller.implementation, caller.capabilities, caller.dialect.version
            )))
        },
    ));
    let service = || {
        let legacy = Legacy::sessions().shared_keys(KEY);
        server.http().legacy(legacy)
    };
    let (first, second) = (service(), service());
    let mut client = SessionClient::open(&first, "2025-06-18").await;
    let mut other = client.at(&second);

    let here = client.send(client.call(1, "who", "")).await.json().await;
    let there = other.send(other.call(1, "who", "")).await.json().await;

    assert_eq!(here, there);
    assert!(here.to_string().contains("plain"), "{here}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_session_comes_back() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let mut first = SessionClient::open(&service, "2025-11-25").await;
    let mut second = SessionClient::open(&service, "2025-11-25").await;

    for id in 1..4 {
        for client in [&mut first, &mut second] {
            let answer = client.send(client.call(id, "echo", "a")).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(service.sessions(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_session_keeps_its_subscriptions_and_its_log_level() {
    let talk = Tool::raw(
        "talk",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            let level = cx.caller().log_level;
            Ok(CallToolResult::text(format!("{level:?}")))
        },
    );
    let server = Server::new("s", "1")
        .resource_subscriptions()
        .logging()
        .tool(talk);
    let service = server.http().limits(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let mut client = SessionClient::open(&service, "2025-06-18").await;
    for body in [
        request(1, "logging/setLevel", json!({"level": "alert"})),
        request(2, "resources/subscribe", json!({"uri": "a:1"})),
        request(3, "resources/subscribe", json!({"uri": "a:2"})),
        request(4, "resources/unsubscribe", json!({"uri": "a:1"})),
    ] {
        assert_eq!(client.send(client.post(&body)).await.status(), 200);
    }
    SessionClient::open(&service, "2025-06-18").await;

    let answer = client.send(client.call(5, "talk", "")).await.json().await;
    let mut stream = client.send(client.get()).await;
    server.changed().resource_updated("a:1");
    server.changed().resource_updated("a:2");

    assert_eq!(answer["result"]["content"][0]["text"], "Some(Alert)");
    let seen = messages(&stream.chunk().await.unwrap());
    assert_eq!(seen[0]["params"]["uri"], "a:2", "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_session_for_which_handlers_keep_values_ends() {
    let keep = Tool::raw(
        "keep",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            cx.connection_state().unwrap().insert(7_u8);
            Ok(CallToolResult::text("kept"))
        },
    );
    let service = Server::new("s", "1").tool(keep).http().limits(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let mut client = SessionClient::open(&service, "2025-06-18").await;
    assert_eq!(client.send(client.call(1, "keep", "")).await.status(), 200);

    SessionClient::open(&service, "2025-06-18").await;

    assert_eq!(client.send(client.call(2, "keep", "")).await.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_not_revived_whether_it_was_live_or_not() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().limits(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let mut freed = SessionClient::open(&service, "2025-11-25").await;
    let mut live = SessionClient::open(&service, "2025-11-25").await;

    for client in [&mut freed, &mut live] {
        assert_eq!(client.send(client.delete()).await.status(), 204);
        let late = client.send(client.call(1, "echo", "a")).await;
        assert_eq!(late.status(), 404);
        assert_eq!(client.send(client.get()).await.status(), 404);
    }
    assert_eq!(service.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn revived_sessions_count_against_the_limits() {
    let fixture = ServerFixture::new();
    let [first, second] = [(); 2].map(|()| {
        replica(&fixture).limits(Limits {
            sessions: 3,
            principal_sessions: 2,
            ..Limits::default()
        })
    });
    let mut ids = Vec::new();
    // One principal after the other: all are equally idle on the paused clock,
    // so which one is evicted must not decide which limit is met.
    for name in ["ada", "ada", "ada", "bob", "bob", "bob"] {
        let opening = with_principal(post(&initialize("2025-06-18")), name);
        let opened = call_service(&first, opening).await;
        ids.push((name, opened.headers()["mcp-session-id"].clone()));
    }

    for (name, id) in ids.iter().chain(&ids) {
        let mut ping = post(&request(1, "ping", json!({})));
        ping.headers_mut().insert("mcp-session-id", id.clone());
        let answer = call_service(&second, with_principal(ping, name)).await;

        assert_eq!(answer.status(), 200);
        assert!(second.sessions() <= 3, "{}", second.sessions());
    }
    let usage = second.usage();
    assert!(usage.refused(bowline::Limit::PrincipalSessions) > 0);
    assert!(usage.refused(bowline::Limit::Sessions) > 0);
}

#[tokio::test(start_paused = true)]
async fn an_id_with_another_key_or_of_another_principal_is_not_found() {
    let fixture = ServerFixture::new();
    let (first, second) = (replica(&fixture), replica(&fixture));
    let other_key = fixture
        .server
        .http()
        .legacy(Legacy::sessions().shared_keys([8; 32]));
    let opened = call_service(
        &first,
        with_principal(post(&initialize("2025-06-18")), "ada"),
    )
    .await;
    let id = opened.headers()["mcp-session-id"].clone();
    let ping = |who| {
        let mut ping = post(&request(1, "ping", json!({})));
        ping.headers_mut().insert("mcp-session-id", id.clone());
        with_principal(ping, who)
    };

    assert_eq!(call_service(&other_key, ping("ada")).await.status(), 404);
    assert_eq!(call_service(&second, ping("eve")).await.status(), 404);
    assert_eq!((second.sessions(), other_key.sessions()), (0, 0));
    assert_eq!(call_service(&second, ping("ada")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_capabilities_do_not_fit_into_an_id_gets_one_that_is_not_revived() {
    let fixture = ServerFixture::new();
    let (first, second) = (replica(&fixture), replica(&fixture));
    let mut opening = initialize("2025-06-18");
    opening["params"]["capabilities"]["experimental"] = json!({"x": {"y": "z".repeat(2000)}});
    let opened = PlainConnection::http1(&first)
        .await
        .send(post(&opening))
        .await;
    let id = opened.header("mcp-session-id").unwrap().to_owned();
    let ping = || with_header(post(&request(1, "ping", json!({}))), "mcp-session-id", &id);

    assert_eq!(id.len(), 32);
    assert_eq!(call_service(&first, ping()).await.status(), 200);
    assert_eq!(call_service(&second, ping()).await.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn two_replicas_never_ask_a_client_under_one_id() {
    let (mut client, mut other) = two_replicas("2025-06-18").await;

    let (first, _response) = asked(&mut client, 1).await;
    let (second, _response) = asked(&mut client, 2).await;
    let (third, _response) = asked(&mut other, 3).await;

    assert!(first != second && first != third && second != third);
    for id in [first, second, third] {
        let text = id.as_str().expect("a text");
        assert!(text.len() > 16 && text.contains('.'), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_replicas_asks_under_numbers() {
    let fixture = ServerFixture::new();
    let service = with_roots_tool(fixture.server.clone()).http();
    let mut client = SessionClient::open(&service, "2025-06-18").await;

    let (id, _response) = asked(&mut client, 1).await;

    assert_eq!(id, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_of_another_replica_is_refused_and_not_taken_for_its_own() {
    let (mut client, mut other) = two_replicas("2025-06-18").await;
    let (first, mut here) = asked(&mut client, 1).await;
    let (second, mut there) = asked(&mut other, 2).await;

    let foreign = other.send(other.post(&roots(&first))).await;

    assert_eq!(foreign.status(), 400);
    let why = foreign.json().await["error"]["message"].to_string();
    assert!(why.contains("another replica"), "{why}");
    for (client, id, response) in [
        (&mut client, first, &mut here),
        (&mut other, second, &mut there),
    ] {
        assert_eq!(client.send(client.post(&roots(&id))).await.status(), 202);
        let last = messages(&response.chunk().await.unwrap());
        assert!(last[0]["result"].is_object(), "{last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_an_eviction_does_not_settle_a_request_after_it() {
    let fixture = ServerFixture::new();
    let service = with_roots_tool(fixture.server.clone())
        .http()
        .limits(Limits {
            sessions: 1,
            ..Limits::default()
        });
    let mut client = SessionClient::open(&service, "2025-06-18").await;
    let (before, response) = asked(&mut client, 1).await;
    SessionClient::open(&service, "2025-06-18").await;
    drop(response);
    let (after, mut response) = asked(&mut client, 2).await;

    client.send(client.post(&roots(&before))).await;
    assert_ne!(before, after);
    let error = json!({"jsonrpc": "2.0", "id": after, "error": {"code": -7, "message": "no"}});
    client.send(client.post(&error)).await;

    let last = messages(&response.chunk().await.unwrap());
    assert!(last[0]["error"].is_object(), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_another_replica_is_not_resumed() {
    let mut fixture = ServerFixture::new();
    let (first, second) = (replica(&fixture), replica(&fixture));
    let mut client = SessionClient::open(&first, "2025-11-25").await;
    let mut other = client.at(&second);
    let mut running = client.start_call(&mut fixture, 1, "a").await;
    let seen = running.chunk().await.unwrap();
    let resume = with_header(client.get(), "last-event-id", last_event_id(&seen));

    let foreign = other.send(resume.clone()).await;
    let own = client.send(resume).await;

    assert_eq!(foreign.status(), 400);
    let why = foreign.json().await["error"]["message"].to_string();
    assert!(why.contains("another replica"), "{why}");
    assert_eq!(own.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_get_stream_of_another_replica_continues_with_every_list_change() {
    let fixtures = [ServerFixture::new(), ServerFixture::new()];
    let [first, second] = fixtures.each_ref().map(replica);
    let mut client = SessionClient::open(&first, "2025-11-25").await;
    let mut other = client.at(&second);
    let mut stream = client.send(client.get()).await;
    let primed = stream.chunk().await.unwrap();
    fixtures[0].server.changed().tools();
    let seen = stream.chunk().await.unwrap();
    assert_eq!(messages(&seen).len(), 1, "{seen}");

    for seen in [primed, seen] {
        let resume = with_header(client.get(), "last-event-id", last_event_id(&seen));
        let mut continued = other.send(resume).await;
        let mut received = Vec::new();
        while received.is_empty() {
            received = messages(&continued.chunk().await.expect("notifications"));
        }
        let methods: Vec<_> = received.iter().map(|it| it["method"].clone()).collect();
        assert!(
            methods.contains(&json!("notifications/tools/list_changed")),
            "{methods:?}"
        );
        fixtures[1].server.changed().tools();
        assert_eq!(messages(&continued.chunk().await.unwrap()).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_get_at_another_replica_gets_later_changes() {
    let fixtures = [ServerFixture::new(), ServerFixture::new()];
    let [first, second] = fixtures.each_ref().map(replica);
    let client = SessionClient::open(&first, "2025-06-18").await;
    let mut other = client.at(&second);

    let mut stream = other.send(other.get()).await;
    fixtures[1].server.changed().tools();

    let seen = messages(&stream.chunk().await.unwrap());
    assert_eq!(seen.len(), 1, "no change was missed: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn subscribe_is_offered_to_legacy_clients_unless_any_replica_may_get_their_requests() {
    let fixture = ServerFixture::new();
    let shared = || Legacy::sessions().shared_keys(KEY);
    let subscribe = request(1, "resources/subscribe", json!({"uri": "a:1"}));
    for (legacy, expected) in [
        (Legacy::sessions(), json!(true)),
        (shared(), Value::Null),
        (shared().sticky_routing(), json!(true)),
    ] {
        let service = fixture.server.http().legacy(legacy);
        let opened = call_service(&service, post(&initialize("2025-11-25"))).await;
        let id = opened.headers()["mcp-session-id"].clone();
        let declared = response_json(opened).await["result"]["capabilities"].clone();
        let mut request = post(&subscribe);
        request.headers_mut().insert("mcp-session-id", id);
        let answer = response_json(call_service(&service, request).await).await;

        assert_eq!(declared["resources"]["subscribe"], expected);
        assert_eq!(answer["result"].is_object(), expected == true, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_sticky_routing_a_session_that_may_have_subscriptions_is_not_revived_elsewhere() {
    let fixture = ServerFixture::new();
    let [first, second] = [(); 2].map(|()| {
        let legacy = Legacy::sessions().shared_keys(KEY).sticky_routing();
        fixture.server.http().legacy(legacy)
    });
    let mut client = SessionClient::open(&first, "2025-11-25").await;
    let mut other = client.at(&second);

    assert_eq!(other.send(other.call(1, "echo", "a")).await.status(), 404);
    assert_eq!(client.send(client.call(1, "echo", "a")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_revived_after_its_lifetime() {
    let fixture = ServerFixture::new();
    let legacy = Legacy::sessions().session_lifetime(Duration::ZERO);
    let service = fixture.server.http().legacy(legacy).limits(Limits {
        sessions: 1,
        ..Limits::default()
    });
    let mut client = SessionClient::open(&service, "2025-11-25").await;

    SessionClient::open(&service, "2025-11-25").await;

    assert_eq!(client.send(client.call(1, "echo", "a")).await.status(), 404);
}
