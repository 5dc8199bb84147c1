//! MCP servers: [`Server`] with its tools, prompts, resources and completers, and the handlers behind them.

mod change_bus;
pub use change_bus::{
    ChangeBus, ChangeEvent, ChangeNotifier, ChangeReceiver, LocalChangeBus, ServerChange,
};

mod cluster_bus;

mod cluster_settings;

mod completion;
pub use completion::{Completer, CompletionHandler, CompletionInput, IntoCompletion};

mod contents;
pub use contents::{Contents, IntoReadResult};

mod definition;
pub use definition::ListKind;

mod drain;
pub use crate::shutdown::{DrainPhase, DrainReport};

mod extension;
pub use extension::{
    ExtensionMethod, ExtensionSubscription, ServerExtension, SubscriptionNotifier, ToolSettings,
    WeakServer,
};

mod extract;
pub use extract::{
    Args, Argument, Extension, Extract, ExtractError, HandlerInput, HandlerRequirements,
    Parameters, State,
};

mod function;
pub use function::{Definition, FunctionCall, FunctionOutput, IntoDefinition};

mod handler;
pub use handler::{BlockingHandler, Handler};

#[cfg(feature = "http-server")]
mod http;

mod input_required;

mod lint;
pub use lint::{Lint, ModelApi};

mod mount;

mod output;
pub use output::{IntoToolResult, Structured};

mod pagination;

mod prompt;
pub use prompt::{IntoPromptResult, Prompt, PromptHandler};

mod registry;

mod registry_handles;
pub use registry_handles::{PromptsHandle, ResourcesHandle, ToolsHandle};

mod request_state;
pub use request_state::RequestStateKeys;

mod resource;
pub use resource::{RequestedUri, Resource, ResourceHandler, ResourceTemplate, not_found};

mod resource_list;
pub use resource_list::IntoResourceList;

mod router;

mod schema;

mod snapshot;

mod stdio;

mod string_arguments;

mod subscription;

mod subscription_hooks;

mod template;
pub use template::{UriTemplate, VariableValue, Variables};

mod tool;
pub use tool::{RequiredCapability, Tool, ToolHandler, Toolbox, invalid_params};

mod tool_call;
pub use tool_call::{RunningTool, ToolCall};

mod tool_error;
pub use tool_error::ToolError;

mod visibility;

mod wire_service;
pub use wire_service::WireService;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::era::{Caller, Dialects};
use bowline_types::{CacheScope, Icon, Implementation};

use crate::Result;
use crate::exchange::{BoxFuture, Context, Responder};
use crate::layer::{Layer, ProgressHeartbeat};
use crate::limits::{Limits, Usage};
use crate::peer::Peer;
use crate::telemetry::{TaskMetrics, Telemetry};
use crate::wire::Wire;
use definition::ServerDefinition;
use pagination::CacheHints;
use resource_list::ResourceList;
use snapshot::{ServerShared, ServerSnapshot, ServerUse};
use subscription_hooks::SubscriptionHook;

/// An MCP server: its name, tools, prompts and resources.
///
/// Cloning is cheap, and clones are the same server: a builder method on one of them changes all.
///
/// - Tools, prompts, resources, resource templates and completers can be added at any time. Once the server is served,
///   builder methods notify subscribers of the changed list, as [`tools`](Self::tools) and its siblings do, and log the
///   error of an entry that is left out.
/// - Settings, such as limits, layers and state, apply to wires, HTTP services ([`http`](Self::http)) and in-process
///   clients that start afterwards.
///
/// A handler gets its server from [`Context::server`].
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
#[must_use = "a server does nothing until it is served or connected to"]
pub struct Server {
    shared: ServerUse,
    /// Taken when this clone is first used as a [`Responder`].
    first_snapshot: OnceLock<ServerSnapshot>,
}

impl Server {
    /// Creates a server without tools, prompts and resources.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let definition = ServerDefinition::new(Implementation::new(name, version));
        Self::from_shared(Arc::new(ServerShared::new(definition)))
    }

    /// Sets the title that user interfaces show.
    pub fn title(self, title: impl Into<String>) -> Self {
        self.with_identity(|identity| identity.title = Some(title.into()))
    }

    /// Sets the description that user interfaces show.
    pub fn description(self, description: impl Into<String>) -> Self {
        self.with_identity(|identity| identity.description = Some(description.into()))
    }

    /// Sets `websiteUrl`, the address of more information about the server.
    pub fn website_url(self, url: impl Into<String>) -> Self {
        self.with_identity(|identity| identity.website_url = Some(url.into()))
    }

    /// Sets the icons that user interfaces may show.
    pub fn icons(self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.with_identity(|identity| identity.icons = Some(icons.into_iter().collect()))
    }

    /// Sets the `instructions`, a hint to models on how to use this server.
    pub fn instructions(self, instructions: impl Into<String>) -> Self {
        self.with_definition(|definition| definition.instructions = Some(instructions.into()))
    }

    /// Adds a tool.
    ///
    /// A tool with an invalid definition or a duplicate name is left out, and [`check`](Self::check), serving and
    /// connecting return an error that names it; once the server is served, the error is logged instead. To replace a
    /// tool, or to get the error, use [`tools`](Self::tools).
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
    /// let server = Server::new("clock", "1.0.0").tool(Tool::new("now", now).description("Returns the time."));
    /// ```
    pub fn tool<M>(self, tool: impl IntoDefinition<Tool, M>) -> Self {
        let tool = tool.into_definition().registered();
        let added = tool.map_err(|error| error.to_string()).and_then(|tool| {
            let name = tool.name().to_owned();
            self.definition().add_tool(name, tool.into())
        });
        self.announce_added(added, ServerChange::Tools)
    }

    /// Adds what a [`Toolbox`] has, such as a type with `#[tools]` on its `impl` block: tools, prompts, resources and
    /// completers.
    pub fn toolbox(self, tools: impl Toolbox) -> Self {
        tools.add_to(self)
    }

    /// Adds a prompt. One with a duplicate name is left out, and [`check`](Self::check) returns an error.
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
    pub fn prompt<M>(self, prompt: impl IntoDefinition<Prompt, M>) -> Self {
        let prompt = prompt.into_definition();
        let name = prompt.name().to_owned();
        let added = self.definition().add_prompt(name, prompt.into());
        self.announce_added(added, ServerChange::Prompts)
    }

    /// Adds a resource. One with a duplicate URI is left out, and [`check`](Self::check) returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Resource, Server};
    ///
    /// let readme = Resource::text("docs://readme", "readme", "Read me.").mime_type("text/plain");
    /// let server = Server::new("library", "1.0.0").resource(readme);
    /// ```
    pub fn resource<M>(self, resource: impl IntoDefinition<Resource, M>) -> Self {
        let resource = resource.into_definition();
        let uri = resource.uri().to_owned();
        let added = self.definition().add_resource(uri, resource.into());
        self.announce_added(added, ServerChange::Resources)
    }

    /// Adds a resource template, whose handler reads every resource with a matching URI.
    ///
    /// A [`resource`](Self::resource) with the requested URI takes precedence; of several templates that match, the
    /// one with the most literal text. An invalid template is left out, and [`check`](Self::check) returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{ResourceTemplate, Server};
    ///
    /// let page = ResourceTemplate::raw("docs://{page}", "page", async |requested, _| {
    ///     Ok(format!("this is {}", requested.variables.text("page").unwrap_or("none")))
    /// });
    /// let server = Server::new("library", "1.0.0").resource_template(page);
    /// assert!(server.check().is_ok());
    /// ```
    pub fn resource_template<M>(
        self,
        template: impl IntoDefinition<Result<ResourceTemplate>, M>,
    ) -> Self {
        let template = template.into_definition();
        let added = template
            .map_err(|error| error.to_string())
            .and_then(|template| {
                let text = template.uri_template().as_str().to_owned();
                self.definition().add_template(text, template.into())
            });
        self.announce_added(added, ServerChange::Resources)
    }

    /// Adds a function that supplies definitions of resources when a caller lists them: resources that change often, or
    /// that differ between callers. They are read by a [template](Self::resource_template) that matches their URIs.
    ///
    /// The function is called for each page, and its result is not cached. A [`resource`](Self::resource) with the same
    /// URI takes precedence.
    ///
    /// It takes a [`Context`] only, no extractors; [`Context::state`] returns shared state. It returns a `Vec`, or a
    /// `Result` of one with [`ToolError`] or any error that can be converted to it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::{Context, ResourceTemplate, Server, ToolError, types};
    ///
    /// type Mails = Arc<Vec<String>>;
    ///
    /// async fn inbox(cx: Context) -> Result<Vec<types::Resource>, ToolError> {
    ///     let mails = cx.state::<Mails>().ok_or("no mails")?;
    ///     let numbers = 0..mails.len();
    ///     Ok(numbers.map(|n| types::Resource::new(format!("mail://{n}"), format!("mail {n}"))).collect())
    /// }
    ///
    /// let mail = ResourceTemplate::raw("mail://{n}", "mail", async |requested, cx| {
    ///     let mails = cx.state::<Mails>().ok_or("no mails")?;
    ///     let n: usize = requested.variables.parse("n")?;
    ///     Ok(mails.get(n).ok_or("no such mail")?.clone())
    /// });
    /// let server = Server::new("mail", "1.0.0")
    ///     .state(Mails::new(vec!["Hello!".to_owned()]))
    ///     .resource_list(inbox)
    ///     .resource_template(mail);
    /// ```
    pub fn resource_list<F, R>(self, list: impl Fn(Context) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResourceList,
    {
        let list = ResourceList::new(list);
        self.definition().advertise(ListKind::Resources);
        self.with_definition(|definition| definition.resource_lists.push(list))
    }

    /// Adds a completer for an argument of a prompt or a variable of a resource template (`completion/complete`).
    /// [`check`](Self::check) returns an error if the prompt or the template does not have it.
    pub fn completer<M>(self, completer: impl IntoDefinition<Completer, M>) -> Self {
        let completer = completer.into_definition();
        let added = self.definition().add_completer(completer.into());
        self.with_errors(added.err())
    }

    /// Adds the tools, prompts, resources, resource templates and completers that another server has at this moment,
    /// and its callbacks: [`resource_list`](Self::resource_list), [`on_subscribe`](Self::on_subscribe),
    /// [`on_unsubscribe`](Self::on_unsubscribe) and [`on_roots_changed`](Self::on_roots_changed).
    ///
    /// The names of tools and prompts get the prefix and an underscore; resources keep their URIs. The handlers,
    /// callbacks and `visible_to` filters find the [state](Self::state) of the other server first, then that of this
    /// one. The callbacks for subscriptions are called for every URI, also for those of other servers.
    ///
    /// Other settings of the other server do not apply, such as its [layers](Self::layer) and [limits](Self::limits),
    /// and later changes to it have no effect here.
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
        let inner = inner.definition();
        let errors = mount::mount_entries(&self.definition(), prefix, &inner);
        let errors = errors.into_iter().chain(inner.errors.iter().cloned());
        let server = self
            .with_errors(errors)
            .with_definition(|definition| mount::mount_settings(definition, &inner));
        for (list, is_advertised) in [
            (ServerChange::Tools, inner.has_tools()),
            (ServerChange::Prompts, inner.has_prompts()),
            (ServerChange::Resources, inner.has_resources()),
        ] {
            if is_advertised {
                server.shared.announce(list);
            }
        }
        server
    }

    /// Advertises the capability even when the list is empty, for entries that are added later.
    pub fn advertise(self, list: ListKind) -> Self {
        self.definition().advertise(list);
        self
    }

    /// Sets how many entries a page of a list has at most. By default a list is one page.
    pub fn page_size(self, max: usize) -> Self {
        self.with_definition(|definition| {
            definition
                .change_and_discard_pages(|definition| definition.page_size = Some(max.max(1)))
        })
    }

    /// Sets `ttlMs` and `cacheScope` of every list and of the result of `server/discover`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::{Server, types::CacheScope};
    ///
    /// let server = Server::new("calculator", "1.0.0").cache(Duration::from_secs(300), CacheScope::PUBLIC);
    /// ```
    pub fn cache(self, ttl: Duration, scope: CacheScope) -> Self {
        let cache = CacheHints::new(ttl, scope);
        self.with_definition(|definition| {
            definition.change_and_discard_pages(|definition| definition.cache = Some(cache))
        })
    }

    /// Sets `ttlMs` and `cacheScope` of one list. Takes precedence over [`cache`](Self::cache).
    pub fn cache_list(self, list: ListKind, ttl: Duration, scope: CacheScope) -> Self {
        let cache = CacheHints::new(ttl, scope);
        self.with_definition(|definition| {
            definition.change_and_discard_pages(|definition| {
                definition.list_cache.insert(list, cache);
            });
        })
    }

    /// Advertises the `logging` capability. Without it, [`Context::log`] sends no messages.
    pub fn logging(self) -> Self {
        self.with_definition(|definition| {
            definition.logger = Some(definition.identity.name.as_str().into())
        })
    }

    /// Sets a callback for `notifications/roots/list_changed`, which reports that [`Context::roots`] has changed.
    ///
    /// It is called on the task that reads the wire and must not block. Only clients of legacy protocol versions
    /// send this notification; for others, request the roots each time they are needed.
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
        self.with_definition(|definition| {
            definition.on_roots_changed.push(Arc::new(on_roots_changed))
        })
    }

    /// Advertises `resources.subscribe`, with which clients subscribe to [updates](Server::changed) of a resource.
    pub fn resource_subscriptions(self) -> Self {
        self.with_definition(|definition| definition.resource_subscriptions = true)
    }

    /// Sets a callback for the start of each subscription to a resource, for example to begin to watch a file. Implies
    /// [`resource_subscriptions`](Self::resource_subscriptions).
    ///
    /// It is called once for each resource of a `subscriptions/listen` or legacy `resources/subscribe`, before the
    /// client receives the response, and must not block. It does not refuse a subscription, and resources that the
    /// caller does not [see](Resource::visible_to) are left out.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use std::sync::{Arc, Mutex};
    /// use bowline::Server;
    ///
    /// /// The number of subscribers of each resource.
    /// #[derive(Clone, Default)]
    /// struct Subscribers(Arc<Mutex<BTreeMap<String, usize>>>);
    ///
    /// let subscribers = Subscribers::default();
    /// let server = Server::new("files", "1.0.0").state(subscribers.clone()).on_subscribe(|uri, cx| {
    ///     let subscribers = cx.state::<Subscribers>().expect("the server has this state");
    ///     *subscribers.0.lock().unwrap().entry(uri.to_owned()).or_default() += 1;
    /// });
    /// let server = server.on_unsubscribe(move |uri, _cx| {
    ///     *subscribers.0.lock().unwrap().entry(uri.to_owned()).or_default() -= 1;
    /// });
    /// ```
    pub fn on_subscribe(self, callback: impl Fn(&str, &Context) + Send + Sync + 'static) -> Self {
        let hook = SubscriptionHook::new(callback);
        self.resource_subscriptions()
            .with_definition(|definition| definition.on_subscribe.push(hook))
    }

    /// Sets a callback for the end of each subscription to a resource. Implies
    /// [`resource_subscriptions`](Self::resource_subscriptions).
    ///
    /// It is called exactly once for each call of [`on_subscribe`](Self::on_subscribe), whatever ends the subscription:
    /// the client, a disconnect, the `DELETE` of a legacy HTTP client, or [`shut_down`](Self::shut_down). It must not
    /// block. Of the [extensions](Context::extensions) of the request, only the state of the server is left.
    ///
    /// # Examples
    ///
    /// ```
    /// # let server = bowline::Server::new("files", "1.0.0");
    /// let (ended, _files) = std::sync::mpsc::channel();
    /// let server = server.on_unsubscribe(move |uri, _cx| drop(ended.send(uri.to_owned())));
    /// ```
    pub fn on_unsubscribe(self, callback: impl Fn(&str, &Context) + Send + Sync + 'static) -> Self {
        let hook = SubscriptionHook::new(callback);
        self.resource_subscriptions()
            .with_definition(|definition| definition.on_unsubscribe.push(hook))
    }

    /// Adds shared state, which handlers read with [`State`] or [`Context::state`]. A later value of the same type
    /// replaces the earlier one.
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
        self.with_definition(|definition| definition.state.insert(value))
    }

    /// Sets the protocol versions to serve. Defaults to all that this library implements.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    /// use bowline::exchange::{Dialect, Dialects};
    ///
    /// let server = Server::new("calculator", "1.0.0").versions(Dialects::only(Dialect::is_modern));
    /// ```
    pub fn versions(self, served: Dialects) -> Self {
        self.with_definition(|definition| definition.served = served)
    }

    /// Sets the limits on the memory and the concurrent work that peers can cause.
    ///
    /// Connections that exist already keep their limits, and [`usage`](Self::usage) no longer includes them.
    pub fn limits(self, limits: Limits) -> Self {
        self.with_definition(|definition| definition.limit(limits))
    }

    /// Returns the current resource usage and the number of refusals. See [`limits`](Self::limits).
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.definition().account.usage()
    }

    /// Sets the maximum size of a `requestState` in bytes, before encryption. Defaults to 64 KiB.
    pub fn max_request_state(self, bytes: usize) -> Self {
        self.with_definition(|definition| definition.input.state_limit = bytes)
    }

    /// Sets the timeout of requests from a handler to its client (legacy protocol versions). Defaults to 5 min.
    pub fn client_request_timeout(self, timeout: Duration) -> Self {
        self.with_definition(|definition| definition.input.client_request_timeout = timeout)
    }

    /// Returns a handle that adds and removes tools while the server runs.
    #[must_use]
    pub fn tools(&self) -> ToolsHandle<'_> {
        ToolsHandle(self)
    }

    /// Returns a handle that adds and removes prompts while the server runs.
    #[must_use]
    pub fn prompts(&self) -> PromptsHandle<'_> {
        PromptsHandle(self)
    }

    /// Returns a handle that adds and removes resources and resource templates while the server runs.
    #[must_use]
    pub fn resources(&self) -> ResourcesHandle<'_> {
        ResourcesHandle(self)
    }

    /// Adds a layer around every request, inside the existing ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::{Server, layer::{ProgressHeartbeat, Timeout}};
    ///
    /// let server = Server::new("calculator", "1.0.0")
    ///     .layer(ProgressHeartbeat::new())
    ///     .layer(Timeout::new(Duration::from_secs(30)));
    /// ```
    pub fn layer(self, layer: impl Layer) -> Self {
        self.with_definition(|definition| definition.layers.push(Arc::new(layer)))
    }

    /// Sends progress while a handler is silent, so that its caller does not give up: adds a [`ProgressHeartbeat`] layer
    /// inside the existing ones. Off by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::{Server, layer::ProgressHeartbeat};
    ///
    /// let server = Server::new("reports", "1.0.0").progress_heartbeat(ProgressHeartbeat::new());
    ///
    /// // For clients that give up after 10 s without progress.
    /// let heartbeat = ProgressHeartbeat::new().after(Duration::from_secs(4));
    /// let server = Server::new("reports", "1.0.0").progress_heartbeat(heartbeat);
    /// ```
    pub fn progress_heartbeat(self, heartbeat: ProgressHeartbeat) -> Self {
        self.layer(heartbeat)
    }

    /// Returns a handle that sends change notifications to subscribers.
    #[must_use]
    pub fn changed(&self) -> ChangeNotifier<'_> {
        ChangeNotifier(self)
    }

    /// Checks that all definitions and [extensions](Self::extension) are valid, that every handler finds its
    /// [state](Self::state), and that every [completer](Self::completer) is for an argument of a prompt or a variable of
    /// a template of this server.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse), which lists everything that is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Server, Tool};
    ///
    /// let server = Server::new("calculator", "1.0.0")
    ///     .tool(Tool::new("now", async || "noon"))
    ///     .tool(Tool::new("now", async || "midnight"));
    /// let error = server.check().unwrap_err();
    /// assert_eq!(error.to_string(), "duplicate tool name `now`");
    /// ```
    pub fn check(&self) -> Result<()> {
        self.definition().check()
    }

    /// Serves one wire until it ends.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check). A failure of the wire is logged and ends the wire without an error.
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
        let snapshot = self.snapshot();
        snapshot.check()?;
        snapshot.serve(wire).1.await
    }

    /// Serves one wire, and returns a [`Peer`] with which tests count the exchanges in progress.
    #[doc(hidden)]
    pub fn serve_counted(self, wire: impl Wire) -> (Peer, BoxFuture<'static, Result<()>>) {
        self.snapshot().serve(wire)
    }

    /// Records spans and metrics of every request, on every transport. A [`Telemetry`] is created with the feature
    /// `otel`. It is a setting: it applies to wires, HTTP services and in-process clients that start afterwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Server;
    /// use bowline::telemetry::Telemetry;
    ///
    /// fn calculator(telemetry: Telemetry) -> Server {
    ///     Server::new("calculator", "1.0.0").telemetry(telemetry)
    /// }
    /// ```
    pub fn telemetry(self, telemetry: Telemetry) -> Self {
        self.with_definition(|definition| definition.telemetry = telemetry.into())
    }

    /// Returns the metrics of tasks, for an extension that runs tool calls after their requests have ended. They record
    /// nothing if the server has no telemetry.
    #[must_use]
    pub fn task_metrics(&self) -> TaskMetrics {
        self.definition().telemetry.tasks()
    }

    fn with_identity(self, change: impl FnOnce(&mut Implementation)) -> Self {
        self.with_definition(|definition| {
            definition.change_and_discard_pages(|definition| change(&mut definition.identity))
        })
    }

    fn with_definition(mut self, change: impl FnOnce(&mut ServerDefinition)) -> Self {
        self.shared.change(change);
        self.first_snapshot = OnceLock::new();
        self
    }

    /// Notifies subscribers of an entry that was added, or handles its error.
    fn announce_added(self, added: Result<(), String>, list: ServerChange) -> Self {
        if added.is_ok() {
            self.shared.announce(list);
        }
        self.with_errors(added.err())
    }

    /// Keeps errors of builder methods for [`check`](Self::check). Once the server is served they are logged instead:
    /// they must not refuse the clients that connect later.
    fn with_errors(self, errors: impl IntoIterator<Item = String>) -> Self {
        let mut errors = errors.into_iter().peekable();
        if errors.peek().is_none() {
            return self;
        }
        if self.shared.is_served() {
            errors.for_each(|error| {
                tracing::warn!(error, "failed to add to a server that is served")
            });
            return self;
        }
        self.with_definition(|definition| definition.errors.extend(errors))
    }

    fn from_shared(shared: Arc<ServerShared>) -> Self {
        Self {
            shared: ServerUse::new(shared),
            first_snapshot: OnceLock::new(),
        }
    }

    fn definition(&self) -> Arc<ServerDefinition> {
        self.shared.definition()
    }

    /// Returns the server with its current settings.
    fn snapshot(&self) -> ServerSnapshot {
        ServerSnapshot::of(&self.shared)
    }

    /// Returns the snapshot with which this clone answers requests. Taken once, so that requests need no lock.
    fn first_snapshot(&self) -> &ServerSnapshot {
        self.first_snapshot.get_or_init(|| self.snapshot())
    }
}

/// The clone is the same server, and takes its own snapshot when it is first used as a [`Responder`].
impl Clone for Server {
    fn clone(&self) -> Self {
        Self::from_shared(self.shared.shared())
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("identity", &self.definition().identity)
            .field("tools", &self.tools().names())
            .finish_non_exhaustive()
    }
}
