//! Credentials where the operating system keeps secrets.

use std::sync::{Mutex, PoisonError};

use bowline::exchange::BoxFuture;
use keyring::{Entry, Error};
use zeroize::Zeroizing;

use super::{Saved, TokenStore, off_the_runtime};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps the credentials for each server in the operating system's keychain: that of the user on macOS and
/// Windows, and on Linux that of the kernel, which forgets them when the machine is started anew.
///
/// Within one process a token that is newer is never replaced by an older one; two processes that save within the same
/// moment may do it, because keychains cannot compare. A [`FileStore`](super::FileStore) has no such moment.
///
/// Windows keeps at most 2,560 bytes for each server, which is not enough for some tokens.
#[derive(Clone, Debug)]
pub struct KeychainStore {
    service: String,
}

impl KeychainStore {
    /// Keeps credentials under this name, which people may see: that of the application.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
        }
    }

    /// Where the credentials for a server are.
    fn entry(&self, key: &str) -> impl FnOnce() -> Result<Entry, Error> + Send + 'static {
        let (service, key) = (self.service.clone(), key.to_owned());
        move || Entry::new(&service, &key)
    }
}

impl TokenStore for KeychainStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let entry = self.entry(key);
        off_the_runtime(move || read(&entry()?))
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Saved, AppError>> {
        let entry = self.entry(key);
        let text = serde_json::to_string(credentials).map(Zeroizing::new);
        let replaces = replaces.map(str::to_owned);
        off_the_runtime(move || {
            let entry = entry()?;
            // Keychains compare nothing. Within this process one does it at a time; between processes there is a
            // moment in which both may find the same version.
            let _locked = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
            let saved = Saved::if_same(read(&entry)?.as_ref(), replaces.as_deref());
            if saved == Saved::Yes {
                entry.set_password(&text?)?;
            }
            Ok(saved)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        let entry = self.entry(key);
        off_the_runtime(move || match entry()?.delete_credential() {
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

static SAVING: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use keyring::credential::{Credential, CredentialApi, CredentialBuilderApi};

    use super::*;

    type Kept = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

    /// A keychain in memory, for machines that have none.
    struct Keychain(Kept);

    /// One entry of it.
    struct Place(Kept, String);

    impl CredentialBuilderApi for Keychain {
        fn build(
            &self,
            _: Option<&str>,
            service: &str,
            user: &str,
        ) -> keyring::Result<Box<Credential>> {
            Ok(Box::new(Place(self.0.clone(), format!("{service} {user}"))))
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    impl CredentialApi for Place {
        fn set_secret(&self, secret: &[u8]) -> keyring::Result<()> {
            let mut kept = self.0.lock().unwrap();
            kept.insert(self.1.clone(), secret.to_vec());
            Ok(())
        }

        fn get_secret(&self) -> keyring::Result<Vec<u8>> {
            let kept = self.0.lock().unwrap();
            kept.get(&self.1).cloned().ok_or(Error::NoEntry)
        }

        fn delete_credential(&self) -> keyring::Result<()> {
            self.0.lock().unwrap().remove(&self.1);
            Ok(())
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[tokio::test]
    async fn what_is_kept_for_a_server_is_found_for_that_server() {
        let kept = Kept::default();
        keyring::set_default_credential_builder(Box::new(Keychain(kept.clone())));
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

        assert_eq!(saved.unwrap(), Saved::Yes);
        assert_eq!(stale.unwrap(), Saved::Conflict);
        assert_eq!((before, elsewhere), (None, None));
        assert_eq!(after, Some(credentials));
        assert!(
            kept.lock()
                .unwrap()
                .contains_key("editor https://a.example/mcp")
        );
    }
}
