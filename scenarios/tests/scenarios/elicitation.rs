//! Asking the user: by a form, or by a visit to a URL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline::client::Host;
use bowline::exchange::Elicited;
use bowline::types::{
    ElicitAction, ElicitRequestFormParams, ElicitRequestParams, ElicitResult, ErrorCode, Json,
};
use bowline::{CallToolResult, Context, RpcError, Server, Tool};
use scenarios::{Scenario, World, scenario};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{anything, refusal, value};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = forms();
    all.extend(declarations());
    all.extend(visits());
    all
}

fn forms() -> Vec<Scenario> {
    vec![
        scenario!(
            a_form_reaches_the_host_as_it_is_and_comes_back_filled_in,
            "elicitation:form:basic",
            "elicitation:form:action:accept",
            "elicitation:form:schema:primitives",
            "tools:call:elicitation-roundtrip",
        )
        .since(FORMS),
        scenario!(
            choices_reach_the_host_as_they_are,
            "elicitation:form:schema:enum-variants",
        )
        .since(URLS),
        scenario!(
            a_handler_learns_whether_the_user_agreed_declined_or_did_neither,
            "elicitation:form:action:decline",
            "elicitation:form:action:cancel",
            "mcpserver:context:elicit",
        )
        .since(FORMS),
        scenario!(
            what_is_left_out_of_a_form_gets_its_default,
            "elicitation:form:defaults",
        )
        .since(URLS),
        scenario!(
            what_does_not_fit_the_form_never_reaches_the_server,
            "elicitation:form:response-validation",
        )
        .since(FORMS),
        scenario!(
            what_a_client_sends_although_it_does_not_fit_the_form_is_refused,
            "elicitation:form:response-validation",
        )
        .since(FORMS)
        .in_memory(),
        scenario!(a_form_is_flat, "elicitation:form:schema:restricted-subset").since(FORMS),
    ]
}

fn declarations() -> Vec<Scenario> {
    vec![
        scenario!(
            a_client_that_did_not_declare_it_is_not_asked,
            "elicitation:form:not-supported",
            "lifecycle:capability:client-not-declared",
        )
        .since(FORMS),
        scenario!(
            a_client_refuses_a_question_that_it_did_not_declare,
            "elicitation:capability:mode-mismatch",
            "elicitation:form:not-supported",
        )
        .since(URLS)
        .legacy()
        .in_memory(),
        scenario!(
            a_question_without_a_kind_is_a_form,
            "elicitation:form:mode-omitted-default",
        )
        .since(FORMS)
        .legacy()
        .in_memory(),
        scenario!(
            a_client_that_names_no_kind_of_question_does_forms,
            "elicitation:capability:empty-is-form",
        )
        .since(FORMS)
        .legacy()
        .in_memory(),
        scenario!(
            one_question_follows_another_until_the_user_declines,
            "flow:elicitation:multi-step-form",
        )
        .since(FORMS),
        scenario!(
            a_server_that_is_cancelled_takes_its_question_back,
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
            a_user_is_sent_to_a_url_and_agrees_without_content,
            "elicitation:url:basic",
            "elicitation:url:action:accept-no-content",
        )
        .since(URLS),
        scenario!(
            a_user_who_is_sent_to_a_url_can_decline_or_do_neither,
            "elicitation:url:decline",
            "elicitation:url:cancel",
        )
        .since(URLS),
        scenario!(
            a_server_asks_only_in_the_ways_that_the_client_declared,
            "elicitation:capability:server-respects-mode",
            "elicitation:url:not-supported",
        )
        .since(URLS),
        scenario!(
            a_request_is_refused_until_a_url_was_visited,
            "elicitation:url:required-error",
            "mcpserver:tool:url-elicitation-error",
            "flow:elicitation:url-required-then-retry",
        )
        .since(URLS)
        .legacy(),
        scenario!(
            the_end_of_a_visit_that_nobody_knows_is_ignored,
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

/// A server whose tool `ask` puts these questions, by forms, one after the other.
fn asking(params: Value) -> Server {
    let params: ElicitRequestFormParams = serde_json::from_value(params).unwrap();
    let ask = Tool::raw("ask", anything(), move |_, cx: Context| {
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

/// A server whose tool `greet` asks for a name.
pub(crate) fn greeting() -> Server {
    let greet = Tool::raw("greet", anything(), async |_, cx: Context| {
        let outcome = cx.elicit::<Name>("name", "Who are you?").outcome().await?;
        Ok(CallToolResult::text(match outcome {
            Elicited::Accept(Name { name }) => format!("Hello, {name}!"),
            Elicited::Decline => "Keep it, then.".to_owned(),
            Elicited::Cancel => "Hello?".to_owned(),
        }))
    });
    Server::new("greeting", "1").tool(greet)
}

/// A host that answers forms with this, and what it was asked.
fn host(answer: ElicitResult) -> (Host, Asked) {
    let asked = Asked::default();
    let seen = asked.clone();
    let host = Host::new().elicitation(move |form| {
        seen.push(serde_json::to_value(form).unwrap());
        let answer = answer.clone();
        async move { answer }
    });
    (host, asked)
}

#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Value>>>);

impl Asked {
    fn push(&self, question: Value) {
        self.0.lock().unwrap().push(question);
    }

    fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}

async fn a_form_reaches_the_host_as_it_is_and_comes_back_filled_in(world: World) {
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
    let server = asking(json!({"message": "Who are you?", "requestedSchema": schema}));
    let content = json!({"name": "Ada", "email": "ada@example.com", "age": 36, "height": 1.7, "member": true});
    let (host, asked) = host(ElicitResult::accept(content.clone()));
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    let question = &asked.all()[0];
    assert_eq!(question["message"], "Who are you?");
    assert_eq!(question["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(answer, json!({"action": "accept", "content": content}));
}

async fn choices_reach_the_host_as_they_are(world: World) {
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
    let server = asking(json!({"message": "Colours?", "requestedSchema": schema}));
    let (host, asked) = host(ElicitResult::accept(
        json!({"plain": "r", "several": ["r"]}),
    ));
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(asked.all()[0]["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(answer["content"]["several"], json!(["r"]));
}

async fn a_handler_learns_whether_the_user_agreed_declined_or_did_neither(world: World) {
    for (answer, text) in [
        (ElicitResult::accept(json!({"name": "Ada"})), "Hello, Ada!"),
        (ElicitResult::new(ElicitAction::Decline), "Keep it, then."),
        (ElicitResult::new(ElicitAction::Cancel), "Hello?"),
    ] {
        let (host, _) = host(answer);
        let client = world
            .connect_with(&greeting(), |connect| connect.host(host))
            .await;

        let reply = client.call_tool("greet", ()).await.unwrap();

        assert_eq!(reply.text(), text);
    }
}

async fn what_is_left_out_of_a_form_gets_its_default(world: World) {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "nobody"},
            "age": {"type": "integer", "default": 7},
            "vegan": {"type": "boolean", "default": false},
        },
        "required": ["name"],
    });
    let server = asking(json!({"message": "Who?", "requestedSchema": schema}));
    let (host, asked) = host(ElicitResult::accept(json!({"age": 8})));
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(asked.all()[0]["requestedSchema"], schema);
    let answer: Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(
        answer["content"],
        json!({"name": "nobody", "age": 8, "vegan": false})
    );
}

async fn what_does_not_fit_the_form_never_reaches_the_server(world: World) {
    let (host, _) = host(ElicitResult::accept(json!({"name": 7})));
    let client = world
        .connect_with(&greeting(), |connect| connect.host(host))
        .await;

    let error = client.call_tool("greet", ()).await.unwrap_err();

    let why = "invalid form content from the host: the field `name` must be a string";
    assert!(error.to_string().contains(why), "{error}");
}

/// Asks for everything that a form can ask for, in params that the server writes itself.
fn particular() -> Server {
    let ask = Tool::raw("ask", anything(), async |_, cx: Context| {
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
    Server::new("particular", "1").tool(ask)
}

async fn what_a_client_sends_although_it_does_not_fit_the_form_is_refused(world: World) {
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
            json!("nobody"),
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
        let answered = answered_by_hand(&world, answer).await;

        let text = answered.to_string();
        match why {
            None => assert!(text.contains("a@b"), "{text}"),
            Some(why) => assert!(text.contains(why), "{text} does not say: {why}"),
        }
    }
}

/// What the tool `ask` says to a client that checks nothing.
async fn answered_by_hand(world: &World, answer: Value) -> Value {
    let declared = json!({"elicitation": {"form": {}}});
    let mut client = world.scripted_client(&particular(), declared.clone()).await;
    let meta = match world.is_modern() {
        true => json!({"io.modelcontextprotocol/clientCapabilities": declared}),
        false => json!({}),
    };
    let params = json!({"name": "ask", "_meta": meta});
    client.request(world.dialect(), "1", "tools/call", params);
    if !world.is_modern() {
        client.expect("elicitation/create").await.answer(answer);
        return client.hear().await;
    }
    let asked = client.hear().await;
    let params = json!({
        "name": "ask", "inputResponses": {"form": answer}, "requestState": asked["result"]["requestState"], "_meta": meta,
    });
    client.request(world.dialect(), "2", "tools/call", params);
    client.hear().await
}

async fn a_form_is_flat(world: World) {
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "it is never filled in")]
    struct Nested {
        who: Name,
    }
    let nest = Tool::raw("nest", anything(), async |_, cx: Context| {
        let nested: Nested = cx.elicit("nested", "Who?").await?;
        Ok(CallToolResult::text(nested.who.name))
    });
    let (host, asked) = host(ElicitResult::accept(json!({"who": {"name": "Ada"}})));
    let server = Server::new("nesting", "1").tool(nest);
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let outcome = client.call_tool("nest", ()).await;

    assert!(outcome.is_err(), "{outcome:?}");
    assert!(asked.all().is_empty());
}

async fn a_client_that_did_not_declare_it_is_not_asked(world: World) {
    let client = world.connect(&greeting()).await;

    let error = refusal(client.call_tool("greet", ()).await);

    assert!(error.message.contains("elicitation"), "{error:?}");
    if let Some(tapped) = world.tapped() {
        let heard = tapped.received();
        assert!(
            !heard
                .iter()
                .any(|frame| frame["method"] == "elicitation/create"),
            "{heard:?}"
        );
    }
}

async fn a_client_refuses_a_question_that_it_did_not_declare(world: World) {
    let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let url = json!({"mode": "url", "message": "There", "url": "https://example.com", "elicitationId": "1"});
    let answering = async |_| ElicitResult::new(ElicitAction::Accept);
    let only_forms = Host::new().elicitation(answering);
    let only_urls = Host::new().elicitation_url(async |_| ElicitResult::new(ElicitAction::Accept));
    for (host, question) in [(Host::new(), &form), (only_forms, &url), (only_urls, &form)] {
        let (client, mut server) = world
            .scripted_server(json!({}), |connect| connect.host(host))
            .await;

        let answer = server
            .ask("q", "elicitation/create", question.clone())
            .await;

        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        drop(client);
    }
}

async fn a_question_without_a_kind_is_a_form(world: World) {
    let (host, asked) = host(ElicitResult::accept(json!({})));
    let (client, mut server) = world
        .scripted_server(json!({}), |connect| connect.host(host))
        .await;

    let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let answer = server.ask("q", "elicitation/create", form).await;

    assert_eq!(answer["result"]["action"], "accept");
    assert_eq!(asked.all()[0]["message"], "Who?");
    drop(client);
}

async fn a_client_that_names_no_kind_of_question_does_forms(world: World) {
    let mut client = world
        .scripted_client(&greeting(), json!({"elicitation": {}}))
        .await;

    client.request(world.dialect(), "c", "tools/call", json!({"name": "greet"}));
    let question = client.expect("elicitation/create").await;

    assert_eq!(question.params()["message"], "Who are you?");
    question.answer(json!({"action": "accept", "content": {"name": "Ada"}}));
    assert_eq!(
        client.hear().await["result"]["content"][0]["text"],
        "Hello, Ada!"
    );
}

async fn one_question_follows_another_until_the_user_declines(world: World) {
    let steps = Tool::raw("steps", anything(), async |_, cx: Context| {
        let mut names = Vec::new();
        for step in ["first", "second", "third"] {
            match cx.elicit::<Name>(step, step).outcome().await? {
                Elicited::Accept(Name { name }) => names.push(name),
                Elicited::Decline | Elicited::Cancel => break,
            }
        }
        Ok(CallToolResult::text(names.join(" ")))
    });
    let asked = Asked::default();
    let seen = asked.clone();
    let host = Host::new().elicitation(move |form: ElicitRequestFormParams| {
        seen.push(json!(form.message));
        async move {
            match &*form.message {
                "first" => ElicitResult::accept(json!({"name": "Ada"})),
                _ => ElicitResult::new(ElicitAction::Decline),
            }
        }
    });
    let server = Server::new("steps", "1").tool(steps);
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let reply = client.call_tool("steps", ()).await.unwrap();

    assert_eq!(reply.text(), "Ada");
    assert_eq!(asked.all(), ["first", "second"]);
}

async fn a_server_that_is_cancelled_takes_its_question_back(world: World) {
    let mut client = world
        .scripted_client(&greeting(), json!({"elicitation": {}}))
        .await;
    client.request(world.dialect(), "c", "tools/call", json!({"name": "greet"}));
    let question = client.expect("elicitation/create").await.hold();

    client.notify("notifications/cancelled", json!({"requestId": "c"}));

    client.expect_cancel(&question).await;
    client.expect_nothing().await;
}

/// A server whose tool `sign_in` sends the user to a URL.
fn bank() -> Server {
    let sign_in = Tool::raw("sign_in", anything(), async |_, cx: Context| {
        let visit = cx.elicit_url("sign-in", "Sign in, please.", "https://example.com/sign-in");
        Ok(CallToolResult::text(match visit.outcome().await? {
            Elicited::Accept(()) => "welcome",
            Elicited::Decline => "declined",
            Elicited::Cancel => "dismissed",
        }))
    });
    Server::new("bank", "1").tool(sign_in)
}

async fn a_user_is_sent_to_a_url_and_agrees_without_content(world: World) {
    let asked = Asked::default();
    let seen = asked.clone();
    let host = Host::new().elicitation_url(move |visit| {
        seen.push(serde_json::to_value(visit).unwrap());
        async { ElicitResult::accept(json!({"nobody": "wants this"})) }
    });
    let client = world
        .connect_with(&bank(), |connect| connect.host(host))
        .await;

    let reply = client.call_tool("sign_in", ()).await.unwrap();

    let question = &asked.all()[0];
    assert_eq!(reply.text(), "welcome");
    assert_eq!(question["message"], "Sign in, please.");
    assert_eq!(question["url"], "https://example.com/sign-in");
    assert_eq!(question["elicitationId"].is_string(), !world.is_modern());
    if let Some(tapped) = world.tapped() {
        let sent = tapped.sent();
        assert!(
            !sent
                .iter()
                .any(|frame| frame.to_string().contains("nobody")),
            "{sent:?}"
        );
    }
}

async fn a_user_who_is_sent_to_a_url_can_decline_or_do_neither(world: World) {
    for (action, text) in [
        (ElicitAction::Decline, "declined"),
        (ElicitAction::Cancel, "dismissed"),
    ] {
        let host = Host::new().elicitation_url(move |_| async move { ElicitResult::new(action) });
        let client = world
            .connect_with(&bank(), |connect| connect.host(host))
            .await;

        let reply = client.call_tool("sign_in", ()).await.unwrap();

        assert_eq!(reply.text(), text);
    }
}

async fn a_server_asks_only_in_the_ways_that_the_client_declared(world: World) {
    let unasked = async |_| -> ElicitResult { panic!("the host was asked") };
    let only_forms = Host::new().elicitation(unasked);
    let only_urls = Host::new().elicitation_url(async |_| panic!("the host was asked"));
    let shown_forms = world
        .connect_with(&bank(), |connect| connect.host(only_forms))
        .await;
    let shown_urls = world
        .connect_with(&greeting(), |connect| connect.host(only_urls))
        .await;

    let by_url = refusal(shown_forms.call_tool("sign_in", ()).await);
    let by_form = refusal(shown_urls.call_tool("greet", ()).await);

    assert!(by_url.message.contains("url"), "{by_url:?}");
    assert!(by_form.message.contains("form"), "{by_form:?}");
}

async fn a_request_is_refused_until_a_url_was_visited(world: World) {
    let was_visited = Arc::new(AtomicBool::new(false));
    // Stands for the page behind the URL.
    let page = was_visited.clone();
    let visit = Tool::raw("visit", anything(), move |_, _| {
        page.store(true, Ordering::SeqCst);
        async { Ok(CallToolResult::text("thank you")) }
    });
    let guarded = Tool::raw("guarded", anything(), move |_, _| {
        let is_open = was_visited.load(Ordering::SeqCst);
        async move {
            if !is_open {
                let pending = json!({"elicitations": [{
                    "mode": "url", "elicitationId": "7", "url": "https://example.com", "message": "Visit this.",
                }]});
                let code = ErrorCode::URL_ELICITATION_REQUIRED;
                return Err(RpcError::new(code, "visit first").with_data(Json::from(pending)));
            }
            Ok(CallToolResult::text("welcome back"))
        }
    });
    let client = world
        .connect(&Server::new("guard", "1").tool(guarded).tool(visit))
        .await;

    let refused = refusal(client.call_tool("guarded", ()).await);
    let too_early = refusal(client.call_tool("guarded", ()).await);
    client.call_tool("visit", ()).await.unwrap();
    let retried = client.call_tool("guarded", ()).await.unwrap();

    let pending = value(&refused.data.unwrap());
    assert_eq!(refused.code, ErrorCode::URL_ELICITATION_REQUIRED);
    assert_eq!(too_early.code, ErrorCode::URL_ELICITATION_REQUIRED);
    assert_eq!(pending["elicitations"][0]["elicitationId"], "7");
    assert_eq!(retried.text(), "welcome back");
}

async fn the_end_of_a_visit_that_nobody_knows_is_ignored(world: World) {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opening = gate.clone();
    let host = Host::new().elicitation_url(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            ElicitResult::new(ElicitAction::Accept)
        }
    });
    let (client, mut server) = world
        .scripted_server(json!({}), |connect| connect.host(host))
        .await;
    let visit = json!({
        "mode": "url", "elicitationId": "known", "url": "https://example.com", "message": "Visit this.",
    });
    let question =
        json!({"jsonrpc": "2.0", "id": "v", "method": "elicitation/create", "params": visit});
    server.say(&question);

    for params in [json!({"elicitationId": "unknown"}), json!({})] {
        server.notify("notifications/elicitation/complete", params);
    }
    let pong = server.ask("p", "ping", json!({})).await;
    opening.notify_one();
    let visited = server.hear().await;

    assert_eq!(pong["result"], json!({}));
    assert_eq!(
        (&visited["id"], &visited["result"]["action"]),
        (&json!("v"), &json!("accept"))
    );
    drop(client);
}

/// The first version in which the user can be asked.
const FORMS: &str = "2025-06-18";
/// The first version in which the user can be sent to a URL.
const URLS: &str = "2025-11-25";
