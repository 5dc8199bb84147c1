//! Which HTTP servers are known to be of the legacy era, so that they are not asked again.
//!
//! A modern server is asked by the question that it introduces itself with, which costs nothing extra. A legacy
//! server is asked in vain first, and one that stays silent costs the whole patience of the probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline_core::era::{Dialect, Dialects};
use http::Uri;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which HTTP servers are known to be of the legacy era.
///
/// Clients share those of [their process](Self::of_this_process) unless they are given others by
/// [`Connect::verdicts`](super::Connect::verdicts). A server that was found to want a handshake is then not
/// probed before it, for an hour: after that it may have become a newer one. If the handshake is refused it is
/// probed again at once.
///
/// Cheap to clone; clones are the same. It has a form in JSON, to be kept from one run to the next.
///
/// # Examples
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline::{Client, client::Verdicts};
///
/// let kept = std::fs::read_to_string("verdicts.json").unwrap_or("{}".into());
/// let verdicts: Verdicts = serde_json::from_str(&kept)?;
/// let client = Client::connect("https://tools.example/mcp").verdicts(&verdicts).await?;
/// std::fs::write("verdicts.json", serde_json::to_string(&verdicts)?)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Verdicts(Arc<Mutex<BTreeMap<String, Found>>>);

/// What was found out about one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    version: String,
    /// Until when it is taken for granted, in seconds since 1970.
    until: u64,
}

impl Verdicts {
    /// None so far, shared with nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that all clients of this process share by default.
    #[must_use]
    pub fn of_this_process() -> Self {
        static SHARED: OnceLock<Verdicts> = OnceLock::new();
        SHARED.get_or_init(Self::new).clone()
    }

    /// Forgets what was found out about the server at `url`.
    pub fn forget(&self, url: &str) {
        if let Ok(uri) = url.parse() {
            self.forget_server(&uri);
        }
    }

    /// Whether the server is known to want a handshake, in a version that is among these.
    pub(super) fn is_legacy(&self, uri: &Uri, speaking: &Dialects) -> bool {
        let found = self.lock().get(&key(uri)).cloned();
        found
            .filter(|found| found.until > now())
            .and_then(|found| speaking.of(&found.version))
            .is_some_and(|dialect| !dialect.is_modern())
    }

    pub(super) fn keep(&self, uri: &Uri, dialect: &Dialect) {
        let found = Found {
            version: dialect.version.to_owned(),
            until: now() + LIFETIME.as_secs(),
        };
        let mut verdicts = self.lock();
        if verdicts.len() >= MOST {
            verdicts.retain(|_, found| found.until > now());
        }
        if verdicts.len() < MOST {
            verdicts.insert(key(uri), found);
        }
    }

    pub(super) fn forget_server(&self, uri: &Uri) {
        self.lock().remove(&key(uri));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Found>> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serialize for Verdicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verdicts = self.lock().clone();
        verdicts.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Verdicts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let verdicts = BTreeMap::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(verdicts))))
    }
}

/// The origin and the path, because a gateway has servers of different ages at one origin. Without the query, which may contain a
/// secret: the table can be written to a file.
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

/// How long a server is taken for one of the legacy era. An upgraded one still shakes hands, so that nothing else
/// would tell.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Uri {
        Uri::from_static("https://gateway.example:8443/old?token=secret")
    }

    #[test]
    fn a_server_is_known_by_its_origin_and_path() {
        let verdicts = Verdicts::new();

        verdicts.keep(&server(), Dialect::LATEST_LEGACY);

        let text = serde_json::to_string(&verdicts).unwrap();
        let kept: Verdicts = serde_json::from_str(&text).unwrap();
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
    fn a_verdict_is_forgotten_when_it_is_told_to_be_and_when_it_is_old() {
        let verdicts = Verdicts::new();
        verdicts.keep(&server(), Dialect::LATEST_LEGACY);
        let old = Found {
            version: Dialect::LATEST_LEGACY.version.to_owned(),
            until: now() - 1,
        };
        let aged = Verdicts::new();
        aged.lock().insert(key(&server()), old);

        verdicts.forget("https://gateway.example:8443/old");

        assert!(!verdicts.is_legacy(&server(), &Dialects::all()));
        assert!(!aged.is_legacy(&server(), &Dialects::all()));
    }

    #[test]
    fn a_version_that_is_not_spoken_is_not_a_verdict() {
        let verdicts = Verdicts::new();

        verdicts.keep(&server(), Dialect::LATEST_LEGACY);

        let modern = Dialects::only(Dialect::is_modern);
        assert!(!verdicts.is_legacy(&server(), &modern));
    }
}
