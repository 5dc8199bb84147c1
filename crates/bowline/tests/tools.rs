//! Tools made of functions: what they take, what they give, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "what fails here fails a test, and handlers own their parameters"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bowline::Limits;
use bowline::layer::Trace;
use bowline::schemars::{self, JsonSchema};
use bowline::server::Askable;
use bowline::types::{ContentBlock, ImageContent, Meta};
use bowline::{
    Args, CallToolResult, Caller, Client, Context, Error, ErrorCode, Json, Reply, RpcError, Server,
    State, Structured, Tool, ToolError, wire,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Sum {
    /// the first
    a: i64,
    /// the second
    b: i64,
    /// what to divide by
    by: Option<i64>,
}

async fn add(Args(sum): Args<Sum>) -> i64 {
    (sum.a + sum.b) / sum.by.unwrap_or(1)
}

async fn client_of(tool: Tool) -> Client {
    let server = Server::new("tools", "1.0.0").tool(tool);
    Client::to(&server).await.unwrap()
}

async fn call(tool: Tool, arguments: Value) -> Result<Reply, Error> {
    let name = tool.name().to_owned();
    client_of(tool).await.call_tool(name, arguments).await
}

fn content(reply: &Reply) -> Value {
    serde_json::to_value(reply.tool_result().unwrap()).unwrap()
}

fn code(reply: Result<Reply, Error>) -> ErrorCode {
    match reply {
        Err(Error::Peer(error)) => error.code,
        other => panic!("the peer did not say no, but {other:?}"),
    }
}

#[test]
fn a_scope_that_would_not_fit_a_challenge_is_refused() {
    for scope in ["", "two words", "quo\"te", "back\\slash", "schön"] {
        let tool = Tool::new("add", add).scopes([scope]);

        assert!(tool.check().is_err(), "{scope:?}");
    }
    assert!(Tool::new("add", add).scopes(["files:read"]).check().is_ok());
}

#[tokio::test]
async fn a_function_is_called_with_its_decoded_arguments() {
    let reply = call(Tool::new("add", add), json!({"a": 1, "b": 2}))
        .await
        .unwrap();

    assert_eq!(reply.text(), "3");
    assert_eq!(content(&reply)["structuredContent"], json!(3));
}

#[tokio::test]
async fn its_types_describe_it() {
    let client = client_of(Tool::new("add", add).description("Adds.").read_only(true)).await;

    let tool = client.list_tools().await.unwrap().remove(0);

    assert_eq!(
        serde_json::to_value(tool).unwrap(),
        json!({
            "name": "add",
            "description": "Adds.",
            "annotations": {"readOnlyHint": true},
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "the first"},
                    "b": {"type": "integer", "description": "the second"},
                    "by": {"type": ["integer", "null"], "description": "what to divide by"},
                },
                "required": ["a", "b"],
            },
            "outputSchema": {"type": "integer"},
        })
    );
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_to_the_model_by_their_path() {
    let reply = call(Tool::new("add", add), json!({"a": "one"}))
        .await
        .unwrap();

    assert!(reply.is_error());
    let text = reply.text();
    assert!(
        text.contains("/a: \"one\" is not of type \"integer\""),
        "{text}"
    );
    assert!(text.contains("\"b\" is a required property"), "{text}");
}

#[tokio::test]
async fn a_handler_may_take_everything_that_is_known_of_a_request() {
    async fn all(
        State(greeting): State<&'static str>,
        Args(sum): Args<Sum>,
        caller: Arc<Caller>,
        cx: Context,
        meta: Meta,
        raw: Json,
    ) -> String {
        let version = caller.dialect.version;
        let note: Option<String> = meta.get("note").and_then(|note| note.decode().ok());
        format!(
            "{greeting} {} {version} {} {note:?} {raw}",
            sum.a,
            cx.request_id()
        )
    }
    let server = Server::new("tools", "1.0.0")
        .state("hello")
        .tool(Tool::new("all", all));
    let client = Client::to(&server).await.unwrap();
    let mut meta = Meta::default();
    meta.insert("note", Json::from(json!("hi")));

    let reply = client
        .call_tool("all", json!({"a": 1, "b": 2}))
        .id("seven")
        .meta(meta)
        .await
        .unwrap();

    assert_eq!(
        reply.text(),
        r#"hello 1 2026-07-28 "seven" Some("hi") {"a":1,"b":2}"#
    );
}

#[tokio::test]
async fn a_server_without_the_state_of_its_handlers_is_refused_before_it_serves() {
    async fn greet(State(greeting): State<&'static str>) -> &'static str {
        greeting
    }
    let server = Server::new("tools", "1.0.0").tool(Tool::new("greet", greet));
    let (_near, far) = wire::memory();

    let connected = Client::to(&server).await.map(drop);
    let served = server.serve(far).await;

    for result in [connected, served] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }));
        assert_eq!(
            error.to_string(),
            "the tool `greet` needs `State<&str>`, which `Server::state` was not given"
        );
    }
}

#[tokio::test]
async fn output_may_have_any_form() {
    #[derive(Serialize, JsonSchema)]
    struct Place {
        name: String,
    }

    let list = call(
        Tool::new("list", async || Structured(vec![1, 2])),
        json!({}),
    )
    .await
    .unwrap();
    let place = async || {
        Structured(Place {
            name: "here".into(),
        })
    };
    let object = call(Tool::new("object", place), json!({})).await.unwrap();

    assert_eq!(content(&list)["structuredContent"], json!([1, 2]));
    assert_eq!(list.structured::<Vec<i64>>().unwrap(), [1, 2]);
    assert_eq!(
        content(&object)["structuredContent"],
        json!({"name": "here"})
    );
    assert_eq!(object.text(), r#"{"name":"here"}"#);
}

#[tokio::test]
async fn output_that_may_be_no_object_is_wrapped_for_clients_that_expect_one() {
    #[derive(Serialize, JsonSchema)]
    struct Place {
        name: String,
    }
    let maybe = |name: Option<&'static str>| {
        let place = move || {
            let name = name.map(str::to_owned);
            async { Structured(name.map(|name| Place { name })) }
        };
        Tool::new("maybe", place)
    };
    let free = || Tool::new("free", async || json!([1]));
    for (tool, version, structured) in [
        (maybe(Some("here")), "2026-07-28", json!({"name": "here"})),
        (
            maybe(Some("here")),
            "2025-11-25",
            json!({"result": {"name": "here"}}),
        ),
        (maybe(None), "2026-07-28", json!(null)),
        (maybe(None), "2025-06-18", json!({"result": null})),
        (free(), "2026-07-28", json!([1])),
        (free(), "2025-11-25", json!({"result": [1]})),
    ] {
        let name = tool.name().to_owned();
        let (near, far) = wire::memory();
        let server = Server::new("s", "1").tool(tool);
        tokio::spawn(server.clone().serve(far));
        // An older client that lists first has no part in what others see.
        let (oldest, far) = wire::memory();
        tokio::spawn(server.serve(far));
        let oldest = Client::over(oldest).speaking("2024-11-05").await.unwrap();
        assert_eq!(oldest.list_tools().await.unwrap()[0].output_schema, None);
        let client = Client::over(near).speaking(version).await.unwrap();
        client.list_tools().await.unwrap(); // so that the client checks it

        let reply = client.call_tool(name, ()).await.unwrap();

        assert_eq!(
            content(&reply)["structuredContent"],
            structured,
            "{version}"
        );
    }
}

#[tokio::test]
async fn blocks_of_content_are_returned_as_they_are() {
    let blocks = async || {
        vec![
            ContentBlock::text("look"),
            ImageContent::new("AA==", "image/png").into(),
        ]
    };

    let reply = call(Tool::new("blocks", blocks), json!({})).await.unwrap();

    assert_eq!(
        content(&reply)["content"],
        json!([
            {"type": "text", "text": "look"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ])
    );
}

#[tokio::test]
async fn the_model_is_told_of_a_tool_error_and_not_of_an_rpc_error() {
    let failing = async || -> Result<i64, ToolError> { Ok("x".parse::<i64>()?) };
    let refusing = async || -> Result<i64, RpcError> { Err(RpcError::new(ErrorCode(7), "no")) };

    let failed = call(Tool::new("failing", failing), json!({}))
        .await
        .unwrap();
    let refused = call(Tool::new("refusing", refusing), json!({})).await;

    assert!(failed.is_error());
    assert_eq!(failed.text(), "invalid digit found in string");
    assert_eq!(code(refused), ErrorCode(7));
}

#[tokio::test]
async fn output_that_does_not_fit_its_schema_is_not_sent() {
    let promised = json!({"type": "object", "required": ["total"]});
    for (broken, structured) in [
        (true, Some(json!({"sum": 1}))),
        (true, None),
        (false, Some(json!({"total": 1}))),
    ] {
        let tool = Tool::raw("sum", json!({"type": "object"}), move |_, _| {
            let mut result = CallToolResult::text("1");
            result.structured_content = structured.clone().map(Json::from);
            async { Ok(result) }
        })
        .output_schema(promised.clone());

        let reply = call(tool, json!({})).await;

        if broken {
            assert_eq!(code(reply), ErrorCode::INTERNAL_ERROR);
        } else {
            assert!(reply.is_ok());
        }
    }
}

#[tokio::test]
async fn a_tool_that_cannot_be_offered_is_refused_when_the_server_is_put_to_use() {
    let raw =
        |schema: Value| Tool::raw("broken", schema, async |_, _| Ok(CallToolResult::text("")));
    let header =
        json!({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
    for (tool, why) in [
        (
            raw(json!({"type": "string"})),
            "its `type` must be `object`",
        ),
        (raw(json!(7)), "its `type` must be `object`"),
        (
            raw(json!({"type": "object", "required": "a"})),
            "its input schema is not valid",
        ),
        (
            raw(json!({"type": "object", "$ref": "https://example.com/a.json"})),
            "https://example.com/a.json",
        ),
        (
            raw(json!({"type": "object", "$ref": "#/$defs/nowhere"})),
            "nowhere",
        ),
        (raw(header), "x-mcp-header of property `a`"),
        (
            raw(json!({"type": "object"})).output_schema(json!({"type": 1})),
            "its output schema",
        ),
        (
            Tool::new("broken", async |_: Args<Vec<i64>>| ()),
            "its input schema is not that of an object",
        ),
        (
            Tool::new("broken", async |_: Args<Sum>, _: Args<Sum>| ()),
            "takes `Args` twice",
        ),
        (Tool::new("", async || ()), "it has no name"),
    ] {
        let checked = tool.check().unwrap_err();

        let error = Client::to(&Server::new("tools", "1").tool(tool))
            .await
            .unwrap_err();

        let text = error.to_string();
        assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
        assert!(
            text.contains("cannot be offered") && text.contains(why),
            "{text}, not {why}"
        );
        assert_eq!(checked.to_string(), text);
    }
}

#[tokio::test]
async fn a_tool_that_a_caller_may_not_see_does_not_exist_for_it() {
    let secret = Tool::new("secret", async || "here").visible_to(|cx| {
        let who = cx.caller().implementation.as_ref();
        who.is_some_and(|who| who.name == "friend")
    });
    let server = Server::new("tools", "1.0.0")
        .tool(secret)
        .tool(Tool::new("open", async || "all"));
    let friend = Client::to(&server).named("friend", "1").await.unwrap();
    let stranger = Client::to(&server).named("stranger", "1").await.unwrap();

    let known = friend.call_tool("secret", ()).await.unwrap();
    let unknown = stranger.call_tool("secret", ()).await;
    let absent = stranger.call_tool("absent", ()).await;

    assert_eq!(known.text(), "here");
    assert_eq!(
        unknown.unwrap_err().to_string().replace("secret", "absent"),
        absent.unwrap_err().to_string()
    );
    assert_eq!(friend.list_tools().await.unwrap().len(), 2);
    assert_eq!(stranger.list_tools().await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_a_list_that_depends_on_its_reader_only_the_page_is_made_that_is_asked_for() {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut server = Server::new("tools", "1.0.0").page_size(2);
    for number in 0..9 {
        let asked = asked.clone();
        let tool = Tool::new(format!("t{number}"), async || "here").visible_to(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            number % 3 != 0
        });
        server = server.tool(tool);
    }
    let client = Client::to(&server).await.unwrap();

    let first = client.list_tools().first_page().await.unwrap();
    let asked_for_first = asked.load(Ordering::Relaxed);
    let all = client.list_tools().await.unwrap();

    let names = |tools: &[bowline::types::Tool]| -> Vec<String> {
        tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!(names(&first.tools), ["t1", "t2"]);
    assert_eq!(asked_for_first, 5, "up to the next that is visible");
    assert_eq!(names(&all), ["t1", "t2", "t4", "t5", "t7", "t8"]);
}

#[tokio::test]
async fn a_caller_who_cannot_be_asked_is_refused_before_the_handler_runs() {
    let asking = async || -> String { panic!("the handler runs") };
    let tool = Tool::new("asking", asking).asks(Askable::Elicitation);

    let reply = call(tool, json!({})).await;

    assert_eq!(code(reply), ErrorCode::MISSING_CLIENT_CAPABILITY);
}

/// A synchronous handler that says when it starts and ends when it is told to.
struct Stuck {
    started: SyncSender<Context>,
    go_on: std::sync::Mutex<Receiver<()>>,
}

fn stuck() -> (Arc<Stuck>, Receiver<Context>, SyncSender<()>) {
    let (started, has_started) = sync_channel(8);
    let (go, go_on) = sync_channel(8);
    let stuck = Stuck {
        started,
        go_on: go_on.into(),
    };
    (Arc::new(stuck), has_started, go)
}

fn wait(State(stuck): State<Arc<Stuck>>, cx: Context) -> bool {
    // Not every test wants to know.
    let _ = stuck.started.send(cx.clone());
    stuck.go_on.lock().unwrap().recv().unwrap();
    cx.is_cancelled()
}

#[tokio::test]
async fn a_synchronous_handler_holds_up_nobody() {
    let (stuck, _, go) = stuck();
    let server = Server::new("tools", "1.0.0")
        .state(stuck)
        .tool(Tool::blocking("wait", wait))
        .tool(Tool::new("go", move || {
            let sent = go.send(());
            async move { sent.is_ok() }
        }));
    let client = Client::to(&server).await.unwrap();

    let (waited, went) = tokio::join!(client.call_tool("wait", ()), client.call_tool("go", ()));

    assert_eq!(
        (waited.unwrap().text(), went.unwrap().text()),
        ("false".into(), "true".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_handler_whose_caller_gave_up_is_told_runs_on_and_counts_until_it_ends() {
    let (stuck, started, go) = stuck();
    let tool = Tool::blocking("wait", wait).at_once(1);
    let server = Server::new("tools", "1.0.0").state(stuck).tool(tool);
    let client = Client::to(&server).await.unwrap();

    let waiting = tokio::spawn(client.call_tool("wait", ()).into_future());
    let cx = tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();
    waiting.abort();
    cx.cancelled().await;
    let while_it_runs_on = client
        .call_tool("wait", ())
        .timeout(Duration::from_secs(5))
        .await;
    go.send(()).unwrap();
    go.send(()).unwrap();
    let after_it_ended = loop {
        // It ends on a thread that tells nobody.
        match client.call_tool("wait", ()).await {
            Ok(reply) => break reply,
            Err(error) => assert!(error.to_string().contains("overloaded"), "{error}"),
        }
    };

    assert_eq!(code(while_it_runs_on), ErrorCode::INTERNAL_ERROR);
    assert_eq!(after_it_ended.text(), "false");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_synchronous_handlers_of_a_server_share_their_places() {
    let (stuck, started, go) = stuck();
    let server = Server::new("tools", "1.0.0")
        .state(stuck)
        .limits(Limits {
            blocking: 1,
            ..Limits::default()
        })
        .tool(Tool::blocking("wait", wait))
        .tool(Tool::blocking("other", || "done").layer(Trace::new()))
        .tool(Tool::new("add", add));
    let client = Client::to(&server).await.unwrap();
    let waiting = tokio::spawn(client.call_tool("wait", ()).into_future());
    tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();

    let refused = client.call_tool("other", ()).await;
    let asynchronous = client.call_tool("add", json!({"a": 1, "b": 2})).await;
    go.send(()).unwrap();
    waiting.await.unwrap().unwrap();
    let after = loop {
        // The place is given back on a thread that tells nobody.
        match client.call_tool("other", ()).await {
            Ok(reply) => break reply,
            Err(error) => assert!(error.to_string().contains("overloaded"), "{error}"),
        }
    };

    assert_eq!(code(refused), ErrorCode::INTERNAL_ERROR);
    assert_eq!(asynchronous.unwrap().text(), "3");
    assert_eq!(after.text(), "done");
}

#[tokio::test]
async fn a_synchronous_handler_that_panics_fails_its_own_call_only() {
    let server = Server::new("tools", "1.0.0")
        .tool(Tool::blocking("panics", || -> i64 { panic!("on purpose") }))
        .tool(Tool::new("add", add));
    let client = Client::to(&server).await.unwrap();

    let panicked = client.call_tool("panics", ()).await;
    let next = client.call_tool("add", json!({"a": 1, "b": 2})).await;

    assert_eq!(code(panicked), ErrorCode::INTERNAL_ERROR);
    assert_eq!(next.unwrap().text(), "3");
}
