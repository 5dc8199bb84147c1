//! [`StoredCredentials`]: credentials in a store that several processes share, updated by compare-and-swap.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::credentials::{Credentials, RefreshClaim, Tokens};
use super::store::{SaveOutcome, TokenStore};
use super::time_and_randomness::TimeAndRandomness;
use super::{Error, Result};

/// The stored credentials under one key.
pub(crate) struct StoredCredentials {
    store: Arc<dyn TokenStore>,
    key: String,
    /// Identifies this client instance among those that refresh the token.
    name: String,
}

/// Whether this client may refresh a token.
pub(crate) enum RefreshTurn {
    /// Yes; other clients wait.
    Ours,
    /// No: the stored tokens are no longer those to refresh.
    Changed(Box<Credentials>),
}

impl StoredCredentials {
    pub(crate) fn new(store: Arc<dyn TokenStore>, key: String) -> Result<Self> {
        let name = time_and_randomness()?.random_token();
        Ok(Self { store, key, name })
    }

    pub(crate) async fn load(&self) -> Result<Option<Credentials>> {
        let loaded = self.store.load(&self.key).await;
        loaded.map_err(|source| Error::Application {
            what: "failed to read the token store",
            source,
        })
    }

    /// Applies `change` to the stored credentials. Runs `change` again if another process saved first.
    pub(crate) async fn update(
        &self,
        change: impl Fn(&mut Credentials) + Send,
    ) -> Result<Credentials> {
        for attempt in 0..MAX_ATTEMPTS {
            let stored = self.load().await?;
            let mut next = stored.clone().unwrap_or_default();
            change(&mut next);
            next.renewal = next.renewal.filter(|claim| claim.claimant != self.name);
            if stored.as_ref() == Some(&next) || self.replace(stored.as_ref(), &mut next).await? {
                return Ok(next);
            }
            pause(attempt).await?;
        }
        Err(Error::misuse(
            "too many conflicts in the token store; check that its `save` compares versions",
        ))
    }

    /// Waits until no other process refreshes the token, and claims the refresh.
    pub(crate) async fn claim_refresh(&self, ours: Option<&Tokens>) -> Result<RefreshTurn> {
        let deadline = Instant::now() + REFRESH_CLAIM_TIMEOUT;
        let mut attempt = 0;
        loop {
            let stored = self.load().await?;
            let mut next = stored.clone().unwrap_or_default();
            if next.tokens.as_ref() != ours {
                return Ok(RefreshTurn::Changed(Box::new(next)));
            }
            let now = TimeAndRandomness::seconds_now();
            let claim = next.renewal.as_ref();
            let others = claim.filter(|claim| claim.claimant != self.name && claim.until > now);
            // The deadline limits the wait if clocks differ.
            if others.is_none() || Instant::now() >= deadline {
                next.renewal = Some(RefreshClaim {
                    claimant: self.name.clone(),
                    until: now.saturating_add(REFRESH_CLAIM_TIMEOUT.as_secs()),
                });
                if self.replace(stored.as_ref(), &mut next).await? {
                    return Ok(RefreshTurn::Ours);
                }
            }
            pause(attempt).await?;
            attempt += 1;
        }
    }

    /// Removes the entry, even if it cannot be parsed.
    pub(crate) async fn remove(&self) -> Result<()> {
        let removed = self.store.remove(&self.key).await;
        removed.map_err(write_failed)
    }

    async fn replace(&self, stored: Option<&Credentials>, next: &mut Credentials) -> Result<bool> {
        next.version = time_and_randomness()?.random_token();
        let replaces = stored.map(Credentials::version);
        let saved = self.store.save(&self.key, next, replaces).await;
        Ok(saved.map_err(write_failed)? == SaveOutcome::Saved)
    }
}

fn write_failed(source: super::AppError) -> Error {
    Error::Application {
        what: "failed to write the token store",
        source,
    }
}

/// Waits for a random time with an exponentially growing limit, so that competing processes separate.
async fn pause(attempt: u32) -> Result<()> {
    let max = (FIRST_PAUSE * 2_u32.saturating_pow(attempt.min(5))).min(MAX_PAUSE);
    tokio::time::sleep(time_and_randomness()?.random_fraction_of(max)).await;
    Ok(())
}

fn time_and_randomness() -> Result<TimeAndRandomness> {
    TimeAndRandomness::now().map_err(|error| Error::Application {
        what: "failed to read randomness from the operating system",
        source: error.into(),
    })
}

/// How often an update is tried.
const MAX_ATTEMPTS: u32 = 50;
/// How long other processes wait for a refresh.
const REFRESH_CLAIM_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(250);
