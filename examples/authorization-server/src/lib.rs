//! A minimal OAuth 2.1 authorization server, for trying out and testing clients and protected MCP servers.
//!
//! ```text
//! POST /register ──▶ client id
//! GET /authorize ──▶ consent page ── POST /consent ──▶ redirect to the client with a code
//! POST /token ──▶ access token and refresh token, for a code or a refresh token
//! POST /revoke · POST /introspect · GET /keys · GET /.well-known/oauth-authorization-server
//! ```
//!
//! It follows the specification: PKCE with S256, exact redirect URI comparison, single-use codes, refresh token
//! rotation that revokes the whole family on reuse, the `iss` parameter, audience-restricted tokens, and DPoP. It is an
//! example because it keeps its state in memory and does not authenticate users.

mod authorize;

mod expiring_map;

mod keys;

mod metadata;

mod proof;

mod register;

mod response;

mod state;

mod token;

mod user;
pub use user::SimulatedUser;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::{get, post};
use state::ServerState;

/// An authorization server. Cheap to clone; clones share state.
#[derive(Clone)]
#[must_use = "serve its router"]
pub struct AuthorizationServer {
    state: Arc<ServerState>,
}

impl AuthorizationServer {
    /// Creates a server with this issuer: its own URL, without a path.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            state: Arc::new(ServerState::new(issuer.into())),
        }
    }

    /// Adds a resource that tokens can be issued for, and its scopes.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn resource(mut self, resource: &str, scopes: &[&str]) -> Self {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        self.state_mut()
            .resources
            .insert(resource.to_owned(), scopes);
        self
    }

    /// Allows a resource server to introspect tokens, with these credentials.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn introspection_client(mut self, client_id: &str, secret: &str) -> Self {
        self.state_mut().introspection_credentials =
            Some((client_id.to_owned(), secret.to_owned()));
        self
    }

    /// Sets the lifetime of access tokens; defaults to 5 min.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn token_lifetime(mut self, lifetime: Duration) -> Self {
        self.state_mut().token_lifetime = lifetime;
        self
    }

    /// Reads the time from `clock` instead of the system.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.state_mut().clock = Box::new(clock);
        self
    }

    /// Signs with a new key from now on. Tokens signed with the old key stay valid.
    pub fn rotate_key(&self) {
        self.state.keys().rotate();
    }

    /// Removes all keys but the current one from the JWK set.
    pub fn retire_old_keys(&self) {
        self.state.keys().remove_old();
    }

    /// Revokes all tokens.
    pub fn revoke_everything(&self) {
        let mut issued = self.state.issued();
        issued.access.retain(|_| false);
        issued.refresh.retain(|_| false);
    }

    /// Returns the router with all endpoints.
    pub fn router(&self) -> Router {
        Router::new()
            .route(
                "/.well-known/oauth-authorization-server",
                get(metadata::describe),
            )
            .route("/keys", get(metadata::keys))
            .route("/register", post(register::register))
            .route("/authorize", get(authorize::consent_page))
            .route("/consent", post(authorize::consent))
            .route("/token", post(token::issue))
            .route("/revoke", post(token::revoke))
            .route("/introspect", post(token::introspect))
            .with_state(self.state.clone())
    }

    fn state_mut(&mut self) -> &mut ServerState {
        Arc::get_mut(&mut self.state).expect("the server is configured before it is cloned")
    }
}

impl std::fmt::Debug for AuthorizationServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorizationServer")
            .field("issuer", &self.state.issuer)
            .finish_non_exhaustive()
    }
}
