//! Credentials that are forgotten when the program ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::exchange::BoxFuture;

use super::{Saved, TokenStore};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps credentials in memory. Of use where several clients share them, in an `Arc`.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<String, Credentials>>);

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Credentials>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let found = self.lock().get(key).cloned();
        Box::pin(async { Ok(found) })
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Saved, AppError>> {
        let mut all = self.lock();
        let saved = Saved::if_same(all.get(key), replaces);
        if saved == Saved::Yes {
            all.insert(key.to_owned(), credentials.clone());
        }
        Box::pin(async move { Ok(saved) })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        self.lock().remove(key);
        Box::pin(async { Ok(()) })
    }
}
