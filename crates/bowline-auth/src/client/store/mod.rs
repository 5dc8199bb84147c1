//! Where credentials are kept from one run of a program to the next.

mod file;
pub use file::FileStore;

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
