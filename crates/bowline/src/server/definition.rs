//! The definition of a server: its registries, settings and capabilities, shared by clones of a `Server`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bowline_core::ServerCapability;
use bowline_core::era::{Caller, Dialect, Dialects};
use bowline_types::{
    CapabilitySettings, DiscoverRequest, DiscoverResult, Implementation, Meta, Method,
    PromptsCapability, ResourcesCapability, ServerCapabilities, SubscriptionsListenRequest,
    ToolsCapability,
};

use super::completion::{Completer, CompletionTarget};
use super::extract::RequiredState;
use super::input_required::InputOptions;
use super::pagination::{CacheHints, ListEntry, Paging};
use super::registry::{Registry, RegistryEntry, Snapshot};
use super::{Prompt, Resource, ResourceTemplate, Tool};
use crate::exchange::{Context, Extensions};
use crate::layer::Layer;
use crate::limits::{Account, LimitSemaphore, Limits};

/// The definition of a server.
///
/// Shared by clones of a `Server`. A builder method on a clone copies it; through a shared one, only the registries
/// change.
#[derive(Clone)]
pub(super) struct ServerDefinition {
    pub(super) identity: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) tools: Registry<Tool>,
    pub(super) prompts: Registry<Prompt>,
    pub(super) resources: Registry<Resource>,
    pub(super) templates: Registry<ResourceTemplate>,
    pub(super) completers: BTreeMap<CompletionTarget, RegistryEntry<Completer>>,
    pub(super) resource_subscriptions: bool,
    /// The default logger name; `None` without the `logging` capability.
    pub(super) logger: Option<Arc<str>>,
    pub(super) on_roots_changed: Vec<OnRootsChanged>,
    pub(super) state: Extensions,
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
    /// The account that all peers of all transports are charged to.
    pub(super) account: Arc<Account>,
    /// Permits for running handlers.
    pub(super) handlers: Arc<LimitSemaphore>,
    /// Permits for running synchronous handlers, including those of cancelled requests.
    pub(super) blocking: Arc<LimitSemaphore>,
    /// Permits for open subscriptions.
    pub(super) subscriptions: Arc<LimitSemaphore>,
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
            tools: Registry::default(),
            prompts: Registry::default(),
            resources: Registry::default(),
            templates: Registry::default(),
            completers: BTreeMap::new(),
            resource_subscriptions: false,
            logger: None,
            on_roots_changed: Vec::new(),
            state: Extensions::default(),
            layers: Vec::new(),
            errors: Vec::new(),
            served: Dialects::all(),
            input: InputOptions::default(),
            page_size: None,
            cache: None,
            list_cache: BTreeMap::new(),
            handlers: Arc::new(LimitSemaphore::for_handlers(&account)),
            blocking: Arc::new(LimitSemaphore::for_blocking(&account)),
            subscriptions: Arc::new(LimitSemaphore::for_subscriptions(&account)),
            account,
        }
    }

    pub(super) fn add_tool(&mut self, name: String, tool: RegistryEntry<Tool>) {
        warn_unusual_name(&name);
        let duplicate = self.tools.get_mut().insert_unless_present(name, tool);
        self.errors
            .extend(duplicate.map(|name| format!("duplicate tool name `{name}`")));
    }

    pub(super) fn add_prompt(&mut self, name: String, prompt: RegistryEntry<Prompt>) {
        let duplicate = self.prompts.get_mut().insert_unless_present(name, prompt);
        self.errors
            .extend(duplicate.map(|name| format!("duplicate prompt name `{name}`")));
    }

    pub(super) fn add_resource(&mut self, uri: String, resource: RegistryEntry<Resource>) {
        let duplicate = self
            .resources
            .get_mut()
            .insert_unless_present(uri, resource);
        self.errors
            .extend(duplicate.map(|uri| format!("duplicate resource URI `{uri}`")));
    }

    pub(super) fn add_template(&mut self, text: String, template: RegistryEntry<ResourceTemplate>) {
        let duplicate = self
            .templates
            .get_mut()
            .insert_unless_present(text, template);
        self.errors
            .extend(duplicate.map(|text| format!("duplicate resource template `{text}`")));
    }

    pub(super) fn add_completer(&mut self, completer: RegistryEntry<Completer>) {
        match self.completers.entry(completer.item.target.clone()) {
            Entry::Vacant(free) => {
                free.insert(completer);
            }
            Entry::Occupied(taken) => {
                let error = format!("duplicate completer for {}", taken.key());
                self.errors.push(error);
            }
        }
    }

    pub(super) fn advertise(&mut self, list: ListKind) {
        match list {
            ListKind::Tools => self.tools.get_mut().advertise(),
            ListKind::Prompts => self.prompts.get_mut().advertise(),
            ListKind::Resources | ListKind::ResourceTemplates => {
                self.resources.get_mut().advertise()
            }
        }
    }

    /// Changes a setting that encoded pages contain, and discards those pages, which `get_mut` does.
    pub(super) fn change_and_discard_pages(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.tools.get_mut();
        self.prompts.get_mut();
        self.resources.get_mut();
        self.templates.get_mut();
    }

    pub(super) fn paging(&self, list: ListKind, dialect: &'static Dialect) -> Paging<'_> {
        Paging {
            size: self.page_size,
            cache: self.list_cache.get(&list).or(self.cache.as_ref()),
            identity: &self.identity,
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

    fn has_completions(&self) -> bool {
        !self.completers.is_empty()
    }

    /// Checks that all definitions are valid and that every handler finds its state.
    pub(super) fn check(&self) -> crate::Result<()> {
        let mut errors = self.errors.clone();
        errors.extend(self.missing_states("tool", &self.tools.snapshot(), Tool::states));
        errors.extend(self.missing_states("prompt", &self.prompts.snapshot(), Prompt::states));
        for (target, entry) in &self.completers {
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
        if errors.is_empty() {
            return Ok(());
        }
        Err(crate::Error::misuse(errors.join("; ")))
    }

    /// Returns an error text for each state that a handler requires and the server lacks.
    fn missing_states<T: Clone>(
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

    /// Returns the result of `server/discover`.
    pub(super) fn discover_result(&self) -> DiscoverResult {
        let versions = self.served.iter().map(|dialect| dialect.protocol_version());
        let mut result = DiscoverResult::new(versions.collect(), self.capabilities());
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

    fn is_public(&self) -> bool {
        self.is_public()
    }

    fn is_visible_to(&self, cx: &Context) -> bool {
        self.is_visible_to(cx)
    }
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
