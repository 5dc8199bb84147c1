//! HTTP through pipes in memory: every byte of HTTP/1.1 or HTTP/2, and neither a socket nor a port.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{self, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use crate::http::HttpService;

/// Connects to a service of this process, whatever the address: a connector for
/// [`HyperSend`](crate::http::client::HyperSend).
///
/// Nothing outside of this process has a part in it, so that it works under a paused clock. Each connection is
/// served by a task, which ends with the connection.
///
/// # Examples
///
/// ```
/// use bowline::http::client::HyperSend;
/// use bowline::testing::Pipes;
/// use bowline::{CallToolResult, Client, Server, Tool};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let now = Tool::raw("now", json!({"type": "object"}), async |_, _| Ok(CallToolResult::text("noon")));
/// let service = Server::new("clock", "1.0.0").tool(now).http();
///
/// let send = HyperSend::over_http2(Pipes::to(&service));
/// let client = Client::connect("http://localhost/mcp").http(send).await?;
///
/// assert_eq!(client.call_tool("now", ()).await?.text(), "noon");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pipes {
    service: HttpService,
}

impl Pipes {
    /// Connects to this service.
    #[must_use]
    pub fn to(service: &HttpService) -> Self {
        Self {
            service: service.clone(),
        }
    }

    /// Opens one connection.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use = "dropping a connection closes it"]
    pub fn open(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE);
        let service = self.service.clone();
        tokio::spawn(async move { service.serve_connection(far).await });
        near
    }
}

impl tower_service::Service<Uri> for Pipes {
    type Response = Pipe;
    type Error = Infallible;
    type Future = Ready<Result<Pipe, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(Ok(Pipe(TokioIo::new(self.open()))))
    }
}

/// A connection of [`Pipes`].
#[derive(Debug)]
#[must_use = "dropping a connection closes it"]
pub struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Pipe {
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

/// How much may be on its way in one direction.
const PIPE: usize = 64 * 1024;
