//! The client that the official conformance suite is run against. The suite names the scenario in the
//! environment and passes the URL of its server as the last argument.
//!
//! ```text
//! MCP_CONFORMANCE_SCENARIO=tools_call everything-client http://localhost:3000/mcp
//! ```

mod acts;

use std::env;
use std::error::Error;
use std::time::Duration;

use bowline::Client;
use bowline::client::Host;
use bowline::types::ElicitResult;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().next_back().unwrap_or_default();
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    tokio::time::timeout(PATIENCE, run(&scenario, &url)).await?
}

/// Connects as any application would, by whatever the server speaks, and acts as the scenario wants.
async fn run(scenario: &str, url: &str) -> Result<(), Box<dyn Error>> {
    if !acts::KNOWN.contains(&scenario) {
        return Err(format!("there is no scenario `{scenario}` here").into());
    }
    // A form that is accepted as it is has the defaults of its fields.
    let host = Host::new().elicitation(async |form| {
        let asks_consent = form.requested_schema.properties.0.iter();
        let consent = asks_consent.filter(|(name, _)| name == "confirmed");
        let filled = consent.map(|(name, _)| (name.clone(), json!(true)));
        ElicitResult::accept(serde_json::Value::Object(filled.collect()))
    });
    let client = Client::connect(url)
        .named("everything-client", "1.0.0")
        .host(host)
        .await?;
    acts::act(scenario, &client).await?;
    Ok(client.close().await?)
}

/// Less than the suite has, which does not end what it started.
const PATIENCE: Duration = Duration::from_secs(25);
