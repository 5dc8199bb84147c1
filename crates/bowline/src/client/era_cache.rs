//! A cache of HTTP servers that are known to be legacy, so that they are not probed again.
//!
//! Probing a modern server costs nothing extra: the client needs the `server/discover` result anyway. A legacy server
//! costs one request that fails, and one that does not answer costs the whole probe timeout.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline_core::era::{Dialect, Dialects};
use http::Uri;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sync::Mutex;

/// A cache of HTTP servers that are known to be legacy.
///
/// Clients use the [process-wide](Self::shared) one unless
/// [`ClientBuilder::era_cache`](super::ClientBuilder::era_cache) sets another. A client sends `initialize` to a cached
/// server without probing it first, for an hour: after that the server may have been upgraded. A server that rejects
/// `initialize` is removed and probed.
///
/// Cheap to clone; clones share their entries. Implements `Serialize` and `Deserialize`, so that it can be saved
/// between runs.
///
/// # Examples
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline::{Client, client::EraCache};
///
/// let text = std::fs::read_to_string("eras.json").unwrap_or("{}".into());
/// let eras: EraCache = serde_json::from_str(&text)?;
/// let client = Client::connect("https://tools.example/mcp").era_cache(&eras).await?;
/// std::fs::write("eras.json", serde_json::to_string(&eras)?)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct EraCache(Arc<Mutex<BTreeMap<String, EraEntry>>>);

/// The version of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EraEntry {
    version: String,
    /// When the entry expires, in seconds since 1970.
    until: u64,
}

impl EraCache {
    /// Creates an empty cache that is shared with its clones only.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the cache that all clients of this process share by default.
    #[must_use]
    pub fn shared() -> Self {
        static SHARED: OnceLock<EraCache> = OnceLock::new();
        SHARED.get_or_init(Self::new).clone()
    }

    /// Removes the server at `url`.
    pub fn remove(&self, url: &str) {
        if let Ok(uri) = url.parse() {
            self.remove_uri(&uri);
        }
    }

    /// Returns whether the server is known to be legacy, with a version that is among `versions`.
    pub(super) fn is_legacy(&self, uri: &Uri, versions: &Dialects) -> bool {
        let found = self.0.lock().get(&key(uri)).cloned();
        found
            .filter(|found| found.until > now())
            .and_then(|found| versions.of(&found.version))
            .is_some_and(|dialect| !dialect.is_modern())
    }

    pub(super) fn insert(&self, uri: &Uri, dialect: &Dialect) {
        let entry = EraEntry {
            version: dialect.version.to_owned(),
            until: now() + LIFETIME.as_secs(),
        };
        let mut eras = self.0.lock();
        if eras.len() >= MAX_SERVERS {
            eras.retain(|_, found| found.until > now());
        }
        if eras.len() < MAX_SERVERS {
            eras.insert(key(uri), entry);
        }
    }

    pub(super) fn remove_uri(&self, uri: &Uri) {
        self.0.lock().remove(&key(uri));
    }
}

impl Serialize for EraCache {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let eras = self.0.lock().clone();
        eras.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EraCache {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let eras = BTreeMap::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(eras))))
    }
}

/// The origin and the path, because a gateway has servers of different ages at one origin. Without the query, which
/// may contain a secret: the table can be written to a file.
fn key(uri: &Uri) -> String {
    format!("{}{}", origin(uri), uri.path())
}

/// The scheme, host and port of a URL, without user name and password.
pub(super) fn origin(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let port = uri.port().map(|port| format!(":{port}"));
    format!("{scheme}://{host}{}", port.unwrap_or_default())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The lifetime of an entry. An upgraded server may still accept `initialize`, so only a new probe detects the upgrade.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
const MAX_SERVERS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Uri {
        Uri::from_static("https://gateway.example:8443/old?token=secret")
    }

    #[test]
    fn a_server_is_known_by_its_origin_and_path() {
        let eras = EraCache::new();

        eras.insert(&server(), Dialect::LATEST_LEGACY);

        let text = serde_json::to_string(&eras).unwrap();
        let kept: EraCache = serde_json::from_str(&text).unwrap();
        assert!(kept.is_legacy(&server(), &Dialects::all()));
        for other in [
            "https://gateway.example:8443/new",
            "https://gateway.example/old",
            "http://gateway.example:8443/old",
        ] {
            assert!(!kept.is_legacy(&Uri::from_static(other), &Dialects::all()));
        }
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn an_entry_is_ignored_when_it_is_removed_or_expired() {
        let eras = EraCache::new();
        eras.insert(&server(), Dialect::LATEST_LEGACY);
        let old = EraEntry {
            version: Dialect::LATEST_LEGACY.version.to_owned(),
            until: now() - 1,
        };
        let aged = EraCache::new();
        aged.0.lock().insert(key(&server()), old);

        eras.remove("https://gateway.example:8443/old");

        assert!(!eras.is_legacy(&server(), &Dialects::all()));
        assert!(!aged.is_legacy(&server(), &Dialects::all()));
    }

    #[test]
    fn a_version_that_the_client_does_not_use_is_ignored() {
        let eras = EraCache::new();

        eras.insert(&server(), Dialect::LATEST_LEGACY);

        let modern = Dialects::only(Dialect::is_modern);
        assert!(!eras.is_legacy(&server(), &modern));
    }
}
