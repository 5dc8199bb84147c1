//! What a bridge passes on without a hand in it: extensions, log messages, subscriptions, caching hints.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod cache_hints;
mod extension;
mod logs;
mod subscriptions;

use bowline::client::ClientBuilder;
use bowline::exchange::Dialects;
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::PipeConnector;
use bowline_bridge::{Bridge, BridgeConfig, Target};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const ERAS: [&str; 2] = [MODERN, LEGACY];

/// Returns a target that reaches a server of one version over HTTP.
fn http_target(server: &Server, version: &'static str) -> Target {
    let service = server
        .http()
        .legacy(Legacy::sessions())
        .versions(Dialects::only(|dialect| dialect.version == version));
    Target::new("up", move |_| Ok(over_http(&service))).stateless()
}

/// Returns a bridge to one server, and one to the only server of a configuration.
fn bridges(target: &Target) -> [Bridge; 2] {
    let config = BridgeConfig::from_json(r#"{"mcpServers": {"up": {"command": "up"}}}"#).unwrap();
    let configured = target.clone();
    let configured = Bridge::from_config_with(&config, move |_| Ok(configured.clone()));
    [Bridge::new(target.clone()), configured.unwrap()]
}

/// Returns a client of an HTTP service.
fn over_http(service: &HttpService) -> ClientBuilder {
    let http = HyperClient::with_connector(PipeConnector::to(service));
    Client::connect("http://localhost/mcp").http_client(http)
}

/// Lets the other tasks run until they wait, without letting time pass. For runtimes with one thread.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
