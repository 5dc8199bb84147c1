//! [`PipeConnector`], a connector for HTTP/1.1 and HTTP/2 over in-memory pipes, without sockets.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use crate::http::HttpService;

/// A connector for [`HyperSend`](crate::http::client::HyperSend) that connects to a service in this process, whatever
/// the address.
///
/// It uses no sockets, so it works with tokio's paused clock.
///
/// # Examples
///
/// ```
/// use bowline::http::client::HyperSend;
/// use bowline::testing::PipeConnector;
/// use bowline::{CallToolResult, Client, Server, Tool};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let now = Tool::raw("now", json!({"type": "object"}), async |_, _| Ok(CallToolResult::text("noon")));
/// let service = Server::new("clock", "1.0.0").tool(now).http();
///
/// let send = HyperSend::with_http2_connector(PipeConnector::to(&service));
/// let client = Client::connect("http://localhost/mcp").http(send).await?;
///
/// assert_eq!(client.call_tool("now", ()).await?.text(), "noon");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PipeConnector {
    accept: Arc<dyn Fn(DuplexStream) + Send + Sync>,
}

impl PipeConnector {
    /// Creates a connector to `service`. Each connection is served by a spawned task, which ends when it is closed.
    #[must_use]
    pub fn to(service: &HttpService) -> Self {
        let service = service.clone();
        Self::with(move |far| {
            let service = service.clone();
            tokio::spawn(async move { service.serve_connection(far).await });
        })
    }

    /// Creates a connector that passes the server's end of each connection to `accept`: for a scripted server, or one
    /// that disconnects in the middle of a response.
    #[must_use]
    pub fn with(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self {
            accept: Arc::new(accept),
        }
    }

    /// Opens one connection and returns the client's end.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, if the connector was created by [`PipeConnector::to`], which spawns a task.
    #[must_use = "dropping a connection closes it"]
    pub fn open(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE_BUFFER_BYTES);
        (self.accept)(far);
        near
    }
}

impl std::fmt::Debug for PipeConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipeConnector").finish_non_exhaustive()
    }
}

impl tower_service::Service<Uri> for PipeConnector {
    type Response = PipeConnection;
    type Error = Infallible;
    type Future = Ready<Result<PipeConnection, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(Ok(PipeConnection(TokioIo::new(self.open()))))
    }
}

/// A connection of [`PipeConnector`].
#[derive(Debug)]
#[must_use = "dropping a connection closes it"]
pub struct PipeConnection(TokioIo<DuplexStream>);

impl Connection for PipeConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for PipeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for PipeConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The buffer size of each direction.
const PIPE_BUFFER_BYTES: usize = 64 * 1024;
