//! Credentials that are forgotten when the program ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bowline::exchange::BoxFuture;

use super::TokenStore;
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps credentials in memory. Of use where several clients share them.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<String, Credentials>>);

impl MemoryStore {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(server).cloned();
        Box::pin(async { Ok(found) })
    }

    fn save<'a>(
        &'a self,
        server: &'a str,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<(), AppError>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(server.to_owned(), credentials.clone());
        Box::pin(async { Ok(()) })
    }
}
