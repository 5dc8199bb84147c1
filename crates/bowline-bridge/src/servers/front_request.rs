//! [`FrontRequest`]: a request of a client, with the servers of the configuration in which it arrived.

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Principal, Request};
use bowline::{Context, Json, RpcError};
use bowline_types::{DiscoverRequest, Method};

use super::patience::Awaited;
use super::set::owner;
use super::{ServerEntry, ServerMemory, ServerSet, TaskIds};
use crate::forward::{forward, open_connection};
use crate::front::FrontConnection;
use crate::upstream::check_introduction;

/// A request of a client, with the servers of the configuration in which it arrived.
#[derive(Clone)]
pub(super) struct FrontRequest {
    pub(super) set: Arc<ServerSet>,
    pub(super) memory: Arc<ServerMemory>,
    pub(super) request: Request,
    pub(super) cx: Context,
    pub(super) principal: Principal,
}

impl FrontRequest {
    pub(super) fn new(
        set: Arc<ServerSet>,
        memory: Arc<ServerMemory>,
        request: Request,
        cx: Context,
    ) -> Self {
        let principal = match cx.principal().name() {
            Some(_) => cx.principal().clone(),
            // A subscription on behalf of a legacy client has no principal of its own.
            None => FrontConnection::of(&cx)
                .map_or_else(Principal::anonymous, |front| front.principal(&cx).clone()),
        };
        Self {
            set,
            memory,
            request,
            cx,
            principal,
        }
    }

    /// Returns the servers that the principal may use, in the order in which lists are merged.
    pub(super) fn usable(&self) -> impl Iterator<Item = &Arc<ServerEntry>> {
        self.set.usable(&self.principal)
    }

    /// Returns whether the principal may use a server.
    pub(super) fn is_usable(&self, server: &str) -> bool {
        let entry = self.set.get(server);
        entry.is_some_and(|entry| entry.settings().access.admits(&self.principal))
    }

    pub(super) fn task_ids(&self) -> TaskIds<'_> {
        let separator = &self.set.config().settings().separator;
        TaskIds::new(self.set.names(), separator)
    }

    /// Returns whether answers depend on the principal.
    pub(super) fn is_private(&self) -> bool {
        self.usable().any(|entry| {
            entry.settings().access.depend_on_principal() || entry.upstream().is_per_principal()
        }) || self.usable().count() < self.set.names().servers().count()
    }

    /// Connects to a server, and keeps what it says about itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop a connection that is being opened: a server that takes longer to start than a
    /// list waits for it would otherwise never be there.
    pub(super) async fn connect(&self, entry: &Arc<ServerEntry>) -> Result<(), RpcError> {
        let (entry, cx) = (entry.clone(), self.cx.clone());
        // Without the params: they may be large, and this goes on when the request has ended and is not charged for them.
        // What is forwarded has its own.
        cx.forget_meta();
        let caller = self.request.caller.clone();
        let request = Request::new(DiscoverRequest::NAME, Json::empty_object(), caller);
        let (owner, principal) = (entry.owner(&self.principal), owner(&self.principal));
        let connecting = tokio::spawn(async move {
            let opened = entry.upstream().opened();
            let lease = entry.upstream().lease(&request, &cx).await?;
            let connection = open_connection(&lease)?;
            let dialect = connection.dialect();
            let introductions = entry.introductions();
            match connection.channel().introduction() {
                Some(introduction) => introductions.set(&owner, introduction, dialect),
                // A client whose version is fixed sends no handshake.
                None if introductions.get(&owner).is_none() => {
                    let introduction = forward(entry.upstream(), request, &cx).await?;
                    let checked = check_introduction(Some(&introduction));
                    checked.map_err(|error| RpcError::internal(error.to_string()))?;
                    introductions.set(&owner, &introduction, dialect);
                }
                None => {}
            }
            // One that was open before says nothing: the server may be connected and silent.
            if entry.upstream().opened() > opened {
                entry.patience().set_connected(&principal);
            }
            Ok(())
        });
        let connected = connecting.await;
        connected.unwrap_or_else(|error| Err(RpcError::internal(error.to_string())))
    }

    /// Waits for a server, up to `limit`. A [brief](Wait::Brief) one is shorter if the server was [late](Patience) before.
    pub(super) async fn wait_for<T>(
        &self,
        entry: &ServerEntry,
        awaited: Awaited,
        wait: Wait,
        limit: Duration,
        answer: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        let (patience, owner) = (entry.patience(), owner(&self.principal));
        let waited = match wait {
            Wait::Brief => patience.limit(awaited, &owner, limit),
            Wait::Whole => limit,
        };
        let Ok(answer) = tokio::time::timeout(waited, answer).await else {
            // A handshake waits for less than a server may take to start, and says nothing about it.
            patience.set_late(awaited, &owner, waited, entry.settings().list_timeout);
            let name = entry.name();
            let text = format!("upstream `{name}`: no answer within {waited:?}");
            return Err(RpcError::internal(text));
        };
        if answer.is_ok() {
            patience.set_answered(awaited, &owner);
        }
        answer
    }
}

/// How long a server is waited for that was late before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A moment: the answer goes without what it has.
    Brief,
    /// As long as any other: there is no answer without it.
    Whole,
}
