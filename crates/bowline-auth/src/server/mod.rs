//! The resource server: a layer that lets in whoever brings a token that is meant for this server.
//!
//! ```text
//! request ──▶ credential ──▶ TokenVerifier ──▶ meant for us? still good? ──▶ its key proven? ──▶ the server
//!    │             │               │                     │                         │
//!    │             └───────────────┴── 401, with where to get one ─────────────────┘
//!    └─ the well-known path ──▶ the metadata document
//! ```
//!
//! Inside, the token is a [`Principal`](bowline::exchange::Principal) with scopes and claims, to which whatever
//! the server remembers of its clients is bound. The token itself goes no further.
//!
//! # Examples
//!
//! ```no_run
//! use bowline::Server;
//! use bowline_auth::server::{JwtVerifier, ResourceServer};
//! use tower_layer::Layer;
//!
//! # async fn example(server: Server) -> bowline::Result<()> {
//! let issuer = "https://id.example";
//! let guard = ResourceServer::new("https://files.example/mcp", issuer, JwtVerifier::discover(issuer)?)?
//!     .scopes(["files:read"])
//!     .implies("files:write", ["files:read"]);
//! let bound = server.http().bind("0.0.0.0:8000").await?;
//! let guarded = guard.layer(bound.service());
//! bound.serve_through(guarded).await
//! # }
//! ```

mod algorithm;
pub use algorithm::Algorithm;

mod answers;

mod challenge;

mod claims;
pub use claims::Claims;

mod credential;

mod dpop;

mod fetch;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

mod guard;
pub use guard::{Guarded, ResourceServer};

mod introspection;
pub use introspection::Introspection;

mod issuers;
pub use issuers::Issuers;

mod jwk;

mod jwks;

mod jws;

mod jwt;
pub use jwt::JwtVerifier;

mod metadata;

mod nonce;

mod replay;

mod verifier;
pub use verifier::{AccessToken, Refused, TokenVerifier};
