//! The authorization server metadata (RFC 8414) and the JWK set.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::state::ServerState;

pub(crate) async fn describe(State(server): State<Arc<ServerState>>) -> Json<Value> {
    let issuer = &server.issuer;
    let at = |path: &str| format!("{issuer}{path}");
    let scopes: BTreeSet<_> = server.resources.values().flatten().collect();
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"),
        "revocation_endpoint": at("/revoke"),
        "introspection_endpoint": at("/introspect"),
        "jwks_uri": at("/keys"),
        "scopes_supported": scopes,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic"],
        "code_challenge_methods_supported": ["S256"],
        "dpop_signing_alg_values_supported": ["ES256"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

pub(crate) async fn keys(State(server): State<Arc<ServerState>>) -> Json<Value> {
    Json(server.keys().jwk_set())
}
