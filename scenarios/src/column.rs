//! The column of the table in which a scenario runs: a transport in a protocol version.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransportKind};

/// One transport in one protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The transport.
    pub transport: Transport,
    /// The protocol version.
    pub dialect: &'static Dialect,
}

/// A transport between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transport {
    /// No wire: the handler runs inside the caller's future.
    InProcess,
    /// An in-memory wire.
    Memory,
    /// The standard input and output of a child process.
    Stdio,
    /// Streamable HTTP over a local socket, HTTP/1.1.
    Http,
    /// Streamable HTTP over a local socket, HTTP/2 without TLS.
    Http2,
    /// HTTP+SSE, the transport of 2024-11-05 with two endpoints, HTTP/1.1.
    HttpSse,
}

impl Column {
    /// Every transport in every version that defines it, the newest version first.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = Transport::ALL.iter().flat_map(|transport| {
            let transport = *transport;
            Dialect::ALL
                .iter()
                .map(move |dialect| Self { transport, dialect })
        });
        all.filter(|column| column.transport.exists_in(column.dialect))
    }
}

impl Transport {
    /// All transports, the simplest first.
    pub const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Stdio,
        Self::Http,
        Self::Http2,
        Self::HttpSse,
    ];

    /// Whether the version is tested over this transport.
    ///
    /// Streamable HTTP “replaces the HTTP+SSE transport from protocol version 2024-11-05” (2025-03-26,
    /// basic/transports), so that later versions have no HTTP+SSE. A client of 2024-11-05 that tries Streamable HTTP
    /// first is served over it, too.
    #[must_use]
    pub fn exists_in(self, dialect: &Dialect) -> bool {
        self != Self::HttpSse || dialect.http.transport == HttpTransportKind::HttpSse
    }

    /// Whether tokio's clock can be paused: no socket or other process is involved.
    #[must_use]
    pub fn can_pause_time(self) -> bool {
        matches!(self, Self::InProcess | Self::Memory)
    }

    /// Whether it is a transport over HTTP, which a proxy can stand in front of.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::HttpSse)
    }

    /// The letter of the transport in the table.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::InProcess => 'p',
            Self::Memory => 'm',
            Self::Stdio => 's',
            Self::Http => 'h',
            Self::Http2 => '2',
            Self::HttpSse => 'e',
        }
    }
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
            Self::Stdio => "stdio",
            Self::Http => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::HttpSse => "HTTP+SSE",
        })
    }
}
