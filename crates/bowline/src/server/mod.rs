//! Servers: what answers requests.

mod changes;
pub use changes::{Bus, Change, Changed, Changes, Heard, LocalBus};

mod completion;
pub use completion::{Completer, CompletionHandler, IntoCompletion, Typing};

mod contents;
pub use contents::{Contents, IntoReadResult};

mod extract;
pub use extract::{Args, Extension, Extract, ExtractError, Given, Needs, Parameters, State};

mod handler;
pub use handler::{BlockingHandler, Handler};

mod live;
pub use live::{Prompts, Resources, Tools};

mod mount;

mod offer;
pub use offer::List;

mod output;
pub use output::{IntoToolResult, Structured, ToolError};

mod page;

mod prompt;
pub use prompt::{IntoPromptResult, Prompt, PromptHandler};

mod registry;

mod resource;
pub use resource::{
    AskedUri, IntoResourceTemplate, Resource, ResourceHandler, ResourceTemplate, not_found,
};

mod rounds;

#[cfg(feature = "http-server")]
mod http;

mod router;

mod schema;

mod sealed;
pub use sealed::StateKeys;

mod stdio;

mod subscription;

mod template;
pub use template::{UriTemplate, Value, Variables};

mod texts;

mod tool;
pub use tool::{Askable, Tool, ToolHandler, Toolbox, invalid_params};

use std::sync::Arc;
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Dialects, Door, Offers, Request};
use bowline_types::{CacheScope, ErrorCode, Icon, Implementation, Json, RpcError};

use crate::callback::contained;
use crate::exchange::{BoxFuture, Context, Params, Responder};
use crate::layer::{Layer, Next};
use crate::limits::{Limits, Usage};
use crate::peer::{Closing, Peer, Role};
use crate::shutdown::Shutdown;
use crate::wire::Wire;
use crate::{Marks, Result};
use offer::Offer;
use page::Cache;

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
    bus: Arc<dyn Bus>,
    shutdown: Shutdown,
}

impl Server {
    /// A server that offers nothing yet.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            offer: Arc::new(Offer::new(Implementation::new(name, version))),
            bus: Arc::new(LocalBus::default()),
            shutdown: Shutdown::default(),
        }
    }

    /// Names the server, for people.
    pub fn title(self, title: impl Into<String>) -> Self {
        self.identified(|identity| identity.title = Some(title.into()))
    }

    /// Says what the server does, for people.
    pub fn description(self, description: impl Into<String>) -> Self {
        self.identified(|identity| identity.description = Some(description.into()))
    }

    /// Says where to read more about the server.
    pub fn website(self, url: impl Into<String>) -> Self {
        self.identified(|identity| identity.website_url = Some(url.into()))
    }

    /// Says how the server may be shown.
    pub fn icons(self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.identified(|identity| identity.icons = Some(icons.into_iter().collect()))
    }

    /// Tells models how to use this server.
    pub fn instructions(self, instructions: impl Into<String>) -> Self {
        self.offering(|offer| offer.instructions = Some(instructions.into()))
    }

    /// Offers a tool.
    ///
    /// A tool that cannot be offered, such as one whose schema is not valid or whose name is taken, is left
    /// out, and [`check`](Self::check) says why; so does every way to serve or to connect. To put a tool
    /// in the place of another, use [`tools`](Self::tools).
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Server, Tool};
    ///
    /// async fn now() -> &'static str {
    ///     "noon"
    /// }
    ///
    /// let server = Server::new("clock", "1.0.0").tool(Tool::new("now", now).description("Tells the time."));
    /// ```
    pub fn tool(self, tool: impl Into<Tool>) -> Self {
        let tool = tool.into().registered();
        self.offering(|offer| match tool {
            Ok(tool) => offer.add_tool(tool.name().to_owned(), tool.into()),
            Err(flaw) => offer.flaws.push(flaw.to_string()),
        })
    }

    /// Offers all the tools of a box, such as a type with `#[tools]` on its `impl` block.
    pub fn toolbox(self, tools: impl Toolbox) -> Self {
        tools.into_tools().into_iter().fold(self, Self::tool)
    }

    /// Offers a prompt. If its name is taken it is left out, and [`check`](Self::check) says so.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Prompt, Server};
    ///
    /// let haiku = Prompt::raw("haiku", async |arguments, _| Ok(format!("A haiku about {}.", arguments["topic"])))
    ///     .required("topic", "what it is about");
    /// let server = Server::new("poet", "1.0.0").prompt(haiku);
    /// ```
    pub fn prompt(self, prompt: impl Into<Prompt>) -> Self {
        let prompt = prompt.into();
        self.offering(|offer| offer.add_prompt(prompt.name().to_owned(), prompt.into()))
    }

    /// Offers a resource. If there is one at its URI it is left out, and [`check`](Self::check) says so.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Resource, Server};
    ///
    /// let readme = Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain");
    /// let server = Server::new("library", "1.0.0").resource(readme);
    /// ```
    pub fn resource(self, resource: impl Into<Resource>) -> Self {
        let resource = resource.into();
        self.offering(|offer| offer.add_resource(resource.uri().to_owned(), resource.into()))
    }

    /// Offers all resources whose URIs fit a template. A resource of its own at such a URI comes first;
    /// of several templates that fit, the one with the most fixed text.
    ///
    /// A template that is none is left out, and [`check`](Self::check) says why.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{ResourceTemplate, Server};
    ///
    /// let page = ResourceTemplate::raw("docs://{page}", "page", async |asked, _| {
    ///     Ok(format!("this is {}", asked.variables.text("page").unwrap_or("none")))
    /// });
    /// let server = Server::new("library", "1.0.0").resource_template(page);
    /// assert!(server.check().is_ok());
    /// ```
    pub fn resource_template(self, template: impl IntoResourceTemplate) -> Self {
        let template = template.into_resource_template();
        self.offering(|offer| match template {
            Ok(template) => {
                let text = template.uri_template().as_str().to_owned();
                offer.add_template(text, template.into());
            }
            Err(flaw) => offer.flaws.push(flaw.to_string()),
        })
    }

    /// Proposes values for an argument of a prompt or a variable of a template.
    pub fn completion(self, completer: impl Into<Completer>) -> Self {
        let completer = completer.into();
        self.offering(|offer| offer.add_completer(completer.into()))
    }

    /// Offers all that another server offers at this moment.
    ///
    /// Its tools and prompts are called by the prefix, an underscore and their name; its resources keep
    /// their URIs. Its handlers find its own [state](Self::state) first, then this server's. Changes are
    /// announced by this server.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{CallToolResult, Server, Tool};
    /// use serde_json::json;
    ///
    /// let forecast = Tool::raw("forecast", json!({"type": "object"}), async |_, _| {
    ///     Ok(CallToolResult::text("sunny"))
    /// });
    /// let weather = Server::new("weather", "1.0.0").tool(forecast);
    /// let server = Server::new("assistant", "1.0.0").mount("weather", &weather);
    /// assert_eq!(server.tools().names(), ["weather_forecast"]);
    /// ```
    pub fn mount(self, prefix: &str, inner: &Self) -> Self {
        self.offering(|offer| mount::mount(offer, prefix, inner))
    }

    /// Says that there is such a list, even while there is nothing on it: for what is added later.
    pub fn advertise(self, list: List) -> Self {
        self.offering(|offer| offer.advertise(list))
    }

    /// Puts at most this many entries on one page of a list. All are on one page by default.
    pub fn page_size(self, most: usize) -> Self {
        self.offering(|offer| offer.repage(|offer| offer.page_size = Some(most.max(1))))
    }

    /// Says how long lists and the server's introduction stay fresh, and who may share them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::{Server, types::CacheScope};
    ///
    /// let server = Server::new("steady", "1.0.0").cache(Duration::from_secs(300), CacheScope::PUBLIC);
    /// ```
    pub fn cache(self, ttl: Duration, scope: CacheScope) -> Self {
        let cache = Cache::new(ttl, scope);
        self.offering(|offer| offer.repage(|offer| offer.cache = Some(cache)))
    }

    /// Says how long one list stays fresh, and who may share it.
    pub fn cache_list(self, list: List, ttl: Duration, scope: CacheScope) -> Self {
        let cache = Cache::new(ttl, scope);
        self.offering(|offer| {
            offer.repage(|offer| {
                offer.caches.insert(list, cache);
            });
        })
    }

    /// Lets handlers log to clients that ask for it: [`Context::log`] is silent otherwise.
    pub fn logging(self) -> Self {
        self.offering(|offer| offer.logger = Some(offer.identity.name.as_str().into()))
    }

    /// Calls `on_roots_changed` when a client says that its [roots](Context::roots) have changed.
    ///
    /// It is called from the task that reads the wire and must not block. Only clients of the legacy era say
    /// so; since then, ask whenever the roots are wanted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use bowline::Server;
    ///
    /// let is_stale = Arc::new(AtomicBool::new(true));
    /// let server = Server::new("indexer", "1.0.0").on_roots_changed({
    ///     let is_stale = is_stale.clone();
    ///     move |_caller| is_stale.store(true, Ordering::Relaxed)
    /// });
    /// ```
    pub fn on_roots_changed(
        self,
        on_roots_changed: impl Fn(&Caller) + Send + Sync + 'static,
    ) -> Self {
        self.offering(|offer| offer.on_roots_changed.push(Arc::new(on_roots_changed)))
    }

    /// Announces changes over this bus, and listens to it.
    pub fn bus(mut self, bus: impl Bus) -> Self {
        self.bus = Arc::new(bus);
        self
    }

    /// Lets clients ask to be told when a resource changes; see [`Server::changed`].
    pub fn resource_updates(self) -> Self {
        self.offering(|offer| offer.resource_updates = true)
    }

    /// Shares a value with every handler, which finds it by its type: as [`State`], or by
    /// [`Context::state`]. A later value of the same type takes the place of the earlier.
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
    pub fn state<S: Send + Sync + 'static>(self, value: S) -> Self {
        self.offering(|offer| offer.state.insert(value))
    }

    /// Serves these protocol versions only.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    /// use bowline::exchange::{Dialect, Dialects};
    ///
    /// let server = Server::new("new only", "1.0.0").versions(Dialects::only(Dialect::is_modern));
    /// ```
    pub fn versions(self, served: Dialects) -> Self {
        self.offering(|offer| offer.served = served)
    }

    /// Sets how much peers can make this server hold and do.
    pub fn limits(self, limits: Limits) -> Self {
        self.offering(|offer| offer.limit(limits))
    }

    /// Returns what is held for peers at the moment, over every transport, and what was refused so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.offer.account.usage()
    }

    /// Seals with these keys what must be known when a request comes back with the input it needed.
    ///
    /// Without them each server makes up a key of its own, so that no other replica takes up its requests.
    pub fn input_keys(self, keys: impl Into<StateKeys>) -> Self {
        self.offering(|offer| offer.input.keys = keys.into())
    }

    /// Sets the store in which [`Context::once`](crate::Context::once) marks its effects. Defaults to a [`MemoryMarks`](crate::MemoryMarks), which
    /// holds 100,000 marks. Replicas that share [keys](Self::input_keys) must share a store.
    pub fn marks(self, marks: impl Marks) -> Self {
        self.offering(|offer| offer.input.marks = Arc::new(marks))
    }

    /// How many bytes a request may keep from one round to the next. 64 KiB by default.
    pub fn input_limit(self, bytes: usize) -> Self {
        self.offering(|offer| offer.input.state_limit = bytes)
    }

    /// How long a client may take to answer a question where it is asked directly. 5 min by default.
    pub fn ask_timeout(self, timeout: Duration) -> Self {
        self.offering(|offer| offer.input.ask_timeout = timeout)
    }

    /// The tools, to add and remove some while the server runs.
    #[must_use]
    pub fn tools(&self) -> Tools<'_> {
        Tools(self)
    }

    /// The prompts, to add and remove some while the server runs.
    #[must_use]
    pub fn prompts(&self) -> Prompts<'_> {
        Prompts(self)
    }

    /// The resources and templates, to add and remove some while the server runs.
    #[must_use]
    pub fn resources(&self) -> Resources<'_> {
        Resources(self)
    }

    /// Stands a layer around every request, inside those that are there already.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::{Server, layer::{Timeout, Trace}};
    ///
    /// let server = Server::new("patient", "1.0.0")
    ///     .layer(Trace::new())
    ///     .layer(Timeout::new(Duration::from_secs(30)));
    /// ```
    pub fn layer(self, layer: impl Layer) -> Self {
        self.offering(|offer| offer.layers.push(Arc::new(layer)))
    }

    /// Tells subscribers that something changed.
    #[must_use]
    pub fn changed(&self) -> Changed<'_> {
        Changed::new(&self.bus)
    }

    /// Checks that everything can be offered, and that every handler finds its state.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) with everything that is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Server, Tool};
    ///
    /// let twice = Server::new("s", "1.0.0")
    ///     .tool(Tool::new("now", async || "noon"))
    ///     .tool(Tool::new("now", async || "midnight"));
    /// let flaw = twice.check().unwrap_err();
    /// assert_eq!(flaw.to_string(), "two tools are called `now`");
    /// ```
    pub fn check(&self) -> Result<()> {
        self.offer.check()
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
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// use bowline::{Server, wire::Lines};
    ///
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:7000").await.map_err(|_| bowline::Error::Closed)?;
    /// while let Ok((stream, _)) = listener.accept().await {
    ///     tokio::spawn(Server::new("lines", "1.0.0").serve(Lines::tcp(stream)));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn serve(self, wire: impl Wire) -> Result<()> {
        self.check()?;
        self.serve_counted(wire).1.await
    }

    /// Serves one wire, with a handle by which to count what is going on at this end of it.
    #[doc(hidden)]
    pub fn serve_counted(self, wire: impl Wire) -> (Peer, BoxFuture<'static, Result<()>>) {
        let offers = Offers::from(&self.offer.capabilities());
        let role = Role::Server {
            door: Door::new(self.offer.served.clone(), offers),
            identity: Json::encode(&self.offer.identity).unwrap_or_else(|_| Json::empty_object()),
            responder: Arc::new(self.clone()),
        };
        let (peer, mut driver) = Peer::new(Box::new(wire), role, self.offer.account.peer());
        let (counted, shutdown) = (peer.clone(), self.shutdown);
        let serving = Box::pin(async move {
            // A wire that is at its end needs no shutdown any more.
            tokio::select! {
                biased;
                () = &mut driver => return Ok(()),
                grace = shutdown.asked() => peer.close(Closing::Drain(grace)),
            }
            driver.await;
            Ok(())
        });
        (counted, serving)
    }

    /// Ends every wire in good order: new requests are refused, subscriptions come to their end, and
    /// running handlers get `grace` before they are dropped.
    ///
    /// In process a handler that runs already is part of its caller's future, and goes on as long as
    /// that does.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// let server = Server::new("polite", "1.0.0");
    /// let serving = tokio::spawn(server.clone().serve_http("127.0.0.1:0"));
    /// server.shut_down(Duration::from_secs(10));
    /// serving.await.expect("it does not panic")
    /// # }
    /// ```
    pub fn shut_down(&self, grace: Duration) {
        self.shutdown.ask(grace);
    }

    /// Waits until somebody asks for a shutdown.
    async fn shutting_down(&self) {
        self.shutdown.asked().await;
    }

    /// Answers what all layers have passed on.
    fn respond_inside<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        rounds::in_rounds(&self.offer.input, request, cx, |request, cx| {
            router::route(self, request, cx)
        })
    }

    fn identified(self, change: impl FnOnce(&mut Implementation)) -> Self {
        self.offering(|offer| offer.repage(|offer| change(&mut offer.identity)))
    }

    fn offering(mut self, change: impl FnOnce(&mut Offer)) -> Self {
        change(Arc::make_mut(&mut self.offer));
        self
    }
}

impl Responder for Server {
    fn respond<'a>(&'a self, request: Request, mut cx: Context) -> BoxFuture<'a, Outcome> {
        // A wire refuses new requests itself; in process nothing else stands before the handlers.
        if self.shutdown.is_asked() {
            let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down");
            return Box::pin(std::future::ready(Err(error)));
        }
        cx.extensions_mut().extend(&self.offer.state);
        match &self.offer.logger {
            Some(logger) => cx.set_logger(logger),
            None => cx.mute(),
        }
        if self.offer.layers.is_empty() {
            return self.respond_inside(request, cx);
        }
        Next::around(&self.offer.layers, Inside(self.clone()), cx).run(request)
    }

    fn roots_changed(&self, caller: &Caller) {
        for on_roots_changed in &self.offer.on_roots_changed {
            contained("changed roots", || on_roots_changed(caller));
        }
    }

    fn scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        router::scopes(self, method, params)
    }

    fn check(&self) -> Result<()> {
        self.offer.check()
    }
}

/// A server without its layers.
struct Inside(Server);

impl Responder for Inside {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        self.0.respond_inside(request, cx)
    }

    fn roots_changed(&self, caller: &Caller) {
        self.0.roots_changed(caller);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("identity", &self.offer.identity)
            .field("tools", &self.tools().names())
            .finish_non_exhaustive()
    }
}
