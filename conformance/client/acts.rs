//! What the client does in each scenario.

use std::env;
use std::error::Error;

use bowline::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authorization::Known;

/// Whether [`act`] knows a scenario.
pub(crate) fn knows(scenario: &str) -> bool {
    KNOWN.contains(&scenario) || scenario.starts_with("auth/")
}

const KNOWN: [&str; 11] = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
];

/// Does what the scenario wants to see.
pub(crate) async fn act(scenario: &str, client: &Client) -> Result<(), Box<dyn Error>> {
    // Some of the suite's servers have such a list and do not say so.
    let tools = client.list_tools().unchecked().await?;
    match scenario {
        "tools_call" => call(client, "add_numbers", json!({"a": 5, "b": 3})).await,
        "elicitation-sep1034-client-defaults" => {
            call(client, "test_client_elicitation_defaults", json!({})).await
        }
        "sse-retry" => call(client, "test_reconnection", json!({})).await,
        "sep-2322-client-request-state" => {
            for tool in &tools {
                call(client, &tool.name, json!({})).await?;
            }
            Ok(())
        }
        "http-standard-headers" => use_everything(client).await,
        "http-custom-headers" => {
            for Asked { name, arguments } in context()?.tool_calls {
                call(client, &name, arguments).await?;
            }
            Ok(())
        }
        "http-invalid-tool-headers" => {
            for tool in &tools {
                call(client, &tool.name, json!({"region": "us-east1"})).await?;
            }
            Ok(())
        }
        "json-schema-2020-12-preservation" => {
            let mut tools = tools.iter();
            let listed = tools.find(|tool| tool.name == "json_schema_2020_12_tool");
            let schema = &listed.ok_or("the tool is not listed")?.input_schema;
            call(client, "json_schema_echo", json!({"schema": schema})).await
        }
        scenario if scenario.starts_with("auth/") => call(client, "test-tool", json!({})).await,
        // The rest wants a list of tools, and nothing else.
        _ => Ok(()),
    }
}

/// Calls every tool, reads every resource, gets every prompt.
async fn use_everything(client: &Client) -> Result<(), Box<dyn Error>> {
    for tool in client.list_tools().await? {
        call(client, &tool.name, json!({})).await?;
    }
    for resource in client.list_resources().await? {
        client.read_resource(resource.uri).await?;
    }
    for prompt in client.list_prompts().await? {
        client.get_prompt(prompt.name, json!({})).await?;
    }
    Ok(())
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Result<(), Box<dyn Error>> {
    let reply = client.call_tool(tool, arguments).await?;
    if reply.is_error() {
        return Err(format!("`{tool}` failed: {}", reply.text()).into());
    }
    Ok(())
}

/// What the suite tells about some scenarios.
#[derive(Default, Deserialize)]
pub(crate) struct ScenarioContext {
    #[serde(rename = "toolCalls", default)]
    tool_calls: Vec<Asked>,
    #[serde(flatten)]
    pub(crate) known: Known,
}

/// A call that is to be made.
#[derive(Deserialize)]
struct Asked {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// What the suite tells about the scenario, if it tells anything.
pub(crate) fn context() -> Result<ScenarioContext, Box<dyn Error>> {
    match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(_) => Ok(ScenarioContext::default()),
    }
}
