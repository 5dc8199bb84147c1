//! The client that the official conformance suite tests. The suite passes the name of the scenario in the environment
//! and the URL of its server as the last argument.
//!
//! ```text
//! MCP_CONFORMANCE_SCENARIO=tools_call everything-client http://localhost:3000/mcp
//! MCP_CONFORMANCE_SCENARIO=tools_call everything-client --through bowline http://localhost:3000/mcp
//! ```
//!
//! With `--through`, `bowline bridge` is between this client and the server, and signs in for it.

#![allow(clippy::print_stderr, reason = "it prints what the bridge prints")]

mod authorization;
mod bridge;
mod scenarios;

use std::env;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use bowline::Client;
use bowline::client::Host;
use bowline::types::{
    CreateMessageResult, ElicitRequestFormParams, ElicitResult, Root, TextContent,
};
use serde_json::{Value, json};

use bridge::{AS_BROWSER, BridgeProcess};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let url = words.last().map_or("", String::as_str);
    if env::var_os(AS_BROWSER).is_some() {
        let browsed = authorization::browse(url).await;
        return browsed.map_err(|error| error as Box<dyn Error>);
    }
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    if !scenarios::is_known(&scenario) {
        return Err(format!("unknown scenario `{scenario}`").into());
    }
    let running = async {
        match &words[..] {
            [option, bowline, _] if option == "--through" => {
                run_through(Path::new(bowline), &scenario, url).await
            }
            _ => run(&scenario, url).await,
        }
    };
    tokio::time::timeout(TIME_LIMIT, running).await?
}

/// Connects with version negotiation, as an application would, and runs the scenario.
async fn run(scenario: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let credentials = scenarios::context()?.credentials;
    let client = Client::connect(url)
        .client_info("everything-client", "1.0.0")
        .authorizer(authorization::oauth(url, scenario, credentials)?)
        .host(host())
        .await?;
    scenarios::run(scenario, &client).await?;
    Ok(client.close().await?)
}

/// The same through a bridge.
async fn run_through(bowline: &Path, scenario: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let credentials = scenarios::context()?.credentials;
    let oauth = authorization::bridge_settings(scenario, &credentials);
    let mut bridge = BridgeProcess::start(bowline, url, &oauth).await?;
    let client = Client::connect(&bridge.url)
        .client_info("everything-client", "1.0.0")
        .host(host())
        .await?;
    scenarios::run(scenario, &client).await?;
    client.close().await?;
    bridge.terminate().await
}

/// A host that answers every request of a server.
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

/// Confirms every form. The SDK fills in the defaults of missing fields.
fn filled_in(form: &ElicitRequestFormParams) -> Value {
    let fields = form.requested_schema.properties.0.iter();
    let consents = fields.filter(|(name, _)| name == "confirmed");
    consents
        .map(|(name, _)| (name.clone(), json!(true)))
        .collect()
}

/// Below the timeout of the suite, which does not kill the processes it started.
const TIME_LIMIT: Duration = Duration::from_secs(25);
