//! What stands between the front client and the upstream server of a cell.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tokio::io::DuplexStream;

use crate::endpoint::Endpoint;

/// Joins a front client with an upstream server.
///
/// It is called within the runtime of the check, which ends all tasks when the check is done. The upstream's revision is
/// given for the verdict of [`joins`](Self::joins) only: a bridge finds it out.
pub(crate) trait Middle: Sync {
    /// Whether it can join these endpoints.
    fn joins(&self, front: Endpoint, upstream: Endpoint) -> bool;

    /// Gives the front client an address that leads to the upstream.
    async fn join(
        &self,
        front: Endpoint,
        upstream: Endpoint,
        to: UpstreamAddress,
    ) -> Result<Joined, String>;
}

/// Where an upstream server is reached.
#[derive(Clone)]
pub(crate) enum UpstreamAddress {
    /// Starts a server, as a child process would be started, and returns the client's end of its standard input and
    /// output. It may be called several times: all servers write into one record.
    Spawn(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
    /// The URL of the endpoint; for HTTP+SSE that of the event stream.
    Url(String),
}

/// Where the front client of a cell connects.
pub(crate) enum FrontAddress {
    /// The client's end of a pair of pipes.
    Pipe(DuplexStream),
    /// The URL of the endpoint; for HTTP+SSE that of the event stream.
    Url(String),
}

/// A front address, and what must live as long as it is used.
pub(crate) struct Joined {
    pub(crate) front: FrontAddress,
    pub(crate) _guard: Option<Box<dyn Any>>,
}

/// Nothing in between: the client is connected with the server.
#[derive(Debug)]
pub(crate) struct Direct;

impl Middle for Direct {
    fn joins(&self, front: Endpoint, upstream: Endpoint) -> bool {
        front == upstream
    }

    async fn join(
        &self,
        _front: Endpoint,
        _upstream: Endpoint,
        to: UpstreamAddress,
    ) -> Result<Joined, String> {
        let front = match to {
            UpstreamAddress::Spawn(spawn) => FrontAddress::Pipe(spawn()),
            UpstreamAddress::Url(url) => FrontAddress::Url(url),
        };
        let _guard = None;
        Ok(Joined { front, _guard })
    }
}

impl fmt::Debug for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(_) => f.write_str("Spawn"),
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
        }
    }
}
