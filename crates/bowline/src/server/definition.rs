//! The definition of a server: its registries, settings and capabilities.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_core::ServerCapability;
use bowline_core::era::{Caller, Dialect, Dialects};
use bowline_types::{
    CapabilitySettings, DiscoverRequest, DiscoverResult, Implementation, Meta, Method,
    PromptsCapability, ResourcesCapability, ServerCapabilities, SubscriptionsListenRequest,
    ToolsCapability,
};

use super::change_bus::{ChangeBus, LocalChangeBus};
use super::completion::{Completer, CompletionTarget};
use super::extension::RegisteredExtension;
use super::extract::RequiredState;
use super::input_required::InputOptions;
use super::pagination::{CacheHints, ListEntry, Paging};
use super::registry::{Registry, RegistryEntry, Snapshot};
use super::resource_list::ResourceList;
use super::snapshot::ServerShared;
use super::subscription_hooks::SubscriptionHook;
use super::{Prompt, Resource, ResourceTemplate, Tool};
use crate::cluster::Cluster;
use crate::exchange::{Context, Extensions};
use crate::layer::Layer;
use crate::limits::{Account, LimitSemaphore, Limits};
use crate::telemetry::Configured;

/// The definition of a server.
///
/// A clone shares the registries and copies the settings: a builder method changes the registries for every snapshot of
/// the definition, and the settings for later ones.
#[derive(Clone)]
pub(super) struct ServerDefinition {
    pub(super) identity: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) tools: Arc<Registry<Tool>>,
    pub(super) prompts: Arc<Registry<Prompt>>,
    pub(super) resources: Arc<Registry<Resource>>,
    pub(super) templates: Arc<Registry<ResourceTemplate>>,
    pub(super) completers: Arc<Registry<Completer, CompletionTarget>>,
    /// Callbacks that supply further resources when they are listed.
    pub(super) resource_lists: Vec<ResourceList>,
    pub(super) resource_subscriptions: bool,
    /// The default logger name; `None` without the `logging` capability.
    pub(super) logger: Option<Arc<str>>,
    pub(super) on_roots_changed: Vec<OnRootsChanged>,
    pub(super) on_subscribe: Vec<SubscriptionHook>,
    pub(super) on_unsubscribe: Vec<SubscriptionHook>,
    pub(super) state: Extensions,
    /// The protocol extensions. Entries are never removed.
    pub(super) extensions: Vec<Arc<RegisteredExtension>>,
    /// The layers around every request, outermost first.
    pub(super) layers: Vec<Arc<dyn Layer>>,
    /// Errors of builder methods, returned by `check`.
    pub(super) errors: Vec<String>,
    pub(super) served: Dialects,
    pub(super) input: InputOptions,
    /// The maximum number of entries on a page; `None` for one page.
    pub(super) page_size: Option<usize>,
    pub(super) cache: Option<CacheHints>,
    /// Caching hints of single lists, which take precedence over `cache`.
    pub(super) list_cache: BTreeMap<ListKind, CacheHints>,
    /// Incremented by each change of a setting that encoded pages contain.
    list_revision: u64,
    /// The bus for change notifications.
    pub(super) bus: Arc<dyn ChangeBus>,
    /// The replicas that this server is one of.
    pub(super) cluster: Option<Cluster>,
    /// The account that all peers of all transports are charged to.
    pub(super) account: Arc<Account>,
    /// Permits for running handlers.
    pub(super) handlers: Arc<LimitSemaphore>,
    /// Permits for running synchronous handlers, including those of cancelled requests.
    pub(super) blocking: Arc<LimitSemaphore>,
    /// Permits for open subscriptions.
    pub(super) subscriptions: Arc<LimitSemaphore>,
    pub(super) telemetry: Configured,
}

/// A callback for `notifications/roots/list_changed`.
pub(super) type OnRootsChanged = Arc<dyn Fn(&Caller) + Send + Sync>;

/// One of the lists of a server.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{Server, server::ListKind, types::CacheScope};
///
/// let server = Server::new("calculator", "1.0.0")
///     .advertise(ListKind::Prompts)
///     .cache_list(ListKind::Tools, Duration::from_secs(60), CacheScope::PUBLIC);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
}

impl ServerDefinition {
    pub(super) fn new(identity: Implementation) -> Self {
        let account = Account::total(Limits::default());
        Self {
            identity,
            instructions: None,
            tools: Arc::default(),
            prompts: Arc::default(),
            resources: Arc::default(),
            templates: Arc::default(),
            completers: Arc::default(),
            resource_lists: Vec::new(),
            resource_subscriptions: false,
            logger: None,
            on_roots_changed: Vec::new(),
            on_subscribe: Vec::new(),
            on_unsubscribe: Vec::new(),
            state: Extensions::default(),
            extensions: Vec::new(),
            layers: Vec::new(),
            errors: Vec::new(),
            served: Dialects::all(),
            input: InputOptions::default(),
            page_size: None,
            cache: None,
            list_cache: BTreeMap::new(),
            list_revision: 0,
            bus: Arc::new(LocalChangeBus::default()),
            cluster: None,
            handlers: Arc::new(LimitSemaphore::for_handlers(&account)),
            blocking: Arc::new(LimitSemaphore::for_blocking(&account)),
            subscriptions: Arc::new(LimitSemaphore::for_subscriptions(&account)),
            account,
            telemetry: Configured::default(),
        }
    }

    pub(super) fn add_tool(&self, name: String, tool: RegistryEntry<Tool>) -> Result<(), String> {
        warn_unusual_name(&name);
        add("tool name", &self.tools, name, tool)
    }

    pub(super) fn add_prompt(
        &self,
        name: String,
        prompt: RegistryEntry<Prompt>,
    ) -> Result<(), String> {
        add("prompt name", &self.prompts, name, prompt)
    }

    pub(super) fn add_resource(
        &self,
        uri: String,
        resource: RegistryEntry<Resource>,
    ) -> Result<(), String> {
        add("resource URI", &self.resources, uri, resource)
    }

    pub(super) fn add_template(
        &self,
        text: String,
        template: RegistryEntry<ResourceTemplate>,
    ) -> Result<(), String> {
        add("resource template", &self.templates, text, template)
    }

    pub(super) fn add_completer(&self, completer: RegistryEntry<Completer>) -> Result<(), String> {
        let target = completer.item.target.clone();
        let added = self
            .completers
            .change(|all| all.insert_unless_present(target, Arc::new(completer)));
        added.map_err(|(target, _)| format!("duplicate completer for {target}"))
    }

    /// Removes the completers of a prompt or template that was removed or replaced, unless it still has the argument.
    pub(super) fn remove_orphaned_completers(
        &self,
        is_concerned: impl Fn(&CompletionTarget) -> bool,
    ) {
        let completers = self.completers.snapshot();
        let targets = completers.entries().keys();
        let orphaned: Vec<_> = targets
            .filter(|target| is_concerned(target) && !target.exists(self))
            .collect();
        if orphaned.is_empty() {
            return;
        }
        let removed = self.completers.change(|all| {
            let removed = orphaned.into_iter().map(|target| all.remove(target));
            removed.collect::<Vec<_>>()
        });
        drop(removed);
    }

    pub(super) fn advertise(&self, list: ListKind) {
        match list {
            ListKind::Tools => self.tools.change(Snapshot::advertise),
            ListKind::Prompts => self.prompts.change(Snapshot::advertise),
            ListKind::Resources | ListKind::ResourceTemplates => {
                self.resources.change(Snapshot::advertise);
            }
        }
    }

    /// Changes a setting that encoded pages contain, and discards those pages.
    pub(super) fn change_and_discard_pages(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.list_revision += 1;
        self.tools.discard_pages(self.list_revision);
        self.prompts.discard_pages(self.list_revision);
        self.resources.discard_pages(self.list_revision);
        self.templates.discard_pages(self.list_revision);
    }

    pub(super) fn paging(&self, list: ListKind, dialect: &'static Dialect) -> Paging<'_> {
        Paging {
            size: self.page_size,
            cache: self.list_cache.get(&list).or(self.cache.as_ref()),
            is_private: false,
            identity: &self.identity,
            revision: self.list_revision,
            dialect,
        }
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        let account = Account::total(limits);
        self.handlers = Arc::new(LimitSemaphore::for_handlers(&account));
        self.blocking = Arc::new(LimitSemaphore::for_blocking(&account));
        self.subscriptions = Arc::new(LimitSemaphore::for_subscriptions(&account));
        self.account = account;
    }

    /// Returns whether the method exists and its capability is advertised.
    pub(super) fn has_method(&self, method: &str) -> bool {
        if self.extension_of_method(method).is_some() {
            return true;
        }
        match ServerCapability::for_method(method) {
            Some(ServerCapability::Tools) => self.has_tools(),
            Some(ServerCapability::Prompts) => self.has_prompts(),
            Some(ServerCapability::Resources) => self.has_resources(),
            Some(ServerCapability::Completions) => self.has_completions(),
            // `logging/setLevel` is answered by the admission of a wire.
            Some(_) => false,
            None => [DiscoverRequest::NAME, SubscriptionsListenRequest::NAME].contains(&method),
        }
    }

    pub(super) fn has_tools(&self) -> bool {
        self.tools.snapshot().is_advertised()
    }

    pub(super) fn has_prompts(&self) -> bool {
        self.prompts.snapshot().is_advertised()
    }

    pub(super) fn has_resources(&self) -> bool {
        self.resource_subscriptions
            || self.resources.snapshot().is_advertised()
            || self.templates.snapshot().is_advertised()
    }

    /// Returns whether the caller does not see the resource with this URI, although it exists.
    pub(super) fn is_hidden_resource(&self, uri: &str, cx: &Context) -> bool {
        let (resources, templates) = (self.resources.snapshot(), self.templates.snapshot());
        if resources.is_public() && templates.is_public() {
            return false;
        }
        let resource = resources.find(uri).map(|entry| entry.is_visible_to(cx));
        let matching = templates.entries().values().filter_map(|entry| {
            let is_match = entry.item.uri_template().find(uri).is_some();
            is_match.then(|| entry.is_visible_to(cx))
        });
        let mut exists = false;
        let mut entries = resource.into_iter().chain(matching);
        let is_visible = entries.any(|is_visible| {
            exists = true;
            is_visible
        });
        exists && !is_visible
    }

    /// Returns whether some callers do not see some resource or resource template.
    pub(super) fn has_hidden_resources(&self) -> bool {
        !self.resources.snapshot().is_public() || !self.templates.snapshot().is_public()
    }

    fn has_completions(&self) -> bool {
        self.completers.snapshot().is_advertised()
    }

    /// Checks that all definitions and extensions are valid, and that every handler finds its state and every completer
    /// its argument.
    pub(super) fn check(&self) -> crate::Result<()> {
        let mut errors = self.errors.clone();
        errors.extend(self.extension_errors());
        errors.extend(self.missing_states("tool", &self.tools.snapshot(), Tool::states));
        errors.extend(self.missing_states("prompt", &self.prompts.snapshot(), Prompt::states));
        let completers = self.completers.snapshot();
        for (target, entry) in completers.entries() {
            let completer = format!("completer of {target}");
            errors.extend(self.missing_state(&completer, entry, entry.item.states()));
        }
        errors.extend(self.missing_states(
            "resource",
            &self.resources.snapshot(),
            Resource::states,
        ));
        let templates = self.templates.snapshot();
        errors.extend(self.missing_states(
            "resource template",
            &templates,
            ResourceTemplate::states,
        ));
        let targets = completers.entries().keys();
        errors.extend(
            targets
                .filter(|target| !target.exists(self))
                .map(|target| format!("completer for unknown {target}")),
        );
        if errors.is_empty() {
            return Ok(());
        }
        Err(crate::Error::misuse(errors.join("; ")))
    }

    /// Returns an error text for each state that a handler requires and the server lacks.
    fn missing_states<T>(
        &self,
        kind: &str,
        snapshot: &Snapshot<T>,
        required: impl Fn(&T) -> &[RequiredState],
    ) -> Vec<String> {
        let entries = snapshot.entries().iter();
        let missing = entries.flat_map(|(name, entry)| {
            let handler = format!("{kind} `{name}`");
            self.missing_state(&handler, entry, required(&entry.item))
        });
        missing.collect()
    }

    fn missing_state<T>(
        &self,
        handler: &str,
        entry: &RegistryEntry<T>,
        required: &[RequiredState],
    ) -> Vec<String> {
        let is_missing = |state: &&RequiredState| {
            !self.state.contains_type(state.id) && !entry.state.contains_type(state.id)
        };
        let missing = required.iter().filter(is_missing);
        missing
            .map(|RequiredState { name, .. }| {
                format!("{handler} requires `State<{name}>`; add it with `Server::state`")
            })
            .collect()
    }

    /// Returns the advertised capabilities. The router rejects methods of capabilities that are not advertised.
    pub(super) fn capabilities(&self) -> ServerCapabilities {
        let mut capabilities = ServerCapabilities::default();
        if self.has_tools() {
            let tools = capabilities.tools.insert(ToolsCapability::default());
            tools.list_changed = Some(true);
        }
        if self.has_prompts() {
            let prompts = capabilities.prompts.insert(PromptsCapability::default());
            prompts.list_changed = Some(true);
        }
        if self.has_resources() {
            let resources = capabilities
                .resources
                .insert(ResourcesCapability::default());
            resources.list_changed = Some(true);
            resources.subscribe = self.resource_subscriptions.then_some(true);
        }
        capabilities.completions = self.has_completions().then(CapabilitySettings::default);
        capabilities.logging = self.logger.is_some().then(CapabilitySettings::default);
        capabilities
    }

    /// Sets in the context of a request what every handler of the server finds there.
    pub(super) fn prepare(&self, cx: &mut Context, server: &Arc<ServerShared>) {
        cx.set_server(server.clone());
        cx.extensions_mut().extend(&self.state);
        match &self.logger {
            Some(logger) => cx.set_logger(logger),
            None => cx.disable_logging(),
        }
    }

    /// Returns the result of `server/discover` for the caller of this request.
    pub(super) fn discover_result(&self, cx: &Context) -> DiscoverResult {
        let dialect = cx.caller().dialect;
        let versions = self.served.iter().map(|dialect| dialect.protocol_version());
        let mut capabilities = self.capabilities();
        let extensions = self.extensions.iter();
        let available = extensions.filter(|extension| extension.is_available_in(dialect));
        for extension in available {
            let settings = extension.settings.clone().unwrap_or_default();
            let declared = capabilities.extensions.get_or_insert_default();
            declared.insert(extension.id.clone(), settings);
            extension
                .extension
                .adjust_capabilities(cx, &mut capabilities);
        }
        let mut result = DiscoverResult::new(versions.collect(), capabilities);
        result.instructions.clone_from(&self.instructions);
        let cache = self.cache.as_ref();
        result.ttl_ms = cache.map(|cache| cache.ttl_ms);
        let scope = cache.map(|cache| cache.scope.clone());
        // Public by default: the result is the same for every caller.
        result.cache_scope = Some(scope.unwrap_or(bowline_types::CacheScope::PUBLIC));
        let mut meta = Meta::default();
        meta.set_server_info(&self.identity);
        result.meta = Some(meta);
        result
    }
}

impl ListEntry for Tool {
    type Definition = bowline_types::Tool;
    const MEMBER: &'static str = "tools";

    fn list_definition(&self, name: &str, dialect: &Dialect) -> bowline_types::Tool {
        self.definition_for(name, dialect)
    }
}

/// Adds an entry, or returns the error of a duplicate name.
fn add<T>(
    what: &str,
    registry: &Registry<T>,
    name: String,
    entry: RegistryEntry<T>,
) -> Result<(), String> {
    let entry = Arc::new(entry);
    let added = registry.change(|entries| entries.insert_unless_present(name, entry));
    added.map_err(|(name, _)| format!("duplicate {what} `{name}`"))
}

/// Logs a warning for a name that the specification does not recommend: clients or models may reject it.
fn warn_unusual_name(name: &str) {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !(1..=MAX_NAME_LEN).contains(&name.len()) || !name.bytes().all(is_usual) {
        tracing::warn!(
            name,
            "unusual tool name; expected 1 to 128 of the characters A-Z a-z 0-9 _ . -"
        );
    }
}

const MAX_NAME_LEN: usize = 128;
