//! Where credentials are kept from one run of a program to the next.

mod file;
pub use file::FileStore;

#[cfg(feature = "keychain")]
mod keychain;
#[cfg(feature = "keychain")]
pub use keychain::KeychainStore;
mod memory;
pub use memory::MemoryStore;

use bowline::exchange::BoxFuture;

use super::credentials::Credentials;
use super::user_agent::AppError;

/// Keeps credentials, by the address of the server that they are for.
///
/// What is kept is secret: whoever reads it can act in somebody's name.
pub trait TokenStore: Send + Sync + 'static {
    /// What is kept for a server, if anything.
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>>;

    /// Keeps credentials for a server, in place of those before.
    fn save<'a>(
        &'a self,
        server: &'a str,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<(), AppError>>;
}

/// Does what may take its time where it holds nobody up.
fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> BoxFuture<'static, Result<T, AppError>> {
    Box::pin(async { tokio::task::spawn_blocking(work).await? })
}
