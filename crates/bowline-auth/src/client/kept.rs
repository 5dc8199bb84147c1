//! The credentials in a store that other processes use as well.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::credentials::{Credentials, Renewal, Tokens};
use super::moment::Moment;
use super::store::{Saved, TokenStore};
use super::{Error, Result};

/// What is kept under one key, and changed by comparing versions.
pub(crate) struct Kept {
    store: Arc<dyn TokenStore>,
    key: String,
    /// Tells this client from all others that renew the token.
    name: String,
}

/// Whose turn it is to renew a token.
pub(crate) enum Turn {
    /// Ours: the others wait.
    Ours,
    /// Nobody's: other tokens are kept than those that were to be renewed, or none.
    Changed(Box<Credentials>),
}

impl Kept {
    pub(crate) fn new(store: Arc<dyn TokenStore>, key: String) -> Result<Self> {
        let name = moment()?.word();
        Ok(Self { store, key, name })
    }

    pub(crate) async fn load(&self) -> Result<Option<Credentials>> {
        let loaded = self.store.load(&self.key).await;
        loaded.map_err(|source| Error::Application {
            what: "failed to read the token store",
            source,
        })
    }

    /// Replaces what is kept by what `change` makes of it. Runs `change` again if somebody else was faster.
    pub(crate) async fn update(
        &self,
        change: impl Fn(&mut Credentials) + Send,
    ) -> Result<Credentials> {
        for attempt in 0..MAX_ATTEMPTS {
            let kept = self.load().await?;
            let mut next = kept.clone().unwrap_or_default();
            change(&mut next);
            next.renewal = next.renewal.filter(|renewal| renewal.by != self.name);
            if kept.as_ref() == Some(&next) || self.replace(kept.as_ref(), &mut next).await? {
                return Ok(next);
            }
            pause(attempt).await?;
        }
        Err(Error::misuse(
            "the token store keeps changing; does its `save` compare versions?",
        ))
    }

    /// Waits until no other process renews the token, and tells the others to wait for us.
    pub(crate) async fn take_turn(&self, ours: Option<&Tokens>) -> Result<Turn> {
        let deadline = Instant::now() + RENEWAL_LIMIT;
        let mut attempt = 0;
        loop {
            let kept = self.load().await?;
            let mut next = kept.clone().unwrap_or_default();
            if next.tokens.as_ref() != ours {
                return Ok(Turn::Changed(Box::new(next)));
            }
            let now = Moment::seconds_now();
            let other = next.renewal.as_ref();
            let other = other.filter(|other| other.by != self.name && other.until > now);
            // A clock that is wrong must not make us wait for ever.
            if other.is_none() || Instant::now() >= deadline {
                next.renewal = Some(Renewal {
                    by: self.name.clone(),
                    until: now.saturating_add(RENEWAL_LIMIT.as_secs()),
                });
                if self.replace(kept.as_ref(), &mut next).await? {
                    return Ok(Turn::Ours);
                }
            }
            pause(attempt).await?;
            attempt += 1;
        }
    }

    /// Removes everything, readable or not.
    pub(crate) async fn remove(&self) -> Result<()> {
        let removed = self.store.remove(&self.key).await;
        removed.map_err(write_failed)
    }

    async fn replace(&self, kept: Option<&Credentials>, next: &mut Credentials) -> Result<bool> {
        next.version = moment()?.word();
        let replaces = kept.map(Credentials::version);
        let saved = self.store.save(&self.key, next, replaces).await;
        Ok(saved.map_err(write_failed)? == Saved::Yes)
    }
}

fn write_failed(source: super::AppError) -> Error {
    Error::Application {
        what: "failed to write the token store",
        source,
    }
}

/// Waits a little, each time a little longer, and never as long as somebody else who waits.
async fn pause(attempt: u32) -> Result<()> {
    let most = (FIRST_PAUSE * 2_u32.saturating_pow(attempt.min(5))).min(LONGEST_PAUSE);
    tokio::time::sleep(moment()?.part_of(most)).await;
    Ok(())
}

fn moment() -> Result<Moment> {
    Moment::now().map_err(|error| Error::Application {
        what: "failed to read randomness from the operating system",
        source: error.into(),
    })
}

/// How often a change is tried.
const MAX_ATTEMPTS: u32 = 50;
/// How long others wait for a renewal.
const RENEWAL_LIMIT: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
