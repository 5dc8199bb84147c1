//! Prompts, and the completion of their arguments.

use std::collections::BTreeMap;

use bowline::server::Completer;
use bowline::types::{
    CompleteArgument, CompleteReference, CompleteRequest, CompleteRequestParams, Completion,
    GetPromptResult, ListPromptsRequest, PaginatedRequestParams, PromptReference,
    ResourceTemplateReference,
};
use bowline::{Client, ErrorCode, Prompt, ResourceTemplate, Result, Server};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{messages, peer_error, prompt};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(prompts_are_advertised, "prompts:capability:declared"),
        scenario!(
            a_prompt_is_listed_with_its_arguments,
            "prompts:list:basic",
            "mcpserver:prompt:decorated",
        ),
        scenario!(
            arguments_reach_a_prompt_and_optional_ones_may_be_omitted,
            "prompts:get:with-args",
            "prompts:get:multi-message",
            "mcpserver:prompt:optional-args",
        ),
        scenario!(a_prompt_without_arguments_works, "prompts:get:no-args"),
        scenario!(
            invalid_prompt_requests_do_not_reach_the_handler,
            "prompts:get:missing-required-args",
            "mcpserver:prompt:args-validation",
            "prompts:get:unknown-name",
            "mcpserver:prompt:unknown-name",
        ),
        scenario!(
            a_prompt_contains_images_and_resources,
            "prompts:get:content:image",
            "prompts:get:content:embedded-resource",
        ),
        scenario!(a_prompt_contains_audio, "prompts:get:content:audio").since("2025-03-26"),
        scenario!(
            a_duplicate_prompt_name_is_rejected,
            "mcpserver:prompt:duplicate-name"
        ),
        scenario!(
            registering_a_completer_advertises_completions,
            "completion:capability:declared",
            "mcpserver:completion:capability-auto",
        )
        .since("2025-03-26"),
        scenario!(
            a_server_without_completers_rejects_completion_requests,
            "completion:complete:not-supported",
        ),
        scenario!(
            a_prompt_argument_is_completed_using_the_known_arguments,
            "completion:prompt-arg",
            "completion:context-arguments",
        )
        .since("2025-06-18"),
        scenario!(
            a_template_variable_is_completed_with_at_most_100_values,
            "completion:resource-template-arg",
            "completion:result-shape",
        ),
        scenario!(
            completing_an_unknown_reference_is_rejected,
            "completion:error:invalid-ref"
        ),
    ]
}

fn review_server() -> Server {
    let review = Prompt::raw("review", async |arguments: BTreeMap<String, String>, _| {
        let style = arguments.get("style").map_or("kindly", String::as_str);
        let messages = json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": format!("Review {style}.")}},
            {"role": "assistant", "content": {"type": "text", "text": arguments["code"]}},
        ]});
        Ok(serde_json::from_value::<GetPromptResult>(messages).unwrap())
    })
    .description("Reviews code.")
    .required("code", "what to review")
    .optional("style", "how");
    let hello = Prompt::raw("hello", async |_, _| Ok("Say hello."));
    Server::new("reviewer", "1").prompt(review).prompt(hello)
}

fn server_showing(content: Value) -> Server {
    let show = Prompt::raw("show", move |_, _| {
        let messages = json!({"messages": [{"role": "user", "content": content}]});
        async move { Ok(serde_json::from_value::<GetPromptResult>(messages).unwrap()) }
    });
    Server::new("showing", "1").prompt(show)
}

async fn listed(client: &Client) -> Value {
    let params = PaginatedRequestParams::default();
    let page = client.request::<ListPromptsRequest>(&params).await.unwrap();
    serde_json::to_value(page.prompts).unwrap()
}

async fn complete(
    client: &Client,
    whose: impl Into<CompleteReference>,
    argument: &str,
    known: Option<Value>,
) -> Result<Completion> {
    let (name, typed) = argument.split_once('=').unwrap();
    let mut params = CompleteRequestParams::new(whose, CompleteArgument::new(name, typed));
    params.context =
        known.map(|known| serde_json::from_value(json!({"arguments": known})).unwrap());
    Ok(client.request::<CompleteRequest>(&params).await?.completion)
}

async fn prompts_are_advertised(env: ScenarioEnv) {
    let discovered = env
        .discover_result(&env.connect(&review_server()).await)
        .await;

    let discovered = serde_json::to_value(discovered.capabilities).unwrap();
    assert_eq!(discovered, json!({"prompts": {"listChanged": true}}));
}

async fn a_prompt_is_listed_with_its_arguments(env: ScenarioEnv) {
    let client = env.connect(&review_server()).await;

    let listed = listed(&client).await;

    let names: Vec<&Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["hello", "review"]);
    assert_eq!(listed[1]["description"], "Reviews code.");
    let arguments = json!([
        {"name": "code", "description": "what to review", "required": true},
        {"name": "style", "description": "how", "required": false},
    ]);
    assert_eq!(listed[1]["arguments"], arguments);
}

async fn arguments_reach_a_prompt_and_optional_ones_may_be_omitted(env: ScenarioEnv) {
    let client = env.connect(&review_server()).await;

    let with_both = messages(
        &client,
        "review",
        json!({"code": "x = 1", "style": "harshly"}),
    )
    .await;
    let with_one = messages(&client, "review", json!({"code": "x = 1"})).await;

    let expected = json!([
        {"role": "user", "content": {"type": "text", "text": "Review harshly."}},
        {"role": "assistant", "content": {"type": "text", "text": "x = 1"}},
    ]);
    assert_eq!(with_both, expected);
    assert_eq!(with_one[0]["content"]["text"], "Review kindly.");
}

async fn a_prompt_without_arguments_works(env: ScenarioEnv) {
    let client = env.connect(&review_server()).await;

    let hello = messages(&client, "hello", Value::Null).await;

    assert_eq!(
        hello,
        json!([{"role": "user", "content": {"type": "text", "text": "Say hello."}}])
    );
}

async fn invalid_prompt_requests_do_not_reach_the_handler(env: ScenarioEnv) {
    let strict = Prompt::raw("strict", async |_, _| -> std::result::Result<&str, _> {
        panic!("the handler ran")
    });
    let client = env
        .connect(&Server::new("s", "1").prompt(strict.required("code", "what")))
        .await;

    let missing = peer_error(prompt(&client, "strict", json!({})).await);
    let params = json!({"name": "strict", "arguments": {"code": 7}});
    let misfit = peer_error(client.request_raw("prompts/get", params).await);
    let unknown = peer_error(prompt(&client, "stric", json!({})).await);

    for error in [missing, misfit, unknown] {
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{error:?}");
    }
}

async fn expect_content(env: ScenarioEnv, content: Value) {
    let client = env.connect(&server_showing(content.clone())).await;

    let shown = messages(&client, "show", json!({})).await;

    assert_eq!(shown[0]["content"], content);
}

async fn a_prompt_contains_images_and_resources(env: ScenarioEnv) {
    let text = json!({"uri": "docs://a", "mimeType": "text/plain", "text": "a"});
    let image = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
    let resource = json!({"type": "resource", "resource": text});
    let server = Server::new("both", "1")
        .prompt(prompt_showing("image", image.clone()))
        .prompt(prompt_showing("resource", resource.clone()));
    let client = env.connect(&server).await;

    let shown_image = messages(&client, "image", json!({})).await;
    let shown_resource = messages(&client, "resource", json!({})).await;

    assert_eq!(shown_image[0]["content"], image);
    assert_eq!(shown_resource[0]["content"], resource);
}

fn prompt_showing(name: &str, content: Value) -> Prompt {
    Prompt::raw(name, move |_, _| {
        let messages = json!({"messages": [{"role": "user", "content": content}]});
        async move { Ok(serde_json::from_value::<GetPromptResult>(messages).unwrap()) }
    })
}

async fn a_prompt_contains_audio(env: ScenarioEnv) {
    expect_content(
        env,
        json!({"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}),
    )
    .await;
}

async fn a_duplicate_prompt_name_is_rejected(env: ScenarioEnv) {
    let other = Prompt::raw("hello", async |_, _| Ok("Say goodbye."));
    let twice = review_server().prompt(other);

    let refused = twice.check().unwrap_err();
    let client = env.connect(&review_server()).await;

    assert_eq!(refused.to_string(), "duplicate prompt name `hello`");
    assert_eq!(listed(&client).await.as_array().unwrap().len(), 2);
}

fn completing_server() -> Server {
    let styles = Completer::for_prompt("review", "style", async |input, _| {
        let after = input.arguments.get("code").cloned().unwrap_or_default();
        Ok(input.matching([
            "kindly".to_owned(),
            "kurtly".to_owned(),
            "briefly".to_owned(),
            after,
        ]))
    });
    let pages = Completer::for_template("docs://{book}/{page}", "page", async |_, _| {
        Ok((0..250).map(|page| page.to_string()).collect::<Vec<_>>())
    });
    let page = ResourceTemplate::raw("docs://{book}/{page}", "page", async |_, _| Ok("text"));
    review_server()
        .resource_template(page.unwrap())
        .completer(styles)
        .completer(pages)
}

async fn registering_a_completer_advertises_completions(env: ScenarioEnv) {
    let with = env
        .discover_result(&env.connect(&completing_server()).await)
        .await;
    let without = env
        .discover_result(&env.connect(&review_server()).await)
        .await;

    assert!(with.capabilities.completions.is_some());
    assert!(without.capabilities.completions.is_none());
}

async fn a_server_without_completers_rejects_completion_requests(env: ScenarioEnv) {
    let client = env.connect(&review_server()).await;

    let params = json!({"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "style", "value": ""}});
    let error = peer_error(client.request_raw("completion/complete", params).await);

    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
}

async fn a_prompt_argument_is_completed_using_the_known_arguments(env: ScenarioEnv) {
    let client = env.connect(&completing_server()).await;

    let known = Some(json!({"code": "knuth"}));
    let styles = complete(&client, PromptReference::new("review"), "style=k", known)
        .await
        .unwrap();

    assert_eq!(styles.values, ["kindly", "kurtly", "knuth"]);
}

async fn a_template_variable_is_completed_with_at_most_100_values(env: ScenarioEnv) {
    let client = env.connect(&completing_server()).await;

    let template = ResourceTemplateReference::new("docs://{book}/{page}");
    let pages = complete(&client, template, "page=", None).await.unwrap();

    assert_eq!(pages.values.len(), 100);
    assert_eq!((pages.total, pages.has_more), (Some(250), Some(true)));
}

async fn completing_an_unknown_reference_is_rejected(env: ScenarioEnv) {
    let client = env.connect(&completing_server()).await;

    let prompt = complete(&client, PromptReference::new("unknown"), "style=", None).await;
    let template = complete(
        &client,
        ResourceTemplateReference::new("docs://x"),
        "page=",
        None,
    )
    .await;
    let argument = complete(&client, PromptReference::new("review"), "colour=", None).await;

    for refused in [prompt, template, argument] {
        assert_eq!(peer_error(refused).code, ErrorCode::INVALID_PARAMS);
    }
}
