//! The [`Cache`] trait for cacheable results, and [`MemoryCache`].
//!
//! A cache only stores. The client decides from `ttlMs` and `cacheScope` what to store, for whom and for how long.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bowline_types::{
    Json, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, ReadResourceRequest, ReadResourceRequestParams,
};
use serde::{Deserialize, Serialize};

use super::Change;
use crate::sync::Mutex;

/// A store for cacheable results (those with `ttlMs`).
///
/// Any number of clients, of one or several servers, can share a cache: the [key](CacheKey) of a result contains
/// the server, the owner and the request.
///
/// # Examples
///
/// ```
/// use bowline::client::{Cache, CacheEntry, CacheKey, Change};
///
/// /// Stores no results.
/// struct NoCache;
///
/// impl Cache for NoCache {
///     fn get(&self, _: &CacheKey) -> Option<CacheEntry> {
///         None
///     }
///     fn insert(&self, _: CacheKey, _: CacheEntry) {}
///     fn evict(&self, _server: &str, _: &Change) {}
/// }
/// ```
pub trait Cache: Send + Sync + 'static {
    /// Returns the entry for `key`, fresh or expired.
    fn get(&self, key: &CacheKey) -> Option<CacheEntry>;

    /// Stores an entry for `key`, replacing an earlier one.
    fn insert(&self, key: CacheKey, entry: CacheEntry);

    /// Removes every entry whose key [`is_outdated_by`](CacheKey::is_outdated_by) a change at `server`.
    fn evict(&self, server: &str, change: &Change);
}

/// The key of a cached result: the server, the request, and who may use the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CacheKey {
    /// The server: its URL, or what [`ClientBuilder::server_identity`](super::ClientBuilder::server_identity) set.
    pub server: String,
    /// Who may use the result.
    pub owner: CacheOwner,
    /// The method of the request.
    pub method: String,
    /// The params of the request, as JSON text.
    pub params: String,
}

/// The owner of a cached result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CacheOwner {
    /// Every client (`cacheScope` is `public`).
    Public,
    /// The principal that the application set with [`ClientBuilder::principal`](super::ClientBuilder::principal).
    Principal(String),
    /// The signed-in user, as returned by [`Authorizer::identity`](crate::http::client::Authorizer::identity).
    Identity(String),
    /// One client, which has neither a principal nor an authorizer.
    Client(u64),
}

/// A cached result and when it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CacheEntry {
    /// The result.
    pub result: Json,
    /// When the result expires.
    pub fresh_until: SystemTime,
}

impl CacheEntry {
    /// Creates an entry that expires at `fresh_until`.
    #[must_use]
    pub fn new(result: Json, fresh_until: SystemTime) -> Self {
        Self {
            result,
            fresh_until,
        }
    }
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

    /// Returns whether the request reads the resource at `uri`, a part of it, or a resource that it is a part of.
    fn reads(&self, uri: &str) -> bool {
        let params: Option<ReadResourceRequestParams> = serde_json::from_str(&self.params).ok();
        // `notifications/resources/updated` may name a sub-resource of the one that was subscribed to.
        params.is_none_or(|params| uri.starts_with(&params.uri) || params.uri.starts_with(uri))
    }
}

/// An in-memory [`Cache`] of bounded size; evicts the oldest entries first.
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
/// let connect = || Client::in_process(&server).server_identity("notes").principal("ada");
/// let one = connect().cache(cache.clone()).await?;
/// let two = connect().cache(cache).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MemoryCache {
    max_entries: usize,
    max_bytes: usize,
    stored: Mutex<StoredEntries>,
}

#[derive(Debug, Default)]
struct StoredEntries {
    entries: BTreeMap<CacheKey, (u64, CacheEntry)>,
    /// The keys in the order of their insertion, for eviction.
    ages: BTreeMap<u64, CacheKey>,
    last_age: u64,
    bytes: usize,
}

impl MemoryCache {
    /// Creates a cache of at most `max_entries` results with at most `max_bytes` bytes of JSON in total.
    #[must_use]
    pub fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            stored: Mutex::default(),
        }
    }

    /// Returns the number of cached results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.lock().entries.len()
    }

    /// Returns whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryCache {
    fn default() -> Self {
        Self::new(1_024, 16 * 1024 * 1024)
    }
}

impl Cache for MemoryCache {
    fn get(&self, key: &CacheKey) -> Option<CacheEntry> {
        self.stored
            .lock()
            .entries
            .get(key)
            .map(|(_, entry)| entry.clone())
    }

    fn insert(&self, key: CacheKey, entry: CacheEntry) {
        let mut stored = self.stored.lock();
        stored.remove(&key);
        stored.bytes += entry.size();
        stored.last_age += 1;
        let age = stored.last_age;
        stored.ages.insert(age, key.clone());
        stored.entries.insert(key, (age, entry));
        while stored.entries.len() > self.max_entries || stored.bytes > self.max_bytes {
            let Some((_, oldest)) = stored.ages.pop_first() else {
                break;
            };
            stored.remove(&oldest);
        }
    }

    fn evict(&self, server: &str, change: &Change) {
        let mut stored = self.stored.lock();
        let keys = stored.entries.keys();
        let outdated = keys.filter(|key| key.is_outdated_by(server, change));
        for key in outdated.cloned().collect::<Vec<_>>() {
            stored.remove(&key);
        }
    }
}

impl StoredEntries {
    fn remove(&mut self, key: &CacheKey) {
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
