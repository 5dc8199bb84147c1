//! Every way to reach a server, in every protocol version.

use std::fmt;

use bowline_core::era::{Dialect, Dialects, HttpTransport};

use super::{Pipes, Tap, Tapped};
use crate::client::Connect;
use crate::http::HttpService;
use crate::http::client::HyperSend;
use crate::{Client, Server, wire};

/// One way to reach a server in one protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// What carries the messages.
    pub transport: Transport,
    /// The protocol version that is spoken.
    pub dialect: &'static Dialect,
}

/// What carries messages between a client and a server of the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transport {
    /// Nothing: the handler runs inside the caller's future.
    InProcess,
    /// A wire in memory, with the same codecs at both ends as on any other wire.
    Memory,
    /// Streamable HTTP over HTTP/1.1, through pipes in memory.
    Http,
    /// Streamable HTTP over HTTP/2, through pipes in memory.
    Http2,
    /// HTTP+SSE, the two endpoints of 2024-11-05, through pipes in memory.
    HttpSse,
}

/// Every transport in every protocol version that has it, the newest first.
pub fn matrix() -> impl Iterator<Item = Column> {
    let all = Transport::ALL.iter().flat_map(|transport| {
        Dialect::ALL
            .iter()
            .map(|dialect| Column::new(*transport, dialect))
    });
    all.filter(|column| column.transport.exists_in(column.dialect))
}

/// A server that is within reach.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a connection is made by awaiting `connect`"]
pub struct Reach {
    /// The connection to make, of which more can be said before it is awaited.
    pub connect: Connect,
    /// What passes over the wire, seen from the client, where there is a wire.
    pub tapped: Option<Tapped>,
}

impl Column {
    /// This transport in this protocol version.
    #[must_use]
    pub fn new(transport: Transport, dialect: &'static Dialect) -> Self {
        Self { transport, dialect }
    }

    /// Brings a server within reach. Over a wire it is served by a task, which ends with the wire; over HTTP by a
    /// task for each connection.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, if there is a wire.
    pub fn reach(&self, server: &Server) -> Reach {
        let (connect, tapped) = match self.transport {
            Transport::InProcess => (Client::to(server), None),
            Transport::Memory => {
                let (near, far) = wire::memory();
                tokio::spawn(server.clone().serve(far));
                let (tap, tapped) = Tap::new(near);
                (Client::over(tap), Some(tapped))
            }
            Transport::Http => {
                let send = HyperSend::over(Pipes::to(&server.http()));
                (Client::connect(URL).http(send), None)
            }
            Transport::Http2 => {
                let send = HyperSend::over_http2(Pipes::to(&server.http()));
                (Client::connect(URL).http(send), None)
            }
            Transport::HttpSse => {
                let send = HyperSend::over(Pipes::to(&with_two_endpoints(server)));
                (Client::connect(URL).http(send), None)
            }
        };
        Reach {
            connect: connect.speaking(self.dialect.version),
            tapped,
        }
    }
}

impl Transport {
    /// All of them, the simplest first.
    pub const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Http,
        Self::Http2,
        Self::HttpSse,
    ];

    /// Whether messages of this version travel that way.
    ///
    /// Streamable HTTP “replaces the HTTP+SSE transport from protocol version 2024-11-05” (2025-03-26,
    /// basic/transports). That version's own clients may still try the newer transport first, and are served.
    #[must_use]
    pub fn exists_in(self, dialect: &Dialect) -> bool {
        self != Self::HttpSse || dialect.http.transport == HttpTransport::TwoEndpoints
    }
}

/// A service that has nothing but the two endpoints of HTTP+SSE.
fn with_two_endpoints(server: &Server) -> HttpService {
    let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransport::TwoEndpoints;
    server
        .http()
        .versions(Dialects::only(oldest))
        .with_http_sse()
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.transport, self.dialect.version)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProcess => "in process",
            Self::Memory => "memory",
            Self::Http => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::HttpSse => "HTTP+SSE",
        })
    }
}

/// Pipes lead to their service whatever the address; this one passes its check for names of this machine.
const URL: &str = "http://localhost/mcp";
