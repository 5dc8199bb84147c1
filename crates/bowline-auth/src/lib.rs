//! OAuth 2.1 authorization for the Model Context Protocol: tokens for clients, token checks for resource servers.
//!
//! [`client`] obtains access tokens; its protocol logic is a state machine without I/O, and thin adapters send
//! requests, listen for redirects and store tokens. [`server`] verifies access tokens in a tower layer. Both work with
//! the crate [`bowline`].
//!
//! # Clients
//!
//! A call that the server refuses waits while the user signs in, and is then sent again. [`OAuth`](client::OAuth) also
//! supports clients without a user, and [stores](client::TokenStore) that several processes share.
//!
//! ```no_run
//! use bowline::Client;
//! use bowline_auth::client::{FileStore, Loopback, OAuth};
//!
//! # async fn example() -> bowline::Result<()> {
//! let url = "https://files.example/mcp";
//! let oauth = OAuth::new(url)
//!     .name("My editor")
//!     .user_agent(Loopback::new(|url| Ok(println!("Open {url} in your browser."))))
//!     .store(FileStore::new("my-editor/tokens"));
//! let client = Client::connect(url).authorizer(oauth).await?;
//! # Ok(()) }
//! ```
//!
//! # Servers
//!
//! [`ResourceServer`](server::ResourceServer) answers requests without a valid token with a challenge. Handlers get the
//! [`Principal`](bowline::exchange::Principal), and [`Tool::scopes`](bowline::Tool::scopes) requires scopes.
//!
//! ```no_run
//! use bowline_auth::server::{JwtVerifier, ResourceServer};
//!
//! # async fn example(server: bowline::Server) -> bowline::Result<()> {
//! let issuer = "https://id.example";
//! let verifier = JwtVerifier::discover(issuer)?;
//! let guard = ResourceServer::new("https://files.example/mcp", issuer, verifier)?;
//! let bound = server.http().bind("0.0.0.0:8000").await?;
//! bound.layer(guard.scopes(["files:read"])).serve().await
//! # }
//! ```
//!
//! # Feature flags
//!
//! - `keychain`: [`KeychainStore`](client::KeychainStore), tokens where the operating system keeps secrets.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod client;
pub mod server;

mod sanitize;

mod sync;

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/authorization.md")]
struct Guide;

/// Compiles the code blocks of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
