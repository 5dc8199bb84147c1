//! A server of ours over HTTP, seen by somebody who speaks plain HTTP: what only versions with a handshake have.

use bowline::http::legacy::Legacy;
use bowline::{CallToolResult, Context, Resource, Server, Tool};
use scenarios::http::Plain;
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{anything, echo, hanging, tally_of, waiting};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = sessions().into_iter().chain(streams()).chain(others());
    let all = all.map(|scenario| scenario.since("2025-03-26").over_http());
    all.chain(two_endpoints()).collect()
}

fn sessions() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_handshake_gives_the_conversation_a_name_which_is_repeated,
            "hosting:session:create",
            "hosting:session:id-charset",
            "hosting:session:reuse",
            "hosting:session:cors-expose",
        ),
        scenario!(
            a_request_that_names_no_conversation_is_refused,
            "hosting:session:missing-id",
            "hosting:session:unknown-id",
        ),
        scenario!(
            the_end_of_one_conversation_leaves_the_others_alone,
            "hosting:session:delete",
            "hosting:session:post-termination-404",
            "hosting:session:isolation",
        ),
        scenario!(
            a_second_handshake_after_a_request_is_refused,
            "hosting:session:reinitialize"
        ),
        scenario!(
            a_server_without_memory_answers_and_names_no_conversation,
            "transport:streamable-http:stateless",
            "hosting:stateless:no-session-id",
            "hosting:stateless:no-reuse",
        ),
        scenario!(
            a_server_without_memory_cannot_ask,
            "transport:streamable-http:stateless-restrictions",
        ),
    ];
    all.into_iter().map(Scenario::legacy).collect()
}

fn streams() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            what_belongs_to_no_request_has_a_stream_and_goes_nowhere_else,
            "transport:streamable-http:unrelated-messages",
            "hosting:http:standalone-sse",
            "hosting:http:standalone-sse-no-response",
            "hosting:http:no-broadcast",
        ),
        scenario!(
            there_is_one_stream_for_what_belongs_to_no_request,
            "hosting:http:second-sse-rejected",
        ),
        scenario!(
            a_stream_that_broke_is_taken_up_where_it_broke,
            "transport:streamable-http:resumability",
            "hosting:resume:event-ids",
            "hosting:resume:replay",
            "hosting:resume:stream-scoped",
        ),
        scenario!(
            what_was_missed_is_told_in_order,
            "hosting:resume:buffered-replay",
        ),
        scenario!(
            an_event_that_nobody_knows_cannot_be_resumed_from,
            "hosting:resume:bad-event-id",
        ),
    ];
    let primed = scenario!(
        a_stream_begins_with_an_id_to_resume_from,
        "hosting:resume:priming",
    )
    .when(|dialect| dialect.http.primes_streams);
    all.into_iter()
        .map(Scenario::legacy)
        .chain([primed])
        .collect()
}

fn others() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_lost_connection_cancels_nothing,
            "hosting:http:disconnect-not-cancel",
        ),
        scenario!(
            the_stream_of_a_cancelled_request_comes_to_its_end,
            "transport:streamable-http:cancelled-request-terminated",
        ),
        scenario!(
            where_there_is_no_stream_nothing_can_be_asked,
            "transport:streamable-http:json-response-restrictions",
        ),
        scenario!(
            a_notification_is_accepted_without_an_answer,
            "hosting:http:notifications-202",
        ),
        scenario!(
            a_request_without_a_version_has_that_of_its_conversation,
            "hosting:http:protocol-version-default",
        ),
        scenario!(
            nothing_modern_is_said_to_a_client_with_a_handshake,
            "hosting:http:legacy-no-modern-vocabulary",
        ),
        scenario!(
            one_server_speaks_over_the_older_and_the_newer_endpoints,
            "flow:compat:dual-transport-server",
        ),
    ];
    all.into_iter().map(Scenario::legacy).collect()
}

fn two_endpoints() -> Vec<Scenario> {
    vec![
        scenario!(
            the_stream_names_where_to_post_and_ends_with_the_conversation,
            "transport:sse:endpoint-event",
            "transport:sse:post:session-routing",
        )
        .over_two_endpoints(),
    ]
}

/// A server whose tool `look` asks for roots.
fn asking() -> Server {
    let look = Tool::raw("look", anything(), async |_, cx: Context| {
        let roots = cx.roots().await?.roots;
        Ok(CallToolResult::text(roots[0].uri.clone()))
    });
    Server::new("asking", "1").tool(look).tool(echo("echo"))
}

async fn a_handshake_gives_the_conversation_a_name_which_is_repeated(world: World) {
    let service = hanging().http();
    let plain = world.plain(service.clone()).await;

    let heard = plain.initialize().await;
    let name = heard.header("mcp-session-id").unwrap().to_owned();
    let exposed = heard.header("access-control-expose-headers").unwrap();

    assert!(name.len() >= 32, "nobody guesses it");
    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    assert!(exposed.eq_ignore_ascii_case("mcp-session-id"));
    let open = plain.open().await;
    let before = service.sessions();
    for id in 1..4 {
        let answer = open.call(id, "echo").await.answer().await;
        assert_eq!(answer["id"], id);
    }
    assert_eq!(service.sessions(), before);
}

async fn a_request_that_names_no_conversation_is_refused(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;

    let missing = plain.call(1, "echo").without("mcp-session-id").await;
    let unknown = plain
        .call(1, "echo")
        .header("mcp-session-id", "nobody")
        .await;
    let unread = plain.get().header("mcp-session-id", "nobody").await;

    assert_eq!(missing.status(), 400);
    assert_eq!(unknown.status(), 404);
    assert_eq!(unread.status(), 404);
}

async fn the_end_of_one_conversation_leaves_the_others_alone(world: World) {
    let plain = world.plain(hanging().http()).await;
    let (one, other) = (plain.clone().open().await, plain.open().await);
    let mut hanging = one.call_with_progress(1, "hang").await;
    hanging.message().await;

    let deleted = one.delete().await;
    let after = one.call(2, "echo").await;

    assert!(deleted.status().is_success(), "{deleted:?}");
    assert_eq!(after.status(), 404);
    assert_eq!(hanging.answer().await["error"]["code"], -32800);
    assert_eq!(other.call(1, "echo").await.answer().await["id"], 1);
    tally_of(&other, 1, 1).await;
}

async fn a_second_handshake_after_a_request_is_refused(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let name = plain.session().unwrap();

    let before = plain.call(1, "echo").await.answer().await;
    let again = plain.initialize().header("mcp-session-id", name).await;

    assert_eq!(before["id"], 1);
    assert_eq!(again.answer().await["error"]["code"], -32600);
    assert_eq!(plain.call(2, "echo").await.answer().await["id"], 2);
}

async fn a_server_without_memory_answers_and_names_no_conversation(world: World) {
    let service = hanging().http().legacy(Legacy::stateless());
    let plain = world.plain(service.clone()).await;

    let hello = plain.initialize().await;
    let unopened = plain.call(1, "echo").await.answer().await;
    let stream = plain.get().await;
    let deleted = plain.delete().await;

    assert_eq!(hello.header("mcp-session-id"), None);
    assert_eq!(
        hello.json().await["result"]["protocolVersion"],
        world.version()
    );
    assert_eq!(unopened["result"]["content"][0]["text"], "{}");
    assert_eq!(stream.status(), 405);
    assert_eq!(deleted.status(), 405);
    assert_eq!(service.sessions(), 0);
}

async fn a_server_without_memory_cannot_ask(world: World) {
    let plain = world
        .plain(asking().http().legacy(Legacy::stateless()))
        .await;

    let answer = plain.call(1, "look").await.answer().await;

    assert!(is_failure(&answer), "{answer}");
}

async fn what_belongs_to_no_request_has_a_stream_and_goes_nowhere_else(world: World) {
    let server = waiting();
    let plain = world.plain(server.http()).await.open().await;
    let mut unrelated = plain.get().await;
    let mut waiting = plain.call_with_progress(1, "wait").await;
    waiting.message().await;

    server.changed().tools();
    let told = unrelated.message().await;
    plain.call(2, "release").await.answer().await;
    let rest = waiting.messages().await;
    drop(plain.delete().await);

    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(1)));
    let answers = unrelated.messages().await;
    assert_eq!(answers, [Value::Null; 0], "answers never come there");
}

async fn there_is_one_stream_for_what_belongs_to_no_request(world: World) {
    let server = waiting();
    let plain = world.plain(server.http()).await.open().await;
    let mut first = plain.get().await;

    let second = plain.get().await;
    server.changed().tools();

    assert_eq!(second.status(), 409);
    assert_eq!(
        first.message().await["method"],
        "notifications/tools/list_changed"
    );
}

async fn a_stream_that_broke_is_taken_up_where_it_broke(world: World) {
    let server = waiting();
    let plain = world.plain(server.http()).await.open().await;
    let mut broken = plain.call_with_progress(1, "wait").await;
    let (report, seen) = broken.next().await.unwrap();

    drop(broken);
    server.changed().tools();
    plain.call(2, "release").await.answer().await;
    let resumed = resume(&plain, &seen.unwrap()).await;

    assert_eq!(report["method"], "notifications/progress");
    let ids: Vec<&Value> = resumed.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [1], "what was on that stream, and no more");
}

/// What follows an event, to the end of its stream.
async fn resume(plain: &Plain, after: &str) -> Vec<Value> {
    plain
        .get()
        .header("last-event-id", after)
        .await
        .messages()
        .await
}

async fn what_was_missed_is_told_in_order(world: World) {
    let readme = Resource::text("docs://readme", "readme", "Read me.");
    let server = Server::new("s", "1").tool(echo("echo")).resource(readme);
    let plain = world.plain(server.http()).await.open().await;
    let mut stream = plain.get().await;
    server.changed().tools();
    let (first, seen) = stream.next().await.unwrap();

    drop(stream);
    server.changed().resources();
    server.changed().tools();
    // What is on its way to the conversation is there before the answer to a later request.
    plain.call(1, "echo").await.answer().await;
    let mut rest = plain.get().header("last-event-id", &seen.unwrap()).await;
    let (second, third) = (rest.message().await, rest.message().await);

    let methods = [first, second, third].map(|message| message["method"].clone());
    let tools = "notifications/tools/list_changed";
    assert_eq!(
        methods,
        [tools, "notifications/resources/list_changed", tools]
    );
}

async fn an_event_that_nobody_knows_cannot_be_resumed_from(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;

    for id in ["99-0", "nonsense", "1-x"] {
        let heard = plain.get().header("last-event-id", id).await;

        assert_eq!(heard.status(), 400, "{id}");
    }
}

async fn a_stream_begins_with_an_id_to_resume_from(world: World) {
    let plain = world.plain(waiting().http()).await.open().await;
    let mut stream = plain.call_with_progress(1, "wait").await;

    let prime = stream.event().await.unwrap();
    drop(stream);
    plain.call(2, "release").await.answer().await;
    let resumed = resume(&plain, prime.id.as_deref().unwrap()).await;

    assert!(prime.data.is_empty() && prime.retry.is_some(), "{prime:?}");
    assert_eq!(resumed.len(), 2, "the report and the answer: {resumed:?}");
}

async fn a_lost_connection_cancels_nothing(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let mut lost = plain.call_with_progress(1, "hang").await;
    lost.message().await;

    drop(lost);

    tally_of(&plain, 1, 0).await;
    assert_eq!(plain.cancel(1).await.status(), 202);
    tally_of(&plain, 1, 1).await;
}

async fn the_stream_of_a_cancelled_request_comes_to_its_end(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let mut hanging = plain.call_with_progress(1, "hang").await;
    hanging.message().await;

    drop(plain.cancel(1).await);

    let rest = hanging.messages().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(
        (&rest[0]["id"], &rest[0]["error"]["code"]),
        (&json!(1), &json!(-32800))
    );
    tally_of(&plain, 1, 1).await;
}

async fn where_there_is_no_stream_nothing_can_be_asked(world: World) {
    let service = asking().http().legacy(Legacy::sessions().json_answers());
    let plain = world.plain(service).await.open().await;

    let heard = plain.call(1, "look").await;

    let answer = heard.json().await;
    assert!(is_failure(&answer), "{answer}");
    assert!(answer.to_string().contains("cannot be asked"), "{answer}");
}

/// Whether a call failed, in either of the two ways.
fn is_failure(answer: &Value) -> bool {
    answer["error"].is_object() || answer["result"]["isError"] == true
}

async fn a_notification_is_accepted_without_an_answer(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;

    let told = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let heard = plain.post(&told).await;

    assert_eq!(heard.status(), 202);
    assert_eq!(heard.text().await, "");
}

async fn a_request_without_a_version_has_that_of_its_conversation(world: World) {
    let tell = Tool::raw("version", anything(), async |_, cx: Context| {
        Ok(CallToolResult::text(cx.caller().dialect.version))
    });
    let server = Server::new("s", "1").tool(tell);
    let plain = world.plain(server.http()).await.open().await;

    let heard = plain
        .call(1, "version")
        .without("mcp-protocol-version")
        .await;

    assert_eq!(heard.status(), 200);
    let answer = heard.answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], world.version());
}

async fn nothing_modern_is_said_to_a_client_with_a_handshake(world: World) {
    let plain = world.plain(hanging().http()).await.open().await;
    let hello = plain.initialize().await.answer().await;
    let listed = plain
        .request(1, "tools/list", json!({}))
        .await
        .answer()
        .await;
    let called = plain.call(2, "echo").await.answer().await;

    for answer in [hello, listed, called] {
        let text = answer.to_string();
        for modern in [
            "resultType",
            "ttlMs",
            "cacheScope",
            "io.modelcontextprotocol",
        ] {
            assert!(!text.contains(modern), "{modern} in {text}");
        }
    }
}

async fn one_server_speaks_over_the_older_and_the_newer_endpoints(world: World) {
    let service = hanging().http().legacy(Legacy::sessions().http_sse());
    let plain = world.plain(service).await;
    let newer = plain.clone().open().await;
    let mut older = plain.get().without("mcp-protocol-version").await;
    let endpoint = text(&older.event().await.unwrap().data);

    let hello = plain.initialize().at(&endpoint).await;
    let greeted = older.message().await;
    let called = newer.call(1, "echo").await.answer().await;

    assert_eq!(hello.status(), 202);
    assert_eq!(greeted["result"]["protocolVersion"], world.version());
    assert_eq!(called["result"]["content"][0]["text"], "{}");
}

async fn the_stream_names_where_to_post_and_ends_with_the_conversation(world: World) {
    let service = hanging().http().legacy(Legacy::sessions().http_sse());
    let plain = world.plain(service.clone()).await;

    let mut stream = plain.get().await;
    let first = stream.event().await.unwrap();
    let endpoint = text(&first.data);
    let accepted = plain.initialize().at(&endpoint).await;
    let greeted = stream.message().await;
    let elsewhere = plain.initialize().at(&format!("{endpoint}0")).await;

    assert_eq!(first.name.as_deref(), Some("endpoint"));
    assert_eq!(accepted.status(), 202);
    assert_eq!(greeted["result"]["protocolVersion"], world.version());
    assert_eq!(elsewhere.status(), 404);
    drop(stream);
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(plain.call(1, "echo").at(&endpoint).await.status(), 404);
}

fn text(data: &[u8]) -> String {
    String::from_utf8(data.to_vec()).unwrap()
}
