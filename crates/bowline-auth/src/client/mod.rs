//! The OAuth client: obtains, stores and refreshes access tokens.
//!
//! Pass an [`OAuth`] to [`ClientBuilder::authorizer`](bowline::client::ClientBuilder::authorizer). It discovers the
//! server's authorization server, sends the user to it if the grant requires consent, refreshes tokens before they
//! expire, and requests further scopes on a scope challenge.
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
//! # Grants
//!
//! | access is granted by | configure |
//! |---|---|
//! | a user with a browser on this machine | [`OAuth::user_agent`] with a [`Loopback`] |
//! | a user in a web view that the application controls | [`OAuth::user_agent`] with an [`EmbeddedBrowser`] |
//! | a user of a web application | [`OAuth::begin`] and [`OAuth::complete`] |
//! | the client's own credentials | [`OAuth::client`] and [`OAuth::client_credentials`] |
//! | a workload identity: a JWT from the platform | [`OAuth::client`] and [`OAuth::workload`] |
//! | a company's identity provider, on behalf of a user | [`OAuth::client`] and [`OAuth::enterprise`] |
//! | the access token of a user of this server, which calls another one | [`TokenExchange`] |
//!
//! For a client that is already registered, set [`OAuth::client`] with its issuer; its credentials are sent to that
//! issuer only. For a client ID metadata document, set [`OAuth::client_metadata`]. Otherwise the client registers
//! itself (dynamic client registration).
//!
//! # Calls that are refused
//!
//! A call that is refused with 401, or 403 for insufficient scope, waits for a token and is sent again. Its timeouts
//! are paused meanwhile; [`OAuth::prompt_timeout`] limits the time for the user's decision. If no token can be
//! obtained, the call fails with [`bowline::Error::Unauthorized`], which contains the server's challenges and an
//! [`Error`] as its source.
//!
//! Dropping the last call that waits for the user ends the authorization and closes the loopback listener. A token
//! refresh always runs to completion, because the server may already have invalidated the old refresh token.
//!
//! # Trust
//!
//! A server is trusted about itself only, and an issuer about itself only. URLs that they name must be public and use
//! `https://`; loopback addresses are allowed if the server itself is on this machine, private networks with
//! [`OAuth::allow_private_addresses`]. A token is sent to the origin of its server only, and credentials from one
//! issuer are never sent to another. Tokens are bound to a key (DPoP) if the server requires it.

pub(crate) mod address_policy;

mod application;
pub use application::{IdentityProvider, RegisteredClient};

mod credentials;
pub use credentials::Credentials;

mod credentials_diff;

mod dpop;

mod error;
pub use error::{Error, Result};

pub(crate) mod fetch;

mod flow;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

mod jwt;
pub use jwt::SigningKey;

mod loopback;
pub use loopback::Loopback;

mod metadata;

mod oauth;
pub use oauth::OAuth;

mod prompt_limiter;

mod runtime;
pub use runtime::PendingAuthorization;

mod scopes;

mod secret;
pub use secret::Secret;

mod store;
#[cfg(feature = "keychain")]
pub use store::KeychainStore;
pub use store::{FileStore, MemoryStore, SaveOutcome, TokenStore};

mod stored_credentials;

mod time_and_randomness;

mod token_endpoint;

mod token_exchange;
pub use token_exchange::{SubjectToken, TokenExchange, TokenExchangeAuthorizer};

mod user_agent;
pub use user_agent::{AppError, AuthorizationPrompt, EmbeddedBrowser, UserAgent};
