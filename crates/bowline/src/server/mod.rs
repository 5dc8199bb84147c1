//! Servers: what answers requests.

mod changes;
pub use changes::Changed;

#[cfg(feature = "http-server")]
mod http;

mod router;

mod subscription;

mod tool;
pub use tool::{Tool, ToolHandler, invalid_params};

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Dialects, Door, Offers, Request};
use bowline_core::mux::Limits;
use bowline_types::{
    Implementation, Json, ResourcesCapability, ServerCapabilities, ToolsCapability,
};

use tokio::sync::watch;

use crate::Result;
use crate::exchange::{BoxFuture, CancelMode, Context, Responder};
use crate::peer::{Closing, Peer, Role};
use crate::wire::Wire;
use changes::Bus;

/// A server: a name, and what it offers. Cheap to clone; clones are the same server.
///
/// # Examples
///
/// ```
/// use bowline::{CallToolResult, Server, Tool};
/// use serde_json::json;
///
/// let now = Tool::raw("now", json!({"type": "object"}), async |_, _| {
///     Ok(CallToolResult::text("noon"))
/// });
/// let server = Server::new("clock", "1.0.0").instructions("Ask for the time.").tool(now);
/// ```
#[derive(Clone)]
#[must_use = "a server does nothing until it is served or connected to"]
pub struct Server {
    offer: Arc<Offer>,
    bus: Bus,
    /// How long handlers may still run, once a shutdown was asked for.
    shutdown: watch::Sender<Option<Duration>>,
}

/// What a server offers. Does not change once requests come.
#[derive(Clone)]
struct Offer {
    identity: Implementation,
    instructions: Option<String>,
    tools: BTreeMap<String, Tool>,
    /// The answer to `tools/list`, once it was asked for.
    tool_list: OnceLock<Json>,
    resource_updates: bool,
    served: Dialects,
    limits: Limits,
}

impl Server {
    /// A server that offers nothing yet.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let offer = Offer {
            identity: Implementation::new(name, version),
            instructions: None,
            tools: BTreeMap::new(),
            tool_list: OnceLock::new(),
            resource_updates: false,
            served: Dialects::all(),
            limits: Limits::default(),
        };
        Self {
            offer: Arc::new(offer),
            bus: Bus::default(),
            shutdown: watch::Sender::new(None),
        }
    }

    /// Tells models how to use this server.
    pub fn instructions(self, instructions: impl Into<String>) -> Self {
        self.offering(|offer| offer.instructions = Some(instructions.into()))
    }

    /// Offers a tool. A later one with the same name takes the place of the earlier.
    pub fn tool(self, tool: impl Into<Tool>) -> Self {
        let tool = tool.into();
        self.offering(|offer| {
            if offer.tools.insert(tool.name().to_owned(), tool).is_some() {
                tracing::warn!("a tool took the place of another with the same name");
            }
            offer.tool_list = OnceLock::new();
        })
    }

    /// Lets clients ask to be told when a resource changes; see [`Server::changed`].
    pub fn resource_updates(self) -> Self {
        self.offering(|offer| offer.resource_updates = true)
    }

    /// Serves these protocol versions only.
    pub fn versions(self, served: Dialects) -> Self {
        self.offering(|offer| offer.served = served)
    }

    /// Takes on this much at once on each wire.
    pub fn limits(self, limits: Limits) -> Self {
        self.offering(|offer| offer.limits = limits)
    }

    /// Tells subscribers that something changed.
    #[must_use]
    pub fn changed(&self) -> Changed<'_> {
        Changed::new(&self.bus)
    }

    /// Serves one wire until it is at its end.
    ///
    /// # Errors
    ///
    /// None today: a wire that breaks is the end of that wire, and is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler.
    pub async fn serve(self, wire: impl Wire) -> Result<()> {
        let offers = Offers::from(&self.offer.capabilities());
        let role = Role::Server {
            door: Door::new(self.offer.served.clone(), offers),
            identity: Json::encode(&self.offer.identity).unwrap_or_else(|_| Json::empty_object()),
            responder: Arc::new(self.clone()),
        };
        let (peer, mut driver) = Peer::new(Box::new(wire), role, self.offer.limits);
        let mut shutdown = self.shutdown.subscribe();
        // A wire that is at its end needs no shutdown any more.
        tokio::select! {
            biased;
            () = &mut driver => return Ok(()),
            Ok(grace) = shutdown.wait_for(Option::is_some) => {
                peer.close(Closing::Drain(grace.unwrap_or_default()));
            }
        }
        driver.await;
        Ok(())
    }

    /// Ends every wire in good order: new requests are refused, subscriptions come to their end, and
    /// running handlers get `grace` before they are dropped.
    pub fn shut_down(&self, grace: Duration) {
        self.shutdown.send_replace(Some(grace));
    }

    fn offering(mut self, change: impl FnOnce(&mut Offer)) -> Self {
        change(Arc::make_mut(&mut self.offer));
        self
    }
}

impl Responder for Server {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        router::route(self, request, cx)
    }

    fn cancel_mode(&self, request: &Request) -> CancelMode {
        router::cancel_mode(self, request)
    }
}

impl Offer {
    fn capabilities(&self) -> ServerCapabilities {
        let mut capabilities = ServerCapabilities::default();
        if !self.tools.is_empty() {
            let mut tools = ToolsCapability::default();
            tools.list_changed = Some(true);
            capabilities.tools = Some(tools);
        }
        if self.resource_updates {
            let mut resources = ResourcesCapability::default();
            resources.subscribe = Some(true);
            capabilities.resources = Some(resources);
        }
        capabilities
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("identity", &self.offer.identity)
            .field("tools", &self.offer.tools.keys())
            .finish_non_exhaustive()
    }
}
