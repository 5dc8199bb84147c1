//! [`matrix()`], which returns every transport in every protocol version.

use std::fmt;

use bowline_core::era::{Dialect, Dialects, HttpTransportKind};

use super::{PipeConnector, RecordingWire, WireRecord};
use crate::client::ClientBuilder;
use crate::http::HttpService;
use crate::http::client::HyperClient;
use crate::{Client, Server, wire};

/// One transport in one protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatrixCase {
    /// The transport.
    pub transport: TestTransport,
    /// The protocol version.
    pub dialect: &'static Dialect,
}

/// A transport between a client and a server in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TestTransport {
    /// The in-process transport: without frames, the handler runs inside the caller's future.
    InProcess,
    /// An in-memory wire, with the same codecs at both ends as on any other wire.
    Memory,
    /// Streamable HTTP over HTTP/1.1, through in-memory pipes.
    Http,
    /// Streamable HTTP over HTTP/2, through in-memory pipes.
    Http2,
    /// HTTP+SSE, the two endpoints of 2024-11-05, through in-memory pipes.
    HttpSse,
}

/// Returns every transport in every protocol version that has it, ordered by transport, then newest version first.
///
/// # Examples
///
/// ```
/// use bowline::{Server, Tool, testing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let server = Server::new("clock", "1.0.0").tool(Tool::new("now", async || "noon"));
/// for case in testing::matrix() {
///     let client = case.serve(&server).connect.await?;
///     assert_eq!(client.call_tool("now", ()).await?.text(), "noon", "{case:?}");
/// }
/// # Ok(()) }
/// ```
pub fn matrix() -> Matrix {
    let all = TestTransport::ALL.iter().flat_map(|transport| {
        Dialect::ALL
            .iter()
            .map(|dialect| MatrixCase::new(*transport, dialect))
    });
    let existing = all.filter(|case| case.transport.exists_in(case.dialect));
    Matrix(existing.collect::<Vec<_>>().into_iter())
}

/// An iterator over the cases of a test; see [`matrix()`].
#[derive(Clone, Debug)]
#[must_use = "iterators are lazy: use `for case in matrix()`"]
pub struct Matrix(std::vec::IntoIter<MatrixCase>);

impl Matrix {
    /// Keeps the cases of `version` and of later ones, for a feature that older versions do not have.
    ///
    /// # Panics
    ///
    /// If the version is unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::testing::matrix;
    ///
    /// // Elicitation exists from 2025-06-18.
    /// assert!(matrix().since("2025-06-18").all(|case| case.dialect.version != "2025-03-26"));
    /// assert!(matrix().since("2025-06-18").any(|case| case.dialect.version == "2025-11-25"));
    /// ```
    pub fn since(self, version: &str) -> Self {
        let known = Dialects::since(version);
        let known = known.unwrap_or_else(|| panic!("unknown protocol version `{version}`"));
        let cases = self
            .0
            .filter(|case| known.of(case.dialect.version).is_some());
        Self(cases.collect::<Vec<_>>().into_iter())
    }
}

impl Iterator for Matrix {
    type Item = MatrixCase;

    fn next(&mut self) -> Option<MatrixCase> {
        self.0.next()
    }
}

/// A connection to a server, not opened yet.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a connection is made by awaiting `connect`"]
pub struct TestConnection {
    /// The connection builder; set further options before awaiting it.
    pub connect: ClientBuilder,
    /// The frames on the wire, seen from the client; `Some` for [`TestTransport::Memory`] only.
    pub record: Option<WireRecord>,
}

impl MatrixCase {
    /// Creates a case.
    #[must_use]
    pub fn new(transport: TestTransport, dialect: &'static Dialect) -> Self {
        Self { transport, dialect }
    }

    /// Serves `server` over this transport, and returns the connection to it. On a wire, a spawned task serves it and
    /// ends with the wire; over HTTP, each connection has a task.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, for [`TestTransport::Memory`] only.
    pub fn serve(&self, server: &Server) -> TestConnection {
        let (connect, record) = match self.transport {
            TestTransport::InProcess => (Client::in_process(server), None),
            TestTransport::Memory => {
                let (near, far) = wire::memory();
                tokio::spawn(server.clone().serve(far));
                let (recording, record) = RecordingWire::new(near);
                (Client::from_wire(recording), Some(record))
            }
            TestTransport::Http => {
                let client = HyperClient::with_connector(PipeConnector::to(&server.http()));
                (Client::connect(URL).http_client(client), None)
            }
            TestTransport::Http2 => {
                let client = HyperClient::with_http2_connector(PipeConnector::to(&server.http()));
                (Client::connect(URL).http_client(client), None)
            }
            TestTransport::HttpSse => {
                let client = HyperClient::with_connector(PipeConnector::to(&http_sse_only(server)));
                (Client::connect(URL).http_client(client), None)
            }
        };
        TestConnection {
            connect: connect.protocol_version(self.dialect.version),
            record,
        }
    }
}

impl TestTransport {
    /// All transports, the simplest first.
    pub const ALL: &'static [Self] = &[
        Self::InProcess,
        Self::Memory,
        Self::Http,
        Self::Http2,
        Self::HttpSse,
    ];

    /// Returns whether the protocol version has this transport.
    ///
    /// Streamable HTTP “replaces the HTTP+SSE transport from protocol version 2024-11-05” (2025-03-26,
    /// basic/transports). So HTTP+SSE exists in 2024-11-05 only. Streamable HTTP exists in all versions here: the
    /// server also accepts a client of 2024-11-05 that tries it first.
    #[must_use]
    pub fn exists_in(self, dialect: &Dialect) -> bool {
        self != Self::HttpSse || dialect.http.transport == HttpTransportKind::HttpSse
    }
}

/// Returns a service with only the two endpoints of HTTP+SSE.
fn http_sse_only(server: &Server) -> HttpService {
    let has_http_sse = |dialect: &Dialect| dialect.http.transport == HttpTransportKind::HttpSse;
    server
        .http()
        .versions(Dialects::only(has_http_sse))
        .with_http_sse()
}

impl fmt::Display for MatrixCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.transport, self.dialect.version)
    }
}

impl fmt::Display for TestTransport {
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

/// [`PipeConnector`] ignores the address; `localhost` passes the service's check of the `Host` header.
const URL: &str = "http://localhost/mcp";
