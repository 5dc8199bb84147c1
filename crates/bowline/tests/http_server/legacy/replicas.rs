//! Three replicas of a server on one cluster, which get the requests of a session in turn.

use std::time::Duration;

use bowline::cluster::{Cluster, MarkFuture, Marks, MemoryCluster, MemoryLink, Unavailable};
use bowline::http::legacy::Legacy;

use super::revival::{asked, request, roots};
use super::*;

/// Three replicas, and a client that has opened a session at the first.
struct Replicas {
    fixtures: [ServerFixture; 3],
    links: [MemoryLink; 3],
    clients: [SessionClient; 3],
}

impl Replicas {
    async fn open(version: &'static str) -> Self {
        let memory = MemoryCluster::new();
        let members = [(); 3].map(|()| memory.replica().unwrap());
        let links = members.each_ref().map(|member| member.link());
        let fixtures = members.map(|member| {
            let mut fixture = ServerFixture::new();
            fixture.server = with_level_tool(with_roots_tool(fixture.server)).cluster(member);
            fixture
        });
        let services = fixtures.each_ref().map(|fixture| {
            let legacy = Legacy::sessions().http_sse();
            fixture.server.http().legacy(legacy)
        });
        let first = SessionClient::open(&services[0], version).await;
        let clients = services.map(|service| first.at(&service));
        Self {
            fixtures,
            links,
            clients,
        }
    }
}

/// Adds a tool that returns the log level of its caller.
fn with_level_tool(server: Server) -> Server {
    let level = Tool::raw(
        "level",
        json!({"type": "object"}),
        async |_, cx: bowline::Context| {
            let level = cx.caller().log_level;
            Ok(CallToolResult::text(format!("{level:?}")))
        },
    );
    server.logging().tool(level)
}

/// Reads a stream until it has a message that passes.
async fn next_message(stream: &mut PlainResponse, passes: impl Fn(&Value) -> bool) -> Value {
    loop {
        let chunk = stream.chunk().await.expect("a message before the end");
        if let Some(found) = messages(&chunk).into_iter().find(&passes) {
            return found;
        }
    }
}

async fn post_to(client: &mut SessionClient, body: &Value) -> u16 {
    client.send(client.post(body)).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_session_are_answered_by_any_replica() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let mut replicas = Replicas::open(version).await;
        for id in 1..10 {
            let client = &mut replicas.clients[id as usize % 3];
            let answer = client.send(client.call(id, "echo", "a")).await.json().await;

            assert_eq!(answer["id"], id, "{version}");
            assert_eq!(answer["result"]["content"][0]["text"], r#"{"name":"a"}"#);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_finds_its_call_on_any_replica() {
    for owner in 0..3 {
        let mut replicas = Replicas::open("2025-11-25").await;
        let Replicas {
            fixtures, clients, ..
        } = &mut replicas;
        let running = clients[owner]
            .start_call(&mut fixtures[owner], 7, "a")
            .await;
        let other = &mut clients[(owner + 1) % 3];

        let cancelled = other.send(other.cancel(7)).await;

        assert_eq!(cancelled.status(), 202);
        fixtures[owner].handler_dropped("a").await;
        let last = running.messages().await;
        assert_eq!(last.last().unwrap()["error"]["code"], -32800);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_another_session_is_not_passed_on() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let Replicas {
        fixtures, clients, ..
    } = &mut replicas;
    let _running = clients[0].start_call(&mut fixtures[0], 7, "a").await;
    let service = fixtures[1].server.http();
    let mut eve = SessionClient::open(&service, "2025-11-25").await;

    eve.send(eve.cancel(7)).await;
    let echo = clients[0].call(8, "echo", "b");
    assert_eq!(clients[0].send(echo).await.status(), 200);

    assert!(fixtures[0].events.try_recv().is_err(), "the call runs on");
}

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_the_replica_that_asked() {
    let mut replicas = Replicas::open("2025-06-18").await;
    let [first, second, third] = &mut replicas.clients;
    let (of_first, mut first_response) = asked(first, 1).await;
    let (of_second, mut second_response) = asked(second, 2).await;

    assert_eq!(post_to(third, &roots(&of_first)).await, 202);
    assert_eq!(post_to(first, &roots(&of_second)).await, 202);

    for (response, id) in [(&mut first_response, 1), (&mut second_response, 2)] {
        let last = next_message(response, |message| message["id"] == id).await;
        assert!(last["result"]["isError"] != true, "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_a_replica_that_has_ended_is_refused_and_without_the_engine_retried() {
    let mut replicas = Replicas::open("2025-06-18").await;
    let [first, second, _] = &mut replicas.clients;
    let ended = roots(&json!("00000000000000ff1.1"));
    assert_eq!(post_to(second, &ended).await, 400);
    let (id, _response) = asked(first, 1).await;

    replicas.links.iter().for_each(MemoryLink::cut);

    assert_eq!(post_to(second, &roots(&id)).await, 503);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_not_found_on_any_replica() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let [first, second, third] = &mut replicas.clients;
    assert_eq!(second.send(second.call(1, "echo", "a")).await.status(), 200);
    let stream = first.send(first.get()).await;

    assert_eq!(second.send(second.delete()).await.status(), 204);

    stream.text().await; // the live state of the first replica ends
    for client in [first, second, third] {
        assert_eq!(client.send(client.call(2, "echo", "a")).await.status(), 404);
    }
}

#[tokio::test(start_paused = true)]
async fn while_replicas_cannot_reach_each_other_a_live_state_elsewhere_is_not_ended() {
    let mut replicas = Replicas::open("2025-11-25").await;
    replicas.links.iter().for_each(MemoryLink::cut);
    let [first, second, third] = &mut replicas.clients;

    assert_eq!(second.send(second.call(1, "echo", "a")).await.status(), 200);
    assert_eq!(second.send(second.delete()).await.status(), 204);

    assert_eq!(second.send(second.call(2, "echo", "a")).await.status(), 404);
    assert_eq!(first.send(first.call(2, "echo", "a")).await.status(), 200);
    assert_eq!(third.send(third.call(2, "echo", "a")).await.status(), 404);
}

/// Marks of an engine that is away.
struct AwayMarks;

fn away<'a, T>() -> MarkFuture<'a, T> {
    Box::pin(async { Err(Unavailable::new("the engine", "it is away").into()) })
}

impl Marks for AwayMarks {
    fn set_if_absent<'a>(
        &'a self,
        _: &'a [u8],
        _: &'a [u8],
        _: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        away()
    }

    fn set<'a>(&'a self, _: &'a [u8], _: &'a [u8], _: Duration) -> MarkFuture<'a, ()> {
        away()
    }

    fn replace<'a>(
        &'a self,
        _: &'a [u8],
        _: &'a [u8],
        _: &'a [u8],
        _: Duration,
    ) -> MarkFuture<'a, bool> {
        away()
    }

    fn read<'a>(&'a self, _: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        away()
    }

    fn remove<'a>(&'a self, _: &'a [u8], _: &'a [u8]) -> MarkFuture<'a, bool> {
        away()
    }
}

#[tokio::test(start_paused = true)]
async fn without_marks_sessions_are_served_and_a_revoked_one_is_accepted() {
    let memory = MemoryCluster::new();
    let [first, second] = [(); 2].map(|()| {
        let replica = Cluster::new(memory.replica().unwrap(), AwayMarks, [7; 32]);
        let server = ServerFixture::new().server.cluster(replica);
        server.http()
    });
    let mut client = SessionClient::open(&first, "2025-11-25").await;
    let mut other = client.at(&second);
    let subscribe = request(1, "resources/subscribe", json!({"uri": "a:1"}));

    assert_eq!(post_to(&mut client, &subscribe).await, 200);
    assert_eq!(client.send(client.get()).await.status(), 200);
    assert_eq!(client.send(client.delete()).await.status(), 204);

    assert_eq!(post_to(&mut client, &subscribe).await, 404);
    assert_eq!(post_to(&mut other, &subscribe).await, 200);
}

#[tokio::test(start_paused = true)]
async fn the_log_level_is_that_of_the_session_on_every_replica() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let [first, second, third] = &mut replicas.clients;
    assert_eq!(second.send(second.call(1, "echo", "a")).await.status(), 200);
    let level = request(2, "logging/setLevel", json!({"level": "alert"}));

    assert_eq!(post_to(first, &level).await, 200);

    for client in [first, third, second] {
        loop {
            let answer = client.send(client.call(3, "level", "")).await.json().await;
            if answer["result"]["content"][0]["text"] == "Some(Alert)" {
                break;
            }
            // A live state is told, and reads the record, after the request was answered.
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_served_where_the_client_listens() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let [first, second, _] = &mut replicas.clients;
    let subscribe = |id, uri: &str| request(id, "resources/subscribe", json!({"uri": uri}));
    let is_update = |uri: &'static str| move |message: &Value| message["params"]["uri"] == uri;

    assert_eq!(post_to(first, &subscribe(1, "a:1")).await, 200);
    let mut stream = second.send(second.get()).await;
    replicas.fixtures[2]
        .server
        .changed()
        .resource_updated("a:1");
    next_message(&mut stream, is_update("a:1")).await;

    // The client listens already when the next one is added elsewhere. The replica with the stream may learn of it after
    // this change.
    assert_eq!(post_to(first, &subscribe(2, "a:2")).await, 200);
    replicas.fixtures[2]
        .server
        .changed()
        .resource_updated("a:2");
    next_message(&mut stream, is_update("a:2")).await;
}

#[tokio::test(start_paused = true)]
async fn the_newest_get_gets_the_notifications() {
    let mut replicas = Replicas::open("2025-06-18").await;
    let [first, second, _] = &mut replicas.clients;
    let old = first.send(first.get()).await;

    let mut new = second.send(second.get()).await;

    old.text().await; // it ends
    replicas.fixtures[2].server.changed().tools();
    let is_change = |message: &Value| message["method"] == "notifications/tools/list_changed";
    next_message(&mut new, is_change).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_resumed_on_any_replica() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let Replicas {
        fixtures, clients, ..
    } = &mut replicas;
    let mut running = clients[0].start_call(&mut fixtures[0], 7, "a").await;
    let seen = running.chunk().await.unwrap();
    let resume = with_header(clients[0].get(), "last-event-id", last_event_id(&seen));
    clients[0].close_connections();
    drop(running);

    let resumed = clients[1].send(resume.clone()).await;
    fixtures[0].release.notify_one();

    assert_eq!(resumed.status(), 200);
    let rest = resumed.messages().await;
    assert_eq!(rest.last().unwrap()["id"], 7);
    assert_eq!(
        rest.last().unwrap()["result"]["content"][0]["text"],
        "released"
    );
    let again = clients[2].send(resume).await;
    assert_eq!(again.messages().await.last().unwrap()["id"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_draining_replica_answers_readers_until_they_have_read() {
    let mut replicas = Replicas::open("2025-11-25").await;
    let Replicas {
        fixtures, clients, ..
    } = &mut replicas;
    let service = clients[0].service().clone();
    let mut running = clients[0].start_call(&mut fixtures[0], 7, "a").await;
    let seen = running.chunk().await.unwrap();
    let resume = with_header(clients[0].get(), "last-event-id", last_event_id(&seen));
    clients[0].close_connections();
    drop(running);

    fixtures[0].server.shut_down(Duration::from_secs(600));
    fixtures[0].release.notify_one();
    fixtures[0].handler_finished("a").await;
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(service.sessions(), 1, "its stream was not read");
    let resumed = clients[1].send(resume).await;

    assert_eq!(resumed.messages().await.last().unwrap()["id"], 7);
    tokio::time::timeout(Duration::from_secs(5), service.drained())
        .await
        .expect("nothing is left to read");
    while service.sessions() > 0 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_to_an_http_sse_session_is_delivered_to_the_replica_with_its_stream() {
    let replicas = Replicas::open("2025-06-18").await;
    let services = replicas.clients.each_ref().map(SessionClient::service);
    let get = || {
        let get = Request::get("/mcp").header("host", "localhost");
        let get = get.header("accept", "text/event-stream");
        get.body(Full::default()).unwrap()
    };
    let mut connection = PlainConnection::http1(services[0]).await;
    let mut stream = connection.send(get()).await;
    let opened = stream.chunk().await.unwrap();
    let endpoint = opened
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .expect("an endpoint")
        .to_owned();
    let send = async |service: &HttpService, body: &Value| {
        let mut request = post(body);
        *request.uri_mut() = endpoint.parse().unwrap();
        let mut connection = PlainConnection::http1(service).await;
        connection.send(request).await.status()
    };

    assert_eq!(send(services[1], &initialize("2024-11-05")).await, 202);
    next_message(&mut stream, |message| message["id"] == 0).await;
    let echo = tool_call(&json!(7), "echo", &json!({"name": "a"}), &json!({}));
    assert_eq!(send(services[2], &echo).await, 202);

    let answer = next_message(&mut stream, |message| message["id"] == 7).await;
    assert!(answer["result"].is_object(), "{answer}");
    drop((stream, connection));
    while send(services[1], &echo).await != 404 {
        tokio::task::yield_now().await;
    }
}
