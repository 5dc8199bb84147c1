//! The actions of the client in each scenario of the suite.

use std::env;
use std::error::Error;

use bowline::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authorization::ClientCredentials;

/// Whether [`run`] supports a scenario.
pub(crate) fn is_known(scenario: &str) -> bool {
    SCENARIOS.contains(&scenario) || scenario.starts_with("auth/")
}

const SCENARIOS: [&str; 11] = [
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

/// Performs the requests that the scenario checks.
pub(crate) async fn run(scenario: &str, client: &Client) -> Result<(), Box<dyn Error>> {
    // Some servers of the suite have tools without advertising them.
    let tools = client.list_tools().skip_capability_check().await?;
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
            for ContextCall { name, arguments } in context()?.tool_calls {
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
        // The other scenarios check only `tools/list`.
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

/// The context that the suite provides for some scenarios.
#[derive(Default, Deserialize)]
pub(crate) struct ScenarioContext {
    #[serde(rename = "toolCalls", default)]
    tool_calls: Vec<ContextCall>,
    #[serde(flatten)]
    pub(crate) credentials: ClientCredentials,
}

/// A tool call that the scenario requests.
#[derive(Deserialize)]
struct ContextCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Reads the context from the environment; empty if the suite provides none.
pub(crate) fn context() -> Result<ScenarioContext, Box<dyn Error>> {
    match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(_) => Ok(ScenarioContext::default()),
    }
}
