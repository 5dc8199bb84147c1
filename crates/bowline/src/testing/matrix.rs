//! Every way to reach a server, in every protocol version.

use std::fmt;

use bowline_core::era::Dialect;

use super::{Tap, Tapped};
use crate::client::Connect;
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
}

/// Every transport in every protocol version, the newest first.
pub fn matrix() -> impl Iterator<Item = Column> {
    Transport::ALL.iter().flat_map(|transport| {
        Dialect::ALL
            .iter()
            .map(|dialect| Column::new(*transport, dialect))
    })
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

    /// Brings a server within reach. Over a wire it is served by a task, which ends with the wire.
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
        };
        Reach {
            connect: connect.speaking(self.dialect.version),
            tapped,
        }
    }
}

impl Transport {
    /// All of them, the simplest first.
    pub const ALL: &'static [Self] = &[Self::InProcess, Self::Memory];
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
        })
    }
}
