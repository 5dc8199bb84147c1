//! Tools that request input from the client: elicitation, sampling and roots, with the same handlers in both eras.

use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::types::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestFormParams, Role,
    SamplingMessage, SamplingMessageContentBlock, TextContent,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) fn register(server: Server) -> Server {
    server
        .tool(test_sampling)
        .tool(test_elicitation)
        .tool(test_elicitation_defaults)
        .tool(test_elicitation_choices)
        .tool(test_missing_capability)
        .tool(test_input_required_result_elicitation)
        .tool(test_input_required_result_sampling)
        .tool(test_input_required_result_list_roots)
        .tool(test_input_required_result_request_state)
        .tool(test_input_required_result_multiple_inputs)
        .tool(test_input_required_result_multi_round)
        .tool(test_input_required_result_tampered_state)
        .tool(test_input_required_result_capabilities)
}

/// Samples from the client's model.
#[tool]
async fn test_sampling(
    /// what to write about
    prompt: String,
    cx: Context,
) -> Result<String, ToolError> {
    let written = cx.sample("answer", &about(&prompt)).await?;
    Ok(format!("LLM response: {}", text_of(&written)))
}

/// Elicits a form.
#[tool]
async fn test_elicitation(
    /// the message for the user
    message: String,
    cx: Context,
) -> Result<String, ToolError> {
    let account: Account = cx.elicit("account", message).await?;
    let content = serde_json::to_string(&account)?;
    Ok(format!("User response: action=accept, content={content}"))
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Account {
    /// The name to log in with.
    username: String,
    /// The e-mail address.
    email: String,
}

/// Elicits a form with default values.
#[tool(name = "test_elicitation_sep1034_defaults")]
async fn test_elicitation_defaults(cx: Context) -> Result<String, ToolError> {
    let person: Person = cx.elicit("person", "Is this right?").await?;
    let content = serde_json::to_string(&person)?;
    Ok(format!("User response: action=accept, content={content}"))
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Person {
    name: String,
    age: i64,
    score: f64,
    status: Status,
    verified: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    Active,
    Inactive,
    Pending,
}

impl Default for Person {
    fn default() -> Self {
        Self {
            name: "John Doe".to_owned(),
            age: 30,
            score: 95.5,
            status: Status::Active,
            verified: true,
        }
    }
}

/// Elicits a form with every kind of enum.
#[tool(name = "test_elicitation_sep1330_enums")]
async fn test_elicitation_choices(cx: Context) -> Result<String, ToolError> {
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    let form = serde_json::from_value(json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }))?;
    let params = ElicitRequestFormParams::new("Which do you want?", form);
    let answer = cx.elicit_raw("choices", params).await?;
    let content = serde_json::to_string(&answer)?;
    Ok(format!("User response: {content}"))
}

/// Requires the sampling capability.
#[tool(requires(sampling))]
async fn test_missing_capability() -> &'static str {
    "The client has a model."
}

/// Elicits a name.
#[tool]
async fn test_input_required_result_elicitation(cx: Context) -> Result<String, ToolError> {
    let question = cx.elicit("user_name", "What is your name?");
    let Name { name } = question.accept_unsolicited().await?;
    Ok(format!("Hello, {name}!"))
}

/// Samples the name of a capital.
#[tool]
async fn test_input_required_result_sampling(cx: Context) -> Result<String, ToolError> {
    let question = about("What is the capital of France?");
    Ok(text_of(&cx.sample("capital_question", &question).await?))
}

/// Lists the roots.
#[tool]
async fn test_input_required_result_list_roots(cx: Context) -> Result<String, ToolError> {
    let roots = cx.roots().await?.roots;
    Ok(format!("There are {} roots.", roots.len()))
}

/// Stores request state across an elicitation.
#[tool]
async fn test_input_required_result_request_state(cx: Context) -> Result<String, ToolError> {
    cx.remember("what was there before").await?;
    let Confirmed { ok } = cx.elicit("confirm", "Go on?").await?;
    let before: Option<String> = cx.recall().await?;
    Ok(match before {
        Some(_) if ok => "state-ok".to_owned(),
        _ => "state-lost".to_owned(),
    })
}

/// Requests three inputs concurrently.
#[tool]
async fn test_input_required_result_multiple_inputs(cx: Context) -> Result<String, ToolError> {
    let greeting = about("Write a greeting.");
    let (user, greeting, roots) = tokio::try_join!(
        cx.elicit::<Name>("user_name", "What is your name?"),
        cx.sample("greeting", &greeting),
        cx.roots(),
    )?;
    let (greeting, roots) = (text_of(&greeting), roots.roots.len());
    Ok(format!("{greeting} {} with {roots} roots", user.name))
}

/// Requests two inputs in sequence.
#[tool]
async fn test_input_required_result_multi_round(cx: Context) -> Result<String, ToolError> {
    let Name { name } = cx.elicit("step1", "What is your name?").await?;
    let Color { color } = cx.elicit("step2", "Which color do you like?").await?;
    Ok(format!("{name} likes {color}."))
}

/// Stores request state that the client must not modify.
#[tool]
async fn test_input_required_result_tampered_state(cx: Context) -> Result<String, ToolError> {
    cx.remember("a secret").await?;
    let Confirmed { ok } = cx.elicit("confirm", "Go on?").await?;
    Ok(format!("confirmed: {ok}"))
}

/// Requests an input that the client supports.
#[tool]
async fn test_input_required_result_capabilities(cx: Context) -> Result<String, ToolError> {
    if cx.caller().capabilities.elicitation.is_some() {
        let Name { name } = cx.elicit("user_name", "What is your name?").await?;
        return Ok(format!("Hello, {name}!"));
    }
    let written = cx.sample("greeting", &about("Write a greeting.")).await?;
    Ok(text_of(&written))
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Color {
    color: String,
}

#[derive(Deserialize, JsonSchema)]
struct Confirmed {
    ok: bool,
}

fn about(prompt: &str) -> CreateMessageRequestParams {
    let message = SamplingMessage::new(Role::User, TextContent::new(prompt));
    CreateMessageRequestParams::new(vec![message], 100)
}

fn text_of(written: &CreateMessageResult) -> String {
    let texts = written
        .content
        .blocks()
        .iter()
        .filter_map(|block| match block {
            SamplingMessageContentBlock::Text(text) => Some(&*text.text),
            _ => None,
        });
    texts.collect()
}
