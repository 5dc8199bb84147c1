//! [`ServerMemory`]: what the bridge has learned from answers, over all configurations.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bowline::Json;
use bowline::exchange::Principal;
use tokio::time::Instant;

use super::set::owner;
use super::{ServerEntry, ServerSet};
use crate::config::{ConfigChanges, ItemKind};
use crate::many::{LastLists, UriRoutes};

/// What the bridge has learned from the answers of servers.
pub(super) struct ServerMemory {
    routes: RwLock<UriRoutes>,
    last_lists: Mutex<LastLists>,
    /// When the resources of servers were last listed to find one, for the [owners](ServerEntry::owner) of connections.
    listed: Mutex<BTreeMap<(String, String), Instant>>,
}

impl ServerMemory {
    pub(super) fn new(set: &ServerSet) -> Self {
        Self {
            routes: RwLock::new(UriRoutes::new(patterns(set))),
            last_lists: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    /// Forgets servers that are gone or are others now.
    pub(super) fn replace_servers(&self, set: &ServerSet, changes: &ConfigChanges) {
        let is_other = |server: &str| changes.reconnected.iter().any(|it| it == server);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.set_servers(patterns(set), |server| !is_other(server));
        drop(routes);
        let mut lists = self.lists();
        for server in changes.removed.iter().chain(&changes.reconnected) {
            lists.forget_server(server);
            self.listed().retain(|(listed, _), _| listed != server);
        }
    }

    /// Calls `read` with the routes of resources.
    pub(super) fn with_routes<T>(&self, read: impl FnOnce(&UriRoutes) -> T) -> T {
        read(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Remembers a page of a list.
    pub(super) fn learn_page(
        &self,
        server: &str,
        kind: ItemKind,
        principal: &Principal,
        cursor: Option<&str>,
        page: &Json,
    ) {
        if matches!(kind, ItemKind::Resource | ItemKind::ResourceTemplate) {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            routes.learn_page(server, kind, page);
        }
        let mut lists = self.lists();
        lists.record(server, kind, &owner(principal), cursor, page);
    }

    /// Remembers the resources that a result links to.
    pub(super) fn learn_links(&self, server: &str, result: &Json) {
        // Outside of the lock, because results are large and links are rare.
        if result.as_str().contains("\"uri\"") {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            routes.learn_links(server, result);
        }
    }

    /// Returns what a server offered last.
    pub(super) fn last_list(
        &self,
        server: &str,
        kind: ItemKind,
        principal: &Principal,
        cursor: Option<&str>,
    ) -> Option<Json> {
        self.lists().get(server, kind, &owner(principal), cursor)
    }

    /// Returns whether the resources of a server, as a principal sees them, were listed a moment ago.
    pub(super) fn has_listed(&self, entry: &ServerEntry, principal: &Principal) -> bool {
        let key = (entry.name().to_owned(), entry.owner(principal));
        self.listed().get(&key).is_some_and(is_recent)
    }

    /// Records that the resources of a server were listed, or could not be.
    pub(super) fn set_listed(&self, entry: &ServerEntry, principal: &Principal) {
        let key = (entry.name().to_owned(), entry.owner(principal));
        let mut listed = self.listed();
        // Bounds them by how many principals can ask in that time.
        listed.retain(|_, at| is_recent(at));
        listed.insert(key, Instant::now());
    }

    fn listed(&self) -> MutexGuard<'_, BTreeMap<(String, String), Instant>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists(&self) -> MutexGuard<'_, LastLists> {
        let lists = self.last_lists.lock();
        lists.unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(at: &Instant) -> bool {
    at.elapsed() < LIST_AGAIN_AFTER
}

fn patterns(set: &ServerSet) -> impl Iterator<Item = (&str, Vec<crate::config::NamePattern>)> {
    let entries = set.names().servers().filter_map(|server| set.get(server));
    entries.map(|entry| (entry.name(), entry.settings().uris.clone()))
}

/// How often a client can make the bridge list all resources by asking for one that is unknown.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(10);
