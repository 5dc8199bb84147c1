//! Sampling from the client's model, and the client's roots.

use std::sync::{Arc, Mutex};

use bowline::client::Host;
use bowline::types::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ErrorCode, Root,
    RootsCapability,
};
use bowline::{CallToolResult, Context, RpcError, Server, Tool};
use bowline_core::era::Request;
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, peer_error};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = sampling();
    all.extend(roots());
    all
}

fn sampling() -> Vec<Scenario> {
    vec![
        scenario!(
            sampling_params_reach_the_model_unchanged,
            "sampling:create:basic",
            "sampling:create:system-prompt",
            "sampling:create:model-preferences",
            "tools:call:sampling-roundtrip",
        ),
        scenario!(
            host_handlers_are_declared_as_capabilities,
            "sampling:capability:declare",
            "lifecycle:initialize:client-capabilities",
        ),
        scenario!(
            images_reach_the_model,
            "sampling:create-message:image-content"
        ),
        scenario!(
            audio_reaches_the_model,
            "sampling:create-message:audio-content"
        )
        .since("2025-03-26"),
        scenario!(
            include_context_is_sent_only_to_clients_that_declared_it,
            "sampling:create:include-context",
            "sampling:context:server-gated-by-capability",
        ),
        scenario!(
            tools_reach_the_model_and_tool_use_is_returned,
            "sampling:create:tools",
            "sampling:result:with-tools-array-content",
            "sampling:message:content-cardinality",
        )
        .since("2025-11-25"),
        scenario!(
            tools_are_sent_only_to_clients_that_declared_them,
            "sampling:tools:server-gated-by-capability",
        )
        .since("2025-11-25"),
        scenario!(
            a_client_without_sampling_receives_no_request,
            "sampling:create-message:not-supported",
        ),
        scenario!(
            a_server_does_not_send_a_tool_use_without_a_tool_result,
            "sampling:tool-use:server-preflight",
            "sampling:tool-result:no-mixed-content",
        )
        .since("2025-11-25"),
        scenario!(
            a_client_rejects_a_tool_use_without_a_tool_result,
            "sampling:tool-use:result-balance",
            "sampling:tool-result:no-mixed-content",
        )
        .since("2025-11-25")
        .legacy()
        .in_memory(),
        scenario!(
            without_tools_the_result_has_one_content_block,
            "sampling:result:no-tools-single-content",
        ),
        scenario!(a_user_rejection_is_an_error, "sampling:error:user-rejected"),
    ]
}

fn roots() -> Vec<Scenario> {
    vec![
        scenario!(a_handler_lists_the_roots, "roots:list:basic"),
        scenario!(
            a_client_does_not_send_roots_that_are_not_file_uris,
            "roots:uri:file-scheme"
        ),
        scenario!(
            a_server_rejects_roots_that_are_not_file_uris,
            "roots:uri:file-scheme"
        )
        .legacy()
        .in_memory(),
        scenario!(a_server_fetches_changed_roots_again, "roots:list-changed",)
            .legacy()
            .in_memory(),
        scenario!(
            a_client_announces_changed_roots,
            "roots:list-changed:client-emits",
        )
        .legacy()
        .in_one_process(),
        scenario!(the_list_of_roots_may_be_empty, "roots:list:empty"),
        scenario!(a_host_error_fails_the_call, "roots:list:client-error").in_one_process(),
        scenario!(
            a_client_without_roots_receives_no_request,
            "roots:list:not-supported"
        ),
        scenario!(
            a_client_without_roots_rejects_roots_list,
            "roots:list:not-supported",
        )
        .legacy()
        .in_memory(),
    ]
}

/// A server whose tool `write` samples from the model with these params.
fn sampling_server(params: Value) -> Server {
    let params: CreateMessageRequestParams = serde_json::from_value(params).unwrap();
    let write = Tool::raw("write", any_object(), move |_, cx: Context| {
        let params = params.clone();
        async move {
            let written = cx.sample("write", &params).await.map_err(RpcError::from)?;
            let written = serde_json::to_value(written).unwrap();
            Ok(CallToolResult::text(written.to_string()))
        }
    });
    Server::new("writing", "1").tool(write)
}

fn user_message(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

type RecordedRequests = Arc<Mutex<Vec<Value>>>;

/// A host whose model returns this result, and the recorded requests.
fn model(answer: Value) -> (Host, RecordedRequests) {
    let requests = RecordedRequests::default();
    let recorder = requests.clone();
    let answer: CreateMessageResult = serde_json::from_value(answer).unwrap();
    let host = Host::new().sampling(move |params| {
        recorder
            .lock()
            .unwrap()
            .push(serde_json::to_value(params).unwrap());
        let answer = answer.clone();
        async move { Ok(answer) }
    });
    (host, requests)
}

fn answer(content: Value) -> Value {
    json!({"role": "assistant", "model": "m-1", "content": content, "stopReason": "endTurn"})
}

/// Calls the tool `write`, and returns the params and the result of the model.
async fn call_write(
    env: &ScenarioEnv,
    params: Value,
    answer: Value,
    configure: impl FnOnce(Host) -> Host,
) -> (Value, Value) {
    let (host, requests) = model(answer);
    let server = sampling_server(params);
    let client = env.connect_host(&server, configure(host)).await;

    let reply = client.call_tool("write", ()).await.unwrap();

    let request = requests.lock().unwrap().remove(0);
    (request, serde_json::from_str(&reply.text()).unwrap())
}

async fn sampling_params_reach_the_model_unchanged(env: ScenarioEnv) {
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

    let wanted = answer(text("An old silent pond"));
    let (request, written) = call_write(&env, params.clone(), wanted, |host| host).await;

    for (name, sent) in params.as_object().unwrap() {
        assert_eq!(json_number(&request[name]), json_number(sent), "{name}");
    }
    assert_eq!(written, answer(text("An old silent pond")));
}

/// Formats JSON so that `1.0` equals `1`.
fn json_number(value: &Value) -> String {
    value.to_string().replace(".0", "")
}

async fn host_handlers_are_declared_as_capabilities(env: ScenarioEnv) {
    let capabilities = Tool::raw("capabilities", any_object(), async |_, cx: Context| {
        let declared = serde_json::to_value(&cx.caller().capabilities).unwrap();
        Ok(CallToolResult::text(declared.to_string()))
    });
    let server = Server::new("s", "1").tool(capabilities);
    let (host, _) = model(answer(text("x")));
    let host = host.roots(async || vec![]);
    let able = env.connect_host(&server, host).await;
    let unable = env.connect(&server).await;

    let of_able = able.call_tool("capabilities", ()).await.unwrap().text();
    let of_unable = unable.call_tool("capabilities", ()).await.unwrap().text();

    let of_able: Value = serde_json::from_str(&of_able).unwrap();
    assert_eq!(of_able, json!({"sampling": {}, "roots": {}}));
    assert_eq!(of_unable, "{}");
}

async fn images_reach_the_model(env: ScenarioEnv) {
    let picture = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
    content_reaches_the_model(&env, picture).await;
}

async fn audio_reaches_the_model(env: ScenarioEnv) {
    let sound = json!({"type": "audio", "data": "AAEC", "mimeType": "audio/wav"});
    content_reaches_the_model(&env, sound).await;
}

async fn content_reaches_the_model(env: &ScenarioEnv, content: Value) {
    let params = user_message(content.clone());

    let (request, written) = call_write(env, params, answer(content.clone()), |host| host).await;

    assert_eq!(request["messages"][0]["content"], content);
    assert_eq!(written["content"], content);
}

async fn include_context_is_sent_only_to_clients_that_declared_it(env: ScenarioEnv) {
    let mut params = user_message(text("Hello?"));
    params["includeContext"] = json!("thisServer");
    let (host, other_requests) = model(answer(text("x")));
    let without = env
        .connect_host(&sampling_server(params.clone()), host)
        .await;

    let answered = answer(text("x"));
    let (request, _) = call_write(&env, params, answered, Host::sampling_context).await;
    let refused = peer_error(without.call_tool("write", ()).await);

    assert_eq!(request["includeContext"], "thisServer");
    assert!(refused.message.contains("context"), "{refused:?}");
    assert!(other_requests.lock().unwrap().is_empty());
}

fn with_tools() -> Value {
    let mut params = user_message(text("What is the weather?"));
    params["tools"] = json!([{"name": "weather", "inputSchema": {"type": "object"}}]);
    params["toolChoice"] = json!({"mode": "auto"});
    params
}

async fn tools_reach_the_model_and_tool_use_is_returned(env: ScenarioEnv) {
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

    let (request, written) =
        call_write(&env, params.clone(), wants.clone(), Host::sampling_tools).await;

    for name in ["messages", "tools", "toolChoice"] {
        assert_eq!(request[name], params[name], "{name}");
    }
    assert_eq!(written, wants);
}

async fn tools_are_sent_only_to_clients_that_declared_them(env: ScenarioEnv) {
    let (host, requests) = model(answer(text("x")));
    let client = env.connect_host(&sampling_server(with_tools()), host).await;

    let refused = peer_error(client.call_tool("write", ()).await);

    assert!(refused.message.contains("tools"), "{refused:?}");
    assert!(requests.lock().unwrap().is_empty());
}

/// Messages with a tool use that has no tool result, or whose tool result is mixed with other content.
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

async fn a_server_does_not_send_a_tool_use_without_a_tool_result(env: ScenarioEnv) {
    for params in unbalanced() {
        let (host, requests) = model(answer(text("x")));
        let host = host.sampling_tools();
        let client = env.connect_host(&sampling_server(params), host).await;

        let refused = client.call_tool("write", ()).await;

        assert!(refused.is_err(), "{refused:?}");
        assert!(requests.lock().unwrap().is_empty());
    }
}

async fn a_client_rejects_a_tool_use_without_a_tool_result(env: ScenarioEnv) {
    for params in unbalanced() {
        let (host, requests) = model(answer(text("x")));
        let host = host.sampling_tools();
        let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

        let refused = server.call("s", "sampling/createMessage", params).await;

        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(requests.lock().unwrap().is_empty());
        drop(client);
    }
}

async fn without_tools_the_result_has_one_content_block(env: ScenarioEnv) {
    let params = user_message(text("Hello?"));
    let (host, _) = model(answer(json!([text("one"), text("two")])));
    let client = env
        .connect_host(&sampling_server(params.clone()), host)
        .await;

    let several = client.call_tool("write", ()).await;
    let (_, one) = call_write(&env, params, answer(json!([text("one")])), |host| host).await;

    assert!(several.is_err(), "{several:?}");
    assert_eq!(one["content"], text("one"));
}

async fn a_client_without_sampling_receives_no_request(env: ScenarioEnv) {
    let client = env
        .connect(&sampling_server(user_message(text("Hello?"))))
        .await;

    let refused = peer_error(client.call_tool("write", ()).await);

    assert!(refused.message.contains("sampling"), "{refused:?}");
}

async fn a_user_rejection_is_an_error(env: ScenarioEnv) {
    let host =
        Host::new().sampling(async |_| Err(RpcError::new(ErrorCode::USER_REJECTED, "not that")));
    let client = env
        .connect_host(&sampling_server(user_message(text("Hello?"))), host)
        .await;

    let refused = client.call_tool("write", ()).await.unwrap_err();

    assert!(refused.to_string().contains("not that"), "{refused:?}");
    if !env.is_modern() {
        assert_eq!(
            peer_error::<()>(Err(refused)).code,
            ErrorCode::USER_REJECTED
        );
    }
}

/// A server whose tool `look` returns the roots.
fn roots_server() -> Server {
    let look = Tool::raw("look", any_object(), async |_, cx: Context| {
        let roots = cx.roots().await.map_err(RpcError::from)?.roots;
        Ok(CallToolResult::text(
            serde_json::to_value(roots).unwrap().to_string(),
        ))
    });
    Server::new("looking", "1").tool(look)
}

async fn a_handler_lists_the_roots(env: ScenarioEnv) {
    let host = Host::new().roots(async || {
        let mut ours = Root::new("file:///project");
        ours.name = Some("ours".into());
        vec![ours, Root::new("file:///elsewhere")]
    });
    let client = env.connect_host(&roots_server(), host).await;

    let reply = client.call_tool("look", ()).await.unwrap();

    let roots: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(
        roots,
        json!([{"uri": "file:///project", "name": "ours"}, {"uri": "file:///elsewhere"}])
    );
}

async fn a_client_does_not_send_roots_that_are_not_file_uris(env: ScenarioEnv) {
    let host = Host::new().roots(async || vec![Root::new("https://example.com/project")]);
    let client = env.connect_host(&roots_server(), host).await;

    let error = client.call_tool("look", ()).await.unwrap_err();

    assert!(
        error.to_string().contains("is not a `file://` URI"),
        "{error}"
    );
}

async fn a_server_rejects_roots_that_are_not_file_uris(env: ScenarioEnv) {
    let mut client = env
        .scripted_client(&roots_server(), json!({"roots": {}}))
        .await;

    client.request(env.dialect(), "1", "tools/call", json!({"name": "look"}));
    let request = client.expect("roots/list").await;
    request.answer(json!({"roots": [{"uri": "file:///a"}, {"uri": "https://example.com/b"}]}));
    let answer = client.next_message().await;

    let text = answer.to_string();
    assert!(text.contains("roots must be `file://` URIs"), "{text}");
}

async fn a_server_fetches_changed_roots_again(env: ScenarioEnv) {
    let declared = json!({"roots": {"listChanged": true}});
    let (change_sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let server =
        roots_server().on_roots_changed(move |_| change_sender.send(()).unwrap_or_default());
    let mut client = env.scripted_client(&server, declared).await;

    let mut texts = Vec::new();
    for uri in ["file:///old", "file:///new"] {
        client.request(env.dialect(), uri, "tools/call", json!({"name": "look"}));
        let request = client.expect("roots/list").await;
        request.answer(json!({"roots": [{"uri": uri}]}));
        let answer = client.next_message().await;
        texts.push(answer["result"]["content"][0]["text"].to_string());
        assert!(changes.is_empty(), "the callback ran too early");
        client.notify("notifications/roots/list_changed", json!({}));
        changes.recv().await.unwrap();
    }

    assert!(texts[0].contains("file:///old"), "{texts:?}");
    assert!(texts[1].contains("file:///new"), "{texts:?}");
    client.expect_nothing().await;
}

async fn a_client_announces_changed_roots(env: ScenarioEnv) {
    let (name_sender, mut names) = tokio::sync::mpsc::unbounded_channel();
    let server = roots_server().on_roots_changed(move |caller| {
        let name = caller.implementation.as_ref().map(|it| it.name.clone());
        name_sender.send(name).unwrap_or_default();
    });
    let host = Host::new().roots(async || vec![]).roots_list_changed();
    let client = env
        .connect_with(&server, |connect| {
            connect.host(host).client_info("mover", "1")
        })
        .await;

    client.roots_changed().unwrap();

    assert_eq!(names.recv().await.unwrap().as_deref(), Some("mover"));
}

async fn the_list_of_roots_may_be_empty(env: ScenarioEnv) {
    let host = Host::new().roots(async || vec![]);
    let client = env.connect_host(&roots_server(), host).await;

    let reply = client.call_tool("look", ()).await.unwrap();

    assert_eq!(reply.text(), "[]");
}

async fn a_host_error_fails_the_call(env: ScenarioEnv) {
    let fail = async |_: Request, _: Context| {
        let why = "roots unavailable";
        Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why))
    };
    let mut capabilities = ClientCapabilities::default();
    capabilities.roots = Some(RootsCapability::default());
    let client = env
        .connect_with(&roots_server(), |connect| {
            connect.host_responder(fail, capabilities)
        })
        .await;

    let refused = client.call_tool("look", ()).await.unwrap_err();

    assert!(
        refused.to_string().contains("roots unavailable"),
        "{refused:?}"
    );
}

async fn a_client_without_roots_receives_no_request(env: ScenarioEnv) {
    let client = env.connect(&roots_server()).await;

    let refused = peer_error(client.call_tool("look", ()).await);

    assert!(refused.message.contains("roots"), "{refused:?}");
}

async fn a_client_without_roots_rejects_roots_list(env: ScenarioEnv) {
    let (client, mut server) = env
        .scripted_server(|connect| connect.host(Host::new()))
        .await;

    let answer = server.call("r", "roots/list", json!({})).await;

    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    drop(client);
}
