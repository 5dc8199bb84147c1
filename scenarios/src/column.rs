//! Where a scenario runs: over what, and in which protocol version.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransport};

/// One transport in one protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// What carries the messages.
    pub transport: Transport,
    /// The protocol version that is spoken.
    pub dialect: &'static Dialect,
}

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transport {
    /// Nothing: the handler runs inside the caller's future.
    InProcess,
    /// A wire in memory.
    Memory,
    /// The standard input and output of a child process.
    Stdio,
    /// Streamable HTTP over a socket of this machine, as HTTP/1.1.
    Http,
    /// The same as HTTP/2, without TLS.
    Http2,
    /// HTTP+SSE, the two endpoints of 2024-11-05, as HTTP/1.1.
    HttpSse,
}

impl Column {
    /// Every transport in every version that has it, the newest first.
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
    /// All of them, the simplest first.
    pub const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Stdio,
        Self::Http,
        Self::Http2,
        Self::HttpSse,
    ];

    /// Whether messages of this version travel that way.
    ///
    /// Streamable HTTP “replaces the HTTP+SSE transport from protocol version 2024-11-05” (2025-03-26,
    /// basic/transports), so that later versions have no HTTP+SSE. Clients of that version that try the newer
    /// transport first are served there, too.
    #[must_use]
    pub fn exists_in(self, dialect: &Dialect) -> bool {
        self != Self::HttpSse || dialect.http.transport == HttpTransport::TwoEndpoints
    }

    /// Whether the clock can be stopped there: nothing outside of this process has a part in it.
    #[must_use]
    pub fn stops_clocks(self) -> bool {
        matches!(self, Self::InProcess | Self::Memory)
    }

    /// What stands for it in the table.
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
