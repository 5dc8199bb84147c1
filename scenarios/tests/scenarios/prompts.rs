//! Prompts, and completing what is typed into them.

use std::collections::BTreeMap;

use bowline::server::Completer;
use bowline::types::{
    CompleteArgument, CompleteReference, CompleteRequest, CompleteRequestParams, Completion,
    GetPromptResult, ListPromptsRequest, PaginatedRequestParams, PromptReference,
    ResourceTemplateReference,
};
use bowline::{Client, ErrorCode, Prompt, ResourceTemplate, Result, Server};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{messages, prompt, refusal};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(a_server_with_prompts_says_so, "prompts:capability:declared"),
        scenario!(
            a_prompt_is_listed_with_its_arguments,
            "prompts:list:basic",
            "mcpserver:prompt:decorated",
        ),
        scenario!(
            arguments_reach_a_prompt_and_optional_ones_may_be_left_out,
            "prompts:get:with-args",
            "prompts:get:multi-message",
            "mcpserver:prompt:optional-args",
        ),
        scenario!(a_prompt_without_arguments_works, "prompts:get:no-args"),
        scenario!(
            a_prompt_that_cannot_be_filled_in_is_refused_before_its_handler_runs,
            "prompts:get:missing-required-args",
            "mcpserver:prompt:args-validation",
            "prompts:get:unknown-name",
            "mcpserver:prompt:unknown-name",
        ),
        scenario!(
            a_prompt_has_pictures_and_resources,
            "prompts:get:content:image",
            "prompts:get:content:embedded-resource",
        ),
        scenario!(a_prompt_has_sound, "prompts:get:content:audio").since("2025-03-26"),
        scenario!(
            a_second_prompt_of_one_name_is_refused,
            "mcpserver:prompt:duplicate-name"
        ),
        scenario!(
            registering_a_completer_advertises_completions,
            "completion:capability:declared",
            "mcpserver:completion:capability-auto",
        )
        .since("2025-03-26"),
        scenario!(
            a_server_without_completers_completes_nothing,
            "completion:complete:not-supported",
        ),
        scenario!(
            an_argument_of_a_prompt_is_completed_by_what_is_known,
            "completion:prompt-arg",
            "completion:context-arguments",
        )
        .since("2025-06-18"),
        scenario!(
            a_variable_of_a_template_is_completed_by_at_most_a_hundred_values,
            "completion:resource-template-arg",
            "completion:result-shape",
        ),
        scenario!(
            what_is_not_there_is_not_completed,
            "completion:error:invalid-ref"
        ),
    ]
}

fn reviewing() -> Server {
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

fn showing(content: Value) -> Server {
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

async fn a_server_with_prompts_says_so(world: World) {
    let told = world.introduction(&world.connect(&reviewing()).await).await;

    let told = serde_json::to_value(told.capabilities).unwrap();
    assert_eq!(told, json!({"prompts": {"listChanged": true}}));
}

async fn a_prompt_is_listed_with_its_arguments(world: World) {
    let client = world.connect(&reviewing()).await;

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

async fn arguments_reach_a_prompt_and_optional_ones_may_be_left_out(world: World) {
    let client = world.connect(&reviewing()).await;

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

async fn a_prompt_without_arguments_works(world: World) {
    let client = world.connect(&reviewing()).await;

    let hello = messages(&client, "hello", Value::Null).await;

    assert_eq!(
        hello,
        json!([{"role": "user", "content": {"type": "text", "text": "Say hello."}}])
    );
}

async fn a_prompt_that_cannot_be_filled_in_is_refused_before_its_handler_runs(world: World) {
    let strict = Prompt::raw("strict", async |_, _| -> std::result::Result<&str, _> {
        panic!("the handler ran")
    });
    let client = world
        .connect(&Server::new("s", "1").prompt(strict.required("code", "what")))
        .await;

    let missing = refusal(prompt(&client, "strict", json!({})).await);
    let params = json!({"name": "strict", "arguments": {"code": 7}});
    let misfit = refusal(client.raw("prompts/get", params).await);
    let unknown = refusal(prompt(&client, "stric", json!({})).await);

    for error in [missing, misfit, unknown] {
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{error:?}");
    }
}

async fn shows(world: World, content: Value) {
    let client = world.connect(&showing(content.clone())).await;

    let shown = messages(&client, "show", json!({})).await;

    assert_eq!(shown[0]["content"], content);
}

async fn a_prompt_has_pictures_and_resources(world: World) {
    let text = json!({"uri": "docs://a", "mimeType": "text/plain", "text": "a"});
    let image = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
    let resource = json!({"type": "resource", "resource": text});
    let server = Server::new("both", "1")
        .prompt(showing_as("image", image.clone()))
        .prompt(showing_as("resource", resource.clone()));
    let client = world.connect(&server).await;

    let shown_image = messages(&client, "image", json!({})).await;
    let shown_resource = messages(&client, "resource", json!({})).await;

    assert_eq!(shown_image[0]["content"], image);
    assert_eq!(shown_resource[0]["content"], resource);
}

fn showing_as(name: &str, content: Value) -> Prompt {
    Prompt::raw(name, move |_, _| {
        let messages = json!({"messages": [{"role": "user", "content": content}]});
        async move { Ok(serde_json::from_value::<GetPromptResult>(messages).unwrap()) }
    })
}

async fn a_prompt_has_sound(world: World) {
    shows(
        world,
        json!({"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}),
    )
    .await;
}

async fn a_second_prompt_of_one_name_is_refused(world: World) {
    let other = Prompt::raw("hello", async |_, _| Ok("Say goodbye."));
    let twice = reviewing().prompt(other);

    let refused = twice.check().unwrap_err();
    let client = world.connect(&reviewing()).await;

    assert_eq!(refused.to_string(), "two prompts are called `hello`");
    assert_eq!(listed(&client).await.as_array().unwrap().len(), 2);
}

fn completing() -> Server {
    let styles = Completer::for_prompt("review", "style", async |typing, _| {
        let after = typing.arguments.get("code").cloned().unwrap_or_default();
        Ok(typing.among([
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
    reviewing()
        .resource_template(page.unwrap())
        .completion(styles)
        .completion(pages)
}

async fn registering_a_completer_advertises_completions(world: World) {
    let with = world
        .introduction(&world.connect(&completing()).await)
        .await;
    let without = world.introduction(&world.connect(&reviewing()).await).await;

    assert!(with.capabilities.completions.is_some());
    assert!(without.capabilities.completions.is_none());
}

async fn a_server_without_completers_completes_nothing(world: World) {
    let client = world.connect(&reviewing()).await;

    let params = json!({"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "style", "value": ""}});
    let error = refusal(client.raw("completion/complete", params).await);

    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
}

async fn an_argument_of_a_prompt_is_completed_by_what_is_known(world: World) {
    let client = world.connect(&completing()).await;

    let known = Some(json!({"code": "knuth"}));
    let styles = complete(&client, PromptReference::new("review"), "style=k", known)
        .await
        .unwrap();

    assert_eq!(styles.values, ["kindly", "kurtly", "knuth"]);
}

async fn a_variable_of_a_template_is_completed_by_at_most_a_hundred_values(world: World) {
    let client = world.connect(&completing()).await;

    let template = ResourceTemplateReference::new("docs://{book}/{page}");
    let pages = complete(&client, template, "page=", None).await.unwrap();

    assert_eq!(pages.values.len(), 100);
    assert_eq!((pages.total, pages.has_more), (Some(250), Some(true)));
}

async fn what_is_not_there_is_not_completed(world: World) {
    let client = world.connect(&completing()).await;

    let prompt = complete(&client, PromptReference::new("nobody"), "style=", None).await;
    let template = complete(
        &client,
        ResourceTemplateReference::new("docs://x"),
        "page=",
        None,
    )
    .await;
    let argument = complete(&client, PromptReference::new("review"), "colour=", None).await;

    for refused in [prompt, template, argument] {
        assert_eq!(refusal(refused).code, ErrorCode::INVALID_PARAMS);
    }
}
