//! The caching policy of a client: which results it stores, for whom, for how long, and what evicts them.
//!
//! A result is not stored if a change notification arrived while its request was in flight: the change may have
//! happened after the server produced the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll};
use std::time::{Duration, SystemTime};

use bowline_core::era::Request;
use bowline_core::json::Object;
use bowline_types::{CacheScope, Json, RequestId, meta_key};
use serde::Deserialize;

use super::Change;
use super::cache::{Cache, CacheEntry, CacheKey, CacheOwner};
use crate::exchange::{Answer, CallOptions, Channel, Exchange, ExchangeEvent, PollExchange};
use crate::sync::Mutex;

/// Whether a request may be answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheMode {
    /// A fresh cached result is used.
    Default,
    /// Always sent to the server; the result is cached.
    Reload,
    /// Always sent to the server; the result is not cached.
    NoStore,
}

impl CacheMode {
    /// Returns the same mode, except that cached results are not used.
    pub(super) fn reloading(self) -> Self {
        match self {
            Self::Default | Self::Reload => Self::Reload,
            Self::NoStore => Self::NoStore,
        }
    }
}

/// A client's view of its cache, which it may share with others.
pub(super) struct CachePolicy {
    cache: Arc<dyn Cache>,
    /// The [`CacheKey::server`] of all results.
    server: String,
    owner_source: Mutex<OwnerSource>,
    /// The number of change notifications received.
    changes: AtomicU64,
}

/// Where the owner of private results comes from.
enum OwnerSource {
    Fixed(CacheOwner),
    /// The authorizer's current identity; private results are not cached while it is `None`.
    Authorizer(IdentitySource),
}

/// Returns the identity of the signed-in user.
pub(super) type IdentitySource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What separates the results of different clients in a shared cache.
pub(super) struct CacheScopeOptions {
    /// A unique name of the server; without it, results are not shared between clients.
    pub(super) server: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) identity: Option<IdentitySource>,
}

impl CachePolicy {
    pub(super) fn new(cache: Arc<dyn Cache>, options: CacheScopeOptions) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let owner_source = match (options.principal, options.identity) {
            (Some(principal), _) => OwnerSource::Fixed(CacheOwner::Principal(principal)),
            (None, Some(identity)) => OwnerSource::Authorizer(identity),
            (None, None) => OwnerSource::Fixed(CacheOwner::Client(client)),
        };
        // Unique to this client; the space keeps it apart from URLs.
        let server = options.server.unwrap_or_else(|| format!("client {client}"));
        Self {
            cache,
            server,
            owner_source: Mutex::new(owner_source),
            changes: AtomicU64::new(0),
        }
    }

    /// Sets the owner of private results to `principal`.
    pub(super) fn set_principal(&self, principal: String) {
        let owner = CacheOwner::Principal(principal);
        *self.owner_source.lock() = OwnerSource::Fixed(owner);
    }

    /// Evicts the results that a change invalidates.
    pub(super) fn apply_change(&self, change: &Change) {
        // Counted before evicting: a result that arrives in between must not be stored.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.cache.evict(&self.server, change);
    }

    fn evict_all(&self) {
        self.cache.evict(&self.server, &Change::Missed);
    }

    /// Opens an exchange, or returns one that is already answered from the cache.
    pub(super) fn open(
        self: &Arc<Self>,
        channel: &dyn Channel,
        request: Request,
        options: CallOptions,
        cache_mode: CacheMode,
    ) -> Exchange {
        if cache_mode == CacheMode::NoStore || !request.caller.dialect.is_cacheable(&request.method)
        {
            return channel.open(request, options);
        }
        let owner = self.owner();
        let key = CacheKey {
            server: self.server.clone(),
            owner: CacheOwner::Public,
            method: request.method.clone().into_owned(),
            params: without_trace(&request.params),
        };
        if cache_mode == CacheMode::Default
            && let Some(result) = self.get(&key, owner.as_ref())
        {
            return Exchange::answered(result);
        }
        Exchange::new(CachingExchange {
            // Read before the request is sent, so that every later change is noticed.
            changes: self.changes.load(Ordering::SeqCst),
            exchange: channel.open(request, options),
            cache_policy: self.clone(),
            key,
            owner,
        })
    }

    /// Returns the fresh entry of `owner`, or else the public one, whose key is `key`.
    fn get(&self, key: &CacheKey, owner: Option<&CacheOwner>) -> Option<Json> {
        let now = SystemTime::now();
        let fresh = |key: &CacheKey| {
            let entry = self.cache.get(key);
            entry.filter(|entry| entry.fresh_until > now)
        };
        let private = owner.map(|owner| CacheKey {
            owner: owner.clone(),
            ..key.clone()
        });
        let entry = private.as_ref().and_then(fresh).or_else(|| fresh(key));
        entry.map(|entry| entry.result)
    }

    /// Stores a cacheable result for `owner`, or under `key` if its `cacheScope` is `public`.
    fn store(&self, mut key: CacheKey, owner: Option<&CacheOwner>, result: &Json) {
        let Some(hints) = CacheDirectives::of(result) else {
            return;
        };
        if !hints.is_public {
            let Some(owner) = owner else {
                return;
            };
            key.owner = owner.clone();
        }
        let fresh_until = SystemTime::now() + hints.lifetime;
        let entry = CacheEntry::new(result.clone(), fresh_until);
        self.cache.insert(key, entry);
    }

    /// Returns the current owner of private results; `None` if it is unknown, so that they must not be cached.
    fn owner(&self) -> Option<CacheOwner> {
        let source = self.owner_source.lock();
        let identity = match &*source {
            OwnerSource::Fixed(owner) => return Some(owner.clone()),
            OwnerSource::Authorizer(identity) => identity.clone(),
        };
        // Unlocked first: `identity` is code of the application, and may call `set_principal`, which locks.
        drop(source);
        identity().map(CacheOwner::Identity)
    }
}

/// Returns the params for a cache key: without the trace context, which differs between equal requests.
fn without_trace(params: &Json) -> String {
    let text = params.as_str();
    if !text.contains(meta_key::TRACEPARENT) {
        return text.to_owned();
    }
    let Ok(mut object) = Object::read(params) else {
        return text.to_owned();
    };
    if let Some(meta) = object.remove("_meta")
        && let Ok(mut rest) = Object::read(&meta)
    {
        rest.remove(meta_key::TRACEPARENT);
        rest.remove(meta_key::TRACESTATE);
        if !rest.is_empty() {
            object.set("_meta", rest.to_json());
        }
    }
    object.to_json().as_str().to_owned()
}

/// An exchange that stores its result in the cache if `ttlMs` allows it.
struct CachingExchange {
    exchange: Exchange,
    cache_policy: Arc<CachePolicy>,
    /// The key of a public result.
    key: CacheKey,
    owner: Option<CacheOwner>,
    /// The number of change notifications received when it was opened.
    changes: u64,
}

impl PollExchange for CachingExchange {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        let step = task::ready!(self.exchange.poll_event(cx));
        if let ExchangeEvent::Answered(Ok(Answer::Complete(result))) = &step
            && self.changes == self.cache_policy.changes.load(Ordering::SeqCst)
            // The principal may have changed in flight; it is unknown for which one the server answered.
            && self.owner == self.cache_policy.owner()
        {
            let (key, owner) = (self.key.clone(), self.owner.as_ref());
            self.cache_policy.store(key, owner, result);
            // The driver may have received a change after the check above and evicted before the entry was inserted.
            if self.changes != self.cache_policy.changes.load(Ordering::SeqCst) {
                self.cache_policy.evict_all();
            }
        }
        Poll::Ready(step)
    }

    fn request_id(&self) -> Option<&RequestId> {
        self.exchange.request_id()
    }

    fn paused(&self) -> Duration {
        self.exchange.paused()
    }

    fn cancel(self: Box<Self>, reason: String) {
        self.exchange.cancel(reason);
    }
}

/// The `ttlMs` and `cacheScope` of a result.
struct CacheDirectives {
    lifetime: Duration,
    is_public: bool,
}

impl CacheDirectives {
    /// Reads the hints of a result; `None` if it is not cacheable.
    fn of(result: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CacheMembers {
            ttl_ms: Option<f64>,
            cache_scope: Option<CacheScope>,
        }

        let members: CacheMembers = result.decode().ok()?;
        let milliseconds = members.ttl_ms.filter(|ttl| *ttl > 0.0)?;
        let lifetime =
            Duration::from_secs_f64((milliseconds / 1_000.0).min(MAX_LIFETIME.as_secs_f64()));
        Some(Self {
            lifetime,
            is_public: members.cache_scope == Some(CacheScope::PUBLIC),
        })
    }
}

/// The maximum lifetime of a result, whatever its `ttlMs`; also prevents an overflow of `SystemTime`.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use bowline_core::era::{Caller, Dialect};
    use bowline_types::{ListToolsRequest, Method};

    use super::super::MemoryCache;
    use super::*;

    /// A cache that a change notification reaches just before each entry is inserted.
    #[derive(Default)]
    struct ChangedOnInsert {
        entries: MemoryCache,
        policy: OnceLock<Weak<CachePolicy>>,
    }

    impl Cache for ChangedOnInsert {
        fn get(&self, key: &CacheKey) -> Option<CacheEntry> {
            self.entries.get(key)
        }

        fn insert(&self, key: CacheKey, entry: CacheEntry) {
            let policy = self.policy.get().and_then(Weak::upgrade);
            policy.unwrap().apply_change(&Change::Tools);
            self.entries.insert(key, entry);
        }

        fn evict(&self, server: &str, change: &Change) {
            self.entries.evict(server, change);
        }
    }

    struct OneAnswer(Json);

    impl Channel for OneAnswer {
        fn open(&self, _: Request, _: CallOptions) -> Exchange {
            Exchange::answered(self.0.clone())
        }
    }

    #[tokio::test]
    async fn a_change_between_the_check_and_the_insertion_leaves_no_stale_result() {
        let cache = Arc::new(ChangedOnInsert::default());
        let scope = CacheScopeOptions {
            server: None,
            principal: None,
            identity: None,
        };
        let policy = Arc::new(CachePolicy::new(cache.clone(), scope));
        cache.policy.set(Arc::downgrade(&policy)).unwrap();
        let channel = OneAnswer(Json::parse(r#"{"tools":[],"ttlMs":60000}"#).unwrap());
        let caller = Arc::new(Caller::new(Dialect::LATEST));
        let request = Request::new(ListToolsRequest::NAME, Json::empty_object(), caller);
        let open = || {
            let (request, options) = (request.clone(), CallOptions::default());
            policy.open(&channel, request, options, CacheMode::Default)
        };

        open().answer().await.unwrap();

        let key = CacheKey {
            server: policy.server.clone(),
            owner: CacheOwner::Public,
            method: ListToolsRequest::NAME.to_owned(),
            params: "{}".to_owned(),
        };
        assert_eq!(policy.get(&key, policy.owner().as_ref()), None);
    }
}
