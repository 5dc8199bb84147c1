//! Clients: what an application holds to reach a server.

mod call;
pub use call::{Call, Reply};

mod connect;
pub use connect::Connect;

mod http;

mod link;

mod opening;

mod request;
pub use request::{CallTool, ListTools, RawCall, Typed};

mod subscription;
pub use subscription::{Change, Subscribe, Subscription};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bowline_core::era::{Caller, Dialect};
use bowline_types::{
    DiscoverResult, Implementation, Json, Method, ProgressToken, ServerCapabilities,
    SubscriptionFilter,
};
use serde::Serialize;

use crate::exchange::{Channel, Responder};
use crate::peer::Peer;
use crate::wire::{Command, Wire};
use crate::{Error, Result};
use link::OpenWire;

/// A connection to a server. Cheap to clone; the connection ends with its last clone.
///
/// # Examples
///
/// Losing a race cancels the call, and the server stops working on it:
///
/// ```
/// # use bowline::Client;
/// # async fn user_pressed_stop() {}
/// # async fn example(client: Client) -> bowline::Result<()> {
/// let slow = client.call_tool("slow", serde_json::json!({"seconds": 60}));
/// tokio::select! {
///     reply = slow => println!("{}", reply?.text()),
///     () = user_pressed_stop() => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    channel: Arc<dyn Channel>,
    caller: Arc<Caller>,
    host: Arc<dyn Responder>,
    server: Option<DiscoverResult>,
    timeout: Duration,
    last_token: AtomicI64,
    wire: Option<OpenWire>,
}

impl Client {
    /// Connects to a server, or anything else that answers requests, in the same process.
    pub fn to<R: Responder + Clone>(server: &R) -> Connect {
        Connect::to(Arc::new(server.clone()))
    }

    /// Connects to a server at an `http://` or `https://` URL, whatever version it speaks.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let client = bowline::Client::connect("http://localhost:8000/mcp").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect(url: &str) -> Connect {
        Connect::at(url)
    }

    /// Connects over a wire.
    pub fn over(wire: impl Wire) -> Connect {
        Connect::over(Box::new(wire))
    }

    /// Starts a server as a child process, without a shell, and connects to it.
    ///
    /// A child that exits fails every call with an error that shows what it exited with and what it last
    /// said on stderr. The child is ended with the connection, and never outlives it; [`Client::close`]
    /// returns when it was reaped. What it inherits and how it is ended is told at [`Command`].
    ///
    /// If the child exits while it is asked what it speaks, as some old servers do, it is started once
    /// more.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// use std::process::Command;
    ///
    /// let client = bowline::Client::spawn(Command::new("weather-server")).await?;
    /// let reply = client.call_tool("forecast", serde_json::json!({"city": "Bergen"})).await?;
    /// client.close().await
    /// # }
    /// ```
    ///
    /// [`Command`]: crate::wire::Command
    pub fn spawn(command: impl Into<Command>) -> Connect {
        Connect::child(command.into())
    }

    /// Calls a tool. `arguments` become a JSON object; `()` means none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client
    ///     .call_tool("add", serde_json::json!({"a": 1, "b": 2}))
    ///     .timeout(Duration::from_secs(5))
    ///     .await?;
    /// let sum: i64 = reply.structured()?;
    /// # Ok(()) }
    /// ```
    pub fn call_tool(&self, name: impl Into<String>, arguments: impl Serialize) -> CallTool {
        CallTool::new(self, name.into(), &arguments)
    }

    /// Lists the server's tools.
    pub fn list_tools(&self) -> ListTools {
        ListTools::new(self)
    }

    /// Asks to be told when something changes.
    pub fn subscribe(&self, filter: SubscriptionFilter) -> Subscribe {
        Subscribe::new(self, filter)
    }

    /// Sends a request of any kind; the method names the types of its params and its result.
    pub fn request<M: Method>(&self, params: &M::Params) -> Typed<M> {
        Typed::new(self, params)
    }

    /// Sends a request that no type describes.
    pub fn raw(&self, method: impl Into<String>, params: impl Serialize) -> RawCall {
        RawCall::new(self, method.into(), &params)
    }

    /// What the server said of itself, if it was asked.
    #[must_use]
    pub fn server(&self) -> Option<&DiscoverResult> {
        self.inner.server.as_ref()
    }

    /// What the server calls itself, if it told.
    #[must_use]
    pub fn server_implementation(&self) -> Option<Implementation> {
        self.server()?.meta.as_ref()?.server_info().ok().flatten()
    }

    /// What the server offers, as far as is known.
    #[must_use]
    pub fn capabilities(&self) -> Option<&ServerCapabilities> {
        self.server().map(|server| &server.capabilities)
    }

    /// The protocol version that is spoken.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.inner.caller.dialect
    }

    /// The other end of the wire, if there is one: for counting what is going on.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.inner.wire.as_ref().map(|wire| &wire.peer)
    }

    /// Ends the connection in good order: what is queued is sent, then the wire is closed.
    ///
    /// A wire that does not take what is queued within a second is closed all the same. A server that was
    /// started by [`Client::spawn`] is ended, and has been reaped when this returns.
    ///
    /// # Errors
    ///
    /// None on today's wires.
    ///
    /// # Cancel safety
    ///
    /// Safe: the connection closes even if nobody waits for it.
    pub async fn close(self) -> Result<()> {
        if let Some(wire) = &self.inner.wire {
            wire.close().await;
        }
        Ok(())
    }

    fn mint_token(&self) -> ProgressToken {
        ProgressToken::Number(self.inner.last_token.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("caller", &self.inner.caller)
            .finish_non_exhaustive()
    }
}

/// Encodes params or arguments; what is nothing in Rust (`()`, `None`) is the empty object.
fn encode_object(value: &impl Serialize) -> Result<Json> {
    let json = Json::encode(value)
        .map_err(|error| Error::misuse(format!("the arguments have no JSON form: {error}")))?;
    if json.is_null() {
        Ok(Json::empty_object())
    } else if json.is_object() {
        Ok(json)
    } else {
        Err(Error::misuse("arguments and params are a JSON object"))
    }
}
