//! A server and its clients, connected over a network that the schedule moves.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bowline::http::HttpService;
use bowline::http::client::HyperSend;
use bowline::peer::Peer;
use bowline::wire::Lines;
use bowline::{Client, Server};
use bowline_core::era::Dialect;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;

use crate::chance::Chance;
use crate::ledger::Ledger;
use crate::network::{End, Network};
use crate::work::{self, Releases};

/// What is spoken, and over what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) carrier: Carrier,
    pub(crate) dialect: &'static Dialect,
    /// How many bytes a direction of a pipe holds.
    pub(crate) room: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Lines,
    Http1,
    Http2,
}

impl Column {
    /// How many columns there are.
    pub(crate) const COUNT: u64 = 6;

    /// The seeds take turns among the columns; what a column leaves open is left to chance.
    pub(crate) fn of(seed: u64, chance: &Chance) -> Self {
        let carrier = match seed % Self::COUNT / 2 {
            0 => Carrier::Lines,
            1 => Carrier::Http1,
            _ => Carrier::Http2,
        };
        let dialects = Dialect::ALL.iter().copied().filter(|dialect| {
            // The oldest speaks HTTP in a way of its own.
            let is_oldest = Dialect::ALL.last() == Some(dialect);
            dialect.is_modern() == (seed % 2 == 0) && !(is_oldest && carrier != Carrier::Lines)
        });
        let is_narrow = carrier == Carrier::Lines && chance.one_in(4);
        Self {
            carrier,
            dialect: *chance.pick(&dialects.collect::<Vec<_>>()),
            room: if is_narrow { 100 } else { PLENTY },
        }
    }

    /// Whether a client cancels by closing its response.
    pub(crate) fn closing_is_cancelling(&self) -> bool {
        self.carrier != Carrier::Lines && self.dialect.is_modern()
    }

    /// Whether the POST of a cancelled request is ended by an error of its own.
    pub(crate) fn ends_its_posts(&self) -> bool {
        self.carrier != Carrier::Lines && !self.dialect.is_modern()
    }

    /// How many of `most` bytes are written or read at once.
    pub(crate) fn piece(&self, most: usize, chance: &Chance) -> usize {
        match self.carrier {
            // How long a head is depends on what is in it, a date and random ids, for it is compressed. Where
            // it is cut must not depend on that, so it is not.
            Carrier::Http2 => most,
            Carrier::Lines | Carrier::Http1 => chance.some_of(most),
        }
    }

    /// Whether a handler can ask the client's user something.
    pub(crate) fn can_ask(&self) -> bool {
        self.dialect.is_modern() || self.dialect.knows_server_request("elicitation/create")
    }

    /// Whether what is written is on its way at once.
    pub(crate) fn has_room(&self) -> bool {
        self.room == PLENTY
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.carrier, self.dialect.version)
    }
}

/// A server, its clients, and what is between them.
pub(crate) struct World {
    pub(crate) column: Column,
    pub(crate) chance: Chance,
    pub(crate) ledger: Ledger,
    pub(crate) network: Network,
    pub(crate) releases: Releases,
    pub(crate) server: Server,
    pub(crate) service: HttpService,
    pub(crate) parties: Vec<Party>,
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
        let mut world = Self {
            column,
            chance,
            ledger,
            network,
            releases,
            service: server.http(),
            server,
            parties: Vec::new(),
        };
        let names = if world.chance.one_in(2) { "a" } else { "ab" };
        for name in names.chars() {
            let party = world.join(name).await;
            world.parties.push(party);
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
                let connector = Connector {
                    network: self.network.clone(),
                    party: name,
                    service: self.service.clone(),
                };
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
}

fn lines(end: End) -> Lines {
    let (read, write) = tokio::io::split(end);
    Lines::new(read, write)
}

/// Makes connections to the service, once the network lets it.
#[derive(Clone)]
struct Connector {
    network: Network,
    party: char,
    service: HttpService,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<End>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<End>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self {
            network,
            party,
            service,
        } = self.clone();
        Box::pin(async move {
            network.knock().await;
            let (near, far) = network.pipe(party);
            tokio::spawn(async move { service.serve_connection(far).await });
            Ok(TokioIo::new(near))
        })
    }
}

impl Connection for End {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

const PLENTY: usize = 1024 * 1024;
