//! A server and its clients, connected over a network that the schedule moves.

use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::client::HyperSend;
use bowline::http::legacy::Legacy;
use bowline::peer::Peer;
use bowline::wire::Lines;
use bowline::{Client, Server};
use bowline_core::era::{Dialects, HttpTransport};

use crate::batching::Batcher;
use crate::chance::Chance;
use crate::door::{Connector, Door};
use crate::ledger::Ledger;
use crate::network::{End, Network};
use crate::scene::{Carrier, Column, Trouble};
use crate::work::{self, Releases};

/// A server, its clients, and what is between them.
pub(crate) struct World {
    pub(crate) column: Column,
    pub(crate) chance: Chance,
    pub(crate) ledger: Ledger,
    pub(crate) network: Network,
    pub(crate) releases: Releases,
    pub(crate) server: Server,
    pub(crate) door: Door,
    pub(crate) parties: Vec<Party>,
    /// A legacy client that posts batches, where there is one.
    pub(crate) batcher: Option<Batcher>,
}

/// One client, and the server's end of its wire if it has one.
pub(crate) struct Party {
    pub(crate) name: char,
    pub(crate) client: Option<Client>,
    pub(crate) server_end: Option<Peer>,
}

impl World {
    /// Connects one client or two. They are numbered alike, so that one's ids are the other's too.
    pub(crate) async fn connect(column: Column, chance: Chance, ledger: Ledger) -> Self {
        let network = Network::new(column, &chance, &ledger);
        let releases = Releases::default();
        let server = work::server(&ledger, &releases);
        let has_goodbyes = column.trouble == Trouble::Goodbye;
        let mut world = Self {
            column,
            chance,
            ledger,
            network,
            releases,
            door: Door::to(service(&server, column), has_goodbyes),
            server,
            parties: Vec::new(),
            batcher: None,
        };
        let names = if world.chance.one_in(2) { "a" } else { "ab" };
        for name in names.chars() {
            let party = world.join(name).await;
            world.parties.push(party);
        }
        if column.trouble == Trouble::Batches {
            world.batcher = Some(Batcher::join(&world).await);
        }
        world.network.hold();
        world
    }

    async fn join(&self, name: char) -> Party {
        let (connect, server_end) = match self.column.carrier {
            Carrier::Lines => {
                let (near, far) = self.network.pipe(name);
                let (server_end, serving) = self.server.clone().serve_counted(lines(far));
                tokio::spawn(serving);
                (Client::over(lines(near)), Some(server_end))
            }
            carrier => {
                let connector = self.connector(name);
                let send = match carrier {
                    Carrier::Http2 => HyperSend::over_http2(connector),
                    _ => HyperSend::over(connector),
                };
                (Client::connect("http://localhost/mcp").http(send), None)
            }
        };
        let connect = connect.speaking(self.column.dialect.version);
        let client = connect.host(work::host(&self.ledger)).await;
        Party {
            name,
            client: Some(client.expect("nothing is in the way of connecting")),
            server_end,
        }
    }

    pub(crate) fn connector(&self, party: char) -> Connector {
        Connector {
            network: self.network.clone(),
            party,
            door: self.door.clone(),
        }
    }

    /// Replaces the server by one that knows nothing, and cuts every connection to the old one.
    pub(crate) fn restart(&mut self) {
        let server = work::server(&self.ledger, &self.releases);
        self.door.lead_to(service(&server, self.column));
        let old = std::mem::replace(&mut self.server, server);
        old.shut_down(Duration::ZERO);
        self.network.cut_all();
    }

    pub(crate) fn shut_down(&self, grace: Duration) {
        self.server.shut_down(grace);
        self.door.shut_down(grace);
    }
}

fn service(server: &Server, column: Column) -> HttpService {
    if !column.is_http_sse() {
        return server.http();
    }
    let oldest = Dialects::only(|it| it.http.transport == HttpTransport::TwoEndpoints);
    let legacy = Legacy::sessions().http_sse();
    server.http().versions(oldest).legacy(legacy)
}

fn lines(end: End) -> Lines {
    let (read, write) = tokio::io::split(end);
    Lines::new(read, write)
}
