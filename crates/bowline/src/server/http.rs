//! Serving a [`Server`] over HTTP, and its [`MethodCatalog`] of methods and tool headers for the admission of requests.

use std::sync::Arc;

use bowline_core::era::Caller;
use bowline_core::http::admission::MethodCatalog;
use bowline_core::http::headers::{ParamHeaders, name_member};
use tokio::net::ToSocketAddrs;

use super::Server;
use super::snapshot::ServerSnapshot;
use super::visibility::Visible as _;
use crate::Result;
use crate::http::HttpService;

impl Server {
    /// Returns this server as a `tower::Service`, to mount in axum or any other HTTP server, or to
    /// [`bind`](HttpService::bind) to an address. Later changes of settings do not affect the service.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    ///
    /// let service = Server::new("calculator", "1.0.0").http();
    /// // `service` is a `tower::Service`: `axum::Router::new().route_service("/mcp", service)`
    /// ```
    pub fn http(&self) -> HttpService {
        let server = self.snapshot();
        let (definition, shutdown) = (server.definition.clone(), server.shared.shutdown.clone());
        // Begins to join, so that the first subscription does not wait.
        drop(definition.bus.joining());
        let service = HttpService::new(server.clone(), server, &definition.identity);
        service.modify(|state| {
            state.served = definition.served.clone();
            state.account = definition.account.clone();
            state.shutdown = shutdown;
            state.cluster.clone_from(&definition.cluster);
        })
    }

    /// Serves HTTP/1.1 and HTTP/2 at this address, on the path `/mcp`, until [`Server::shut_down`] or a signal, as
    /// [`serve_stdio`](Self::serve_stdio) does. [`Server::http`] configures other paths, HTTP+SSE and TLS.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`](crate::Error::Transport) if the address cannot be bound, and as [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection and drops the handlers of modern requests.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// #[tokio::main]
    /// async fn main() -> bowline::Result<()> {
    ///     bowline::Server::new("calculator", "1.0.0").serve_http("127.0.0.1:8000").await
    /// }
    /// ```
    pub async fn serve_http(self, addr: impl ToSocketAddrs) -> Result<()> {
        self.http().bind(addr).await?.serve_until_signal().await
    }
}

/// Methods of a capability that is not advertised are not found.
impl MethodCatalog for ServerSnapshot {
    fn has_method(&self, method: &str) -> bool {
        self.definition.has_method(method)
    }

    fn name_member(&self, method: &str) -> Option<&str> {
        match self.definition.extension_of_method(method) {
            Some(extension) => extension.method(method)?.mirrored_member(),
            None => name_member(method),
        }
    }

    fn param_headers(&self, tool: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        let tools = self.definition.tools.snapshot();
        let tool = &tools.find(tool)?.item;
        // As with the required scopes: a refusal would reveal the tool to callers who may not see it.
        tool.param_headers()
            .filter(|_| tool.visibility().is_public())
    }
}

impl MethodCatalog for Server {
    fn has_method(&self, method: &str) -> bool {
        self.first_snapshot().has_method(method)
    }

    fn name_member(&self, method: &str) -> Option<&str> {
        self.first_snapshot().name_member(method)
    }

    fn param_headers(&self, tool: &str, caller: &Caller) -> Option<Arc<ParamHeaders>> {
        self.first_snapshot().param_headers(tool, caller)
    }
}
