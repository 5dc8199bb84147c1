//! [`ServerSet`]: the servers of one configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::Principal;
use bowline::{Error, Result, RpcError};
use bowline_core::json::pick;

use super::TargetFn;
use super::introductions::Introductions;
use super::patience::Patience;
use super::pinned::{PinFiles, PinnedServer};
use crate::config::{BridgeConfig, ConfigChanges, ItemKind, UpstreamConfig, UpstreamSettings};
use crate::many::Names;
use crate::rare_log::RareLog;
use crate::upstream::{self, Upstream};

/// The servers of one configuration.
pub(super) struct ServerSet {
    /// Variables are replaced.
    config: BridgeConfig,
    servers: BTreeMap<String, Arc<ServerEntry>>,
    pin_files: PinFiles,
}

/// A configured server.
pub(super) struct ServerEntry {
    config: UpstreamConfig,
    upstream: Arc<Upstream>,
    pins: Option<PinnedServer>,
    introductions: Introductions,
    patience: Patience,
    missing_log: RareLog,
}

impl ServerSet {
    /// Creates the servers of a first configuration.
    pub(super) fn new(config: &BridgeConfig, targets: &TargetFn) -> Result<Self> {
        let none = Self {
            config: BridgeConfig::new(config.settings().clone(), []).map_err(invalid)?,
            servers: BTreeMap::new(),
            pin_files: PinFiles::default(),
        };
        Ok(Self::replacing(&none, config, targets)?.0)
    }

    /// Creates the servers of the next configuration. Those that connect as before are taken over.
    pub(super) fn replacing(
        old: &Self,
        config: &BridgeConfig,
        targets: &TargetFn,
    ) -> Result<(Self, ConfigChanges)> {
        let config = expanded(config)?;
        let changes = config.changes_from(&old.config);
        let pin_files = old.pin_files.reopened(&config)?;
        let mut servers = BTreeMap::new();
        for server in config.upstreams() {
            let name = server.name();
            let is_new = [&changes.added, &changes.reconnected]
                .iter()
                .any(|list| list.iter().any(|it| it == name));
            let before = old.servers.get(name).filter(|_| !is_new);
            let entry = match before {
                Some(entry) if entry.config == *server => entry.clone(),
                before => {
                    let pins = pin_files.of(server);
                    Arc::new(ServerEntry::new(
                        server,
                        before.map(Arc::as_ref),
                        pins,
                        targets,
                    )?)
                }
            };
            servers.insert(name.to_owned(), entry);
        }
        // Only now: an error must leave everything as it was.
        for entry in servers.values() {
            let settings = connection_settings(entry.settings());
            entry.upstream.set_settings(settings);
        }
        let set = Self {
            config,
            servers,
            pin_files,
        };
        Ok((set, changes))
    }

    pub(super) fn config(&self) -> &BridgeConfig {
        &self.config
    }

    pub(super) fn names(&self) -> &Names {
        self.config.names()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<ServerEntry>> {
        self.servers.values()
    }

    pub(super) fn get(&self, server: &str) -> Option<&Arc<ServerEntry>> {
        self.servers.get(server)
    }

    /// Returns the servers that a principal may use, in the order in which lists are merged.
    pub(super) fn usable<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> impl Iterator<Item = &'a Arc<ServerEntry>> {
        let all = self.names().servers();
        all.filter_map(|server| self.get(server))
            .filter(move |entry| entry.settings().access.admits(principal))
    }
}

impl ServerEntry {
    fn new(
        config: &UpstreamConfig,
        before: Option<&Self>,
        pins: Option<PinnedServer>,
        targets: &TargetFn,
    ) -> Result<Self> {
        let upstream = match before {
            Some(before) => before.upstream.clone(),
            None => Upstream::new(targets(config)?, connection_settings(config.settings())),
        };
        Ok(Self {
            config: config.clone(),
            upstream,
            pins,
            introductions: before
                .map_or_else(Introductions::default, |it| it.introductions.clone()),
            patience: Patience::default(),
            missing_log: RareLog::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.config.name()
    }

    pub(super) fn settings(&self) -> &UpstreamSettings {
        self.config.settings()
    }

    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    pub(super) fn pins(&self) -> Option<&PinnedServer> {
        self.pins.as_ref()
    }

    /// Returns whom the connections of a principal are shared with: all clients, or no other principal.
    pub(super) fn owner(&self, principal: &Principal) -> String {
        match self.upstream.is_per_principal() {
            true => owner(principal),
            false => String::new(),
        }
    }

    /// Logs that the server is missing in an answer, or is there as it last was.
    pub(super) fn log_missing(&self, answer: &str, error: &RpcError) {
        let server = self.name();
        match self.missing_log.is_due() {
            true => tracing::warn!(server, %error, "a server did not answer for a {answer}"),
            false => tracing::debug!(server, %error, "a server did not answer for a {answer}"),
        }
    }

    /// Returns how long lists wait for it.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Returns what the server last said about itself to an [owner](Self::owner).
    pub(super) fn introductions(&self) -> &Introductions {
        &self.introductions
    }

    /// Returns whether the server may have such a list, by what it last said about itself to an [owner](Self::owner).
    pub(super) fn may_have(&self, kind: ItemKind, owner: &str) -> bool {
        let member = match kind {
            ItemKind::Tool => "tools",
            ItemKind::Prompt => "prompts",
            ItemKind::Resource | ItemKind::ResourceTemplate => "resources",
        };
        let introduction = self.introductions.get(owner);
        let Some(Ok([capabilities])) = introduction.map(|it| pick(&it.result, ["capabilities"]))
        else {
            return true;
        };
        let Some(Ok([declared])) = capabilities.map(|it| pick(&it, [member])) else {
            return true;
        };
        declared.is_some()
    }
}

/// Returns a text for a principal. That of an anonymous client differs from that of every name.
pub(super) fn owner(principal: &Principal) -> String {
    principal
        .name()
        .map_or_else(String::new, |name| format!("principal {name}"))
}

fn expanded(config: &BridgeConfig) -> Result<BridgeConfig> {
    let variable = |name: &str| std::env::var(name).ok();
    let servers = config.upstreams().map(|it| it.expanded_with(variable));
    let servers: std::result::Result<Vec<_>, _> = servers.collect();
    let servers = servers.map_err(invalid)?;
    BridgeConfig::new(config.settings().clone(), servers).map_err(invalid)
}

fn connection_settings(settings: &UpstreamSettings) -> upstream::UpstreamSettings {
    upstream::UpstreamSettings {
        max_connections: settings.max_connections.get(),
        max_connections_each: settings.max_connections_each.get(),
        max_principal_connections: settings.max_principal_connections.get(),
        idle_timeout: settings.idle_timeout.unwrap_or(NEVER),
        call_idle_timeout: settings.timeout.unwrap_or(NEVER),
        connect_timeout: Some(settings.connect_timeout),
    }
}

/// Converts an error with its causes.
pub(super) fn invalid(error: impl std::error::Error) -> Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    misuse(text)
}

pub(crate) fn misuse(what: impl Into<String>) -> Error {
    Error::Misuse { what: what.into() }
}

/// 30 years: longer ones overflow an instant.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
