//! Credentials where the operating system keeps secrets.

use bowline::exchange::BoxFuture;
use keyring::{Entry, Error};

use super::{TokenStore, off_the_runtime};
use crate::client::credentials::Credentials;
use crate::client::user_agent::AppError;

/// Keeps the credentials for each server in the operating system's keychain: that of the user on macOS and
/// Windows, and on Linux that of the kernel, which forgets them when the machine is started anew.
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
    fn entry(&self, server: &str) -> impl FnOnce() -> Result<Entry, Error> + Send + 'static {
        let (service, server) = (self.service.clone(), server.to_owned());
        move || Entry::new(&service, &server)
    }
}

impl TokenStore for KeychainStore {
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        let entry = self.entry(server);
        off_the_runtime(move || match entry()?.get_password() {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    fn save<'a>(
        &'a self,
        server: &'a str,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<(), AppError>> {
        let (entry, text) = (self.entry(server), serde_json::to_string(credentials));
        off_the_runtime(move || Ok(entry()?.set_password(&text?)?))
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

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
        let saved = store.save("https://a.example/mcp", &credentials).await;
        let after = store.load("https://a.example/mcp").await.unwrap();
        let elsewhere = store.load("https://b.example/mcp").await.unwrap();

        assert!(saved.is_ok());
        assert_eq!((before, elsewhere), (None, None));
        assert_eq!(after, Some(credentials));
        assert!(
            kept.lock()
                .unwrap()
                .contains_key("editor https://a.example/mcp")
        );
    }
}
