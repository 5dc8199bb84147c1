//! [`MemoryStore`]: credentials in memory.

use std::collections::BTreeMap;

use bowline::exchange::BoxFuture;

use super::{SaveOutcome, TokenStore};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;
use crate::sync::Mutex;

/// Stores credentials in memory until the program ends. Put it in an `Arc` to share it between clients.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<String, Credentials>>);

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let found = self.0.lock().get(key).cloned();
        Box::pin(async { Ok(found) })
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>> {
        let mut all = self.0.lock();
        let saved = SaveOutcome::compare_versions(all.get(key), replaces);
        if saved == SaveOutcome::Saved {
            all.insert(key.to_owned(), credentials.clone());
        }
        Box::pin(async move { Ok(saved) })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        self.0.lock().remove(key);
        Box::pin(async { Ok(()) })
    }
}
