//! A server behind a URL is replaced by one of the other era while clients use it.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::{Arc, Mutex};

use bowline::client::{ClientBuilder, EraCache, Host};
use bowline::exchange::{Dialect, Dialects};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::PipeConnector;
use bowline::types::ElicitResult;
use bowline_bridge::{Bridge, Target};
use tokio::task::JoinSet;

/// A server that can be replaced, and its connections.
#[derive(Clone)]
struct Deployment(Arc<Mutex<(HttpService, JoinSet<()>)>>);

impl Deployment {
    fn new(service: HttpService) -> Self {
        Self(Arc::new(Mutex::new((service, JoinSet::new()))))
    }

    /// Replaces the server. Its connections are closed.
    fn replace(&self, service: HttpService) {
        *self.0.lock().unwrap() = (service, JoinSet::new());
    }

    fn connector(&self) -> PipeConnector {
        let deployment = self.clone();
        PipeConnector::with(move |far| {
            let mut current = deployment.0.lock().unwrap();
            let service = current.0.clone();
            current
                .1
                .spawn(async move { service.serve_connection(far).await });
        })
    }

    fn target(&self) -> Target {
        let (connector, eras) = (self.connector(), EraCache::new());
        let connect = move |_: &_| {
            let http = HyperClient::with_connector(connector.clone());
            let connect = Client::connect("http://localhost/mcp").http_client(http);
            Ok(connect.era_cache(&eras))
        };
        Target::new("deployed", connect).stateless()
    }
}

fn server(name: &'static str) -> Server {
    let can_ask = async |cx: Context| {
        let declared = &cx.caller().capabilities;
        declared.elicitation.is_some().to_string()
    };
    Server::new(name, "1.0.0")
        .tool(Tool::new("name", move || async move { name }))
        .tool(Tool::new("can_ask", can_ask))
}

fn modern() -> HttpService {
    server("modern")
        .http()
        .versions(Dialects::only(Dialect::is_modern))
}

fn legacy() -> HttpService {
    let legacy = Dialects::only(|dialect| !dialect.is_modern());
    let service = server("legacy").http().legacy(Legacy::sessions());
    service.versions(legacy)
}

fn client(bridge: &Bridge, version: &'static str) -> ClientBuilder {
    let http = HyperClient::with_connector(PipeConnector::to(&bridge.http()));
    let connect = Client::connect("http://localhost/mcp").http_client(http);
    connect.protocol_version(version)
}

/// Returns the name of the server that answers, after as many failures as are allowed.
async fn name(client: &Client, failures: usize) -> String {
    for _ in 0..failures {
        if let Ok(reply) = client.call_tool("name", ()).await {
            return reply.text().to_owned();
        }
    }
    let reply = client.call_tool("name", ()).await.unwrap();
    reply.text().to_owned()
}

#[tokio::test]
async fn a_server_that_becomes_legacy_and_modern_again_is_reached_by_clients_of_both_eras() {
    for version in ["2026-07-28", "2025-11-25"] {
        let deployment = Deployment::new(modern());
        let bridge = Bridge::new(deployment.target());
        let client = client(&bridge, version).await.unwrap();
        assert_eq!(name(&client, 0).await, "modern", "{version}");

        deployment.replace(legacy());
        // The first call is refused by the legacy server before it runs, and sent again.
        assert_eq!(name(&client, 0).await, "legacy", "{version}");
        assert_eq!(name(&client, 0).await, "legacy", "{version}");

        deployment.replace(modern());
        // The connection ends with its session, which the server does not know.
        assert_eq!(name(&client, 1).await, "modern", "{version}");
        assert_eq!(name(&client, 0).await, "modern", "{version}");
    }
}

#[tokio::test]
async fn a_server_that_becomes_legacy_is_told_the_capabilities_of_each_client() {
    let deployment = Deployment::new(modern());
    let bridge = Bridge::new(deployment.target());
    let host = Host::new().elicitation(async |_| ElicitResult::accept(serde_json::json!({})));
    let asked = client(&bridge, "2026-07-28").host(host).await.unwrap();
    let silent = client(&bridge, "2026-07-28").await.unwrap();
    for client in [&asked, &silent] {
        assert_eq!(name(client, 0).await, "modern");
    }

    deployment.replace(legacy());

    let both = tokio::join!(
        asked.call_tool("can_ask", ()),
        silent.call_tool("can_ask", ())
    );
    assert_eq!(both.0.unwrap().text(), "true");
    assert_eq!(both.1.unwrap().text(), "false");
}
