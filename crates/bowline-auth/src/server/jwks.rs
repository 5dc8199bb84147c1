//! The keys of an issuer: fetched when needed, kept for a while, fetched again when one is not among them.
//!
//! ```text
//! find ──▶ none, or too old ──▶ fetch ──▶ look ──▶ found
//!      │                                    └─ not found, and not fetched a moment ago ──▶ fetch ──▶ look again
//!      ├─ 5 minutes old ──▶ fetch in the background, look meanwhile
//!      └─ 10 minutes old ──▶ fetch, wait for a second at most, look
//! ```
//!
//! Anybody can send a token with a made-up key id. So there is at most one fetch at a time and one in ten
//! seconds, however many ask; and it goes on if whoever caused it goes away. An issuer that fails is asked less
//! often each time, and one that hangs delays nobody who has a token that is signed with a known key.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Refused;
use super::algorithm::Algorithm;
use super::fetch::Fetch;
use super::jwk::{Jwk, Key};

/// The keys of one issuer.
pub(super) struct KeySet {
    place: Place,
    again_after: Duration,
    state: Mutex<State>,
}

/// Where the keys are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// At this URL.
    At(Uri),
    /// Where the metadata of the issuer say.
    OfIssuer(String),
}

#[derive(Default)]
struct State {
    keys: Vec<Key>,
    fetched: Option<Instant>,
    attempted: Option<Instant>,
    /// How many fetches have failed since one succeeded.
    failures: u32,
    /// Ends when the fetch that is under way does.
    under_way: Option<watch::Receiver<()>>,
}

impl KeySet {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            again_after: AGAIN_AFTER,
            state: Mutex::default(),
        }
    }

    /// The same keys, looked for again no sooner than this after the last time.
    pub(super) fn with_again_after(&self, again_after: Duration) -> Self {
        Self {
            again_after,
            ..Self::new(self.place.clone())
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The key for a signature of this kind, by its id if the token names one.
    ///
    /// # Cancel safety
    ///
    /// Safe: a fetch that was begun goes on, for all who wait for it.
    pub(super) async fn find(
        self: &Arc<Self>,
        fetch: &Fetch,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Key, Refused> {
        if self.is_older_than(USABLE_FOR) {
            self.refresh(fetch).await;
        } else if self.is_older_than(FRESH_FOR) {
            self.refresh_for_a_moment(fetch).await;
        } else if self.is_older_than(REFRESHED_AFTER) {
            drop(self.begin(fetch));
        }
        if self.is_older_than(USABLE_FOR) {
            return Err(Refused::unavailable(
                "the keys of the issuer cannot be fetched",
            ));
        }
        if let Some(key) = self.look(kid, algorithm) {
            return Ok(key);
        }
        self.refresh(fetch).await;
        let unknown =
            || Refused::invalid("the token is signed with a key that its issuer does not have");
        self.look(kid, algorithm).ok_or_else(unknown)
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let fetched = self.lock().fetched;
        fetched.is_none_or(|fetched| fetched.elapsed() >= age)
    }

    /// A token that names no key must leave no choice: trying all of them is work that anybody could cause.
    fn look(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Key> {
        let state = self.lock();
        let fitting =
            |key: &&Key| key.fits(algorithm) && (kid.is_none() || kid == key.kid.as_deref());
        let mut found = state.keys.iter().filter(fitting);
        let first = found.next()?;
        (kid.is_some() || found.next().is_none()).then(|| first.clone())
    }

    /// Fetches the keys, unless that was tried a moment ago; or waits for the fetch that is under way.
    async fn refresh(self: &Arc<Self>, fetch: &Fetch) {
        let under_way = self.begin(fetch);
        if let Some(mut under_way) = under_way {
            // Nothing is ever sent: it ends with its sender.
            let _ = under_way.changed().await;
        }
    }

    /// The same, but waits no longer than until [`MOMENT`] after the fetch began: there are keys to go on with.
    async fn refresh_for_a_moment(self: &Arc<Self>, fetch: &Fetch) {
        let Some(mut under_way) = self.begin(fetch) else {
            return;
        };
        let begun = self.lock().attempted.unwrap_or_else(Instant::now);
        // Nothing is ever sent: it ends with its sender, or with the time.
        let _ = tokio::time::timeout_at(begun + MOMENT, under_way.changed()).await;
    }

    fn begin(self: &Arc<Self>, fetch: &Fetch) -> Option<watch::Receiver<()>> {
        let mut state = self.lock();
        let is_going_on = |fetch: &&watch::Receiver<()>| fetch.has_changed().is_ok();
        if let Some(under_way) = state.under_way.as_ref().filter(is_going_on) {
            return Some(under_way.clone());
        }
        let again_after = self.again_after * 2_u32.saturating_pow(state.failures.min(16));
        let again_after = again_after.min(LONGEST_PAUSE.max(self.again_after));
        let is_too_soon = |at: Instant| at.elapsed() < again_after;
        if state.attempted.is_some_and(is_too_soon) {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        state.attempted = Some(Instant::now());
        state.under_way = Some(receiver.clone());
        drop(state);
        let (own, fetch) = (self.clone(), fetch.clone());
        // On its own, or whoever caused it could end it for everybody; it is over within its time limit.
        tokio::spawn(async move {
            let fetched = own.place.fetch(&fetch).await;
            own.finish(fetched);
            drop(sender);
        });
        Some(receiver)
    }

    fn finish(&self, fetched: Result<Vec<Key>, String>) {
        let mut state = self.lock();
        state.under_way = None;
        match fetched {
            Ok(keys) => {
                state.keys = keys;
                state.fetched = Some(Instant::now());
                state.failures = 0;
            }
            Err(why) => {
                // It may quote the issuer.
                let why = crate::text::readable(&why, 1000);
                state.failures = state.failures.saturating_add(1);
                tracing::warn!(why, "failed to fetch the keys of an issuer");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    async fn fetch(&self, fetch: &Fetch) -> Result<Vec<Key>, String> {
        let uri = match self {
            Self::At(uri) => uri.clone(),
            Self::OfIssuer(issuer) => discover(fetch, issuer).await?,
        };
        read(&fetch.document(&uri).await?)
    }
}

/// Where an issuer says that its keys are.
async fn discover(fetch: &Fetch, issuer: &str) -> Result<Uri, String> {
    #[derive(Deserialize)]
    struct Metadata {
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
        let metadata: Metadata =
            serde_json::from_slice(&document).map_err(|error| format!("{uri}: {error}"))?;
        if metadata.issuer != issuer {
            return Err(format!(
                "{uri} describes another issuer, {}",
                metadata.issuer
            ));
        }
        let keys = metadata.jwks_uri.parse();
        return keys.map_err(|_| format!("{uri}: its `jwks_uri` is no URL"));
    }
    Err(failure)
}

/// Where the metadata of an issuer may be, in the order in which to look.
fn well_known(issuer: &str) -> Result<Vec<Uri>, String> {
    let no_url = |_| format!("the issuer `{issuer}` is no URL");
    let parsed: Uri = issuer.parse().map_err(no_url)?;
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err(format!("the issuer `{issuer}` is no URL"));
    };
    let path = parsed.path().trim_end_matches('/');
    let origin = format!("{scheme}://{authority}");
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    let places = places.into_iter().map(Uri::try_from);
    places
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// The keys in a set that we can use. Others may be for somebody else.
pub(super) fn read(document: &[u8]) -> Result<Vec<Key>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }

    let set: Set =
        serde_json::from_slice(document).map_err(|error| format!("it is no key set: {error}"))?;
    if set.keys.len() > MOST_KEYS {
        return Err(format!("a key set has at most {MOST_KEYS} keys"));
    }
    let keys = set.keys.into_iter();
    let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.to_key());
    Ok(keys.collect())
}

const MOST_KEYS: usize = 100;
/// From when on keys are fetched again in the background.
const REFRESHED_AFTER: Duration = Duration::from_secs(5 * 60);
/// How long keys are used without looking again: a key that was withdrawn is believed for that long.
const FRESH_FOR: Duration = Duration::from_secs(10 * 60);
/// How long they are used if looking again fails.
const USABLE_FOR: Duration = Duration::from_secs(60 * 60);
/// How long somebody waits for newer keys who could do with the old ones.
const MOMENT: Duration = Duration::from_secs(1);
/// How long an issuer that fails is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// How soon after one fetch there may be another.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_looked_for_in_the_specified_order() {
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
    fn what_is_no_key_of_ours_is_passed_over_and_what_is_no_set_is_refused() {
        let one = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let mixed = format!(r#"{{"keys": [{one}, {{"kty": "oct", "k": "AAAA"}}, 7, {{}}]}}"#);
        let huge = format!(r#"{{"keys": [{}]}}"#, vec![one; MOST_KEYS + 1].join(","));

        assert_eq!(read(mixed.as_bytes()).map(|keys| keys.len()), Ok(1));
        assert!(read(huge.as_bytes()).is_err());
        assert!(read(b"[]").is_err());
    }
}
