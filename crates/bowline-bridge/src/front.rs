//! [`FrontConnection`]: what a bridge keeps for one connection of a client, and drops with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bowline::exchange::{BoxFuture, Notification, Outcome, Principal, RawInputRequest};
use bowline::{Context, ErrorCode, RpcError};
use tokio::sync::watch;

use crate::client_token::{ClientToken, TokenCell};
use crate::questions::{AskClient, ask_in};
use crate::tasks::OpenTasks;
use crate::upstream::pool::Pool;
use crate::upstream::{Upstream, UpstreamConnection, UpstreamId};

/// What a bridge keeps for one connection of a client: a wire, or what a legacy client initialized over HTTP.
///
/// Its connections to upstreams are not shared with other clients, so that servers with state behave as if the client
/// were connected to them.
#[derive(Default)]
pub(crate) struct FrontConnection {
    pools: Mutex<BTreeMap<UpstreamId, Pool<UpstreamConnection>>>,
    tasks: Arc<OpenTasks>,
    /// One for each upstream: the notifications of each are passed on by a subscription of its own.
    outlets: Mutex<BTreeMap<UpstreamId, Arc<Outlet>>>,
    /// The principal of its first request. A subscription on its behalf has none.
    principal: OnceLock<Principal>,
    /// The token of its last request that had one, for what the bridge does on its behalf between requests.
    tokens: OnceLock<Arc<TokenCell>>,
}

impl FrontConnection {
    /// Returns the value of the connection on which a request arrived, if it has one.
    pub(crate) fn of(cx: &Context) -> Option<Arc<Self>> {
        let state = cx.connection_state()?;
        let front = state.get_or_insert_with(Self::default);
        if cx.principal().name().is_some() {
            front.principal.get_or_init(|| cx.principal().clone());
        }
        if let Some(token) = ClientToken::of(cx) {
            match front.tokens.get() {
                Some(tokens) => tokens.set(token),
                None => drop(front.tokens.set(Arc::new(TokenCell::new(token)))),
            }
        }
        Some(front)
    }

    /// Returns the principal on whose behalf upstreams are asked.
    pub(crate) fn principal<'a>(&'a self, cx: &'a Context) -> &'a Principal {
        self.principal.get().unwrap_or_else(|| cx.principal())
    }

    /// Returns the tasks that this client has created.
    pub(crate) fn tasks(&self) -> &Arc<OpenTasks> {
        &self.tasks
    }

    /// Returns the tokens of the client, if it has presented one.
    pub(crate) fn tokens(&self) -> Option<&Arc<TokenCell>> {
        self.tokens.get()
    }

    /// Returns the connections of this client to an upstream.
    pub(crate) fn pool(&self, upstream: &Upstream) -> Pool<UpstreamConnection> {
        let max_each = upstream.settings().max_connections_each;
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(upstream.id()).or_insert_with(|| {
            let pool = Pool::new(max_each);
            upstream.add_front_pool(&pool);
            pool
        });
        pool.set_max_each(max_each);
        pool.clone()
    }

    /// Passes a notification of the client to every legacy upstream that it is connected to.
    pub(crate) fn notify(&self, notification: &Notification) {
        let pools: Vec<_> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.values().cloned().collect()
        };
        for connection in pools.iter().flat_map(Pool::connections) {
            if let Some(connection) = connection.get() {
                connection.channel().notify(notification.clone());
            }
        }
    }

    /// Returns the way to the client for what an upstream sends outside of requests.
    pub(crate) fn outlet(&self, upstream: UpstreamId) -> Arc<Outlet> {
        let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        outlets.entry(upstream).or_default().clone()
    }
}

/// The way to a legacy client outside of its requests: the contexts in which the bridge answers its subscriptions. That
/// to list changes is the first, and exists as long as the client is connected.
#[derive(Default)]
pub(crate) struct Outlet {
    /// By the order in which they were opened.
    contexts: watch::Sender<BTreeMap<u64, Context>>,
    opened: AtomicU64,
}

impl Outlet {
    /// Adds a context until the guard is dropped. The first one is used.
    pub(crate) fn open(self: &Arc<Self>, cx: &Context) -> OpenOutlet {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.contexts
            .send_modify(|contexts| drop(contexts.insert(number, cx.clone())));
        OpenOutlet {
            outlet: self.clone(),
            number,
        }
    }
}

impl AskClient for Outlet {
    fn ask(&self, question: RawInputRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let mut contexts = self.contexts.subscribe();
            let connected = async {
                let contexts = contexts.wait_for(|contexts| !contexts.is_empty()).await;
                contexts.ok()?.first_key_value().map(|(_, cx)| cx.clone())
            };
            match tokio::time::timeout(CONNECT_TIME, connected).await {
                Ok(Some(cx)) => ask_in(&cx, question).await,
                _ => Err(RpcError::new(
                    ErrorCode::INTERNAL_ERROR,
                    "the client cannot be asked outside of a call",
                )),
            }
        })
    }

    fn is_ready(&self) -> bool {
        !self.contexts.borrow().is_empty()
    }
}

/// The use of a context as the way to a client.
pub(crate) struct OpenOutlet {
    outlet: Arc<Outlet>,
    number: u64,
}

impl OpenOutlet {
    /// Returns whether this context is the one that is used.
    pub(crate) fn is_current(&self) -> bool {
        let contexts = self.outlet.contexts.borrow();
        contexts
            .first_key_value()
            .is_some_and(|(first, _)| *first == self.number)
    }
}

impl Drop for OpenOutlet {
    fn drop(&mut self) {
        let mut removed = None;
        self.outlet
            .contexts
            .send_modify(|contexts| removed = contexts.remove(&self.number));
        drop(removed); // not under the lock
    }
}

/// How long a question waits for the client to be ready.
const CONNECT_TIME: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use bowline::Json;
    use bowline::exchange::{Caller, Dialect, Request};

    use super::*;
    use crate::parked::KeptNotifications;

    #[test]
    fn the_end_of_a_later_subscription_leaves_the_way_of_the_first() {
        let caller = Arc::new(Caller::new(Dialect::of("2025-11-25").unwrap()));
        let request = Request::new("subscriptions/listen", Json::empty_object(), caller);
        let cx = Context::new(1.into(), &request, Arc::<KeptNotifications>::default());
        let outlet = Arc::new(Outlet::default());
        let lists = outlet.open(&cx);

        let resource = outlet.open(&cx);
        assert!(lists.is_current() && !resource.is_current());
        drop(resource);

        assert!(lists.is_current() && outlet.is_ready());
        drop(lists);
        assert!(!outlet.is_ready());
    }
}
