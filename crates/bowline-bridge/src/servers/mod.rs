//! [`Servers`]: several servers behind one bridge, from a configuration that can be replaced.
//!
//! ```text
//! request ─┬─ server/discover, lists, subscriptions/listen ──▶ every server that the principal may use, merged
//!          ├─ about a tool, prompt, resource or task ────────▶ its server: access rules, pins, the name it knows
//!          └─ anything else ─────────────────────────────────▶ the only server, or refused
//! ```
//!
//! What is pure is in [`many`](crate::many). A request keeps the [`ServerSet`] that it started with, so that a reload
//! does not touch it.

mod discover;

mod front_request;
use front_request::FrontRequest;

mod introductions;

mod lists;

mod listen;

mod memory;
use memory::ServerMemory;

mod part_events;

mod patience;

mod pinned;

mod route;

mod set;
pub(crate) use set::misuse;
use set::{ServerEntry, ServerSet};

mod task_ids;
use task_ids::TaskIds;

use std::sync::{Arc, Mutex, PoisonError};

use bowline::exchange::{Dialects, Outcome, Request};
use bowline::{Context, Result};
use bowline_types::Implementation;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bridge::identity;
use crate::config::{BridgeConfig, ConfigChanges, UpstreamConfig};
use crate::modern::ModernCalls;
use crate::upstream::Upstream;
use crate::{Target, listen as one};

/// Creates the target of a server.
pub(crate) type TargetFn = dyn Fn(&UpstreamConfig) -> Result<Target> + Send + Sync;

/// Several servers behind one bridge.
pub(crate) struct Servers {
    targets: Box<TargetFn>,
    current: watch::Sender<Arc<ServerSet>>,
    memory: Arc<ServerMemory>,
    /// What the bridge calls itself, also after a reload.
    identity: Implementation,
    /// Held while the configuration is replaced.
    reloading: Mutex<()>,
}

impl Servers {
    /// Creates the servers of a configuration. Variables are replaced by those of the environment.
    pub(crate) fn new(config: &BridgeConfig, targets: Box<TargetFn>) -> Result<Self> {
        let set = ServerSet::new(config, &targets)?;
        Ok(Self {
            memory: Arc::new(ServerMemory::new(&set)),
            identity: identity(config.settings().name.as_deref()),
            current: watch::Sender::new(Arc::new(set)),
            targets,
            reloading: Mutex::new(()),
        })
    }

    /// Replaces the configuration. Servers that connect as before keep their connections.
    pub(crate) fn reload(&self, config: &BridgeConfig) -> Result<ConfigChanges> {
        let _reloading = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let old = self.current();
        let (new, changes) = ServerSet::replacing(&old, config, &self.targets)?;
        self.memory.replace_servers(&new, &changes);
        self.current.send_replace(Arc::new(new));
        Ok(changes)
    }

    /// Closes the connections to all servers.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for upstream in self.upstreams() {
            closing.spawn(async move { upstream.close().await });
        }
        closing.join_all().await;
    }

    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        let set = self.current();
        set.entries()
            .map(|entry| entry.upstream().clone())
            .collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let set = self.current();
        set.names().servers().map(str::to_owned).collect()
    }

    /// Answers a request of a client.
    pub(crate) async fn respond(
        &self,
        modern: &ModernCalls,
        versions: &Dialects,
        request: Request,
        cx: Context,
    ) -> Outcome {
        if request.method == "subscriptions/listen" {
            return Box::pin(listen::listen(self, modern, request, cx)).await;
        }
        let front = FrontRequest::new(self.current(), self.memory.clone(), request, cx);
        match &*front.request.method {
            "server/discover" => {
                let parked_calls = modern.parked_calls();
                front.discover(&self.identity, versions, parked_calls).await
            }
            method => match lists::kind_of(method) {
                Some(kind) => Box::pin(front.list(kind)).await,
                None => Box::pin(front.route(modern)).await,
            },
        }
    }

    fn current(&self) -> Arc<ServerSet> {
        self.current.borrow().clone()
    }
}
