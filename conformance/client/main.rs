//! The client that the official conformance suite is run against. The suite names the scenario in the
//! environment and passes the URL of its server as the last argument.
//!
//! ```text
//! MCP_CONFORMANCE_SCENARIO=tools_call everything-client http://localhost:3000/mcp
//! ```

mod acts;
mod authorization;

use std::env;
use std::error::Error;
use std::time::Duration;

use bowline::Client;
use bowline::client::Host;
use bowline::types::{
    CreateMessageResult, ElicitRequestFormParams, ElicitResult, Root, TextContent,
};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().next_back().unwrap_or_default();
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    tokio::time::timeout(PATIENCE, run(&scenario, &url)).await?
}

/// Connects as any application would, by whatever the server speaks, and acts as the scenario wants.
async fn run(scenario: &str, url: &str) -> Result<(), Box<dyn Error>> {
    if !acts::knows(scenario) {
        return Err(format!("there is no scenario `{scenario}` here").into());
    }
    let known = acts::context()?.known;
    let client = Client::connect(url)
        .named("everything-client", "1.0.0")
        .authorizer(authorization::oauth(url, scenario, known)?)
        .host(host())
        .await?;
    acts::act(scenario, &client).await?;
    Ok(client.close().await?)
}

/// Answers whatever a server asks.
fn host() -> Host {
    let roots = async || vec![Root::new("file:///test/root")];
    let written = async |_| {
        Ok(CreateMessageResult::new(
            "test-model",
            TextContent::new("Hi."),
        ))
    };
    Host::new()
        .elicitation(async |form| ElicitResult::accept(filled_in(&form)))
        .sampling(written)
        .roots(roots)
}

/// Agrees to everything. Fields that are left out get their defaults from the SDK.
fn filled_in(form: &ElicitRequestFormParams) -> Value {
    let fields = form.requested_schema.properties.0.iter();
    let consents = fields.filter(|(name, _)| name == "confirmed");
    consents
        .map(|(name, _)| (name.clone(), json!(true)))
        .collect()
}

/// Less than the suite has, which does not end what it started.
const PATIENCE: Duration = Duration::from_secs(25);
