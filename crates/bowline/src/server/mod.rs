//! Servers: what answers requests.

mod changes;
pub use changes::Changed;

mod extract;
pub use extract::{Args, Extension, Extract, ExtractError, Given, Needs, Parameters, State};

mod handler;
pub use handler::{BlockingHandler, Handler};

mod output;
pub use output::{IntoToolResult, Structured, ToolError};

mod router;

mod schema;

mod subscription;

mod tool;
pub use tool::{Ask, Tool, ToolHandler, invalid_params};

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

use crate::exchange::{BoxFuture, CancelMode, Context, Extensions, Responder};
use crate::peer::{Closing, Peer, Role};
use crate::wire::Wire;
use crate::{Error, Result};
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
    /// What handlers find as their `State`.
    state: Arc<Extensions>,
    /// What is wrong with what was offered, told when the server is put to use.
    flaws: Vec<String>,
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
            state: Arc::default(),
            flaws: Vec::new(),
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
    ///
    /// A tool that cannot be offered, such as one whose schema is not valid, is left out, and
    /// [`check`](Self::check) says why; so does every way to serve or to connect.
    pub fn tool(self, tool: impl Into<Tool>) -> Self {
        let tool = tool.into().registered();
        self.offering(|offer| match tool {
            Ok(tool) => {
                if offer.tools.insert(tool.name().to_owned(), tool).is_some() {
                    tracing::warn!("a tool took the place of another with the same name");
                }
                offer.tool_list = OnceLock::new();
            }
            Err(flaw) => offer.flaws.push(flaw.to_string()),
        })
    }

    /// Offers several tools.
    pub fn tools(self, tools: impl IntoIterator<Item = impl Into<Tool>>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// Gives handlers something to work with: they find a copy of it as [`State`], by its type.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use bowline::{Server, State, Tool};
    ///
    /// async fn count(State(counter): State<Arc<AtomicU64>>) -> u64 {
    ///     counter.fetch_add(1, Ordering::Relaxed)
    /// }
    ///
    /// let server = Server::new("counter", "1.0.0")
    ///     .state(Arc::new(AtomicU64::new(0)))
    ///     .tool(Tool::new("count", count));
    /// assert!(server.check().is_ok());
    /// ```
    pub fn state<S: Clone + Send + Sync + 'static>(self, state: S) -> Self {
        self.offering(|offer| Arc::make_mut(&mut offer.state).insert(state))
    }

    /// Checks that everything can be offered, and that every handler finds its state.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] with everything that is wrong.
    pub fn check(&self) -> Result<()> {
        let missing = self.offer.tools.values().flat_map(|tool| {
            let missing = tool.states().iter();
            missing
                .filter(|needed| !self.offer.state.contains(needed.id))
                .map(|needed| {
                    let (name, state) = (tool.name(), needed.name);
                    format!("the tool `{name}` needs `State<{state}>`, which `Server::state` was not given")
                })
        });
        let flaws: Vec<_> = self.offer.flaws.iter().cloned().chain(missing).collect();
        if flaws.is_empty() {
            return Ok(());
        }
        Err(Error::misuse(flaws.join("; ")))
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
    /// As [`check`](Self::check). A wire that breaks is the end of that wire, and is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler.
    pub async fn serve(self, wire: impl Wire) -> Result<()> {
        self.check()?;
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
        router::route(self, request, cx.with_state(self.offer.state.clone()))
    }

    fn check(&self) -> Result<()> {
        Self::check(self)
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
