//! Prompts with every kind of content and argument.

use bowline::RpcError;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::types::{ContentBlock, PromptMessage, Role};
use serde::Deserialize;

use crate::content::{embedded, picture};

pub(crate) fn register(server: Server) -> Server {
    server
        .prompt(test_simple_prompt)
        .prompt(test_prompt_with_arguments)
        .prompt(test_prompt_with_embedded_resource)
        .prompt(test_prompt_with_image)
        .prompt(test_input_required_result_prompt)
}

/// A text.
#[prompt]
async fn test_simple_prompt() -> &'static str {
    "This is a simple prompt for testing."
}

/// A text with two arguments.
#[prompt]
async fn test_prompt_with_arguments(
    /// the first argument
    arg1: String,
    /// the second argument
    arg2: String,
) -> String {
    format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
}

/// A resource and an instruction.
#[prompt]
async fn test_prompt_with_embedded_resource(
    /// the URI of the resource
    #[serde(rename = "resourceUri")]
    resource_uri: String,
) -> Vec<PromptMessage> {
    let text = "Embedded resource content for testing.";
    vec![
        PromptMessage::new(Role::User, embedded(&resource_uri, "text/plain", text)),
        user("Please process the embedded resource above."),
    ]
}

/// An image and an instruction.
#[prompt]
async fn test_prompt_with_image() -> Vec<PromptMessage> {
    vec![
        PromptMessage::new(Role::User, picture()),
        user("Please analyze the image above."),
    ]
}

/// A prompt that elicits input first.
#[prompt]
async fn test_input_required_result_prompt(cx: Context) -> Result<String, RpcError> {
    let About { context } = cx
        .elicit("user_context", "What should the prompt be about?")
        .await?;
    Ok(format!("Write about this: {context}"))
}

#[derive(Deserialize, JsonSchema)]
struct About {
    context: String,
}

fn user(text: &str) -> PromptMessage {
    PromptMessage::new(Role::User, ContentBlock::text(text))
}
