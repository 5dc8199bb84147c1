//! [`PipeConnector`], a connector for HTTP/1.1 and HTTP/2 over in-memory pipes, without sockets.

use std::error::Error;
use std::future::ready;
use std::sync::Arc;

use http::Uri;
use tokio::io::DuplexStream;

use crate::exchange::BoxFuture;
use crate::http::HttpService;
use crate::http::client::{Connector, HttpStream};

/// A connector for [`HyperClient`](crate::http::client::HyperClient) that connects to a service in this process,
/// whatever the address.
///
/// It uses no sockets, so it works with tokio's paused clock.
///
/// # Examples
///
/// ```
/// use bowline::http::client::HyperClient;
/// use bowline::testing::PipeConnector;
/// use bowline::{CallToolResult, Client, Server, Tool};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let now = Tool::raw("now", json!({"type": "object"}), async |_, _| Ok(CallToolResult::text("noon")));
/// let service = Server::new("clock", "1.0.0").tool(now).http();
///
/// let http_client = HyperClient::with_http2_connector(PipeConnector::to(&service));
/// let client = Client::connect("http://localhost/mcp").http_client(http_client).await?;
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

impl Connector for PipeConnector {
    fn connect(
        &self,
        _: Uri,
    ) -> BoxFuture<'static, Result<HttpStream, Box<dyn Error + Send + Sync>>> {
        Box::pin(ready(Ok(HttpStream::new(self.open()))))
    }
}

/// The buffer size of each direction.
const PIPE_BUFFER_BYTES: usize = 64 * 1024;
