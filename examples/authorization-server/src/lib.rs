//! An authorization server in miniature: what a client and a guarded server talk to when there is no real one.
//!
//! ```text
//! POST /register ──▶ a client
//! GET /authorize ──▶ a page ── POST /consent ──▶ back to the client, with a code
//! POST /token ──▶ code or refresh token, for an access token and the next refresh token
//! POST /revoke · POST /introspect · GET /keys · GET /.well-known/oauth-authorization-server
//! ```
//!
//! It does what the specification asks of one: PKCE with S256, redirects compared exactly, codes that work once,
//! refresh tokens that rotate and end their whole family when one is used twice, `iss` in the response, tokens
//! for one audience. What makes it an example: it forgets everything when it ends, and believes everybody who
//! says who they are.

mod answer;

mod authorize;

mod keys;

mod metadata;

mod register;

mod shared;

mod table;

mod token;

mod user;
pub use user::User;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::{get, post};
use shared::Shared;

/// An authorization server. Cheap to clone; clones are the same server.
#[derive(Clone)]
#[must_use = "it answers when its router is served"]
pub struct AuthorizationServer {
    shared: Arc<Shared>,
}

impl AuthorizationServer {
    /// A server that calls itself `issuer`, which is the URL at which it is served, without a path.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared::new(issuer.into())),
        }
    }

    /// Gives tokens for this resource, with these scopes.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn protects(mut self, resource: &str, scopes: &[&str]) -> Self {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        self.building()
            .resources
            .insert(resource.to_owned(), scopes);
        self
    }

    /// Lets a resource server ask about tokens that it was brought.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn introspected_by(mut self, client_id: &str, secret: &str) -> Self {
        self.building().introspector = Some((client_id.to_owned(), secret.to_owned()));
        self
    }

    /// How long an access token is good; 5 min unless told otherwise.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn token_lifetime(mut self, lifetime: Duration) -> Self {
        self.building().token_lifetime = lifetime;
        self
    }

    /// Reads the time from `clock` rather than from the system.
    ///
    /// # Panics
    ///
    /// If the server has clones already.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.building().clock = Box::new(clock);
        self
    }

    /// Signs with a new key from now on. Tokens of the old one stay good.
    pub fn rotate_key(&self) {
        self.shared.keys().rotate();
    }

    /// Publishes no keys but the one that signs.
    pub fn retire_old_keys(&self) {
        self.shared.keys().retire();
    }

    /// All that the server answers.
    pub fn router(&self) -> Router {
        Router::new()
            .route(
                "/.well-known/oauth-authorization-server",
                get(metadata::describe),
            )
            .route("/keys", get(metadata::keys))
            .route("/register", post(register::register))
            .route("/authorize", get(authorize::ask))
            .route("/consent", post(authorize::consent))
            .route("/token", post(token::issue))
            .route("/revoke", post(token::revoke))
            .route("/introspect", post(token::introspect))
            .with_state(self.shared.clone())
    }

    fn building(&mut self) -> &mut Shared {
        Arc::get_mut(&mut self.shared).expect("a server is set up before it is cloned")
    }
}

impl std::fmt::Debug for AuthorizationServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorizationServer")
            .field("issuer", &self.shared.issuer)
            .finish_non_exhaustive()
    }
}
