//! The columns of the matrix: a transport in a protocol version.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransportKind};

/// A transport in a protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) transport: Transport,
    pub(crate) dialect: &'static Dialect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    Memory,
    Stdio,
    /// Streamable HTTP, with sessions for legacy clients.
    Http(HttpVersion, ResponseMode),
    /// HTTP+SSE.
    HttpSse(HttpVersion),
    /// Streamable HTTP, without sessions for legacy clients.
    Stateless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

/// The content type of responses where the server can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    Stream,
    Json,
}

impl Column {
    /// Every transport in every version that defines it, the newest version first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Dialect::ALL
            .iter()
            .flat_map(|dialect| Self::of(dialect.version))
    }

    /// Every transport of one version.
    pub(crate) fn of(version: &str) -> impl Iterator<Item = Self> {
        let dialect = Dialect::of(version);
        let all = Transport::ALL
            .iter()
            .filter_map(move |transport| Some((*transport, dialect?)));
        all.filter(|(transport, dialect)| transport.exists_in(dialect))
            .map(|(transport, dialect)| Self { transport, dialect })
    }

    /// Finds the column with this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::all().find(|column| column.to_string() == name)
    }

    pub(crate) fn is_modern(self) -> bool {
        self.dialect.is_modern()
    }

    pub(crate) fn responds_with_json(self) -> bool {
        matches!(self.transport, Transport::Http(_, ResponseMode::Json))
    }

    /// Whether the client opens the standalone GET stream.
    pub(crate) fn opens_get_stream(self) -> bool {
        matches!(self.transport, Transport::Http(..)) && !self.is_modern()
    }

    /// How a client signals that it abandoned a call whose request was sent.
    pub(crate) fn signal(self) -> AbandonSignal {
        match self.transport {
            Transport::InProcess => AbandonSignal::None,
            Transport::Memory | Transport::Stdio | Transport::HttpSse(_) => AbandonSignal::Cancel,
            Transport::Http(..) | Transport::Stateless => match self.is_modern() {
                true => AbandonSignal::Close,
                false => AbandonSignal::CancelAndEnd,
            },
        }
    }
}

/// The trace of an abandoned call on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbandonSignal {
    /// There is no wire.
    None,
    /// One `notifications/cancelled`.
    Cancel,
    /// The client closes the response of the request.
    Close,
    /// One `notifications/cancelled`, and the response ends with an error.
    CancelAndEnd,
}

impl Transport {
    pub(crate) const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Stdio,
        Self::Http(HttpVersion::Http1, ResponseMode::Stream),
        Self::Http(HttpVersion::Http1, ResponseMode::Json),
        Self::Http(HttpVersion::Http2, ResponseMode::Stream),
        Self::Http(HttpVersion::Http2, ResponseMode::Json),
        Self::HttpSse(HttpVersion::Http1),
        Self::HttpSse(HttpVersion::Http2),
        Self::Stateless,
    ];

    fn exists_in(self, dialect: &Dialect) -> bool {
        let http = dialect.http;
        match self {
            Self::InProcess | Self::Memory | Self::Stdio => true,
            Self::Http(..) => http.transport == HttpTransportKind::Streamable,
            Self::HttpSse(_) => http.transport == HttpTransportKind::HttpSse,
            Self::Stateless => http.assigns_client_ids,
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
            Self::Http(HttpVersion::Http1, ResponseMode::Stream) => "HTTP/1.1, stream",
            Self::Http(HttpVersion::Http1, ResponseMode::Json) => "HTTP/1.1, JSON",
            Self::Http(HttpVersion::Http2, ResponseMode::Stream) => "HTTP/2, stream",
            Self::Http(HttpVersion::Http2, ResponseMode::Json) => "HTTP/2, JSON",
            Self::HttpSse(HttpVersion::Http1) => "HTTP+SSE over HTTP/1.1",
            Self::HttpSse(HttpVersion::Http2) => "HTTP+SSE over HTTP/2",
            Self::Stateless => "HTTP, stateless",
        })
    }
}
