//! Servers that have both eras: a legacy client is served in the legacy one, in which the servers of the official SDKs can
//! ask it, and a modern client in the modern one.
#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::sync::{Arc, Mutex};

use bowline::client::{ClientBuilder, EraCache, Host};
use bowline::exchange::Dialects;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::{PipeConnector, scripted_peer};
use bowline::types::ElicitResult;
use bowline::wire;
use bowline_bridge::{Bridge, BridgeConfig, Target};
use serde_json::json;

const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 2] = ["2025-11-25", "2025-03-26"];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// A server that tells in which version it was called, and refuses to ask in the modern one as the official SDKs do.
fn server() -> Server {
    let era = Tool::new("era", async |cx: Context| cx.caller().dialect.version);
    let greet = Tool::new("greet", async |cx: Context| {
        if cx.caller().dialect.is_modern() {
            return Err(ToolError::new(
                "Server-to-client requests are not available on protocol revision 2026-07-28",
            ));
        }
        let name: Name = cx.elicit("name", "Who?").await?;
        Ok(format!("hello {}", name.name))
    });
    Server::new("dual", "1.0.0").tool(era).tool(greet)
}

fn on_wire(server: &Server) -> ClientBuilder {
    let (near, far) = wire::memory();
    tokio::spawn(server.clone().serve(far));
    Client::from_wire(near)
}

/// A bridge to a server that is reached over a wire, in process, or over HTTP.
fn bridges(server: &Server) -> [(&'static str, Target); 3] {
    let (wire, in_process, http) = (server.clone(), server.clone(), server.http());
    let http = http.legacy(Legacy::sessions());
    let eras = EraCache::new();
    let over_http = Target::new("dual", move |_| {
        let client = HyperClient::with_connector(PipeConnector::to(&http));
        let connect = Client::connect("http://localhost/mcp").http_client(client);
        Ok(connect.era_cache(&eras))
    });
    [
        ("wire", Target::new("dual", move |_| Ok(on_wire(&wire)))),
        (
            "in process",
            Target::new("dual", move |_| Ok(Client::in_process(&in_process))),
        ),
        ("http", over_http.stateless()),
    ]
}

fn client(bridge: &Bridge, version: &str) -> ClientBuilder {
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"})));
    let (near, far) = wire::memory();
    tokio::spawn(bridge.wire().serve(far));
    Client::from_wire(near).protocol_version(version).host(host)
}

async fn era(client: &Client) -> String {
    client.call_tool("era", ()).await.unwrap().text()
}

#[tokio::test]
async fn each_client_is_served_in_its_era() {
    for (way, target) in bridges(&server()) {
        let bridge = Bridge::new(target);
        let modern = client(&bridge, MODERN).await.unwrap();
        let [newest, old] = LEGACY.map(|version| client(&bridge, version));
        let (newest, old) = (newest.await.unwrap(), old.await.unwrap());

        for _ in 0..2 {
            assert_eq!(era(&modern).await, MODERN, "{way}");
            assert_eq!(era(&newest).await, "2025-11-25", "{way}");
            assert_eq!(era(&old).await, "2025-11-25", "{way}");
        }

        let greeting = newest.call_tool("greet", ()).await.unwrap();
        assert_eq!(greeting.text(), "hello Ada", "{way}");
    }
}

#[tokio::test]
async fn a_server_of_one_era_is_spoken_to_in_it() {
    for version in [MODERN, "2025-06-18"] {
        let server = server().versions(Dialects::only(move |it| it.version == version));
        // A server in process answers in every version.
        let served = bridges(&server).into_iter();
        for (way, target) in served.filter(|(way, _)| *way != "in process") {
            let bridge = Bridge::new(target);
            for front in [MODERN, LEGACY[0], LEGACY[1]] {
                let client = client(&bridge, front).await.unwrap();
                assert_eq!(era(&client).await, version, "{front} over {way}");
            }
        }
    }
}

#[tokio::test]
async fn a_chosen_version_is_used_for_every_client() {
    for chosen in [MODERN, "2025-11-25", "2025-06-18"] {
        for (way, target) in bridges(&server()) {
            let bridge = Bridge::new(target.protocol_version(chosen));
            for front in [MODERN, LEGACY[0]] {
                let client = client(&bridge, front).await.unwrap();
                assert_eq!(era(&client).await, chosen, "{front} over {way}");
            }
        }
    }
}

#[tokio::test]
async fn the_version_of_a_file_is_used() {
    let config = r#"{"mcpServers": {"dual": {"command": "a", "bridge": {"protocolVersion": "2025-06-18"}}}}"#;
    let config = BridgeConfig::from_json(config).unwrap();
    let server = server();
    let bridge = Bridge::from_config_with(&config, move |upstream| {
        let server = server.clone();
        Ok(Target::new(upstream.name(), move |_| Ok(on_wire(&server))))
    });
    let client = client(&bridge.unwrap(), MODERN).await.unwrap();

    assert_eq!(era(&client).await, "2025-06-18");
}

/// The first message of a legacy client's connection is `initialize`: old servers break at a probe.
#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_not_probed_for_a_legacy_client() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let started = peers.clone();
    let target = Target::new("scripted", move |_| {
        let (wire, peer) = scripted_peer();
        started.lock().unwrap().push(peer);
        Ok(Client::from_wire(wire))
    });
    let bridge = Bridge::new(target);
    let connecting = tokio::spawn(client(&bridge, LEGACY[0]).into_future());
    let mut peer = loop {
        if let Some(peer) = peers.lock().unwrap().pop() {
            break peer;
        }
        tokio::task::yield_now().await;
    };

    peer.accept_handshake("2025-06-18", json!({"tools": {}}))
        .await;

    connecting.await.unwrap().unwrap();
}
