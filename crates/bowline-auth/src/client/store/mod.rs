//! [`TokenStore`]: where credentials persist between runs of a program.

mod file;
pub use file::FileStore;

#[cfg(feature = "keychain")]
mod keychain;
#[cfg(feature = "keychain")]
pub use keychain::KeychainStore;
mod memory;
pub use memory::MemoryStore;

use std::sync::Arc;

use bowline::exchange::BoxFuture;

use super::credentials::Credentials;
use super::user_agent::AppError;

/// Stores credentials by key: one key per server, or per account at a server
/// ([`OAuth::account`](super::OAuth::account)).
///
/// Several processes can share a store. Credentials have a [version](Credentials::version), and [`save`](Self::save)
/// is a compare-and-swap on it, so that a slow process cannot replace a newer refresh token with an older one. No other
/// locking is needed: a process that refreshes a token records that in the credentials, and the others wait.
///
/// The credentials are secret: they grant access on behalf of the user.
///
/// # Examples
///
/// In SQL, `save` is one statement that reports how many rows it changed:
///
/// ```sql
/// UPDATE tokens SET version = :new, credentials = :json WHERE key = :key AND version = :replaces
/// INSERT INTO tokens (key, version, credentials) VALUES (:key, :new, :json) ON CONFLICT DO NOTHING -- replaces nothing
/// ```
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the stored credentials, if there are any.
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>>;

    /// Stores credentials if the stored version is `replaces`, or if the key is absent and `replaces` is `None`. The
    /// comparison and the write must be atomic.
    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>>;

    /// Removes the entry, even if its content cannot be parsed.
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>>;
}

/// The outcome of [`TokenStore::save`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the version matched or it did not")]
pub enum SaveOutcome {
    /// The credentials are stored.
    Saved,
    /// The stored version is not `replaces`; the entry is unchanged.
    Conflict,
}

impl SaveOutcome {
    /// Compares the stored version with the expected one.
    fn compare_versions(stored: Option<&Credentials>, replaces: Option<&str>) -> Self {
        match stored.map(Credentials::version) == replaces {
            true => Self::Saved,
            false => Self::Conflict,
        }
    }
}

impl<S: TokenStore + ?Sized> TokenStore for Arc<S> {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        (**self).load(key)
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>> {
        (**self).save(key, credentials, replaces)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        (**self).remove(key)
    }
}

/// Runs blocking work on tokio's blocking pool.
fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> BoxFuture<'static, Result<T, AppError>> {
    Box::pin(async { tokio::task::spawn_blocking(work).await? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str) -> Credentials {
        Credentials {
            version: version.into(),
            ..Credentials::default()
        }
    }

    async fn save_compares_versions(store: &dyn TokenStore) {
        let key = "https://a.example/mcp";
        assert_eq!(store.load(key).await.unwrap(), None);
        let unseen = store.save(key, &version("x"), Some("w")).await.unwrap();
        let first = store.save(key, &version("1"), None).await.unwrap();
        let blind = store.save(key, &version("2"), None).await.unwrap();
        let stale = store.save(key, &version("2"), Some("0")).await.unwrap();
        let stored = store.load(key).await.unwrap();
        let next = store.save(key, &version("2"), Some("1")).await.unwrap();

        assert_eq!((unseen, first), (SaveOutcome::Conflict, SaveOutcome::Saved));
        assert_eq!(
            (blind, stale),
            (SaveOutcome::Conflict, SaveOutcome::Conflict)
        );
        assert_eq!(stored, Some(version("1")));
        assert_eq!(next, SaveOutcome::Saved);
        assert_eq!(store.load("https://b.example/").await.unwrap(), None);
        store.remove(key).await.unwrap();
        store.remove(key).await.unwrap();
        assert_eq!(store.load(key).await.unwrap(), None);
    }

    #[tokio::test]
    async fn memory_store_compares_versions() {
        save_compares_versions(&MemoryStore::new()).await;
    }

    #[tokio::test]
    async fn file_store_compares_versions() {
        let folder = std::env::temp_dir().join(format!("bowline-store-{}", std::process::id()));
        let store = FileStore::new(&folder);

        save_compares_versions(&store).await;

        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_several_concurrent_saves_succeeds() {
        let name = format!("bowline-store-race-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut seen = None;
        for round in 0..20 {
            let saving = (0..8).map(|writer| {
                // One store per writer, as with separate processes.
                let (store, seen) = (FileStore::new(&folder), seen.clone());
                tokio::spawn(async move {
                    let next = version(&format!("{round}-{writer}"));
                    let saved = store.save("k", &next, seen.as_deref()).await.unwrap();
                    (saved == SaveOutcome::Saved).then_some(next.version)
                })
            });
            let saving: Vec<_> = saving.collect();
            let mut saved_versions = Vec::new();
            for saved in saving {
                saved_versions.extend(saved.await.unwrap());
            }

            assert_eq!(
                saved_versions.len(),
                1,
                "in round {round}: {saved_versions:?}"
            );
            let stored = FileStore::new(&folder).load("k").await.unwrap().unwrap();
            assert_eq!(stored.version, saved_versions[0]);
            seen = saved_versions.pop();
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
