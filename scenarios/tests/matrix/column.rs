//! The columns of the matrix: over what a call goes, in which protocol version.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransport};

/// A transport in a protocol version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) transport: Transport,
    pub(crate) dialect: &'static Dialect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    Memory,
    Stdio,
    /// Streamable HTTP, with a server that remembers its legacy clients.
    Http(Protocol, Answers),
    /// HTTP+SSE.
    TwoEndpoints(Protocol),
    /// Streamable HTTP, with a server that remembers nobody.
    Forgetful,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// In what form a server answers, if it has the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Stream,
    Json,
}

impl Column {
    /// Every transport in every version that has it, the newest version first.
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

    /// Finds what [`Column::key`] names.
    pub(crate) fn find(key: &str) -> Option<Self> {
        Self::all().find(|column| column.key() == key)
    }

    /// How a command line names it.
    pub(crate) fn key(self) -> String {
        format!("{}@{}", self.transport.key(), self.dialect.version)
    }

    pub(crate) fn is_modern(self) -> bool {
        self.dialect.is_modern()
    }

    /// Whether the client keeps a stream open for what the server says unasked.
    pub(crate) fn listens(self) -> bool {
        matches!(self.transport, Transport::Http(..)) && !self.is_modern()
    }

    /// How a client says that it let go of a call, once the request is on its way.
    pub(crate) fn signal(self) -> Signal {
        match self.transport {
            Transport::InProcess => Signal::None,
            Transport::Memory | Transport::Stdio | Transport::TwoEndpoints(_) => Signal::Cancel,
            Transport::Http(..) | Transport::Forgetful => match self.is_modern() {
                true => Signal::Close,
                false => Signal::CancelAndEnd,
            },
        }
    }
}

/// How a call that was let go of shows on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// There is no wire.
    None,
    /// One `notifications/cancelled`.
    Cancel,
    /// The request's own response is closed.
    Close,
    /// One `notifications/cancelled`, and the response comes to its end by an error.
    CancelAndEnd,
}

impl Transport {
    pub(crate) const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Stdio,
        Self::Http(Protocol::Http1, Answers::Stream),
        Self::Http(Protocol::Http1, Answers::Json),
        Self::Http(Protocol::Http2, Answers::Stream),
        Self::Http(Protocol::Http2, Answers::Json),
        Self::TwoEndpoints(Protocol::Http1),
        Self::TwoEndpoints(Protocol::Http2),
        Self::Forgetful,
    ];

    fn exists_in(self, dialect: &Dialect) -> bool {
        let http = dialect.http;
        match self {
            Self::InProcess | Self::Memory | Self::Stdio => true,
            Self::Http(..) => http.transport == HttpTransport::Streamable,
            Self::TwoEndpoints(_) => http.transport == HttpTransport::TwoEndpoints,
            Self::Forgetful => http.remembers_clients,
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Memory => "memory",
            Self::Stdio => "stdio",
            Self::Http(Protocol::Http1, Answers::Stream) => "http1-stream",
            Self::Http(Protocol::Http1, Answers::Json) => "http1-json",
            Self::Http(Protocol::Http2, Answers::Stream) => "http2-stream",
            Self::Http(Protocol::Http2, Answers::Json) => "http2-json",
            Self::TwoEndpoints(Protocol::Http1) => "http1-sse",
            Self::TwoEndpoints(Protocol::Http2) => "http2-sse",
            Self::Forgetful => "http1-forgetful",
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
            Self::Http(Protocol::Http1, Answers::Stream) => "HTTP/1.1, stream",
            Self::Http(Protocol::Http1, Answers::Json) => "HTTP/1.1, JSON",
            Self::Http(Protocol::Http2, Answers::Stream) => "HTTP/2, stream",
            Self::Http(Protocol::Http2, Answers::Json) => "HTTP/2, JSON",
            Self::TwoEndpoints(Protocol::Http1) => "HTTP+SSE over HTTP/1.1",
            Self::TwoEndpoints(Protocol::Http2) => "HTTP+SSE over HTTP/2",
            Self::Forgetful => "HTTP without memory",
        })
    }
}
