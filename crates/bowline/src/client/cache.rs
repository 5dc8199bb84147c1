//! Results that are still good, and the place where they are kept.
//!
//! A [`Cache`] only stores. What may be kept, for whom and for how long is decided by the client from what
//! the server says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_types::{
    Json, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, ReadResourceRequest, ReadResourceRequestParams,
};
use tokio::time::Instant;

use super::Change;

/// A place for results that are still good.
///
/// Any number of clients, of one server or of several, can share a cache: the [key](CacheKey) of a result contains the server, the
/// owner and the request.
///
/// # Examples
///
/// ```
/// use bowline::client::{Cache, CacheEntry, CacheKey, Change};
///
/// /// Keeps nothing at all.
/// struct Forgetful;
///
/// impl Cache for Forgetful {
///     fn find(&self, _: &CacheKey) -> Option<CacheEntry> {
///         None
///     }
///     fn keep(&self, _: CacheKey, _: CacheEntry) {}
///     fn evict(&self, _server: &str, _: &Change) {}
/// }
/// ```
pub trait Cache: Send + Sync + 'static {
    /// What is kept under `key`, fresh or not.
    fn find(&self, key: &CacheKey) -> Option<CacheEntry>;

    /// Keeps a result, in the place of whatever was kept under `key`.
    fn keep(&self, key: CacheKey, entry: CacheEntry);

    /// Forgets every entry whose key [`is_outdated_by`](CacheKey::is_outdated_by) a change at `server`.
    fn evict(&self, server: &str, change: &Change);
}

/// What a result is the answer to, and who may have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct CacheKey {
    /// The server: its URL, or what [`Connect::server_identity`](super::Connect::server_identity) set.
    pub server: String,
    /// Who may have it.
    pub owner: Owner,
    /// The method.
    pub method: String,
    /// The params, as JSON text.
    pub params: String,
}

/// Who may have a result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// Anybody.
    Anyone,
    /// The principal that the application set with [`Connect::principal`](super::Connect::principal).
    Principal(String),
    /// The signed-in user, as returned by [`Authorizer::identity`](crate::http::client::Authorizer::identity).
    Identity(String),
    /// One client, which does not say whom it acts for.
    Client(u64),
}

/// A result, and until when it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheEntry {
    /// The result.
    pub result: Json,
    /// Until when it is good.
    pub fresh_until: Instant,
}

impl CacheKey {
    /// Returns whether a change at `server` may have invalidated the result, regardless of its `ttlMs`.
    #[must_use]
    pub fn is_outdated_by(&self, server: &str, change: &Change) -> bool {
        if self.server != server {
            return false;
        }
        match change {
            Change::Tools => self.method == ListToolsRequest::NAME,
            Change::Prompts => self.method == ListPromptsRequest::NAME,
            Change::Resources => {
                let lists = [
                    ListResourcesRequest::NAME,
                    ListResourceTemplatesRequest::NAME,
                ];
                lists.contains(&&*self.method)
            }
            Change::Resource(uri) => self.method == ReadResourceRequest::NAME && self.reads(uri),
            Change::Missed => true,
            Change::Other(_) => false,
        }
    }

    /// Whether it is about the resource at `uri`, or about one that it is a part of.
    fn reads(&self, uri: &str) -> bool {
        let params: Option<ReadResourceRequestParams> = serde_json::from_str(&self.params).ok();
        // A server may name a part of what was subscribed to, and the whole then changed as well.
        params.is_none_or(|params| uri.starts_with(&params.uri) || params.uri.starts_with(uri))
    }
}

/// Keeps results in memory, a bounded number of them; the oldest make room.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// use std::sync::Arc;
/// use bowline::{Client, client::MemoryCache};
///
/// // Shared by two clients that act for the same user.
/// let cache = Arc::new(MemoryCache::default());
/// let connect = || Client::to(&server).server_identity("notes").principal("ada");
/// let one = connect().cache(cache.clone()).await?;
/// let two = connect().cache(cache).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MemoryCache {
    most_entries: usize,
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: BTreeMap<CacheKey, (u64, CacheEntry)>,
    /// The keys in the order in which they came.
    ages: BTreeMap<u64, CacheKey>,
    last_age: u64,
    bytes: usize,
}

impl MemoryCache {
    /// A cache of at most this many results, and at most this many bytes of JSON.
    #[must_use]
    pub fn new(most_entries: usize, most_bytes: usize) -> Self {
        Self {
            most_entries,
            most_bytes,
            kept: Mutex::default(),
        }
    }

    /// How many results are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No code that could panic runs under this lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryCache {
    fn default() -> Self {
        Self::new(1_024, 16 * 1024 * 1024)
    }
}

impl Cache for MemoryCache {
    fn find(&self, key: &CacheKey) -> Option<CacheEntry> {
        self.lock().entries.get(key).map(|(_, entry)| entry.clone())
    }

    fn keep(&self, key: CacheKey, entry: CacheEntry) {
        let mut kept = self.lock();
        kept.forget(&key);
        kept.bytes += entry.size();
        kept.last_age += 1;
        let age = kept.last_age;
        kept.ages.insert(age, key.clone());
        kept.entries.insert(key, (age, entry));
        while kept.entries.len() > self.most_entries || kept.bytes > self.most_bytes {
            let Some((_, oldest)) = kept.ages.pop_first() else {
                break;
            };
            kept.forget(&oldest);
        }
    }

    fn evict(&self, server: &str, change: &Change) {
        let mut kept = self.lock();
        let keys = kept.entries.keys();
        let outdated = keys.filter(|key| key.is_outdated_by(server, change));
        for key in outdated.cloned().collect::<Vec<_>>() {
            kept.forget(&key);
        }
    }
}

impl Kept {
    fn forget(&mut self, key: &CacheKey) {
        if let Some((age, entry)) = self.entries.remove(key) {
            self.ages.remove(&age);
            self.bytes -= entry.size();
        }
    }
}

impl CacheEntry {
    fn size(&self) -> usize {
        self.result.as_bytes().len()
    }
}
