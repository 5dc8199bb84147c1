//! Where credentials are kept from one run of a program to the next.

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

/// Keeps credentials by key: one key for each server, or for each account at a server
/// ([`OAuth::account`](super::OAuth::account)).
///
/// Several processes may use one store. Credentials have a [version](Credentials::version), and [`save`](Self::save)
/// replaces only the version that its caller has seen, so that a process that was slow cannot put an old refresh
/// token in the place of a newer one. That is all the locking there is: who renews a token writes that into the
/// credentials first, and the others wait for the result.
///
/// What is kept is secret: whoever reads it can act in somebody's name.
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
    /// Returns what is kept under a key, if anything.
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>>;

    /// Keeps credentials if the version that is kept is `replaces`, or nothing is kept and that is `None`. The
    /// comparison and the change are one atomic operation.
    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Saved, AppError>>;

    /// Removes what is kept under a key, also if it cannot be read.
    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>>;
}

/// The outcome of [`TokenStore::save`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "either the version was the expected one or it was not"
)]
pub enum Saved {
    /// The credentials are kept.
    Yes,
    /// Another version is kept than the expected one, and stays.
    Conflict,
}

impl Saved {
    /// Compares the version that is kept with the expected one.
    fn if_same(kept: Option<&Credentials>, replaces: Option<&str>) -> Self {
        match kept.map(Credentials::version) == replaces {
            true => Self::Yes,
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
    ) -> BoxFuture<'a, Result<Saved, AppError>> {
        (**self).save(key, credentials, replaces)
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        (**self).remove(key)
    }
}

/// Runs blocking work on tokio's blocking pool.
fn off_the_runtime<T: Send + 'static>(
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

    async fn a_store_replaces_what_its_caller_has_seen(store: &dyn TokenStore) {
        let key = "https://a.example/mcp";
        assert_eq!(store.load(key).await.unwrap(), None);
        let unseen = store.save(key, &version("x"), Some("w")).await.unwrap();
        let first = store.save(key, &version("1"), None).await.unwrap();
        let blind = store.save(key, &version("2"), None).await.unwrap();
        let stale = store.save(key, &version("2"), Some("0")).await.unwrap();
        let kept = store.load(key).await.unwrap();
        let next = store.save(key, &version("2"), Some("1")).await.unwrap();

        assert_eq!((unseen, first), (Saved::Conflict, Saved::Yes));
        assert_eq!((blind, stale), (Saved::Conflict, Saved::Conflict));
        assert_eq!(kept, Some(version("1")));
        assert_eq!(next, Saved::Yes);
        assert_eq!(store.load("https://b.example/").await.unwrap(), None);
        store.remove(key).await.unwrap();
        store.remove(key).await.unwrap();
        assert_eq!(store.load(key).await.unwrap(), None);
    }

    #[tokio::test]
    async fn memory_replaces_what_its_caller_has_seen() {
        a_store_replaces_what_its_caller_has_seen(&MemoryStore::new()).await;
    }

    #[tokio::test]
    async fn files_replace_what_their_caller_has_seen() {
        let folder = std::env::temp_dir().join(format!("bowline-store-{}", std::process::id()));
        let store = FileStore::new(&folder);

        a_store_replaces_what_its_caller_has_seen(&store).await;

        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_many_who_replace_the_same_file_one_does() {
        let name = format!("bowline-store-race-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let mut seen = None;
        for round in 0..20 {
            let saving = (0..8).map(|writer| {
                // Each has a store of its own, as a process would.
                let (store, seen) = (FileStore::new(&folder), seen.clone());
                tokio::spawn(async move {
                    let next = version(&format!("{round}-{writer}"));
                    let saved = store.save("k", &next, seen.as_deref()).await.unwrap();
                    (saved == Saved::Yes).then_some(next.version)
                })
            });
            let saving: Vec<_> = saving.collect();
            let mut won = Vec::new();
            for saved in saving {
                won.extend(saved.await.unwrap());
            }

            assert_eq!(won.len(), 1, "in round {round}: {won:?}");
            let kept = FileStore::new(&folder).load("k").await.unwrap().unwrap();
            assert_eq!(kept.version, won[0]);
            seen = won.pop();
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
