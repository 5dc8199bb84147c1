//! The OAuth resource server: a tower layer that verifies access tokens in front of an MCP server.
//!
//! ```text
//! request ──▶ Authorization ──▶ TokenVerifier ──▶ iss, aud, exp, nbf ──▶ DPoP proof ──▶ scopes ──▶ MCP server
//!    │              │                │                   │                   │            │
//!    │              └────────────────┴── 401 or 403 with a WWW-Authenticate challenge ────┘
//!    └─ /.well-known/oauth-protected-resource ──▶ protected resource metadata
//! ```
//!
//! The layer replaces the token by a [`Principal`](bowline::exchange::Principal) with its scopes and claims; state that
//! the server keeps for a client is bound to that principal. Handlers never see the token.
//!
//! # Examples
//!
//! ```no_run
//! use bowline::Server;
//! use bowline_auth::server::{JwtVerifier, ResourceServer};
//!
//! # async fn example(server: Server) -> bowline::Result<()> {
//! let issuer = "https://id.example";
//! let guard = ResourceServer::new("https://files.example/mcp", issuer, JwtVerifier::discover(issuer)?)?
//!     .scopes(["files:read"])
//!     .implies("files:write", ["files:read"]);
//! let bound = server.http().bind("0.0.0.0:8000").await?;
//! bound.layer(guard).serve().await
//! # }
//! ```

mod algorithm;
pub use algorithm::Algorithm;

mod challenge;

mod claims;
pub use claims::Claims;

mod credential;

mod dpop;

mod fetch;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

mod introspection;
pub use introspection::Introspection;

mod introspection_cache;

mod issuers;
pub use issuers::Issuers;

mod jwk;

mod jwks;

mod jws;

mod jwt;
pub use jwt::JwtVerifier;

mod metadata;

mod nonce;

mod proof_quota;

mod resource_server;
pub use resource_server::{ResourceServer, ResourceServerService};

mod static_tokens;
pub use static_tokens::{StaticTokens, StaticTokensService};

mod verifier;
pub use verifier::{AccessToken, TokenVerifier, VerifyError};
