//! A server behind a URL that cannot be reached is left alone for a while; one that answers with errors is not.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::EraCache;
use bowline::http::client::{HttpStream, HyperClient};
use bowline::prelude::*;
use bowline::testing::PipeConnector;
use bowline::{ErrorCode, RpcError};
use bowline_bridge::{Bridge, BridgeBuilder, Target};

/// A modern server at a URL, and the network before it.
#[derive(Clone)]
struct Network {
    server: PipeConnector,
    is_down: Arc<AtomicBool>,
    attempts: Arc<AtomicUsize>,
}

impl Network {
    fn new() -> Self {
        let fail = async || Err::<String, _>(RpcError::new(ErrorCode(-32000), "out of paper"));
        let server = Server::new("printer", "1.0.0")
            .tool(Tool::new("print", async || "printed"))
            .tool(Tool::new("fail", fail));
        Self {
            server: PipeConnector::to(&server.http()),
            is_down: Arc::default(),
            attempts: Arc::default(),
        }
    }

    fn bridge(&self) -> Bridge {
        self.builder().build()
    }

    fn builder(&self) -> BridgeBuilder {
        let (network, eras) = (self.clone(), EraCache::new());
        let connect = move |_: &_| {
            let network = network.clone();
            let http = HyperClient::with_connector(move |_| network.clone().connect());
            let connect = Client::connect("http://localhost/mcp").http_client(http);
            Ok(connect.era_cache(&eras))
        };
        let target = Target::new("printer", connect).stateless();
        // Longer than the test: the bridge stays connected, as it does to a server that is in use.
        Bridge::builder(target).idle_timeout(Duration::from_secs(3600))
    }

    async fn connect(self) -> Result<HttpStream, Box<dyn std::error::Error + Send + Sync>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        match self.is_down.load(Ordering::SeqCst) {
            // Nothing answers, not even with a refusal.
            true => std::future::pending().await,
            false => Ok(HttpStream::new(self.server.open())),
        }
    }
}

async fn client(bridge: &Bridge) -> Client {
    let http = HyperClient::with_connector(PipeConnector::to(&bridge.http()));
    let connect = Client::connect("http://localhost/mcp").http_client(http);
    connect.protocol_version("2026-07-28").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_costs_few_calls_the_connect_timeout() {
    let network = Network::new();
    let bridge = network.bridge();
    let client = client(&bridge).await;
    client.call_tool("print", ()).await.unwrap();
    // Each call needs a connection of HTTP: the idle one is closed.
    network.is_down.store(true, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(120)).await;
    let before = network.attempts.load(Ordering::SeqCst);

    let mut errors = Vec::new();
    for _ in 0..20 {
        let error = client.call_tool("print", ()).await.map(drop).unwrap_err();
        errors.push(error.to_string());
    }

    let attempts = network.attempts.load(Ordering::SeqCst) - before;
    assert!(attempts <= 3, "{attempts} attempts: {errors:?}");
    assert!(errors[19].contains("is not available"), "{}", errors[19]);
    network.is_down.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(30)).await;
    client.call_tool("print", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_of_tools_leave_a_server_available() {
    let bridge = Network::new().bridge();
    let client = client(&bridge).await;

    for _ in 0..20 {
        let error = client.call_tool("fail", ()).await.map(drop);
        let error = error.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(!error.contains("not available"), "{error}");
        assert!(client.call_tool("missing", ()).await.is_err());
    }

    client.call_tool("print", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connecting_is_given_up_at_the_limit_of_the_bridge() {
    let network = Network::new();
    network.is_down.store(true, Ordering::SeqCst);
    let builder = network.builder().connect_timeout(Duration::from_secs(7));
    let bridge = builder.build();

    let error = client(&bridge).await.call_tool("print", ()).await;

    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("failed to connect within 7s"), "{error}");
}
