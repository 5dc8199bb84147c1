//! Tools made of functions: parameters, results, and the errors of invalid ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a panic fails the test, and handlers own their parameters"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bowline::Limits;
use bowline::layer::Timeout;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{Completer, RequiredCapability};
use bowline::types::{ContentBlock, ImageContent, Meta, PromptReference};
use bowline::{
    Args, CallToolResult, Caller, Client, Context, Error, ErrorCode, Json, Prompt, Reply, Resource,
    ResourceTemplate, RpcError, Server, State, Structured, Tool, ToolError, wire,
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
    Client::in_process(&server).await.unwrap()
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
        Err(Error::Rpc(error)) => error.code,
        other => panic!("expected an error response, got {other:?}"),
    }
}

#[test]
fn an_invalid_scope_is_refused() {
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
async fn a_tool_definition_follows_from_the_types_of_its_function() {
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
                    "by": {"type": "integer", "description": "what to divide by"},
                },
                "required": ["a", "b"],
            },
            "outputSchema": {"type": "integer"},
        })
    );
}

#[tokio::test]
async fn null_stands_for_an_omitted_argument_unless_the_schema_was_given_by_hand() {
    let arguments = json!({"a": 1, "b": 2, "by": null});
    let schema = json!({"type": "object", "properties": {"by": {"type": "integer"}}});

    let derived = call(Tool::new("add", add), arguments.clone()).await;
    let given = call(Tool::new("add", add).input_schema(schema), arguments).await;

    assert_eq!(derived.unwrap().text(), "3");
    let given = given.unwrap();
    assert!(given.is_error());
    assert!(
        given.text().contains("/by: null is not of type"),
        "{}",
        given.text()
    );
}

#[tokio::test]
async fn every_handler_may_fail_with_any_error() -> bowline::Result<()> {
    fn missing() -> std::io::Error {
        std::io::Error::other("no disk")
    }
    let server = Server::new("failing", "1")
        .tool(Tool::new("io", async || Err::<(), _>(missing())))
        .tool(Tool::new("text", async || Err::<(), _>("plain")))
        .tool(Tool::new("rpc", async || {
            Err::<(), _>(RpcError::invalid_params("no row"))
        }))
        .resource(Resource::new("x://io", "io", async || {
            Err::<String, _>(missing())
        }))
        .prompt(Prompt::new("io", async || Err::<String, _>(missing())))
        .prompt(Prompt::new("rpc", async || {
            Err::<String, _>(RpcError::invalid_params("no row"))
        }));
    let client = Client::in_process(&server).await?;

    assert_eq!(client.call_tool("io", ()).await?.text(), "no disk");
    assert_eq!(client.call_tool("text", ()).await?.text(), "plain");
    let rpc = client.call_tool("rpc", ()).await.unwrap_err();
    assert_eq!(rpc.to_string(), "no row (-32602)");
    let resource = client.read_resource("x://io").await.unwrap_err();
    assert_eq!(resource.to_string(), "no disk (-32603)");
    let prompt = client.get_prompt("io", ()).await.unwrap_err();
    assert_eq!(prompt.to_string(), "no disk (-32603)");
    let prompt = client.get_prompt("rpc", ()).await.unwrap_err();
    assert_eq!(prompt.to_string(), "no row (-32602)");
    Ok(())
}

#[tokio::test]
async fn invalid_arguments_are_a_tool_error_that_names_their_paths() {
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
async fn unknown_arguments_are_ignored_unless_the_tool_denies_them() {
    let arguments = json!({"a": 1, "b": 2, "c": 3});
    let open = Tool::new("add", add);
    let closed = Tool::new("add", add).deny_unknown();
    let by_hand = Tool::new("add", add)
        .deny_unknown()
        .input_schema(json!({"type": "object", "properties": {"a": {}, "b": {}}}));

    for tool in [&closed, &by_hand] {
        let schema: Value = tool.definition().input_schema.decode().unwrap();
        assert_eq!(schema["additionalProperties"], json!(false));
        let reply = call(tool.clone(), arguments.clone()).await.unwrap();
        assert!(reply.is_error());
        let text = reply.text();
        assert!(
            text.starts_with("invalid arguments:\nunknown argument `c`; expected `a`, `b`"),
            "{text}"
        );
    }
    assert_eq!(call(open, arguments).await.unwrap().text(), "3");
}

#[tokio::test]
async fn a_handler_can_take_every_extractor() {
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
    let client = Client::in_process(&server).await.unwrap();
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
async fn a_server_that_lacks_a_required_state_is_refused_when_it_starts() {
    async fn greet(State(greeting): State<&'static str>) -> &'static str {
        greeting
    }
    let server = Server::new("tools", "1.0.0").tool(Tool::new("greet", greet));
    let (_near, far) = wire::memory();

    let connected = Client::in_process(&server).await.map(drop);
    let served = server.serve(far).await;

    for result in [connected, served] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }));
        assert_eq!(
            error.to_string(),
            "tool `greet` requires `State<&str>`; add it with `Server::state`"
        );
    }
}

#[tokio::test]
async fn structured_output_may_be_any_json_value() {
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
async fn output_that_may_not_be_an_object_is_wrapped_for_versions_that_require_one() {
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
        // The list for an older client must not affect the lists for others.
        let (oldest, far) = wire::memory();
        tokio::spawn(server.serve(far));
        let oldest = Client::from_wire(oldest)
            .protocol_version("2024-11-05")
            .await
            .unwrap();
        assert_eq!(oldest.list_tools().await.unwrap()[0].output_schema, None);
        let client = Client::from_wire(near)
            .protocol_version(version)
            .await
            .unwrap();
        client.list_tools().await.unwrap(); // the client validates output by the listed schema

        let reply = client.call_tool(name, ()).await.unwrap();

        assert_eq!(
            content(&reply)["structuredContent"],
            structured,
            "{version}"
        );
    }
}

#[tokio::test]
async fn content_blocks_are_returned_unchanged() {
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
async fn a_tool_error_is_a_result_and_an_rpc_error_is_a_response_error() {
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
async fn output_that_violates_its_schema_is_not_sent() {
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
async fn an_invalid_tool_is_refused_when_the_server_starts() {
    let raw =
        |schema: Value| Tool::raw("broken", schema, async |_, _| Ok(CallToolResult::text("")));
    let header =
        json!({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
    for (tool, why) in [
        (
            raw(json!({"type": "string"})),
            "the `type` of the input schema must be `object`",
        ),
        (
            raw(json!(7)),
            "the `type` of the input schema must be `object`",
        ),
        (
            raw(json!({"type": "object", "required": "a"})),
            "invalid input schema",
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
            "invalid output schema",
        ),
        (
            Tool::new("broken", async |_: Args<Vec<i64>>| ()),
            "the `type` of the input schema must be `object`",
        ),
        (
            Tool::new("broken", async |_: Args<Sum>, _: Args<Sum>| ()),
            "takes `Args` twice",
        ),
        (Tool::new("", async || ()), "the name is empty"),
    ] {
        let checked = tool.check().unwrap_err();

        let error = Client::in_process(&Server::new("tools", "1").tool(tool))
            .await
            .unwrap_err();

        let text = error.to_string();
        assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
        assert!(
            text.contains("invalid tool") && text.contains(why),
            "{text}, not {why}"
        );
        assert_eq!(checked.to_string(), text);
    }
}

#[tokio::test]
async fn a_tool_that_is_not_visible_to_a_caller_is_unknown_to_it() {
    let secret = Tool::new("secret", async || "here").visible_to(|cx| {
        let who = cx.caller().implementation.as_ref();
        who.is_some_and(|who| who.name == "friend")
    });
    let server = Server::new("tools", "1.0.0")
        .tool(secret)
        .tool(Tool::new("open", async || "all"));
    let friend = Client::in_process(&server)
        .client_info("friend", "1")
        .await
        .unwrap();
    let stranger = Client::in_process(&server)
        .client_info("stranger", "1")
        .await
        .unwrap();

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
async fn visibility_is_evaluated_only_for_the_requested_page() {
    let evaluated = Arc::new(AtomicUsize::new(0));
    let mut server = Server::new("tools", "1.0.0").page_size(2);
    for number in 0..9 {
        let evaluated = evaluated.clone();
        let tool = Tool::new(format!("t{number}"), async || "here").visible_to(move |_| {
            evaluated.fetch_add(1, Ordering::Relaxed);
            number % 3 != 0
        });
        server = server.tool(tool);
    }
    let client = Client::in_process(&server).await.unwrap();

    let first = client.list_tools().first_page().await.unwrap();
    let evaluated_for_first = evaluated.load(Ordering::Relaxed);
    let all = client.list_tools().await.unwrap();

    let names = |tools: &[bowline::types::Tool]| -> Vec<String> {
        tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!(names(&first.tools), ["t1", "t2"]);
    assert_eq!(evaluated_for_first, 5, "up to the next that is visible");
    assert_eq!(names(&all), ["t1", "t2", "t4", "t5", "t7", "t8"]);
}

#[tokio::test]
async fn a_caller_without_a_required_capability_is_refused_before_the_handler_runs() {
    let asking = async || -> String { panic!("the handler runs") };
    let tool = Tool::new("asking", asking).requires_capability(RequiredCapability::Elicitation);

    let reply = call(tool, json!({})).await;

    assert_eq!(code(reply), ErrorCode::MISSING_CLIENT_CAPABILITY);
}

/// The state of `wait`, a synchronous handler that reports its start and waits to be released.
struct WaitState {
    started: SyncSender<Context>,
    released: std::sync::Mutex<Receiver<()>>,
}

fn wait_state() -> (Arc<WaitState>, Receiver<Context>, SyncSender<()>) {
    let (started, has_started) = sync_channel(8);
    let (release, released) = sync_channel(8);
    let wait_state = WaitState {
        started,
        released: released.into(),
    };
    (Arc::new(wait_state), has_started, release)
}

fn wait(State(wait_state): State<Arc<WaitState>>, cx: Context) -> bool {
    // A test may have dropped the receiver.
    let _ = wait_state.started.send(cx.clone());
    wait_state.released.lock().unwrap().recv().unwrap();
    cx.is_cancelled()
}

#[tokio::test]
async fn a_synchronous_handler_does_not_block_other_calls() {
    let (wait_state, _, release) = wait_state();
    let server = Server::new("tools", "1.0.0")
        .state(wait_state)
        .tool(Tool::blocking("wait", wait))
        .tool(Tool::new("release", move || {
            let sent = release.send(());
            async move { sent.is_ok() }
        }));
    let client = Client::in_process(&server).await.unwrap();

    let (waited, released) = tokio::join!(
        client.call_tool("wait", ()),
        client.call_tool("release", ())
    );

    assert_eq!(
        (waited.unwrap().text(), released.unwrap().text()),
        ("false".into(), "true".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_handler_of_a_cancelled_call_is_signalled_and_counts_until_it_ends() {
    let (wait_state, started, release) = wait_state();
    let tool = Tool::blocking("wait", wait).max_concurrency(1);
    let server = Server::new("tools", "1.0.0").state(wait_state).tool(tool);
    let client = Client::in_process(&server).await.unwrap();

    let waiting = tokio::spawn(client.call_tool("wait", ()).into_future());
    let cx = tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();
    waiting.abort();
    cx.cancelled().await;
    let while_it_runs_on = client
        .call_tool("wait", ())
        .idle_timeout(Duration::from_secs(5))
        .await;
    release.send(()).unwrap();
    release.send(()).unwrap();
    let after_it_ended = loop {
        // The handler ends on another thread, which nothing awaits.
        match client.call_tool("wait", ()).await {
            Ok(reply) => break reply,
            Err(error) => assert!(error.to_string().contains("overloaded"), "{error}"),
        }
    };

    assert_eq!(code(while_it_runs_on), ErrorCode::INTERNAL_ERROR);
    assert_eq!(after_it_ended.text(), "false");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_synchronous_handlers_of_a_server_share_one_limit() {
    let (wait_state, started, release) = wait_state();
    let server = Server::new("tools", "1.0.0")
        .state(wait_state)
        .limits(Limits {
            blocking: 1,
            ..Limits::default()
        })
        .tool(Tool::blocking("wait", wait))
        .tool(Tool::blocking("other", || "done").layer(Timeout::new(Duration::MAX)))
        .tool(Tool::new("add", add));
    let client = Client::in_process(&server).await.unwrap();
    let waiting = tokio::spawn(client.call_tool("wait", ()).into_future());
    tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();

    let refused = client.call_tool("other", ()).await;
    let asynchronous = client.call_tool("add", json!({"a": 1, "b": 2})).await;
    release.send(()).unwrap();
    waiting.await.unwrap().unwrap();
    let after = loop {
        // The permit is returned on another thread, which nothing awaits.
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
    let client = Client::in_process(&server).await.unwrap();

    let panicked = client.call_tool("panics", ()).await;
    let next = client.call_tool("add", json!({"a": 1, "b": 2})).await;

    assert_eq!(code(panicked), ErrorCode::INTERNAL_ERROR);
    assert_eq!(next.unwrap().text(), "3");
}

#[tokio::test]
async fn the_question_mark_makes_a_tool_error_of_every_error_in_the_closures_of_raw_handlers() {
    fn no_such_file() -> std::io::Result<String> {
        std::fs::read_to_string("/no/such/file")
    }

    let any = json!({"type": "object"});
    let client = Client::in_process(
        &Server::new("failing", "1.0.0")
            .tool(Tool::raw("io", any.clone(), async |_, _| {
                Ok(CallToolResult::text(no_such_file()?))
            }))
            .tool(Tool::raw("rpc", any.clone(), async |_, _| {
                Err(RpcError::invalid_params("not today"))?
            }))
            .tool(Tool::raw("text", any, async |_, _| Err("as a text".into())))
            .prompt(Prompt::raw("io", async |_, _| Ok(no_such_file()?)).optional("name", ""))
            .prompt(Prompt::raw("rpc", async |_, _| {
                Err::<&str, _>(RpcError::invalid_params("not today").into())
            }))
            .resource(Resource::raw("a://io", "io", async |_, _| {
                Ok(no_such_file()?)
            }))
            .resource_template(ResourceTemplate::raw(
                "b://{name}",
                "boxed",
                async |_, _| {
                    let failed: Result<&str, Box<dyn std::error::Error + Send + Sync>> =
                        Err("boxed".into());
                    Ok(failed?)
                },
            ))
            .completer(Completer::for_prompt("io", "name", async |_, _| {
                Ok(vec![no_such_file()?])
            })),
    )
    .await
    .unwrap();

    let failed = client.call_tool("io", ()).await.unwrap();
    assert!(failed.is_error() && failed.text().starts_with("No such file"));
    assert_eq!(
        client.call_tool("text", ()).await.unwrap().text(),
        "as a text"
    );
    let reference = PromptReference::new("io");
    for (failed, code) in [
        (client.call_tool("rpc", ()).await.err(), -32602),
        (client.get_prompt("rpc", ()).await.err(), -32602),
        (client.get_prompt("io", ()).await.err(), -32603),
        (client.read_resource("a://io").await.err(), -32603),
        (client.read_resource("b://x").await.err(), -32603),
        (client.complete(reference, "name", "").await.err(), -32603),
    ] {
        assert!(
            matches!(&failed, Some(Error::Rpc(error)) if error.code.0 == code),
            "{failed:?}"
        );
    }
}
