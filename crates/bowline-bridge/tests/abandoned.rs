//! 20,000 abandoned calls through a bridge leave nothing behind at either side: no handler, connection, parked call, task
//! or table entry.

use std::time::Duration;

use bowline::client::{ClientBuilder, Host};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, PipeConnector, ResourceCounts, eventually};
use bowline::types::ElicitResult;
use bowline::{Error, wire};
use bowline_bridge::{Bridge, BridgeUsage, Target};
use serde::Deserialize;
use serde_json::json;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// The front of a bridge.
#[derive(Clone, Copy, Debug)]
enum Front {
    Http,
    Http2,
    Wire,
}

/// How the bridge reaches the server.
#[derive(Clone, Copy, Debug)]
enum Back {
    Http,
    Wire,
}

/// A server whose handlers are counted, and a bridge to it.
struct World {
    handlers: HandlerCounter,
    bridge: Bridge,
    service: HttpService,
}

impl World {
    fn new(back: Back, version: &'static str) -> Self {
        let handlers = HandlerCounter::default();
        let counter = handlers.clone();
        let slow = Tool::new("slow", move |cx: Context| {
            let counter = counter.clone();
            async move {
                cx.progress(1.0);
                counter.run(std::future::pending::<String>()).await
            }
        });
        let counter = handlers.clone();
        let ask = Tool::new("ask", move |cx: Context| {
            let counter = counter.clone();
            let asking = async move {
                let name: Name = cx.elicit("name", "What is your name?").await?;
                Ok::<_, ToolError>(name.name)
            };
            async move { counter.run(asking).await }
        });
        let echo = Tool::new("echo", async |Args(name): Args<Name>| name.name);
        let server = Server::new("upstream", "1.0.0")
            .tool(slow)
            .tool(ask)
            .tool(echo);
        let target = match back {
            Back::Http => {
                let service = server.http().legacy(Legacy::sessions());
                let target = Target::new("upstream", move |_| {
                    let http = HyperClient::with_connector(PipeConnector::to(&service));
                    let connect = Client::connect("http://localhost/mcp").http_client(http);
                    Ok(connect.protocol_version(version))
                });
                target.stateless()
            }
            Back::Wire => Target::new("upstream", move |_| {
                let (near, far) = wire::memory();
                tokio::spawn(server.clone().serve(far));
                Ok(Client::from_wire(near).protocol_version(version))
            }),
        };
        let bridge = Bridge::builder(target).max_connections_each(BATCH).build();
        let service = bridge.http();
        Self {
            handlers,
            bridge,
            service,
        }
    }

    fn connect(&self, front: Front, version: &'static str) -> ClientBuilder {
        let over = |http: HyperClient| Client::connect("http://localhost/mcp").http_client(http);
        let pipes = PipeConnector::to(&self.service);
        let connect = match front {
            Front::Http => over(HyperClient::with_connector(pipes)),
            Front::Http2 => over(HyperClient::with_http2_connector(pipes)),
            Front::Wire => {
                let (near, far) = wire::memory();
                tokio::spawn(self.bridge.wire().serve(far));
                Client::from_wire(near)
            }
        };
        connect.protocol_version(version)
    }

    /// Asserts that no call is left.
    async fn assert_idle(&self, what: &str) {
        let counts = self.handlers.counts();
        assert_eq!(counts.started, counts.dropped + counts.finished, "{what}");
        let is_idle = || {
            let BridgeUsage { waiting_calls, .. } = self.bridge.usage();
            waiting_calls == 0 && self.service.in_flight() == 0
        };
        assert!(
            eventually(is_idle).await,
            "{what}: {:?}",
            self.bridge.usage()
        );
    }

    /// Asserts that nothing is left once the clients are gone.
    async fn end(self, before: usize, what: &str) {
        let is_unused = eventually(|| self.bridge.usage().requests == 0).await;
        assert!(is_unused, "{what}: {:?}", self.bridge.usage());
        drop((self.bridge, self.service));
        let is_clean = eventually(|| ResourceCounts::now().tasks == before).await;
        assert!(is_clean, "{what}: {:?}", ResourceCounts::now());
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

#[tokio::test]
async fn twenty_thousand_abandoned_calls_leave_nothing_behind() {
    let mut abandoned = 0;
    for (front, version) in [
        (Front::Http, MODERN),
        (Front::Http2, MODERN),
        (Front::Http, LEGACY),
        (Front::Wire, MODERN),
        (Front::Wire, LEGACY),
    ] {
        for (back, upstream) in [
            (Back::Wire, MODERN),
            (Back::Wire, LEGACY),
            (Back::Http, MODERN),
            (Back::Http, LEGACY),
        ] {
            let what = format!("{front:?} at {version}, upstream over {back:?} at {upstream}");
            let before = ResourceCounts::now().tasks;
            let world = World::new(back, upstream);
            let client = world.connect(front, version).await.unwrap();
            for _ in 0..CALLS / BATCH {
                abandoned += abandon_batch(&world, &client).await;
            }
            let echo = client.call_tool("echo", json!({"name": "alive"}));
            assert_eq!(echo.await.unwrap().text(), "alive", "{what}");
            world.assert_idle(&what).await;
            if let Some(peer) = client.peer() {
                assert!(eventually(|| peer.is_idle()).await, "{what}: {peer:?}");
            }
            client.close().await.unwrap();
            world.end(before, &what).await;
        }
    }
    assert_eq!(abandoned, 20_000);
}

/// Starts calls, and abandons them in different ways when their handlers run.
async fn abandon_batch(world: &World, client: &Client) -> usize {
    let running = world.handlers.counts();
    let calls: Vec<_> = (0..BATCH)
        .map(|nth| {
            let call = client.call_tool("slow", ());
            match nth % 2 {
                0 => tokio::spawn(call.start()),
                _ => tokio::spawn(call.on_progress(|_| {}).start()),
            }
        })
        .collect();
    let started = running.started + BATCH;
    world
        .handlers
        .wait_for(|counts| counts.started == started)
        .await;
    for call in &calls {
        call.abort();
    }
    let dropped = running.dropped + BATCH;
    let all_dropped = world.handlers.wait_for(|counts| counts.dropped == dropped);
    let limit = Duration::from_secs(90);
    assert!(
        tokio::time::timeout(limit, all_dropped).await.is_ok(),
        "{:?} {:?}",
        world.handlers.counts(),
        world.bridge.usage()
    );
    calls.len()
}

#[tokio::test(start_paused = true)]
async fn calls_whose_clients_vanish_while_they_are_parked_leave_nothing_behind() {
    let before = ResourceCounts::now().tasks;
    let world = World::new(Back::Wire, LEGACY);
    for _ in 0..5 {
        let asked = HandlerCounter::default();
        let counter = asked.clone();
        let host = Host::new().elicitation(move |_| {
            let counter = counter.clone();
            async move { counter.run(std::future::pending::<ElicitResult>()).await }
        });
        let client = world.connect(Front::Http, MODERN).host(host);
        let client = client.await.unwrap();
        let calls: Vec<_> = (0..BATCH)
            .map(|_| tokio::spawn(client.call_tool("ask", ()).start()))
            .collect();
        asked.wait_for(|counts| counts.started == BATCH).await;
        for call in &calls {
            call.abort();
        }
        assert!(world.bridge.usage().waiting_calls > 0);
        tokio::time::advance(Duration::from_secs(301)).await;
        let ended = || world.bridge.usage().waiting_calls == 0;
        assert!(eventually(ended).await, "{:?}", world.bridge.usage());
        // What the server asks until then may be about the calls that were abandoned.
        tokio::time::advance(Duration::from_secs(5)).await;
    }

    let counts = world.handlers.counts();
    assert_eq!(counts.started, counts.dropped + counts.finished);
    world.assert_idle("parked").await;
    world.end(before, "parked").await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_while_the_connection_opens_leave_nothing_behind() {
    let before = ResourceCounts::now().tasks;
    let (sender, mut silent) = tokio::sync::mpsc::unbounded_channel();
    let target = Target::new("silent", move |_| {
        let (near, far) = wire::memory();
        // Fails if the test has ended.
        let _ = sender.send(far);
        Ok(Client::from_wire(near).protocol_version(LEGACY))
    });
    let bridge = Bridge::new(target);
    let http = HyperClient::with_connector(PipeConnector::to(&bridge.http()));
    let connect = Client::connect("http://localhost/mcp").http_client(http);
    let client = connect.protocol_version(MODERN).await.unwrap();

    for _ in 0..100 {
        let calls: Vec<_> = (0..20)
            .map(|_| tokio::spawn(client.call_tool("echo", ()).start()))
            .collect();
        let opening = silent.recv().await.unwrap();
        for call in &calls {
            call.abort();
        }
        for call in calls {
            assert!(matches!(call.await, Err(error) if error.is_cancelled()));
        }
        let unused = || bridge.usage() == BridgeUsage::default();
        assert!(eventually(unused).await, "{:?}", bridge.usage());
        drop(opening);
        while silent.try_recv().is_ok() {}
    }

    let refused = client.call_tool("echo", ()).timeout(Duration::from_secs(1));
    assert!(matches!(refused.await, Err(Error::Timeout { .. })));
    drop((client, bridge));
    let is_clean = eventually(|| ResourceCounts::now().tasks == before).await;
    assert!(is_clean, "{:?}", ResourceCounts::now());
}

/// In each of twenty worlds.
const CALLS: usize = 1_000;
const BATCH: usize = 50;
