//! [`KeychainStore`]: credentials in the keychain of the operating system.

use bowline::exchange::BoxFuture;
use keyring::{Entry, Error};
use zeroize::Zeroizing;

use super::{SaveOutcome, TokenStore, run_blocking};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;
use crate::sync::Mutex;

/// Stores credentials in the keychain of the operating system: the user's on macOS and Windows, the kernel keyring on
/// Linux, which is cleared by a reboot.
///
/// Keychains have no compare-and-swap: two processes that save at the same moment can replace a newer token with an
/// older one. Within one process this cannot happen. Use a [`FileStore`](super::FileStore) to share credentials between
/// processes.
///
/// Windows limits an entry to 2,560 bytes, which is too small for some tokens.
#[derive(Clone, Debug)]
pub struct KeychainStore {
    service: String,
}

impl KeychainStore {
    /// Creates a store with this service name, usually the name of the application. Users can see it.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
        }
    }

    /// Returns a function that opens the entry for a key.
    fn entry(&self, key: &str) -> impl FnOnce() -> Result<Entry, Error> + Send + 'static {
        let (service, key) = (self.service.clone(), key.to_owned());
        move || Entry::new(&service, &key)
    }
}

impl TokenStore for KeychainStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let entry = self.entry(key);
        run_blocking(move || read(&entry()?))
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>> {
        let entry = self.entry(key);
        let text = serde_json::to_string(credentials).map(Zeroizing::new);
        let replaces = replaces.map(str::to_owned);
        run_blocking(move || {
            let entry = entry()?;
            // The lock serializes saves of this process. Another process can still save between the comparison and the
            // write.
            let _lock = SAVE_LOCK.lock();
            let saved = SaveOutcome::compare_versions(read(&entry)?.as_ref(), replaces.as_deref());
            if saved == SaveOutcome::Saved {
                entry.set_password(&text?)?;
            }
            Ok(saved)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        let entry = self.entry(key);
        run_blocking(move || match entry()?.delete_credential() {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}

fn read(entry: &Entry) -> Result<Option<Credentials>, AppError> {
    match entry.get_password().map(Zeroizing::new) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(Error::NoEntry) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

static SAVE_LOCK: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use keyring::credential::{Credential, CredentialApi, CredentialBuilderApi};

    use super::*;

    type FakeEntries = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

    /// An in-memory keychain, for machines without one.
    struct FakeKeychain(FakeEntries);

    /// An entry of it.
    struct FakeEntry(FakeEntries, String);

    impl CredentialBuilderApi for FakeKeychain {
        fn build(
            &self,
            _: Option<&str>,
            service: &str,
            user: &str,
        ) -> keyring::Result<Box<Credential>> {
            Ok(Box::new(FakeEntry(
                self.0.clone(),
                format!("{service} {user}"),
            )))
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    impl CredentialApi for FakeEntry {
        fn set_secret(&self, secret: &[u8]) -> keyring::Result<()> {
            let mut entries = self.0.lock();
            entries.insert(self.1.clone(), secret.to_vec());
            Ok(())
        }

        fn get_secret(&self) -> keyring::Result<Vec<u8>> {
            let entries = self.0.lock();
            entries.get(&self.1).cloned().ok_or(Error::NoEntry)
        }

        fn delete_credential(&self) -> keyring::Result<()> {
            self.0.lock().remove(&self.1);
            Ok(())
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[tokio::test]
    async fn credentials_are_stored_per_server() {
        let entries = FakeEntries::default();
        keyring::set_default_credential_builder(Box::new(FakeKeychain(entries.clone())));
        let store = KeychainStore::new("editor");
        let credentials = Credentials {
            bound_to: Some("https://as.example".into()),
            ..Credentials::default()
        };

        let before = store.load("https://a.example/mcp").await.unwrap();
        let saved = store
            .save("https://a.example/mcp", &credentials, None)
            .await;
        let after = store.load("https://a.example/mcp").await.unwrap();
        let elsewhere = store.load("https://b.example/mcp").await.unwrap();

        let stale = store
            .save("https://a.example/mcp", &credentials, None)
            .await;

        assert_eq!(saved.unwrap(), SaveOutcome::Saved);
        assert_eq!(stale.unwrap(), SaveOutcome::Conflict);
        assert_eq!((before, elsewhere), (None, None));
        assert_eq!(after, Some(credentials));
        assert!(entries.lock().contains_key("editor https://a.example/mcp"));
    }
}
