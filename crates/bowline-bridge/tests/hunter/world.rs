//! Clients, a bridge and a server, connected over two networks that the schedule controls.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::{Client, Server};
use bowline_bridge::{Bridge, Target};

use crate::bridge_scene::WorldConfig;
use crate::handlers::{self, ReleaseGate};
use crate::http_frontend::{Connector, HttpFrontend, service};
use crate::network::Network;
use crate::scene::{ScheduleConfig, TransportKind};
use crate::schedule_log::{AllowedFailure, ScheduleLog};
use crate::seeded_random::SeededRandom;

/// Clients, a bridge, a server, and the networks between them.
pub(crate) struct World {
    pub(crate) config: WorldConfig,
    pub(crate) random: SeededRandom,
    pub(crate) log: ScheduleLog,
    /// Between the clients and the bridge.
    pub(crate) front: Network,
    pub(crate) release_gate: ReleaseGate,
    pub(crate) bridge: Bridge,
    pub(crate) front_http: HttpFrontend,
    pub(crate) upstream: UpstreamSide,
    pub(crate) parties: Vec<Party>,
}

/// One client of the bridge.
pub(crate) struct Party {
    pub(crate) name: char,
    pub(crate) client: Option<Client>,
}

/// The server behind the bridge. Clones share it.
#[derive(Clone)]
pub(crate) struct UpstreamSide {
    config: ScheduleConfig,
    /// Between the bridge and the server.
    pub(crate) network: Network,
    server: Arc<Mutex<Server>>,
    pub(crate) http: HttpFrontend,
    /// The number of connections that the bridge has opened.
    connections: Arc<AtomicU32>,
}

impl UpstreamSide {
    fn new(config: ScheduleConfig, network: Network, server: Server) -> Self {
        Self {
            config,
            network,
            http: HttpFrontend::new(service(&server, config), false),
            server: Arc::new(Mutex::new(server)),
            connections: Arc::default(),
        }
    }

    /// Connects as the bridge. Each connection has a name, because each has request ids of its own.
    fn connect(&self) -> ClientBuilder {
        let number = self.connections.fetch_add(1, Relaxed);
        let name = char::from_u32(u32::from('A') + number).unwrap_or('Z');
        let connect = match self.config.transport {
            TransportKind::Lines => {
                let (near, far) = self.network.pipe(name);
                tokio::spawn(self.server().serve(far.into_lines()));
                Client::from_wire(near.into_lines())
            }
            transport => {
                let connector = Connector {
                    network: self.network.clone(),
                    party: name,
                    frontend: self.http.clone(),
                };
                let send = connector.http_client(transport);
                let connect = Client::connect("http://localhost/mcp").http_client(send);
                // Servers that end here do not come back: a wait would outlast the silence before a heartbeat.
                connect.retry_unavailable(Duration::ZERO)
            }
        };
        connect.protocol_version(self.config.dialect.version)
    }

    fn server(&self) -> Server {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.clone()
    }

    /// Replaces the server by one without any state, and cuts every connection to the old one.
    pub(crate) fn restart(&self, server: Server) {
        self.http.replace_service(service(&server, self.config));
        let mut current = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, server);
        drop(current);
        old.shut_down(Duration::ZERO);
        self.network.cut_all();
    }

    pub(crate) fn shut_down(&self, grace: Duration) {
        self.server().shut_down(grace);
    }
}

impl World {
    /// Connects one client or two. Both allocate the same request ids.
    pub(crate) async fn connect(
        config: WorldConfig,
        random: SeededRandom,
        log: ScheduleLog,
    ) -> Self {
        let [front, upstream] =
            [config.front, config.upstream].map(|side| Network::new(side, &random, &log));
        if config.parks_calls() {
            log.allow(AllowedFailure::Question);
        }
        let release_gate = ReleaseGate::default();
        let server = handlers::server(&log, &release_gate);
        let upstream = UpstreamSide::new(config.upstream, upstream, server);
        let connecting = upstream.clone();
        let target = Target::new("upstream", move |_| Ok(connecting.connect()));
        let bridge = Bridge::builder(target)
            // A question of a server that shares a connection is refused, and each call may ask.
            .max_connections_each(MAX_CONNECTIONS)
            .max_connections(MAX_CONNECTIONS)
            .park_timeout(PARK_TIMEOUT)
            .build();
        let mut world = Self {
            front_http: HttpFrontend::new(bridge.http(), false),
            config,
            random,
            log,
            front,
            release_gate,
            bridge,
            upstream,
            parties: Vec::new(),
        };
        let names = if world.random.one_in(2) { "a" } else { "ab" };
        for name in names.chars() {
            let party = world.connect_party(name).await;
            world.parties.push(party);
        }
        world.front.hold();
        world.upstream.network.hold();
        world
    }

    async fn connect_party(&self, name: char) -> Party {
        let connect = match self.config.front.transport {
            TransportKind::Lines => {
                let (near, far) = self.front.pipe(name);
                tokio::spawn(self.bridge.wire().serve(far.into_lines()));
                Client::from_wire(near.into_lines())
            }
            transport => {
                let connector = Connector {
                    network: self.front.clone(),
                    party: name,
                    frontend: self.front_http.clone(),
                };
                let send = connector.http_client(transport);
                Client::connect("http://localhost/mcp").http_client(send)
            }
        };
        let connect = connect.protocol_version(self.config.front.dialect.version);
        let client = connect.host(handlers::host(&self.log)).await;
        Party {
            name,
            client: Some(client.expect("connecting succeeds without faults")),
        }
    }

    /// Replaces the server by one without any state.
    pub(crate) fn restart_server(&self) {
        let server = handlers::server(&self.log, &self.release_gate);
        self.upstream.restart(server);
    }

    /// Both networks, the one of the clients first.
    pub(crate) fn networks(&self) -> [&Network; 2] {
        [&self.front, &self.upstream.network]
    }
}

/// More than there are calls in a schedule.
const MAX_CONNECTIONS: usize = 200;
/// Longer than any schedule before its end.
pub(crate) const PARK_TIMEOUT: Duration = Duration::from_secs(40);
