//! The HTTP server against a raw HTTP client: features of the legacy versions.

use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::{CallToolResult, Context, Resource, Server, Tool};
use scenarios::http::RawHttpClient;
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, echo, hanging_server, wait_for_handlers_raw, waiting_server};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = sessions().into_iter().chain(streams()).chain(others());
    let all = all.map(|scenario| scenario.since("2025-03-26").over_http());
    all.chain(http_sse()).collect()
}

fn sessions() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            initialize_creates_a_session_that_later_requests_reuse,
            "hosting:session:create",
            "hosting:session:id-charset",
            "hosting:session:reuse",
            "hosting:session:cors-expose",
        ),
        scenario!(
            a_request_without_a_known_session_is_rejected,
            "hosting:session:missing-id",
            "hosting:session:unknown-id",
        ),
        scenario!(
            ending_one_session_does_not_affect_the_others,
            "hosting:session:delete",
            "hosting:session:post-termination-404",
            "hosting:session:isolation",
        ),
        scenario!(
            a_second_initialize_opens_a_session_of_its_own,
            "hosting:session:reinitialize"
        ),
        scenario!(
            a_stateless_server_responds_without_a_session_id,
            "transport:streamable-http:stateless",
            "hosting:stateless:no-session-id",
            "hosting:stateless:no-reuse",
        ),
        scenario!(
            a_stateless_server_cannot_send_requests,
            "transport:streamable-http:stateless-restrictions",
        ),
    ];
    all.into_iter().map(Scenario::legacy).collect()
}

fn streams() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            unrelated_messages_are_sent_only_on_the_get_stream,
            "transport:streamable-http:unrelated-messages",
            "hosting:http:standalone-sse",
            "hosting:http:standalone-sse-no-response",
            "hosting:http:no-broadcast",
        ),
        scenario!(
            a_second_get_stream_is_rejected,
            "hosting:http:second-sse-rejected",
        ),
        scenario!(
            a_broken_stream_is_resumed_after_its_last_event,
            "transport:streamable-http:resumability",
            "hosting:resume:event-ids",
            "hosting:resume:replay",
            "hosting:resume:stream-scoped",
        ),
        scenario!(
            missed_events_are_replayed_in_order,
            "hosting:resume:buffered-replay",
        ),
        scenario!(
            resuming_from_an_unknown_event_is_rejected,
            "hosting:resume:bad-event-id",
        ),
    ];
    let primed = scenario!(
        a_stream_starts_with_a_priming_event,
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
            a_lost_connection_does_not_cancel_its_request,
            "hosting:http:disconnect-not-cancel",
        ),
        scenario!(
            the_stream_of_a_cancelled_request_ends,
            "transport:streamable-http:cancelled-request-terminated",
        ),
        scenario!(
            without_a_stream_server_requests_fail,
            "transport:streamable-http:json-response-restrictions",
        ),
        scenario!(
            a_notification_gets_202_without_a_body,
            "hosting:http:notifications-202",
        ),
        scenario!(
            a_request_without_a_version_header_uses_the_version_of_its_session,
            "hosting:http:protocol-version-default",
        ),
        scenario!(
            legacy_responses_have_no_modern_members,
            "hosting:http:legacy-no-modern-vocabulary",
        ),
        scenario!(
            one_service_serves_streamable_http_and_http_sse,
            "flow:compat:dual-transport-server",
        ),
    ];
    all.into_iter().map(Scenario::legacy).collect()
}

fn http_sse() -> Vec<Scenario> {
    vec![
        scenario!(
            the_sse_stream_names_its_endpoint_and_its_end_ends_the_session,
            "transport:sse:endpoint-event",
            "transport:sse:post:session-routing",
        )
        .over_http_sse(),
    ]
}

/// A server whose tool `look` lists the roots.
fn roots_server() -> Server {
    let look = Tool::raw("look", any_object(), async |_, cx: Context| {
        let roots = cx.roots().await?.roots;
        Ok(CallToolResult::text(roots[0].uri.clone()))
    });
    Server::new("asking", "1").tool(look).tool(echo("echo"))
}

async fn initialize_creates_a_session_that_later_requests_reuse(env: ScenarioEnv) {
    let service = hanging_server().http();
    let client = env.raw_client_of(service.clone()).await;

    let page = "http://localhost:6274";
    let response = client.initialize().header("origin", page).await;
    let name = response.header("mcp-session-id").unwrap().to_owned();

    assert!(name.len() >= 32, "the session id is guessable");
    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    // A web page can read the id, which it has to repeat.
    let exposed = response.header("access-control-expose-headers");
    assert_eq!(exposed, Some("*"));
    let origin = response.header("access-control-allow-origin");
    assert_eq!(origin, Some(page));
    let open = client.open().await;
    let before = service.sessions();
    for id in 1..4 {
        let answer = open.call(id, "echo").await.answer().await;
        assert_eq!(answer["id"], id);
    }
    assert_eq!(service.sessions(), before);
}

async fn a_request_without_a_known_session_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;

    let missing = client.call(1, "echo").without("mcp-session-id").await;
    let unknown = client
        .call(1, "echo")
        .header("mcp-session-id", "unknown")
        .await;
    let unread = client.get().header("mcp-session-id", "unknown").await;

    assert_eq!(missing.status(), 400);
    assert_eq!(unknown.status(), 404);
    assert_eq!(unread.status(), 404);
}

async fn ending_one_session_does_not_affect_the_others(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await;
    let (one, other) = (client.clone().open().await, client.open().await);
    let mut hanging = one.call_with_progress(1, "hang").await;
    hanging.message().await;

    let deleted = one.delete().await;
    let mut after = one.call(2, "echo").await;
    while env.is_replicated() && after.status() == 200 {
        after = one.call(2, "echo").await;
    }

    assert!(deleted.status().is_success(), "{deleted:?}");
    assert_eq!(after.status(), 404);
    assert_eq!(hanging.answer().await["error"]["code"], -32800);
    assert_eq!(other.call(1, "echo").await.answer().await["id"], 1);
    wait_for_handlers_raw(&other, 1, 1).await;
}

async fn a_second_initialize_opens_a_session_of_its_own(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let name = client.session().unwrap();

    let before = client.call(1, "echo").await.answer().await;
    let again = client.initialize().header("mcp-session-id", name).await;

    assert_eq!(before["id"], 1);
    let other = again.header("mcp-session-id").map(str::to_owned);
    assert!(other.is_some_and(|other| other != name));
    assert!(again.answer().await["result"].is_object());
    assert_eq!(client.call(2, "echo").await.answer().await["id"], 2);
}

async fn a_stateless_server_responds_without_a_session_id(env: ScenarioEnv) {
    let service = hanging_server().http().legacy(Legacy::stateless());
    let client = env.raw_client_of(service.clone()).await;

    let hello = client.initialize().await;
    let unopened = client.call(1, "echo").await.answer().await;
    let stream = client.get().await;
    let deleted = client.delete().await;

    assert_eq!(hello.header("mcp-session-id"), None);
    assert_eq!(
        hello.json().await["result"]["protocolVersion"],
        env.version()
    );
    assert_eq!(unopened["result"]["content"][0]["text"], "{}");
    assert_eq!(stream.status(), 405);
    assert_eq!(deleted.status(), 405);
    assert_eq!(service.sessions(), 0);
}

async fn a_stateless_server_cannot_send_requests(env: ScenarioEnv) {
    let client = env
        .raw_client_with(&roots_server(), |http| http.legacy(Legacy::stateless()))
        .await;

    let answer = client.call(1, "look").await.answer().await;

    assert!(is_failure(&answer), "{answer}");
}

async fn unrelated_messages_are_sent_only_on_the_get_stream(env: ScenarioEnv) {
    let server = waiting_server();
    let client = env.raw_client(&server).await.open().await;
    let mut unrelated = client.get().await;
    let mut waiting = client.call_with_progress(1, "wait").await;
    waiting.message().await;

    server.changed().tools();
    let notification = unrelated.message().await;
    client.call(2, "release").await.answer().await;
    let rest = waiting.messages().await;
    drop(client.delete().await);

    assert_eq!(notification["method"], "notifications/tools/list_changed");
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(1)));
    let answers = unrelated.messages().await;
    assert_eq!(
        answers,
        [Value::Null; 0],
        "a response was sent on the GET stream"
    );
}

async fn a_second_get_stream_is_rejected(env: ScenarioEnv) {
    let server = waiting_server();
    let client = env.raw_client(&server).await.open().await;
    let mut first = client.get().await;

    let second = client.get().await;
    server.changed().tools();

    assert_eq!(second.status(), 409);
    assert_eq!(
        first.message().await["method"],
        "notifications/tools/list_changed"
    );
}

async fn a_broken_stream_is_resumed_after_its_last_event(env: ScenarioEnv) {
    let server = waiting_server();
    let client = env.raw_client(&server).await.open().await;
    let mut broken = client.call_with_progress(1, "wait").await;
    let (report, event_id) = broken.next().await.unwrap();

    drop(broken);
    server.changed().tools();
    client.call(2, "release").await.answer().await;
    let resumed = resume(&client, &event_id.unwrap()).await;

    assert_eq!(report["method"], "notifications/progress");
    let ids: Vec<&Value> = resumed.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [1], "expected the events of that stream only");
}

/// The messages after an event, to the end of its stream.
async fn resume(client: &RawHttpClient, after: &str) -> Vec<Value> {
    client
        .get()
        .header("last-event-id", after)
        .await
        .messages()
        .await
}

async fn missed_events_are_replayed_in_order(env: ScenarioEnv) {
    let readme = Resource::text("docs://readme", "readme", "Read me.");
    let server = Server::new("s", "1").tool(echo("echo")).resource(readme);
    let client = env.raw_client(&server).await.open().await;
    let mut stream = client.get().await;
    server.changed().tools();
    let (first, event_id) = stream.next().await.unwrap();

    drop(stream);
    server.changed().resources();
    server.changed().tools();
    // Pending notifications of a session are stored before the response to a later request is sent.
    client.call(1, "echo").await.answer().await;
    let mut rest = client
        .get()
        .header("last-event-id", &event_id.unwrap())
        .await;
    let (second, third) = (rest.message().await, rest.message().await);

    let methods = [first, second, third].map(|message| message["method"].clone());
    let tools = "notifications/tools/list_changed";
    assert_eq!(
        methods,
        [tools, "notifications/resources/list_changed", tools]
    );
}

async fn resuming_from_an_unknown_event_is_rejected(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;

    for id in ["99-0", "nonsense", "1-x"] {
        let response = client.get().header("last-event-id", id).await;

        assert_eq!(response.status(), 400, "{id}");
    }
}

async fn a_stream_starts_with_a_priming_event(env: ScenarioEnv) {
    let client = env.raw_client(&waiting_server()).await.open().await;
    let mut stream = client.call_with_progress(1, "wait").await;

    let prime = stream.event().await.unwrap();
    drop(stream);
    client.call(2, "release").await.answer().await;
    let resumed = resume(&client, prime.id.as_deref().unwrap()).await;

    assert!(prime.data.is_empty() && prime.retry.is_some(), "{prime:?}");
    assert_eq!(
        resumed.len(),
        2,
        "expected progress and response: {resumed:?}"
    );
}

async fn a_lost_connection_does_not_cancel_its_request(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let mut lost = client.call_with_progress(1, "hang").await;
    lost.message().await;

    drop(lost);

    wait_for_handlers_raw(&client, 1, 0).await;
    assert_eq!(client.cancel(1).await.status(), 202);
    wait_for_handlers_raw(&client, 1, 1).await;
}

async fn the_stream_of_a_cancelled_request_ends(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let mut hanging = client.call_with_progress(1, "hang").await;
    hanging.message().await;

    drop(client.cancel(1).await);

    let rest = hanging.messages().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(
        (&rest[0]["id"], &rest[0]["error"]["code"]),
        (&json!(1), &json!(-32800))
    );
    wait_for_handlers_raw(&client, 1, 1).await;
}

async fn without_a_stream_server_requests_fail(env: ScenarioEnv) {
    let json = |http: HttpService| http.legacy(Legacy::sessions().json_responses());
    let client = env.raw_client_with(&roots_server(), json).await;
    let client = client.open().await;

    let response = client.call(1, "look").await;

    let answer = response.json().await;
    assert!(is_failure(&answer), "{answer}");
    assert!(
        answer
            .to_string()
            .contains("cannot send a request to the client"),
        "{answer}"
    );
}

/// Whether a call failed, by a protocol error or by an error result.
fn is_failure(answer: &Value) -> bool {
    answer["error"].is_object() || answer["result"]["isError"] == true
}

async fn a_notification_gets_202_without_a_body(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;

    let notification = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let response = client.post(&notification).await;

    assert_eq!(response.status(), 202);
    assert_eq!(response.text().await, "");
}

async fn a_request_without_a_version_header_uses_the_version_of_its_session(env: ScenarioEnv) {
    let version = Tool::raw("version", any_object(), async |_, cx: Context| {
        Ok(CallToolResult::text(cx.caller().dialect.version))
    });
    let server = Server::new("s", "1").tool(version);
    let client = env.raw_client(&server).await.open().await;

    let response = client
        .call(1, "version")
        .without("mcp-protocol-version")
        .await;

    assert_eq!(response.status(), 200);
    let answer = response.answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], env.version());
}

async fn legacy_responses_have_no_modern_members(env: ScenarioEnv) {
    let client = env.raw_client(&hanging_server()).await.open().await;
    let hello = client.initialize().await.answer().await;
    let listed = client
        .request(1, "tools/list", json!({}))
        .await
        .answer()
        .await;
    let called = client.call(2, "echo").await.answer().await;

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

async fn one_service_serves_streamable_http_and_http_sse(env: ScenarioEnv) {
    let both = |http: HttpService| http.legacy(Legacy::sessions().http_sse());
    let client = env.raw_client_with(&hanging_server(), both).await;
    let newer = client.clone().open().await;
    let mut older = client.get().without("mcp-protocol-version").await;
    let endpoint = text(&older.event().await.unwrap().data);

    let hello = client.initialize().path(&endpoint).await;
    let greeted = older.message().await;
    let called = newer.call(1, "echo").await.answer().await;

    assert_eq!(hello.status(), 202);
    assert_eq!(greeted["result"]["protocolVersion"], env.version());
    assert_eq!(called["result"]["content"][0]["text"], "{}");
}

async fn the_sse_stream_names_its_endpoint_and_its_end_ends_the_session(env: ScenarioEnv) {
    let service = hanging_server()
        .http()
        .legacy(Legacy::sessions().http_sse());
    let client = env.raw_client_of(service.clone()).await;

    let mut stream = client.get().await;
    let first = stream.event().await.unwrap();
    let endpoint = text(&first.data);
    let accepted = client.initialize().path(&endpoint).await;
    let greeted = stream.message().await;
    let elsewhere = client.initialize().path(&format!("{endpoint}0")).await;

    assert_eq!(first.name.as_deref(), Some("endpoint"));
    assert_eq!(accepted.status(), 202);
    assert_eq!(greeted["result"]["protocolVersion"], env.version());
    assert_eq!(elsewhere.status(), 404);
    drop(stream);
    while service.sessions() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.call(1, "echo").path(&endpoint).await.status(), 404);
}

fn text(data: &[u8]) -> String {
    String::from_utf8(data.to_vec()).unwrap()
}
