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
//!
//! # Who has to agree
//!
//! | whose right it is | what to say |
//! |---|---|
//! | a person's, who has a browser on this machine | [`OAuth::user_agent`] with a [`Loopback`] |
//! | a person's, and the application sees where the browser goes | [`OAuth::user_agent`] with an [`OwnBrowser`] |
//! | a person's, who comes back to a web application | [`OAuth::begin`] and [`OAuth::complete`] |
//! | the application's own | [`OAuth::client`] and [`OAuth::client_credentials`] |
//! | that of whatever runs the application, which gives it a JWT | [`OAuth::client`] and [`OAuth::workload`] |
//! | a person's, for whom a company's identity provider vouches | [`OAuth::client`] and [`OAuth::enterprise`] |
//!
//! An authorization server has to know the application. If it was registered there by hand, say so with
//! [`OAuth::client`], together with the issuer: what proves who the application is goes there and nowhere else; if it publishes a document about itself, with [`OAuth::client_metadata`]; otherwise it is
//! registered on the way.
//!
//! # What a call sees
//!
//! Nothing, but that it takes longer. A call that is refused waits, and its timeouts do not run, for people take
//! their time; [`OAuth::patience`] is how much of it. It is then sent again. If there is no token to be had, the
//! call fails with [`bowline::Error::Unauthorized`], which carries what the server asked for, and of which an
//! [`Error`] is the source.
//!
//! Letting go of a call lets go of the question: if no other call waits for it, the listener is closed and the
//! person who comes back finds nobody. A token that is being renewed is renewed nevertheless, because the old
//! one may be used up.
//!
//! # Whom it trusts
//!
//! The server's own words as far as they concern the server, and an issuer's as far as they concern that issuer.
//! Addresses that they name are visited if they are public and begin with `https://`; those on this machine only
//! if the server is on it too, and those in private networks with [`OAuth::allow_private_addresses`]. A token is
//! shown to the server that it is for, and what one issuer gave is never shown to another. Tokens are bound to a
//! key (DPoP) where a server asks for that.

mod application;
pub use application::{IdentityProvider, RegisteredClient};

mod credentials;
pub use credentials::Credentials;

mod dpop;

mod error;
pub use error::{Error, Result};

pub(crate) mod fetch;

mod flow;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

pub(crate) mod guard;

mod jwt;
pub use jwt::SigningKey;

mod kept;

mod loopback;
pub use loopback::Loopback;

mod merge;

mod metadata;

mod moment;

mod oauth;
pub use oauth::OAuth;

mod prompts;

mod runtime;
pub use runtime::PendingAuthorization;

mod scopes;

mod secret;
pub use secret::Secret;

mod store;
#[cfg(feature = "keychain")]
pub use store::KeychainStore;
pub use store::{FileStore, MemoryStore, Saved, TokenStore};

mod user_agent;
pub use user_agent::{AppError, OwnBrowser, UserAgent, Visit};
