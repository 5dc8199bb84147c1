//! A server and its clients, connected over a network that the schedule controls.

use std::time::Duration;

use bowline::peer::Peer;
use bowline::{Client, Server};

use crate::batch_client::BatchClient;
use crate::handlers::{self, ReleaseGate};
use crate::http_frontend::{Connector, HttpFrontend, service};
use crate::network::Network;
use crate::scene::{Fault, ScheduleConfig, TransportKind};
use crate::schedule_log::ScheduleLog;
use crate::seeded_random::SeededRandom;

/// A server, its clients, and the network between them.
pub(crate) struct TestSetup {
    pub(crate) config: ScheduleConfig,
    pub(crate) random: SeededRandom,
    pub(crate) log: ScheduleLog,
    pub(crate) network: Network,
    pub(crate) release_gate: ReleaseGate,
    pub(crate) server: Server,
    pub(crate) frontend: HttpFrontend,
    pub(crate) parties: Vec<Party>,
    /// A legacy client that posts batches, in the scene `batches`.
    pub(crate) batch_client: Option<BatchClient>,
}

/// One client of the server.
pub(crate) struct Party {
    pub(crate) name: char,
    pub(crate) client: Option<Client>,
    /// The server's end of the wire, over [`TransportKind::Lines`].
    pub(crate) server_end: Option<Peer>,
}

impl TestSetup {
    /// Connects one client or two. Both allocate the same request ids.
    pub(crate) async fn connect(
        config: ScheduleConfig,
        random: SeededRandom,
        log: ScheduleLog,
    ) -> Self {
        let network = Network::new(config, &random, &log);
        let release_gate = ReleaseGate::default();
        let server = handlers::server(&log, &release_gate);
        let can_shut_down_connections = config.fault == Fault::GracefulShutdown;
        let mut setup = Self {
            config,
            random,
            log,
            network,
            release_gate,
            frontend: HttpFrontend::new(service(&server, config), can_shut_down_connections),
            server,
            parties: Vec::new(),
            batch_client: None,
        };
        let names = if setup.random.one_in(2) { "a" } else { "ab" };
        for name in names.chars() {
            let party = setup.connect_party(name).await;
            setup.parties.push(party);
        }
        if config.fault == Fault::Batches {
            setup.batch_client = Some(BatchClient::connect(&setup).await);
        }
        setup.network.hold();
        setup
    }

    async fn connect_party(&self, name: char) -> Party {
        let (connect, server_end) = match self.config.transport {
            TransportKind::Lines => {
                let (near, far) = self.network.pipe(name);
                let (server_end, serving) = self.server.clone().serve_counted(far.into_lines());
                tokio::spawn(serving);
                (Client::from_wire(near.into_lines()), Some(server_end))
            }
            transport => {
                let send = self.connector(name).http_client(transport);
                (
                    Client::connect("http://localhost/mcp").http_client(send),
                    None,
                )
            }
        };
        let connect = connect.protocol_version(self.config.dialect.version);
        let client = connect.host(handlers::host(&self.log)).await;
        Party {
            name,
            client: Some(client.expect("connecting succeeds without faults")),
            server_end,
        }
    }

    pub(crate) fn connector(&self, party: char) -> Connector {
        Connector {
            network: self.network.clone(),
            party,
            frontend: self.frontend.clone(),
        }
    }

    /// Replaces the server by one without any state, and cuts every connection to the old one.
    pub(crate) fn restart(&mut self) {
        let server = handlers::server(&self.log, &self.release_gate);
        self.frontend.replace_service(service(&server, self.config));
        let old = std::mem::replace(&mut self.server, server);
        old.shut_down(Duration::ZERO);
        self.network.cut_all();
    }

    pub(crate) fn shut_down(&self, grace: Duration) {
        self.server.shut_down(grace);
        self.frontend.shut_down(grace);
    }
}
