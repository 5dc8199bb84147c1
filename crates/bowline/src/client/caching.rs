//! What may be kept, for whom and for how long, and when it must be asked for again.
//!
//! A change that is heard while an answer is on its way may have happened after the answer was written and
//! before it arrived, so such an answer is not kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Which server's results these are.
    server: String,
    asker: Mutex<Asker>,
    /// How many changes were heard of.
    changes: AtomicU64,
}

/// Whom private results are for.
enum Asker {
    /// Always the same.
    Fixed(Owner),
    /// Whoever is signed in at the moment; nobody can tell if that is `None`.
    SignedIn(Identity),
}

/// Tells who is signed in.
pub(super) type Identity = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What is known of a server and its client when they are connected.
pub(super) struct Parties {
    /// A name that other servers do not have.
    pub(super) server: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) identity: Option<Identity>,
}

impl Caching {
    pub(super) fn new(cache: Arc<dyn Cache>, parties: Parties) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let asker = match (parties.principal, parties.identity) {
            (Some(principal), _) => Asker::Fixed(Owner::Principal(principal)),
            (None, Some(identity)) => Asker::SignedIn(identity),
            (None, None) => Asker::Fixed(Owner::Client(client)),
        };
        // A server without a name is one that no other client is known to share. No URL has a space.
        let server = parties.server.unwrap_or_else(|| format!("client {client}"));
        Self {
            cache,
            server,
            asker: Mutex::new(asker),
            changes: AtomicU64::new(0),
        }
    }

    /// Whom private results belong to from now on.
    pub(super) fn belong_to(&self, principal: String) {
        let owner = Owner::Principal(principal);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = Asker::Fixed(owner);
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

    /// What is kept for `owner`, or else for anybody; `key` is that of the latter.
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

    /// Keeps a result for `owner`, or for anybody if the server says so; `key` is that of the latter.
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

    /// Whom private results are for now, if that can be told.
    fn owner(&self) -> Option<Owner> {
        let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = match &*asker {
            Asker::Fixed(owner) => return Some(owner.clone()),
            Asker::SignedIn(identity) => identity.clone(),
        };
        drop(asker); // it is the application's code that is called
        identity().map(Owner::Identity)
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
    /// Where it is kept if it is for anybody.
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
