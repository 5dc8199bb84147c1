//! Asking the client's model, and which folders it works in.

use std::sync::{Arc, Mutex};

use bowline::client::{Connect, Host};
use bowline::exchange::{BoxFuture, Responder};
use bowline::types::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ErrorCode, Root,
    RootsCapability,
};
use bowline::{CallToolResult, Context, RpcError, Server, Tool};
use bowline_core::Outcome;
use bowline_core::era::Request;
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{anything, refusal};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = sampling();
    all.extend(roots());
    all
}

fn sampling() -> Vec<Scenario> {
    vec![
        scenario!(
            a_model_is_asked_with_everything_that_was_said,
            "sampling:create:basic",
            "sampling:create:system-prompt",
            "sampling:create:model-preferences",
            "tools:call:sampling-roundtrip",
        ),
        scenario!(
            a_host_declares_what_it_answers,
            "sampling:capability:declare",
            "lifecycle:initialize:client-capabilities",
        ),
        scenario!(
            pictures_go_to_the_model,
            "sampling:create-message:image-content"
        ),
        scenario!(
            sound_goes_to_the_model,
            "sampling:create-message:audio-content"
        )
        .since("2025-03-26"),
        scenario!(
            context_is_asked_only_of_a_client_that_has_it,
            "sampling:create:include-context",
            "sampling:context:server-gated-by-capability",
        ),
        scenario!(
            tools_go_to_the_model_and_their_use_comes_back,
            "sampling:create:tools",
            "sampling:result:with-tools-array-content",
            "sampling:message:content-cardinality",
        )
        .since("2025-11-25"),
        scenario!(
            tools_are_sent_only_to_a_client_that_can_use_them,
            "sampling:tools:server-gated-by-capability",
        )
        .since("2025-11-25"),
        scenario!(
            a_client_that_cannot_sample_is_not_asked,
            "sampling:create-message:not-supported",
        ),
        scenario!(
            a_server_does_not_send_a_use_of_a_tool_without_its_result,
            "sampling:tool-use:server-preflight",
            "sampling:tool-result:no-mixed-content",
        )
        .since("2025-11-25"),
        scenario!(
            a_client_refuses_a_use_of_a_tool_without_its_result,
            "sampling:tool-use:result-balance",
            "sampling:tool-result:no-mixed-content",
        )
        .since("2025-11-25")
        .legacy()
        .in_memory(),
        scenario!(
            without_tools_a_model_answers_with_one_block,
            "sampling:result:no-tools-single-content",
        ),
        scenario!(a_no_of_the_user_is_an_error, "sampling:error:user-rejected"),
    ]
}

fn roots() -> Vec<Scenario> {
    vec![
        scenario!(the_roots_are_asked_for, "roots:list:basic"),
        scenario!(
            roots_that_are_no_files_are_not_sent,
            "roots:uri:file-scheme"
        ),
        scenario!(roots_that_are_no_files_are_refused, "roots:uri:file-scheme")
            .legacy()
            .in_memory(),
        scenario!(
            a_server_that_hears_of_new_roots_asks_for_them_anew,
            "roots:list-changed",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_client_whose_roots_change_says_so,
            "roots:list-changed:client-emits",
        )
        .legacy()
        .in_one_process(),
        scenario!(there_may_be_no_roots, "roots:list:empty"),
        scenario!(a_host_that_fails_is_an_error, "roots:list:client-error").in_one_process(),
        scenario!(
            a_client_without_roots_is_not_asked,
            "roots:list:not-supported"
        ),
        scenario!(
            a_client_without_roots_that_is_asked_refuses,
            "roots:list:not-supported",
        )
        .legacy()
        .in_memory(),
    ]
}

/// A server whose tool `write` has the model write something.
fn writing(params: Value) -> Server {
    let params: CreateMessageRequestParams = serde_json::from_value(params).unwrap();
    let write = Tool::raw("write", anything(), move |_, cx: Context| {
        let params = params.clone();
        async move {
            let written = cx.sample("write", &params).await?;
            let written = serde_json::to_value(written).unwrap();
            Ok(CallToolResult::text(written.to_string()))
        }
    });
    Server::new("writing", "1").tool(write)
}

fn asking(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

type Asked = Arc<Mutex<Vec<Value>>>;

/// A host whose model answers with this, and what it was asked.
fn model(answer: Value) -> (Host, Asked) {
    let asked = Asked::default();
    let seen = asked.clone();
    let answer: CreateMessageResult = serde_json::from_value(answer).unwrap();
    let host = Host::new().sampling(move |params| {
        seen.lock()
            .unwrap()
            .push(serde_json::to_value(params).unwrap());
        let answer = answer.clone();
        async move { Ok(answer) }
    });
    (host, asked)
}

fn answer(content: Value) -> Value {
    json!({"role": "assistant", "model": "m-1", "content": content, "stopReason": "endTurn"})
}

/// Has the tool `write` called, and returns what the model was asked and what it wrote.
async fn written(
    world: &World,
    params: Value,
    answer: Value,
    choose: impl FnOnce(Connect, Host) -> Connect,
) -> (Value, Value) {
    let (host, asked) = model(answer);
    let client = world
        .connect_with(&writing(params), |connect| choose(connect, host))
        .await;

    let reply = client.call_tool("write", ()).await.unwrap();

    let asked = asked.lock().unwrap().remove(0);
    (asked, serde_json::from_str(&reply.text()).unwrap())
}

async fn a_model_is_asked_with_everything_that_was_said(world: World) {
    let params = json!({
        "messages": [
            {"role": "user", "content": text("Hello?")},
            {"role": "assistant", "content": text("Hello!")},
            {"role": "user", "content": text("A haiku.")},
        ],
        "systemPrompt": "You are a poet.",
        "modelPreferences": {
            "hints": [{"name": "small"}, {"name": "smaller"}],
            "costPriority": 0.25, "speedPriority": 0.5, "intelligencePriority": 1.0,
        },
        "temperature": 0.5,
        "maxTokens": 100,
        "stopSequences": ["END"],
        "metadata": {"kind": "poem"},
    });

    let (asked, written) = written(
        &world,
        params.clone(),
        answer(text("An old silent pond")),
        Connect::host,
    )
    .await;

    for (name, sent) in params.as_object().unwrap() {
        assert_eq!(json_number(&asked[name]), json_number(sent), "{name}");
    }
    assert_eq!(written, answer(text("An old silent pond")));
}

/// Numbers without regard to how they are written.
fn json_number(value: &Value) -> String {
    value.to_string().replace(".0", "")
}

async fn a_host_declares_what_it_answers(world: World) {
    let tell = Tool::raw("tell", anything(), async |_, cx: Context| {
        let declared = serde_json::to_value(&cx.caller().capabilities).unwrap();
        Ok(CallToolResult::text(declared.to_string()))
    });
    let server = Server::new("s", "1").tool(tell);
    let (host, _) = model(answer(text("x")));
    let host = host.roots(async || vec![]);
    let able = world
        .connect_with(&server, |connect| connect.host(host))
        .await;
    let unable = world.connect(&server).await;

    let of_able = able.call_tool("tell", ()).await.unwrap().text();
    let of_unable = unable.call_tool("tell", ()).await.unwrap().text();

    let of_able: Value = serde_json::from_str(&of_able).unwrap();
    assert_eq!(of_able, json!({"sampling": {}, "roots": {}}));
    assert_eq!(of_unable, "{}");
}

async fn pictures_go_to_the_model(world: World) {
    let picture = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});

    let (asked, written) = written(
        &world,
        asking(picture.clone()),
        answer(picture.clone()),
        Connect::host,
    )
    .await;

    assert_eq!(asked["messages"][0]["content"], picture);
    assert_eq!(written["content"], picture);
}

async fn sound_goes_to_the_model(world: World) {
    let sound = json!({"type": "audio", "data": "AAEC", "mimeType": "audio/wav"});

    let (asked, written) = written(
        &world,
        asking(sound.clone()),
        answer(sound.clone()),
        Connect::host,
    )
    .await;

    assert_eq!(asked["messages"][0]["content"], sound);
    assert_eq!(written["content"], sound);
}

async fn context_is_asked_only_of_a_client_that_has_it(world: World) {
    let mut params = asking(text("Hello?"));
    params["includeContext"] = json!("thisServer");
    let (host, unasked) = model(answer(text("x")));
    let without = world
        .connect_with(&writing(params.clone()), |connect| connect.host(host))
        .await;

    let choose = |connect: Connect, host: Host| connect.host(host.sampling_context());
    let (asked, _) = written(&world, params, answer(text("x")), choose).await;
    let refused = refusal(without.call_tool("write", ()).await);

    assert_eq!(asked["includeContext"], "thisServer");
    assert!(refused.message.contains("context"), "{refused:?}");
    assert!(unasked.lock().unwrap().is_empty());
}

fn with_tools() -> Value {
    let mut params = asking(text("What is the weather?"));
    params["tools"] = json!([{"name": "weather", "inputSchema": {"type": "object"}}]);
    params["toolChoice"] = json!({"mode": "auto"});
    params
}

async fn tools_go_to_the_model_and_their_use_comes_back(world: World) {
    let uses = json!([
        text("Let me see."),
        {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}},
    ]);
    let mut params = with_tools();
    params["messages"] = json!([
        {"role": "user", "content": [text("Hello."), text("What is the weather?")]},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [text("rain")]}]},
    ]);
    let mut wants = answer(uses.clone());
    wants["stopReason"] = json!("toolUse");

    let choose = |connect: Connect, host: Host| connect.host(host.sampling_tools());
    let (asked, written) = written(&world, params.clone(), wants.clone(), choose).await;

    for name in ["messages", "tools", "toolChoice"] {
        assert_eq!(asked[name], params[name], "{name}");
    }
    assert_eq!(written, wants);
}

async fn tools_are_sent_only_to_a_client_that_can_use_them(world: World) {
    let (host, asked) = model(answer(text("x")));
    let client = world
        .connect_with(&writing(with_tools()), |connect| connect.host(host))
        .await;

    let refused = refusal(client.call_tool("write", ()).await);

    assert!(refused.message.contains("tools"), "{refused:?}");
    assert!(asked.lock().unwrap().is_empty());
}

/// Conversations in which a use of a tool has no result, or has it beside something else.
fn unbalanced() -> [Value; 2] {
    let uses = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "weather", "input": {}},
    ]});
    let result = json!({"type": "tool_result", "toolUseId": "1", "content": [text("rain")]});
    let (mut without, mut mixed) = (with_tools(), with_tools());
    without["messages"] = json!([uses, {"role": "user", "content": text("Well?")}]);
    mixed["messages"] = json!([uses, {"role": "user", "content": [result, text("Well?")]}]);
    [without, mixed]
}

async fn a_server_does_not_send_a_use_of_a_tool_without_its_result(world: World) {
    for params in unbalanced() {
        let (host, asked) = model(answer(text("x")));
        let host = host.sampling_tools();
        let client = world
            .connect_with(&writing(params), |connect| connect.host(host))
            .await;

        let refused = client.call_tool("write", ()).await;

        assert!(refused.is_err(), "{refused:?}");
        assert!(asked.lock().unwrap().is_empty());
    }
}

async fn a_client_refuses_a_use_of_a_tool_without_its_result(world: World) {
    for params in unbalanced() {
        let (host, asked) = model(answer(text("x")));
        let host = host.sampling_tools();
        let (client, mut server) = world
            .scripted_server(json!({}), |connect| connect.host(host))
            .await;

        let refused = server.ask("s", "sampling/createMessage", params).await;

        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(asked.lock().unwrap().is_empty());
        drop(client);
    }
}

async fn without_tools_a_model_answers_with_one_block(world: World) {
    let params = asking(text("Hello?"));
    let (host, _) = model(answer(json!([text("one"), text("two")])));
    let client = world
        .connect_with(&writing(params.clone()), |connect| connect.host(host))
        .await;

    let several = client.call_tool("write", ()).await;
    let (_, one) = written(&world, params, answer(json!([text("one")])), Connect::host).await;

    assert!(several.is_err(), "{several:?}");
    assert_eq!(one["content"], text("one"));
}

async fn a_client_that_cannot_sample_is_not_asked(world: World) {
    let client = world.connect(&writing(asking(text("Hello?")))).await;

    let refused = refusal(client.call_tool("write", ()).await);

    assert!(refused.message.contains("sampling"), "{refused:?}");
}

async fn a_no_of_the_user_is_an_error(world: World) {
    let host =
        Host::new().sampling(async |_| Err(RpcError::new(ErrorCode::USER_REJECTED, "not that")));
    let client = world
        .connect_with(&writing(asking(text("Hello?"))), |connect| {
            connect.host(host)
        })
        .await;

    let refused = client.call_tool("write", ()).await.unwrap_err();

    assert!(refused.to_string().contains("not that"), "{refused:?}");
    if !world.is_modern() {
        assert_eq!(refusal::<()>(Err(refused)).code, ErrorCode::USER_REJECTED);
    }
}

/// A server whose tool `look` tells the roots.
fn looking() -> Server {
    let look = Tool::raw("look", anything(), async |_, cx: Context| {
        let roots = cx.roots().await?.roots;
        Ok(CallToolResult::text(
            serde_json::to_value(roots).unwrap().to_string(),
        ))
    });
    Server::new("looking", "1").tool(look)
}

async fn the_roots_are_asked_for(world: World) {
    let host = Host::new().roots(async || {
        let mut ours = Root::new("file:///project");
        ours.name = Some("ours".into());
        vec![ours, Root::new("file:///elsewhere")]
    });
    let client = world
        .connect_with(&looking(), |connect| connect.host(host))
        .await;

    let reply = client.call_tool("look", ()).await.unwrap();

    let roots: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(
        roots,
        json!([{"uri": "file:///project", "name": "ours"}, {"uri": "file:///elsewhere"}])
    );
}

async fn roots_that_are_no_files_are_not_sent(world: World) {
    let host = Host::new().roots(async || vec![Root::new("https://example.com/project")]);
    let client = world
        .connect_with(&looking(), |connect| connect.host(host))
        .await;

    let error = client.call_tool("look", ()).await.unwrap_err();

    assert!(
        error.to_string().contains("is not a `file://` URI"),
        "{error}"
    );
}

async fn roots_that_are_no_files_are_refused(world: World) {
    let mut client = world
        .scripted_client(&looking(), json!({"roots": {}}))
        .await;

    client.request(world.dialect(), "1", "tools/call", json!({"name": "look"}));
    let asked = client.expect("roots/list").await;
    asked.answer(json!({"roots": [{"uri": "file:///a"}, {"uri": "https://example.com/b"}]}));
    let answer = client.hear().await;

    let text = answer.to_string();
    assert!(text.contains("roots must be `file://` URIs"), "{text}");
}

async fn a_server_that_hears_of_new_roots_asks_for_them_anew(world: World) {
    let declared = json!({"roots": {"listChanged": true}});
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let server = looking().on_roots_changed(move |_| tell.send(()).unwrap_or_default());
    let mut client = world.scripted_client(&server, declared).await;

    let mut told = Vec::new();
    for uri in ["file:///old", "file:///new"] {
        client.request(world.dialect(), uri, "tools/call", json!({"name": "look"}));
        let asked = client.expect("roots/list").await;
        asked.answer(json!({"roots": [{"uri": uri}]}));
        let answer = client.hear().await;
        told.push(answer["result"]["content"][0]["text"].to_string());
        assert!(heard.is_empty(), "it was told of nothing yet");
        client.notify("notifications/roots/list_changed", json!({}));
        heard.recv().await.unwrap();
    }

    assert!(told[0].contains("file:///old"), "{told:?}");
    assert!(told[1].contains("file:///new"), "{told:?}");
    client.expect_nothing().await;
}

async fn a_client_whose_roots_change_says_so(world: World) {
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let server = looking().on_roots_changed(move |caller| {
        let name = caller.implementation.as_ref().map(|it| it.name.clone());
        told.send(name).unwrap_or_default();
    });
    let host = Host::new().roots(async || vec![]).roots_change();
    let client = world
        .connect_with(&server, |connect| connect.host(host).named("mover", "1"))
        .await;

    client.roots_changed().unwrap();

    assert_eq!(heard.recv().await.unwrap().as_deref(), Some("mover"));
}

async fn there_may_be_no_roots(world: World) {
    let host = Host::new().roots(async || vec![]);
    let client = world
        .connect_with(&looking(), |connect| connect.host(host))
        .await;

    let reply = client.call_tool("look", ()).await.unwrap();

    assert_eq!(reply.text(), "[]");
}

/// A host that has roots and does not find them.
struct Forgetful;

impl Responder for Forgetful {
    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "where was I?");
        Box::pin(std::future::ready(Err(error)))
    }

    fn answers(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapability::default());
        capabilities
    }

    fn roots_changed(&self, _: &bowline::exchange::Caller) {}
}

async fn a_host_that_fails_is_an_error(world: World) {
    let client = world
        .connect_with(&looking(), |connect| connect.host(Forgetful))
        .await;

    let refused = client.call_tool("look", ()).await.unwrap_err();

    assert!(refused.to_string().contains("where was I?"), "{refused:?}");
}

async fn a_client_without_roots_is_not_asked(world: World) {
    let client = world.connect(&looking()).await;

    let refused = refusal(client.call_tool("look", ()).await);

    assert!(refused.message.contains("roots"), "{refused:?}");
}

async fn a_client_without_roots_that_is_asked_refuses(world: World) {
    let (client, mut server) = world
        .scripted_server(json!({}), |connect| connect.host(Host::new()))
        .await;

    let answer = server.ask("r", "roots/list", json!({})).await;

    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    drop(client);
}
