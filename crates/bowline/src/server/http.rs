//! A server over HTTP: what it tells the admission ladder, and its own way onto a socket.

use std::collections::BTreeMap;

use bowline_core::era::Offers;
use bowline_core::http::admission::Catalog;
use bowline_core::http::headers::ParamHeaders;
use bowline_types::ServerCapabilities;
use tokio::net::ToSocketAddrs;

use super::Server;
use crate::Result;
use crate::http::HttpService;

impl Server {
    /// This server as an HTTP service, to mount in axum or any other HTTP server, or to
    /// [`bind`](HttpService::bind) to an address.
    ///
    /// What is offered is settled by then; later changes to the server do not show.
    pub fn http(&self) -> HttpService {
        let capabilities = self.offer.capabilities();
        let service = HttpService::new(
            self.clone(),
            Offered::new(self, &capabilities),
            &self.offer.identity,
        );
        service.having(|site| {
            site.served = self.offer.served.clone();
            site.offers = Offers::from(&capabilities);
            site.limits = self.offer.limits;
            site.shutdown = self.shutdown.clone();
        })
    }

    /// Serves HTTP at this address until [`Server::shut_down`]; HTTP/1.1 and HTTP/2, every path alike.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`](crate::Error::Transport) if the address cannot be had.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection, and drops the handlers of their modern requests.
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
        self.http().bind(addr).await?.serve().await
    }
}

/// What a server can tell about its methods without running a handler.
struct Offered {
    capabilities: ServerCapabilities,
    /// Tools whose arguments are mirrored in headers.
    params: BTreeMap<String, ParamHeaders>,
}

impl Offered {
    fn new(server: &Server, capabilities: &ServerCapabilities) -> Self {
        let mut params = BTreeMap::new();
        for tool in server.offer.tools.values() {
            match ParamHeaders::read(&tool.definition().input_schema) {
                Ok(plan) if plan.is_empty() => {}
                Ok(plan) => drop(params.insert(tool.name().to_owned(), plan)),
                Err(bad) => tracing::error!(
                    tool = tool.name(), %bad,
                    "HTTP clients will hide this tool: an `x-mcp-header` of its schema breaks the rules"
                ),
            }
        }
        Self {
            capabilities: capabilities.clone(),
            params,
        }
    }
}

impl Catalog for Offered {
    fn answers(&self, method: &str) -> bool {
        let has = &self.capabilities;
        match method.split_once('/') {
            Some(("server", "discover") | ("subscriptions", "listen")) => true,
            Some(("tools", "list" | "call")) => has.tools.is_some(),
            Some(("prompts", "list" | "get")) => has.prompts.is_some(),
            Some(("resources", "list" | "read" | "templates/list")) => has.resources.is_some(),
            Some(("completion", "complete")) => has.completions.is_some(),
            _ => false,
        }
    }

    fn param_headers(&self, tool: &str) -> Option<&ParamHeaders> {
        self.params.get(tool)
    }
}
