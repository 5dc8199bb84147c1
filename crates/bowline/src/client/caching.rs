//! What may be kept, for whom and for how long, and when it must be asked for again.
//!
//! A change that is heard while an answer is on its way may have happened after the answer was written and
//! before it arrived, so such an answer is not kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::json::Object;
use bowline_core::mux::CallOptions;
use bowline_types::{CacheScope, Json, RequestId, meta_key};
use serde::Deserialize;
use tokio::time::Instant;

use super::Change;
use super::cache::{Cache, CacheEntry, CacheKey, Owner};
use crate::exchange::{Answer, Channel, Exchange, Ongoing, Step};

/// How new a result has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// One that is still good will do.
    Any,
    /// Straight from the server; it is kept for others.
    New,
    /// Straight from the server, and nothing is kept.
    Apart,
}

impl Freshness {
    /// As new as this, and in any case new.
    pub(super) fn anew(self) -> Self {
        match self {
            Self::Any | Self::New => Self::New,
            Self::Apart => Self::Apart,
        }
    }
}

/// A client's view of its cache.
pub(super) struct Caching {
    cache: Arc<dyn Cache>,
    /// The [`CacheKey::server`] of all results.
    server: String,
    owner_source: Mutex<OwnerSource>,
    /// How many changes were heard of.
    changes: AtomicU64,
}

/// Where the owner of private results comes from.
enum OwnerSource {
    Fixed(Owner),
    /// The authorizer's current identity; private results are not cached while it is `None`.
    Authorizer(Identity),
}

/// Returns the identity of the signed-in user.
pub(super) type Identity = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What separates the results of one client in a shared cache from those of another.
pub(super) struct CacheScopeOptions {
    /// A unique name of the server; results stay with one client without it.
    pub(super) server: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) identity: Option<Identity>,
}

impl Caching {
    pub(super) fn new(cache: Arc<dyn Cache>, options: CacheScopeOptions) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let owner_source = match (options.principal, options.identity) {
            (Some(principal), _) => OwnerSource::Fixed(Owner::Principal(principal)),
            (None, Some(identity)) => OwnerSource::Authorizer(identity),
            (None, None) => OwnerSource::Fixed(Owner::Client(client)),
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

    /// Whom private results belong to from now on.
    pub(super) fn belong_to(&self, principal: String) {
        let owner = Owner::Principal(principal);
        *self.lock_owner_source() = OwnerSource::Fixed(owner);
    }

    /// Forgets what a change made wrong.
    pub(super) fn hear(&self, change: &Change) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.cache.evict(&self.server, change);
    }

    /// Starts an exchange, unless a result is at hand.
    pub(super) fn open(
        self: &Arc<Self>,
        channel: &dyn Channel,
        request: Request,
        options: CallOptions,
        freshness: Freshness,
    ) -> Exchange {
        if freshness == Freshness::Apart || !request.caller.dialect.caches(&request.method) {
            return channel.open(request, options);
        }
        let owner = self.owner();
        let key = CacheKey {
            server: self.server.clone(),
            owner: Owner::Anyone,
            method: request.method.clone().into_owned(),
            params: without_trace(&request.params),
        };
        if freshness == Freshness::Any
            && let Some(result) = self.find(&key, owner.as_ref())
        {
            return Exchange::answered(result);
        }
        Exchange::new(Keeping {
            changes: self.changes.load(Ordering::SeqCst),
            exchange: channel.open(request, options),
            caching: self.clone(),
            key,
            owner,
        })
    }

    /// Returns the fresh entry of `owner`, or else the public one, whose key is `key`.
    fn find(&self, key: &CacheKey, owner: Option<&Owner>) -> Option<Json> {
        let now = Instant::now();
        let fresh = |key: &CacheKey| {
            let entry = self.cache.find(key);
            entry.filter(|entry| entry.fresh_until > now)
        };
        let private = owner.map(|owner| CacheKey {
            owner: owner.clone(),
            ..key.clone()
        });
        let entry = private.as_ref().and_then(fresh).or_else(|| fresh(key));
        entry.map(|entry| entry.result)
    }

    /// Stores a result for `owner`, or as a public one under `key` if the server says so.
    fn keep(&self, mut key: CacheKey, owner: Option<&Owner>, result: &Json) {
        let Some(hints) = Hints::of(result) else {
            return;
        };
        if !hints.is_public {
            let Some(owner) = owner else {
                return;
            };
            key.owner = owner.clone();
        }
        let entry = CacheEntry {
            result: result.clone(),
            fresh_until: Instant::now() + hints.lifetime,
        };
        self.cache.keep(key, entry);
    }

    /// Returns the current owner of private results; `None` if it is not known, so that they must not be cached.
    fn owner(&self) -> Option<Owner> {
        let source = self.lock_owner_source();
        let identity = match &*source {
            OwnerSource::Fixed(owner) => return Some(owner.clone()),
            OwnerSource::Authorizer(identity) => identity.clone(),
        };
        // Released first: `identity` is code of the application, and may call `set_principal`.
        drop(source);
        identity().map(Owner::Identity)
    }

    fn lock_owner_source(&self) -> MutexGuard<'_, OwnerSource> {
        // No code that could panic runs under this lock.
        let source = self.owner_source.lock();
        source.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The params as a cache sees them: whoever asks the same in another trace gets the same.
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

/// An exchange whose result is kept if the server says that it stays good.
struct Keeping {
    exchange: Exchange,
    caching: Arc<Caching>,
    /// The key of a public result.
    key: CacheKey,
    owner: Option<Owner>,
    /// How many changes had been heard of when it was opened.
    changes: u64,
}

impl Ongoing for Keeping {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        let step = task::ready!(self.exchange.poll_step(cx));
        if let Step::Answered(Ok(Answer::Complete(result))) = &step
            && self.changes == self.caching.changes.load(Ordering::SeqCst)
            // Whoever asked may have become somebody else, and this is not for them.
            && self.owner == self.caching.owner()
        {
            let (key, owner) = (self.key.clone(), self.owner.as_ref());
            self.caching.keep(key, owner, result);
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

/// What a server says about a result's freshness.
struct Hints {
    lifetime: Duration,
    is_public: bool,
}

impl Hints {
    /// The hints of a result that stays good for some time; `None` if it does not.
    fn of(result: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members {
            ttl_ms: Option<f64>,
            cache_scope: Option<CacheScope>,
        }

        let members: Members = result.decode().ok()?;
        let milliseconds = members.ttl_ms.filter(|ttl| *ttl > 0.0)?;
        let lifetime = Duration::from_secs_f64((milliseconds / 1_000.0).min(LONGEST.as_secs_f64()));
        Some(Self {
            lifetime,
            is_public: members.cache_scope == Some(CacheScope::PUBLIC),
        })
    }
}

/// However long a server says: nobody knows what a year brings.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
