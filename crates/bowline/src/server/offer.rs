//! What a server offers, and what it says of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bowline_core::era::{Caller, Dialect, Dialects};
use bowline_types::{
    DiscoverResult, Implementation, Meta, PromptsCapability, ResourcesCapability,
    ServerCapabilities, Settings, ToolsCapability,
};

use super::completion::{Completer, Target};
use super::extract::NeededState;
use super::page::{Cache, Listed, Paging};
use super::registry::{Offered, Registry, Snapshot};
use super::rounds::InputRules;
use super::{Prompt, Resource, ResourceTemplate, Tool};
use crate::exchange::{Context, Extensions};
use crate::layer::Layer;
use crate::limits::{Account, Limits, Places};

/// What a server offers. Only the registries change once requests come.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) identity: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) tools: Registry<Tool>,
    pub(super) prompts: Registry<Prompt>,
    pub(super) resources: Registry<Resource>,
    pub(super) templates: Registry<ResourceTemplate>,
    pub(super) completers: BTreeMap<Target, Offered<Completer>>,
    pub(super) resource_updates: bool,
    /// The name under which it logs, if it does.
    pub(super) logger: Option<Arc<str>>,
    /// Who wants to know that a client's roots have changed.
    pub(super) on_roots_changed: Vec<OnRootsChanged>,
    pub(super) state: Extensions,
    /// What stands around every request, the outermost first.
    pub(super) layers: Vec<Arc<dyn Layer>>,
    /// What is wrong with what was to be offered, told when the server is put to use.
    pub(super) flaws: Vec<String>,
    pub(super) served: Dialects,
    pub(super) input: InputRules,
    /// How many entries of a list fit on a page; all of them, if nothing is said.
    pub(super) page_size: Option<usize>,
    pub(super) cache: Option<Cache>,
    /// Caching hints of single lists; `cache` has those of the others.
    pub(super) caches: BTreeMap<List, Cache>,
    /// What is held for all peers, over whichever transport.
    pub(super) account: Arc<Account>,
    pub(super) handlers: Arc<Places>,
    pub(super) blocking: Arc<Places>,
    pub(super) subscriptions: Arc<Places>,
}

/// Called when the roots of a client have changed.
pub(super) type OnRootsChanged = Arc<dyn Fn(&Caller) + Send + Sync>;

/// A list that a server has.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{Server, server::List, types::CacheScope};
///
/// let server = Server::new("s", "1.0.0")
///     .advertise(List::Prompts)
///     .cache_list(List::Tools, Duration::from_secs(60), CacheScope::PUBLIC);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum List {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
}

impl Offer {
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
            resource_updates: false,
            logger: None,
            on_roots_changed: Vec::new(),
            state: Extensions::default(),
            layers: Vec::new(),
            flaws: Vec::new(),
            served: Dialects::all(),
            input: InputRules::default(),
            page_size: None,
            cache: None,
            caches: BTreeMap::new(),
            handlers: Arc::new(Places::for_handlers(&account)),
            blocking: Arc::new(Places::for_blocking(&account)),
            subscriptions: Arc::new(Places::for_subscriptions(&account)),
            account,
        }
    }

    pub(super) fn add_tool(&mut self, name: String, tool: Offered<Tool>) {
        warn_of_odd_name(&name);
        let second = self.tools.building().add_if_free(name, tool);
        self.flaws
            .extend(second.map(|name| format!("two tools are called `{name}`")));
    }

    pub(super) fn add_prompt(&mut self, name: String, prompt: Offered<Prompt>) {
        let second = self.prompts.building().add_if_free(name, prompt);
        self.flaws
            .extend(second.map(|name| format!("two prompts are called `{name}`")));
    }

    pub(super) fn add_resource(&mut self, uri: String, resource: Offered<Resource>) {
        let second = self.resources.building().add_if_free(uri, resource);
        self.flaws
            .extend(second.map(|uri| format!("two resources are at `{uri}`")));
    }

    pub(super) fn add_template(&mut self, text: String, template: Offered<ResourceTemplate>) {
        let second = self.templates.building().add_if_free(text, template);
        self.flaws
            .extend(second.map(|text| format!("two resource templates are `{text}`")));
    }

    pub(super) fn add_completer(&mut self, completer: Offered<Completer>) {
        match self.completers.entry(completer.item.target.clone()) {
            Entry::Vacant(free) => {
                free.insert(completer);
            }
            Entry::Occupied(taken) => {
                let flaw = format!("two completers are for {}", taken.key());
                self.flaws.push(flaw);
            }
        }
    }

    pub(super) fn advertise(&mut self, list: List) {
        match list {
            List::Tools => self.tools.building().advertise(),
            List::Prompts => self.prompts.building().advertise(),
            List::Resources | List::ResourceTemplates => self.resources.building().advertise(),
        }
    }

    /// Changes how lists are cut, hinted and signed; pages that were encoded before are so no more.
    pub(super) fn repage(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.tools.building();
        self.prompts.building();
        self.resources.building();
        self.templates.building();
    }

    pub(super) fn paging(&self, list: List, dialect: &'static Dialect) -> Paging<'_> {
        Paging {
            size: self.page_size,
            cache: self.caches.get(&list).or(self.cache.as_ref()),
            identity: &self.identity,
            dialect,
        }
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        let account = Account::total(limits);
        self.handlers = Arc::new(Places::for_handlers(&account));
        self.blocking = Arc::new(Places::for_blocking(&account));
        self.subscriptions = Arc::new(Places::for_subscriptions(&account));
        self.account = account;
    }

    pub(super) fn has_tools(&self) -> bool {
        self.tools.now().is_advertised()
    }

    pub(super) fn has_prompts(&self) -> bool {
        self.prompts.now().is_advertised()
    }

    pub(super) fn has_resources(&self) -> bool {
        self.resource_updates
            || self.resources.now().is_advertised()
            || self.templates.now().is_advertised()
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.completers.is_empty()
    }

    /// Checks that everything can be offered, and that every handler finds its state.
    pub(super) fn check(&self) -> crate::Result<()> {
        let mut flaws = self.flaws.clone();
        flaws.extend(self.stateless("tool", &self.tools.now(), Tool::states));
        flaws.extend(self.stateless("prompt", &self.prompts.now(), Prompt::states));
        flaws.extend(self.stateless("resource", &self.resources.now(), Resource::states));
        let templates = self.templates.now();
        flaws.extend(self.stateless("template", &templates, ResourceTemplate::states));
        if flaws.is_empty() {
            return Ok(());
        }
        Err(crate::Error::misuse(flaws.join("; ")))
    }

    /// The handlers that do not find their state.
    fn stateless<T: Clone>(
        &self,
        kind: &str,
        offered: &Snapshot<T>,
        needed: impl Fn(&T) -> &[NeededState],
    ) -> Vec<String> {
        let entries = offered.entries().iter();
        let missing = entries.flat_map(|(name, offered)| {
            let needed = needed(&offered.item).iter();
            needed
                .filter(|state| !self.state.holds(state.id) && !offered.state.holds(state.id))
                .map(move |state| (name, state.name))
        });
        missing
            .map(|(name, state)| {
                format!(
                    "the {kind} `{name}` needs `State<{state}>`, which `Server::state` was not given"
                )
            })
            .collect()
    }

    /// What clients are told that there is; what is not said here is not answered either.
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
            resources.subscribe = self.resource_updates.then_some(true);
        }
        capabilities.completions = self.has_completions().then(Settings::default);
        capabilities.logging = self.logger.is_some().then(Settings::default);
        capabilities
    }

    /// The answer to `server/discover`.
    pub(super) fn introduction(&self) -> DiscoverResult {
        let versions = self.served.iter().map(|dialect| dialect.protocol_version());
        let mut result = DiscoverResult::new(versions.collect(), self.capabilities());
        result.instructions.clone_from(&self.instructions);
        let cache = self.cache.as_ref();
        result.ttl_ms = cache.map(|cache| cache.ttl_ms);
        let scope = cache.map(|cache| cache.scope.clone());
        // Everybody is told the same.
        result.cache_scope = Some(scope.unwrap_or(bowline_types::CacheScope::PUBLIC));
        let mut meta = Meta::default();
        meta.set_server_info(&self.identity);
        result.meta = Some(meta);
        result
    }
}

impl Listed for Tool {
    type Definition = bowline_types::Tool;
    const MEMBER: &'static str = "tools";

    fn listed_as(&self, name: &str, dialect: &Dialect) -> bowline_types::Tool {
        self.definition_for(name, dialect)
    }

    fn is_for_everybody(&self) -> bool {
        self.is_for_everybody()
    }

    fn is_visible_to(&self, cx: &Context) -> bool {
        self.is_visible_to(cx)
    }
}

/// Clients and the models behind them may refuse names outside of what the specification recommends.
fn warn_of_odd_name(name: &str) {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_usual) {
        tracing::warn!(
            name,
            "a tool's name has 1 to 128 of the characters A-Z a-z 0-9 _ . -"
        );
    }
}

const LONGEST_NAME: usize = 128;
