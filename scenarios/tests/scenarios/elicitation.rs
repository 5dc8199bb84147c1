//! Elicitation in form mode and in URL mode.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline::client::Host;
use bowline::exchange::ElicitationOutcome;
use bowline::types::{
    ElicitAction, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, ErrorCode, Json,
};
use bowline::{CallToolResult, Context, RpcError, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{any_object, peer_error, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = forms();
    all.extend(declarations());
    all.extend(visits());
    all
}

fn forms() -> Vec<Scenario> {
    vec![
        scenario!(
            a_form_reaches_the_host_unchanged_and_its_content_reaches_the_handler,
            "elicitation:form:basic",
            "elicitation:form:action:accept",
            "elicitation:form:schema:primitives",
            "tools:call:elicitation-roundtrip",
        )
        .since(FORMS),
        scenario!(
            enum_schemas_reach_the_host_unchanged,
            "elicitation:form:schema:enum-variants",
        )
        .since(URLS),
        scenario!(
            a_handler_receives_accept_decline_or_cancel,
            "elicitation:form:action:decline",
            "elicitation:form:action:cancel",
            "mcpserver:context:elicit",
        )
        .since(FORMS),
        scenario!(
            missing_form_fields_get_their_defaults,
            "elicitation:form:defaults",
        )
        .since(URLS),
        scenario!(
            the_client_does_not_send_content_that_does_not_match_the_form,
            "elicitation:form:response-validation",
        )
        .since(FORMS),
        scenario!(
            the_server_rejects_content_that_does_not_match_the_form,
            "elicitation:form:response-validation",
        )
        .since(FORMS)
        .in_memory(),
        scenario!(
            a_nested_form_is_rejected,
            "elicitation:form:schema:restricted-subset"
        )
        .since(FORMS),
    ]
}

fn declarations() -> Vec<Scenario> {
    vec![
        scenario!(
            a_client_without_elicitation_receives_no_request,
            "elicitation:form:not-supported",
            "lifecycle:capability:client-not-declared",
        )
        .since(FORMS),
        scenario!(
            a_client_rejects_an_elicitation_mode_it_did_not_declare,
            "elicitation:capability:mode-mismatch",
            "elicitation:form:not-supported",
        )
        .since(URLS)
        .legacy()
        .in_memory(),
        scenario!(
            an_elicitation_without_a_mode_is_a_form,
            "elicitation:form:mode-omitted-default",
        )
        .since(FORMS)
        .legacy()
        .in_memory(),
        scenario!(
            an_empty_elicitation_capability_means_form_mode,
            "elicitation:capability:empty-is-form",
        )
        .since(FORMS)
        .legacy()
        .in_memory(),
        scenario!(
            elicitations_follow_each_other_until_the_user_declines,
            "flow:elicitation:multi-step-form",
        )
        .since(FORMS),
        scenario!(
            cancelling_a_request_cancels_its_elicitation,
            "protocol:cancel:server-to-client",
        )
        .since(FORMS)
        .legacy()
        .in_memory(),
    ]
}

fn visits() -> Vec<Scenario> {
    vec![
        scenario!(
            an_accepted_url_elicitation_has_no_content,
            "elicitation:url:basic",
            "elicitation:url:action:accept-no-content",
        )
        .since(URLS),
        scenario!(
            a_url_elicitation_can_be_declined_or_cancelled,
            "elicitation:url:decline",
            "elicitation:url:cancel",
        )
        .since(URLS),
        scenario!(
            a_server_uses_only_the_elicitation_modes_of_the_client,
            "elicitation:capability:server-respects-mode",
            "elicitation:url:not-supported",
        )
        .since(URLS),
        scenario!(
            a_request_is_rejected_until_its_url_was_visited,
            "elicitation:url:required-error",
            "mcpserver:tool:url-elicitation-error",
            "flow:elicitation:url-required-then-retry",
        )
        .since(URLS)
        .legacy(),
        scenario!(
            the_completion_of_an_unknown_url_elicitation_is_ignored,
            "elicitation:url:complete-unknown-ignored",
        )
        .since(URLS)
        .legacy()
        .in_memory(),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// A server whose tool `ask` elicits a form with these params.
fn form_server(params: Value) -> Server {
    let params: ElicitRequestFormParams = serde_json::from_value(params).unwrap();
    let ask = Tool::raw("ask", any_object(), move |_, cx: Context| {
        let params = params.clone();
        async move {
            let answer = cx
                .elicit_raw("form", ElicitRequestParams::Form(params))
                .await?;
            let answer = serde_json::to_value(answer).unwrap();
            Ok(CallToolResult::text(answer.to_string()))
        }
    });
    Server::new("asking", "1").tool(ask)
}

/// A server whose tool `greet` elicits a name.
pub(crate) fn greeting_server() -> Server {
    let greet = Tool::raw("greet", any_object(), async |_, cx: Context| {
        let outcome = cx
            .elicit::<Name>("name", "Who are you?")
            .outcome()
            .await
            .map_err(RpcError::from)?;
        Ok(CallToolResult::text(match outcome {
            ElicitationOutcome::Accept(Name { name }) => format!("Hello, {name}!"),
            ElicitationOutcome::Decline => "Keep it, then.".to_owned(),
            ElicitationOutcome::Cancel => "Hello?".to_owned(),
        }))
    });
    Server::new("greeting", "1").tool(greet)
}

/// A host that answers forms with this result, and the recorded requests.
fn host(answer: ElicitResult) -> (Host, RecordedRequests) {
    let requests = RecordedRequests::default();
    let recorder = requests.clone();
    let host = Host::new().elicitation(move |form| {
        recorder.push(serde_json::to_value(form).unwrap());
        let answer = answer.clone();
        async move { answer }
    });
    (host, requests)
}

#[derive(Clone, Default)]
struct RecordedRequests(Arc<Mutex<Vec<Value>>>);

impl RecordedRequests {
    fn push(&self, request: Value) {
        self.0.lock().unwrap().push(request);
    }

    fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}

async fn a_form_reaches_the_host_unchanged_and_its_content_reaches_the_handler(env: ScenarioEnv) {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "In full", "minLength": 1, "maxLength": 50},
            "email": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "height": {"type": "number"},
            "member": {"type": "boolean"},
        },
        "required": ["name"],
    });
    let server = form_server(json!({"message": "Who are you?", "requestedSchema": schema}));
    let content = json!({"name": "Ada", "email": "ada@example.com", "age": 36, "height": 1.7, "member": true});
    let (host, requests) = host(ElicitResult::accept(content.clone()));
    let client = env.connect_host(&server, host).await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    let question = &requests.all()[0];
    assert_eq!(question["message"], "Who are you?");
    assert_eq!(question["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(answer, json!({"action": "accept", "content": content}));
}

async fn enum_schemas_reach_the_host_unchanged(env: ScenarioEnv) {
    let titled = json!([{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]);
    let schema = json!({
        "type": "object",
        "properties": {
            "plain": {"type": "string", "enum": ["r", "g"]},
            "titled": {"type": "string", "oneOf": titled, "default": "r"},
            "several": {"type": "array", "items": {"type": "string", "enum": ["r", "g"]}, "minItems": 1},
            "several_titled": {"type": "array", "items": {"anyOf": titled}, "default": ["g"]},
        },
    });
    let server = form_server(json!({"message": "Colours?", "requestedSchema": schema}));
    let (host, requests) = host(ElicitResult::accept(
        json!({"plain": "r", "several": ["r"]}),
    ));
    let client = env.connect_host(&server, host).await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(requests.all()[0]["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(answer["content"]["several"], json!(["r"]));
}

async fn a_handler_receives_accept_decline_or_cancel(env: ScenarioEnv) {
    for (answer, text) in [
        (ElicitResult::accept(json!({"name": "Ada"})), "Hello, Ada!"),
        (ElicitResult::new(ElicitAction::Decline), "Keep it, then."),
        (ElicitResult::new(ElicitAction::Cancel), "Hello?"),
    ] {
        let (host, _) = host(answer);
        let client = env.connect_host(&greeting_server(), host).await;

        let reply = client.call_tool("greet", ()).await.unwrap();

        assert_eq!(reply.text(), text);
    }
}

async fn missing_form_fields_get_their_defaults(env: ScenarioEnv) {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "unnamed"},
            "age": {"type": "integer", "default": 7},
            "vegan": {"type": "boolean", "default": false},
        },
        "required": ["name"],
    });
    let server = form_server(json!({"message": "Who?", "requestedSchema": schema}));
    let (host, requests) = host(ElicitResult::accept(json!({"age": 8})));
    let client = env.connect_host(&server, host).await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(requests.all()[0]["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(
        answer["content"],
        json!({"name": "unnamed", "age": 8, "vegan": false})
    );
}

async fn the_client_does_not_send_content_that_does_not_match_the_form(env: ScenarioEnv) {
    let (host, _) = host(ElicitResult::accept(json!({"name": 7})));
    let client = env.connect_host(&greeting_server(), host).await;

    let error = client.call_tool("greet", ()).await.unwrap_err();

    let why = "invalid form content from the host: the field `name` must be a string";
    assert!(error.to_string().contains(why), "{error}");
}

/// A server whose tool `ask` elicits a form with every kind of constraint.
fn strict_form_server() -> Server {
    let ask = Tool::raw("ask", any_object(), async |_, cx: Context| {
        let form = json!({"message": "?", "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 4},
                "mail": {"type": "string", "format": "email"},
                "age": {"type": "integer", "minimum": 18, "maximum": 99},
                "sure": {"type": "boolean"},
                "color": {"type": "string", "enum": ["red", "green"]},
            },
            "required": ["name"],
        }});
        let form: ElicitRequestFormParams = serde_json::from_value(form).unwrap();
        let answer = cx
            .elicit_raw("form", ElicitRequestParams::Form(form))
            .await?;
        Ok(CallToolResult::text(answer.content.unwrap().to_string()))
    });
    Server::new("strict", "1").tool(ask)
}

async fn the_server_rejects_content_that_does_not_match_the_form(env: ScenarioEnv) {
    let fitting = json!({"name": "Ada", "mail": "a@b", "age": 36, "sure": true, "color": "red"});
    let mut cases = vec![(fitting.clone(), None)];
    for (field, value, why) in [
        (
            "name",
            json!("A"),
            "the field `name` must have at least 2 characters",
        ),
        (
            "name",
            json!("Augusta"),
            "the field `name` must have at most 4 characters",
        ),
        (
            "mail",
            json!("unnamed"),
            "the field `mail` must have the format `email`",
        ),
        ("age", json!(17), "the field `age` must be at least 18"),
        ("age", json!(100), "the field `age` must be at most 99"),
        ("age", json!(36.5), "the field `age` must be an integer"),
        ("sure", json!("yes"), "the field `sure` must be a boolean"),
        (
            "color",
            json!("blue"),
            "the field `color` must be one of the allowed values",
        ),
    ] {
        let mut content = fitting.clone();
        content[field] = value;
        cases.push((content, Some(why)));
    }
    cases.push((json!({}), Some("the field `name` is required")));
    for (content, why) in cases {
        let answer = json!({"action": "accept", "content": content});
        let answered = answer_of_raw_client(&env, answer).await;

        let text = answered.to_string();
        match why {
            None => assert!(text.contains("a@b"), "{text}"),
            Some(why) => assert!(text.contains(why), "expected {why}, got {text}"),
        }
    }
}

/// The result of the tool `ask` for a client that does not validate its answer.
async fn answer_of_raw_client(env: &ScenarioEnv, answer: Value) -> Value {
    let declared = json!({"elicitation": {"form": {}}});
    let mut client = env
        .scripted_client(&strict_form_server(), declared.clone())
        .await;
    let meta = match env.is_modern() {
        true => json!({"io.modelcontextprotocol/clientCapabilities": declared}),
        false => json!({}),
    };
    let params = json!({"name": "ask", "_meta": meta});
    client.request(env.dialect(), "1", "tools/call", params);
    if !env.is_modern() {
        client.expect("elicitation/create").await.answer(answer);
        return client.next_message().await;
    }
    let first = client.next_message().await;
    let params = json!({
        "name": "ask", "inputResponses": {"form": answer}, "requestState": first["result"]["requestState"], "_meta": meta,
    });
    client.request(env.dialect(), "2", "tools/call", params);
    client.next_message().await
}

async fn a_nested_form_is_rejected(env: ScenarioEnv) {
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "the form is rejected before it is read")]
    struct Nested {
        who: Name,
    }
    let nest = Tool::raw("nest", any_object(), async |_, cx: Context| {
        let nested: Nested = cx.elicit("nested", "Who?").await.map_err(RpcError::from)?;
        Ok(CallToolResult::text(nested.who.name))
    });
    let (host, requests) = host(ElicitResult::accept(json!({"who": {"name": "Ada"}})));
    let server = Server::new("nesting", "1").tool(nest);
    let client = env.connect_host(&server, host).await;

    let outcome = client.call_tool("nest", ()).await;

    assert!(outcome.is_err(), "{outcome:?}");
    assert!(requests.all().is_empty());
}

async fn a_client_without_elicitation_receives_no_request(env: ScenarioEnv) {
    let client = env.connect(&greeting_server()).await;

    let error = peer_error(client.call_tool("greet", ()).await);

    assert!(error.message.contains("elicitation"), "{error:?}");
    if let Some(record) = env.wire_record() {
        let received = record.received();
        assert!(
            !received
                .iter()
                .any(|frame| frame["method"] == "elicitation/create"),
            "{received:?}"
        );
    }
}

async fn a_client_rejects_an_elicitation_mode_it_did_not_declare(env: ScenarioEnv) {
    let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let url = json!({"mode": "url", "message": "There", "url": "https://example.com", "elicitationId": "1"});
    let answering = async |_| ElicitResult::new(ElicitAction::Accept);
    let only_forms = Host::new().elicitation(answering);
    let only_urls = Host::new().elicitation_url(async |_| ElicitResult::new(ElicitAction::Accept));
    for (host, question) in [(Host::new(), &form), (only_forms, &url), (only_urls, &form)] {
        let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

        let answer = server
            .call("q", "elicitation/create", question.clone())
            .await;

        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        drop(client);
    }
}

async fn an_elicitation_without_a_mode_is_a_form(env: ScenarioEnv) {
    let (host, requests) = host(ElicitResult::accept(json!({})));
    let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

    let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let answer = server.call("q", "elicitation/create", form).await;

    assert_eq!(answer["result"]["action"], "accept");
    assert_eq!(requests.all()[0]["message"], "Who?");
    drop(client);
}

async fn an_empty_elicitation_capability_means_form_mode(env: ScenarioEnv) {
    let mut client = env
        .scripted_client(&greeting_server(), json!({"elicitation": {}}))
        .await;

    client.request(env.dialect(), "c", "tools/call", json!({"name": "greet"}));
    let question = client.expect("elicitation/create").await;

    assert_eq!(question.params()["message"], "Who are you?");
    question.answer(json!({"action": "accept", "content": {"name": "Ada"}}));
    assert_eq!(
        client.next_message().await["result"]["content"][0]["text"],
        "Hello, Ada!"
    );
}

async fn elicitations_follow_each_other_until_the_user_declines(env: ScenarioEnv) {
    let steps = Tool::raw("steps", any_object(), async |_, cx: Context| {
        let mut names = Vec::new();
        for step in ["first", "second", "third"] {
            match cx.elicit::<Name>(step, step).outcome().await? {
                ElicitationOutcome::Accept(Name { name }) => names.push(name),
                ElicitationOutcome::Decline | ElicitationOutcome::Cancel => break,
            }
        }
        Ok(CallToolResult::text(names.join(" ")))
    });
    let requests = RecordedRequests::default();
    let recorder = requests.clone();
    let host = Host::new().elicitation(move |form: ElicitRequestFormParams| {
        recorder.push(json!(form.message));
        async move {
            match &*form.message {
                "first" => ElicitResult::accept(json!({"name": "Ada"})),
                _ => ElicitResult::new(ElicitAction::Decline),
            }
        }
    });
    let server = Server::new("steps", "1").tool(steps);
    let client = env.connect_host(&server, host).await;

    let reply = client.call_tool("steps", ()).await.unwrap();

    assert_eq!(reply.text(), "Ada");
    assert_eq!(requests.all(), ["first", "second"]);
}

async fn cancelling_a_request_cancels_its_elicitation(env: ScenarioEnv) {
    let mut client = env
        .scripted_client(&greeting_server(), json!({"elicitation": {}}))
        .await;
    client.request(env.dialect(), "c", "tools/call", json!({"name": "greet"}));
    let question = client.expect("elicitation/create").await.hold();

    client.notify("notifications/cancelled", json!({"requestId": "c"}));

    client.expect_cancel(&question).await;
    client.expect_nothing().await;
}

/// A server whose tool `sign_in` elicits a visit to a URL.
fn url_server() -> Server {
    let sign_in = Tool::raw("sign_in", any_object(), async |_, cx: Context| {
        let visit = cx.elicit_url("sign-in", "Sign in, please.", "https://example.com/sign-in");
        Ok(CallToolResult::text(match visit.outcome().await? {
            ElicitationOutcome::Accept(()) => "welcome",
            ElicitationOutcome::Decline => "declined",
            ElicitationOutcome::Cancel => "dismissed",
        }))
    });
    Server::new("bank", "1").tool(sign_in)
}

async fn an_accepted_url_elicitation_has_no_content(env: ScenarioEnv) {
    let requests = RecordedRequests::default();
    let recorder = requests.clone();
    let host = Host::new().elicitation_url(move |visit| {
        recorder.push(serde_json::to_value(visit).unwrap());
        async { ElicitResult::accept(json!({"unexpected": "content"})) }
    });
    let client = env.connect_host(&url_server(), host).await;

    let reply = client.call_tool("sign_in", ()).await.unwrap();

    let question = &requests.all()[0];
    assert_eq!(reply.text(), "welcome");
    assert_eq!(question["message"], "Sign in, please.");
    assert_eq!(question["url"], "https://example.com/sign-in");
    assert_eq!(question["elicitationId"].is_string(), !env.is_modern());
    if let Some(record) = env.wire_record() {
        let sent = record.sent();
        assert!(
            !sent
                .iter()
                .any(|frame| frame.to_string().contains("unexpected")),
            "{sent:?}"
        );
    }
}

async fn a_url_elicitation_can_be_declined_or_cancelled(env: ScenarioEnv) {
    for (action, text) in [
        (ElicitAction::Decline, "declined"),
        (ElicitAction::Cancel, "dismissed"),
    ] {
        let host = Host::new().elicitation_url(move |_| async move { ElicitResult::new(action) });
        let client = env.connect_host(&url_server(), host).await;

        let reply = client.call_tool("sign_in", ()).await.unwrap();

        assert_eq!(reply.text(), text);
    }
}

async fn a_server_uses_only_the_elicitation_modes_of_the_client(env: ScenarioEnv) {
    let unexpected = async |_| -> ElicitResult { panic!("the host received a request") };
    let only_forms = Host::new().elicitation(unexpected);
    let only_urls = Host::new().elicitation_url(async |_| panic!("the host received a request"));
    let shown_forms = env.connect_host(&url_server(), only_forms).await;
    let shown_urls = env.connect_host(&greeting_server(), only_urls).await;

    let by_url = peer_error(shown_forms.call_tool("sign_in", ()).await);
    let by_form = peer_error(shown_urls.call_tool("greet", ()).await);

    assert!(by_url.message.contains("url"), "{by_url:?}");
    assert!(by_form.message.contains("form"), "{by_form:?}");
}

async fn a_request_is_rejected_until_its_url_was_visited(env: ScenarioEnv) {
    let was_visited = Arc::new(AtomicBool::new(false));
    // Simulates the page at the URL.
    let page = was_visited.clone();
    let visit = Tool::raw("visit", any_object(), move |_, _| {
        page.store(true, Ordering::SeqCst);
        async { Ok(CallToolResult::text("thank you")) }
    });
    let guarded = Tool::raw("guarded", any_object(), move |_, _| {
        let is_open = was_visited.load(Ordering::SeqCst);
        async move {
            if !is_open {
                let pending = json!({"elicitations": [{
                    "mode": "url", "elicitationId": "7", "url": "https://example.com", "message": "Visit this.",
                }]});
                let code = ErrorCode::URL_ELICITATION_REQUIRED;
                let error = RpcError::new(code, "visit first");
                return Err(error.with_data(Json::from(pending)).into());
            }
            Ok(CallToolResult::text("welcome back"))
        }
    });
    let client = env
        .connect(&Server::new("guard", "1").tool(guarded).tool(visit))
        .await;

    let refused = peer_error(client.call_tool("guarded", ()).await);
    let too_early = peer_error(client.call_tool("guarded", ()).await);
    client.call_tool("visit", ()).await.unwrap();
    let retried = client.call_tool("guarded", ()).await.unwrap();

    let pending = value(&refused.data.unwrap());
    assert_eq!(refused.code, ErrorCode::URL_ELICITATION_REQUIRED);
    assert_eq!(too_early.code, ErrorCode::URL_ELICITATION_REQUIRED);
    assert_eq!(pending["elicitations"][0]["elicitationId"], "7");
    assert_eq!(retried.text(), "welcome back");
}

async fn the_completion_of_an_unknown_url_elicitation_is_ignored(env: ScenarioEnv) {
    let visited = Arc::new(tokio::sync::Notify::new());
    let visitor = visited.clone();
    let host = Host::new().elicitation_url(move |_| {
        let visited = visited.clone();
        async move {
            visited.notified().await;
            ElicitResult::new(ElicitAction::Accept)
        }
    });
    let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;
    let visit = json!({
        "mode": "url", "elicitationId": "known", "url": "https://example.com", "message": "Visit this.",
    });
    let question =
        json!({"jsonrpc": "2.0", "id": "v", "method": "elicitation/create", "params": visit});
    server.send_json(&question);

    for params in [json!({"elicitationId": "unknown"}), json!({})] {
        server.notify("notifications/elicitation/complete", params);
    }
    let pong = server.call("p", "ping", json!({})).await;
    visitor.notify_one();
    let answer = server.next_message().await;

    assert_eq!(pong["result"], json!({}));
    assert_eq!(
        (&answer["id"], &answer["result"]["action"]),
        (&json!("v"), &json!("accept"))
    );
    drop(client);
}

/// The first version with form elicitation.
const FORMS: &str = "2025-06-18";
/// The first version with URL elicitation.
const URLS: &str = "2025-11-25";
