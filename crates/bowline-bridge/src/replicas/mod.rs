//! [`Replicas`]: several bridges as one. Requests that only one of them can answer are forwarded to it.
//!
//! ```text
//! client ─▶ replica ── Start ──▶ owner ─▶ upstream
//!                   ── Read ───▶   │        Notifications and the outcome, by long polling: an engine needs no streams.
//!        ◀────────  ◀─ events ──   ▼
//!           drop    ── Cancel ─▶  drop      A reader that is silent for 30 s counts as gone.
//! ```
//!
//! Two kinds of requests have an owner: those of a client to a server that keeps state (`owners.rs`), and the retry of a
//! parked call, whose state names the replica that has the call. Both die with their owner.

mod event_log;

mod forwarded;

mod owners;

mod running;

mod verbs;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bowline::cluster::{Asked, Cluster, ReplicaId, ServiceGuard};
use bowline::exchange::{BoxFuture, Context, Outcome, Principal, Request};
use bowline::{Json, RpcError};
use bytes::Bytes;

use crate::modern::ModernCalls;
use crate::upstream::Upstream;
use event_log::EventLog;
use forwarded::{ForwardError, Forwarded};
use owners::{Owner, OwnerKey, OwnerUse, Owners};
use running::RunningExchanges;
use verbs::{ForwardedParts, ReplicaQuestion, ReplicaReply, Verb};

/// Answers a request to an upstream, which it names, at this replica.
pub(crate) trait AnswerHere: Send + Sync + 'static {
    /// Returns the upstream; `None` if this replica has none of this name.
    fn upstream(&self, name: &str) -> Option<Arc<Upstream>>;

    fn modern_calls(&self) -> &ModernCalls;
}

/// The other replicas of a bridge.
pub(crate) struct Replicas {
    cluster: Cluster,
    service: String,
    /// Started by the first request, which is within a tokio runtime.
    owners: OnceLock<Arc<Owners>>,
    running: RunningExchanges,
    _serving: ServiceGuard,
}

impl Replicas {
    /// Joins a cluster. Replicas of one bridge have the same name.
    pub(crate) fn new<A: AnswerHere>(cluster: Cluster, name: &str, here: Weak<A>) -> Self {
        let service = format!("bridge {name}");
        let running = RunningExchanges::default();
        let of_service = running.clone();
        let serving = cluster.serve(&service, move |asked: Asked| {
            let (here, running) = (here.clone(), of_service.clone());
            Box::pin(async move { reply(here, &running, &asked.message).await.encode() })
        });
        Self {
            cluster,
            service,
            owners: OnceLock::new(),
            running,
            _serving: serving,
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns how many requests of other replicas run here.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Answers a request to an upstream that keeps state, at the replica that owns the client's connections.
    pub(crate) async fn respond_at_owner(
        &self,
        modern: &ModernCalls,
        upstream: &Arc<Upstream>,
        request: Request,
        cx: &Context,
    ) -> Outcome {
        let key = self.owner_key(upstream, &request, cx.principal());
        let idle_timeout = upstream.settings().idle_timeout;
        for _ in 0..MAX_OWNERS {
            let found = self.owners().find(key, cx.principal().name(), idle_timeout);
            let owner = match found.await? {
                Owner::Here(used) => return run_here(modern, upstream, request, cx, used).await,
                Owner::At(owner) => owner,
            };
            let forwarded = Forwarded::start(self, owner, Verb::Open, upstream, &request, cx).await;
            match forwarded {
                Ok(forwarded) => return forwarded.outcome(cx).await,
                // The request did not reach it, so that it can be sent to another one.
                Err(ForwardError::Gone) => self.owners().take_over(key, owner).await?,
                Err(ForwardError::NotOwner) => {}
                Err(ForwardError::Failed(error)) => return Err(error),
            }
        }
        Err(RpcError::internal(
            "failed to find the replica that is connected to the server; try again",
        ))
    }

    /// Continues a parked call at the replica that has it.
    pub(crate) async fn attach(
        &self,
        owner: ReplicaId,
        upstream: &Arc<Upstream>,
        request: &Request,
        cx: &Context,
    ) -> Option<Outcome> {
        let forwarded = Forwarded::start(self, owner, Verb::Attach, upstream, request, cx).await;
        match forwarded {
            Ok(forwarded) => Some(forwarded.outcome(cx).await),
            Err(ForwardError::Gone | ForwardError::NotOwner) => None,
            Err(ForwardError::Failed(error)) => Some(Err(error)),
        }
    }

    /// Gives up what this replica owns, before it ends.
    pub(crate) async fn release(&self) {
        if let Some(owners) = self.owners.get() {
            owners.release().await;
        }
    }

    fn owner_key(&self, upstream: &Upstream, request: &Request, principal: &Principal) -> OwnerKey {
        let capabilities = Json::encode(&request.caller.capabilities);
        let capabilities = capabilities.as_ref().map_or("", Json::as_str);
        let parts = [self.service.as_str(), upstream.name(), capabilities];
        OwnerKey::new(parts, principal.name())
    }

    fn owners(&self) -> &Arc<Owners> {
        let start = || Arc::new(Owners::start(self.cluster.clone()));
        self.owners.get_or_init(start)
    }
}

async fn run_here(
    modern: &ModernCalls,
    upstream: &Arc<Upstream>,
    request: Request,
    cx: &Context,
    used: OwnerUse,
) -> Outcome {
    let outcome = modern.respond_here(upstream, request, cx).await;
    drop(used);
    outcome
}

/// Answers a question of another replica.
async fn reply<A: AnswerHere>(
    here: Weak<A>,
    running: &RunningExchanges,
    question: &Bytes,
) -> ReplicaReply {
    match serde_json::from_slice(question) {
        Ok(ReplicaQuestion::Start {
            exchange,
            verb,
            upstream,
            request,
        }) => {
            let Some(bridge) = here.upgrade() else {
                return ReplicaReply::Gone;
            };
            let (Some(upstream), Some(parts)) = (bridge.upstream(&upstream), request.into_parts())
            else {
                return ReplicaReply::NotUnderstood;
            };
            let used = match verb {
                Verb::Attach => None,
                Verb::Open => match owned_here(&*bridge, &upstream, &parts) {
                    Some(used) => Some(used),
                    None => return ReplicaReply::NotOwner,
                },
            };
            running.start(exchange, |log| answer(bridge, upstream, parts, used, log))
        }
        Ok(ReplicaQuestion::Read {
            exchange,
            after,
            wait_millis,
        }) => {
            let wait = Duration::from_millis(wait_millis);
            running.read(exchange, after, wait).await
        }
        Ok(ReplicaQuestion::Cancel { exchange }) => {
            running.cancel(exchange);
            ReplicaReply::Accepted
        }
        Err(error) => {
            tracing::warn!(%error, "received an unknown message of another replica");
            ReplicaReply::NotUnderstood
        }
    }
}

fn owned_here(
    bridge: &impl AnswerHere,
    upstream: &Upstream,
    parts: &ForwardedParts,
) -> Option<OwnerUse> {
    let replicas = bridge.modern_calls().replicas()?;
    let key = replicas.owner_key(upstream, &parts.request, &parts.principal);
    replicas.owners().here(key)
}

/// Answers a forwarded request. Its notifications go to the log.
fn answer<A: AnswerHere>(
    bridge: Arc<A>,
    upstream: Arc<Upstream>,
    parts: ForwardedParts,
    used: Option<OwnerUse>,
    log: Arc<EventLog>,
) -> BoxFuture<'static, Outcome> {
    let ForwardedParts {
        id,
        request,
        principal,
        token,
    } = parts;
    let mut cx = Context::new(id, &request, log).with_principal(principal);
    if let Some(token) = token {
        let mut head = http::Request::new(()).into_parts().0;
        head.extensions.insert(token);
        cx.extensions_mut().insert(head);
    }
    Box::pin(async move {
        let modern = bridge.modern_calls();
        let outcome = modern.respond_here(&upstream, request, &cx).await;
        drop(used);
        outcome
    })
}

/// How many replicas in a row are tried, each of which is found to have ended or to own nothing.
const MAX_OWNERS: usize = 3;
