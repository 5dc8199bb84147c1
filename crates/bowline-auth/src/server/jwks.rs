//! [`KeySet`]: the JWK set of an issuer, fetched on demand and cached.
//!
//! ```text
//! find ─┬─ no keys, or older than 1 h ──▶ fetch and wait ──────────┐
//!       ├─ older than 10 min ──▶ fetch and wait for at most 1 s ───┼─▶ look ─┬─▶ found
//!       └─ older than 5 min ──▶ fetch in the background ───────────┘         └─▶ unknown key: fetch, look again
//! ```
//!
//! Any client can send a token with a made-up `kid`, so fetches are limited: one at a time, and one in ten seconds,
//! doubled with each failure. A fetch continues if the request that caused it is dropped. An unresponsive issuer
//! delays tokens that are signed with a cached key by at most a second.

use std::sync::Arc;
use std::time::Duration;

use bowline::http::RedactedUrl;
use http::Uri;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::VerifyError;
use super::algorithm::Algorithm;
use super::fetch::IssuerFetch;
use super::jwk::{Jwk, VerifyingKey};
use crate::sanitize::sanitize;
use crate::sync::Mutex;

/// The JWK set of one issuer.
pub(super) struct KeySet {
    location: KeySetLocation,
    min_fetch_interval: Duration,
    state: Mutex<KeySetState>,
}

/// Where the JWK set is.
#[derive(Clone, Debug)]
pub(super) enum KeySetLocation {
    /// At this URL.
    At(Uri),
    /// At the `jwks_uri` in the metadata of this issuer.
    FromMetadata(String),
}

#[derive(Default)]
struct KeySetState {
    keys: Vec<VerifyingKey>,
    fetched: Option<Instant>,
    attempted: Option<Instant>,
    /// The number of failed fetches since the last success.
    failures: u32,
    /// Closed when the fetch in progress ends.
    running_fetch: Option<watch::Receiver<()>>,
}

impl KeySet {
    pub(super) fn new(location: KeySetLocation) -> Self {
        Self {
            location,
            min_fetch_interval: MIN_FETCH_INTERVAL,
            state: Mutex::default(),
        }
    }

    /// Returns an empty set of the same issuer, with another minimum interval between fetches.
    pub(super) fn with_min_fetch_interval(&self, min_fetch_interval: Duration) -> Self {
        Self {
            min_fetch_interval,
            ..Self::new(self.location.clone())
        }
    }

    pub(super) fn location(&self) -> &KeySetLocation {
        &self.location
    }

    /// Returns the key for a signature with this algorithm, by `kid` if the token has one.
    ///
    /// # Cancel safety
    ///
    /// Safe: a fetch in progress continues for all that wait for it.
    pub(super) async fn find(
        self: &Arc<Self>,
        fetch: &IssuerFetch,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<VerifyingKey, VerifyError> {
        if self.is_older_than(USABLE_FOR) {
            self.refresh(fetch).await;
        } else if self.is_older_than(FRESH_FOR) {
            self.refresh_with_timeout(fetch).await;
        } else if self.is_older_than(BACKGROUND_REFRESH_AFTER) {
            drop(self.start_fetch(fetch));
        }
        if self.is_older_than(USABLE_FOR) {
            return Err(VerifyError::unavailable(
                "failed to fetch the issuer's keys",
            ));
        }
        if let Some(key) = self.cached_key(kid, algorithm) {
            return Ok(key);
        }
        self.refresh(fetch).await;
        let unknown = || VerifyError::invalid("the signing key is not in the issuer's key set");
        self.cached_key(kid, algorithm).ok_or_else(unknown)
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let fetched = self.state.lock().fetched;
        fetched.is_none_or(|fetched| fetched.elapsed() >= age)
    }

    /// Returns the matching key. Without a `kid` the match must be unique: trying several keys would let unsigned
    /// requests cause work.
    fn cached_key(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<VerifyingKey> {
        let state = self.state.lock();
        let matches = |key: &&VerifyingKey| {
            key.fits(algorithm) && (kid.is_none() || kid == key.kid.as_deref())
        };
        let mut found = state.keys.iter().filter(matches);
        let first = found.next()?;
        (kid.is_some() || found.next().is_none()).then(|| first.clone())
    }

    /// Fetches the keys and waits, or waits for the fetch in progress. Returns immediately within the minimum interval.
    async fn refresh(self: &Arc<Self>, fetch: &IssuerFetch) {
        let running = self.start_fetch(fetch);
        if let Some(mut running) = running {
            // The channel carries no values: it is closed when the sender is dropped.
            let _ = running.changed().await;
        }
    }

    /// Like [`refresh`](Self::refresh), but waits at most [`MAX_REFRESH_WAIT`], because the cached keys are usable.
    async fn refresh_with_timeout(self: &Arc<Self>, fetch: &IssuerFetch) {
        let Some(mut running) = self.start_fetch(fetch) else {
            return;
        };
        let started = self.state.lock().attempted.unwrap_or_else(Instant::now);
        // As above: only closing, or the timeout, ends the wait.
        let _ = tokio::time::timeout_at(started + MAX_REFRESH_WAIT, running.changed()).await;
    }

    fn start_fetch(self: &Arc<Self>, fetch: &IssuerFetch) -> Option<watch::Receiver<()>> {
        let mut state = self.state.lock();
        let is_running = |fetch: &&watch::Receiver<()>| fetch.has_changed().is_ok();
        if let Some(running) = state.running_fetch.as_ref().filter(is_running) {
            return Some(running.clone());
        }
        let interval = self.min_fetch_interval * 2_u32.saturating_pow(state.failures.min(16));
        let interval = interval.min(MAX_FETCH_INTERVAL.max(self.min_fetch_interval));
        let is_too_soon = |at: Instant| at.elapsed() < interval;
        if state.attempted.is_some_and(is_too_soon) {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        state.attempted = Some(Instant::now());
        state.running_fetch = Some(receiver.clone());
        drop(state);
        let (own, fetch) = (self.clone(), fetch.clone());
        // Spawned, or dropping the request that caused the fetch would end it for all; its time limit bounds the task.
        tokio::spawn(async move {
            let fetched = own.location.fetch(&fetch).await;
            own.finish_fetch(fetched);
            drop(sender);
        });
        Some(receiver)
    }

    fn finish_fetch(&self, fetched: Result<Vec<VerifyingKey>, String>) {
        let mut state = self.state.lock();
        state.running_fetch = None;
        match fetched {
            Ok(keys) => {
                state.keys = keys;
                state.fetched = Some(Instant::now());
                state.failures = 0;
            }
            Err(why) => {
                // It may quote the issuer's response.
                let why = sanitize(&why, 1000);
                state.failures = state.failures.saturating_add(1);
                tracing::warn!(why, "failed to fetch the keys of an issuer");
            }
        }
    }
}

impl KeySetLocation {
    async fn fetch(&self, fetch: &IssuerFetch) -> Result<Vec<VerifyingKey>, String> {
        let uri = match self {
            Self::At(uri) => uri.clone(),
            Self::FromMetadata(issuer) => discover(fetch, issuer).await?,
        };
        parse_jwk_set(&fetch.document(&uri).await?)
    }
}

/// Returns the `jwks_uri` of an issuer.
async fn discover(fetch: &IssuerFetch, issuer: &str) -> Result<Uri, String> {
    #[derive(Deserialize)]
    struct IssuerMetadata {
        issuer: String,
        jwks_uri: String,
    }

    let mut failure = String::new();
    for uri in well_known(issuer)? {
        let document = match fetch.document(&uri).await {
            Ok(document) => document,
            Err(why) => {
                failure = why;
                continue;
            }
        };
        let shown = RedactedUrl::new(&uri);
        let metadata: IssuerMetadata =
            serde_json::from_slice(&document).map_err(|error| format!("{shown}: {error}"))?;
        if metadata.issuer != issuer {
            return Err(format!(
                "{shown} describes another issuer, `{}`",
                RedactedUrl::new(&metadata.issuer)
            ));
        }
        let keys = metadata.jwks_uri.parse();
        return keys.map_err(|_| format!("the `jwks_uri` of {shown} is not a URL"));
    }
    Err(failure)
}

/// Returns the well-known metadata URLs of an issuer, in the order of the specification.
fn well_known(issuer: &str) -> Result<Vec<Uri>, String> {
    let no_url = || format!("the issuer `{}` is not a URL", RedactedUrl::new(issuer));
    let parsed: Uri = issuer.parse().map_err(|_| no_url())?;
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err(no_url());
    };
    let path = parsed.path().trim_end_matches('/');
    let origin = format!("{scheme}://{authority}");
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    let urls = urls.into_iter().map(Uri::try_from);
    urls.collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Parses a JWK set. Keys of unsupported types are skipped.
pub(super) fn parse_jwk_set(document: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    #[derive(Deserialize)]
    struct JwkSet {
        keys: Vec<serde_json::Value>,
    }

    let set: JwkSet =
        serde_json::from_slice(document).map_err(|error| format!("not a JWK set: {error}"))?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("the JWK set exceeds {MAX_KEYS} keys"));
    }
    let keys = set.keys.into_iter();
    let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.to_key());
    Ok(keys.collect())
}

const MAX_KEYS: usize = 100;
/// The age at which keys are fetched again in the background.
const BACKGROUND_REFRESH_AFTER: Duration = Duration::from_secs(5 * 60);
/// The age at which a request waits for newer keys: the longest time that a withdrawn key stays trusted.
const FRESH_FOR: Duration = Duration::from_secs(10 * 60);
/// The age up to which keys are used while fetching fails.
const USABLE_FOR: Duration = Duration::from_secs(60 * 60);
/// How long a request waits for newer keys when cached ones are usable.
const MAX_REFRESH_WAIT: Duration = Duration::from_secs(1);
/// The longest interval between fetches after failures.
const MAX_FETCH_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The minimum interval between fetches.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_urls_are_in_the_specified_order() {
        let plain = well_known("https://id.example/").unwrap();
        let with_path = well_known("https://id.example/tenant").unwrap();

        assert_eq!(
            plain,
            [
                "https://id.example/.well-known/oauth-authorization-server",
                "https://id.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            with_path,
            [
                "https://id.example/.well-known/oauth-authorization-server/tenant",
                "https://id.example/.well-known/openid-configuration/tenant",
                "https://id.example/tenant/.well-known/openid-configuration",
            ]
        );
        assert!(well_known("id.example").is_err());
    }

    #[test]
    fn unsupported_keys_are_skipped_and_malformed_sets_refused() {
        let one = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let mixed = format!(r#"{{"keys": [{one}, {{"kty": "oct", "k": "AAAA"}}, 7, {{}}]}}"#);
        let huge = format!(r#"{{"keys": [{}]}}"#, vec![one; MAX_KEYS + 1].join(","));

        assert_eq!(
            parse_jwk_set(mixed.as_bytes()).map(|keys| keys.len()),
            Ok(1)
        );
        assert!(parse_jwk_set(huge.as_bytes()).is_err());
        assert!(parse_jwk_set(b"[]").is_err());
    }
}
