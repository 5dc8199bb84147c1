//! A server over HTTP: what it tells the admission ladder, and its own way onto a socket.

use std::sync::Arc;

use bowline_core::era::Offers;
use bowline_core::http::admission::Catalog;
use bowline_core::http::headers::ParamHeaders;
use bowline_types::{
    CallToolRequest, CompleteRequest, DiscoverRequest, GetPromptRequest, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, Method,
    ReadResourceRequest, SubscriptionsListenRequest,
};
use tokio::net::ToSocketAddrs;

use super::Server;
use crate::Result;
use crate::http::HttpService;

impl Server {
    /// This server as an HTTP service, to mount in axum or any other HTTP server, or to
    /// [`bind`](HttpService::bind) to an address.
    ///
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
        let service = HttpService::new(self.clone(), self.clone(), &self.offer.identity);
        service.having(|site| {
            site.served = self.offer.served.clone();
            site.offers = Offers::from(&self.offer.capabilities());
            site.account = self.offer.account.clone();
            site.shutdown = self.shutdown.clone();
        })
    }

    /// Serves HTTP at this address until [`Server::shut_down`]; HTTP/1.1 and HTTP/2, at the paths `/` and `/mcp`. Others,
    /// and HTTP+SSE, can be chosen through [`Server::http`].
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

/// What is not advertised is not answered.
impl Catalog for Server {
    fn answers(&self, method: &str) -> bool {
        match method {
            DiscoverRequest::NAME | SubscriptionsListenRequest::NAME => true,
            ListToolsRequest::NAME | CallToolRequest::NAME => self.offer.has_tools(),
            ListPromptsRequest::NAME | GetPromptRequest::NAME => self.offer.has_prompts(),
            ListResourcesRequest::NAME
            | ListResourceTemplatesRequest::NAME
            | ReadResourceRequest::NAME => self.offer.has_resources(),
            CompleteRequest::NAME => self.offer.has_completions(),
            _ => false,
        }
    }

    fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        self.offer.tools.now().find(tool)?.item.param_headers()
    }
}
