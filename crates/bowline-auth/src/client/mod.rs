//! How a client comes by a token, and keeps it.
//!
//! [`OAuth`] is what an application hands to [`Connect::authorizer`](bowline::client::Connect::authorizer). It
//! finds out who issues tokens for the server, has a person agree if one has to, renews what expires, and asks
//! again when a server wants more.
//!
//! ```no_run
//! use bowline::Client;
//! use bowline_auth::client::{FileStore, Loopback, OAuth};
//!
//! # async fn example() -> bowline::Result<()> {
//! let url = "https://example.com/mcp";
//! let oauth = OAuth::new(url)
//!     .name("My editor")
//!     .user_agent(Loopback::new(|url| {
//!         println!("Open {url} in your browser.");
//!         Ok(())
//!     }))
//!     .store(FileStore::new("my-editor/tokens"));
//! let client = Client::connect(url).authorizer(oauth).await?;
//! # Ok(()) }
//! ```

mod application;
pub use application::{IdentityProvider, RegisteredClient};

mod credentials;
pub use credentials::Credentials;

mod dpop;

mod error;
pub use error::{Error, Result};

pub(crate) mod fetch;

mod flow;

pub(crate) mod guard;

mod jwt;
pub use jwt::SigningKey;

mod loopback;
pub use loopback::Loopback;

mod metadata;

mod moment;

mod oauth;
pub use oauth::OAuth;

mod runtime;

mod scopes;

mod secret;
pub use secret::Secret;

mod store;
#[cfg(feature = "keychain")]
pub use store::KeychainStore;
pub use store::{FileStore, MemoryStore, TokenStore};

mod user_agent;
pub use user_agent::{AppError, OwnBrowser, UserAgent, Visit};
