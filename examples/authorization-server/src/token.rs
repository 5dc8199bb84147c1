//! The token, revocation and introspection endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Form;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::proof;
use crate::response::{OAuthError, no_store_json};
use crate::state::{AccessGrant, RefreshToken, ServerState, random};

type FormParams = BTreeMap<String, String>;

/// Issues an access token and a refresh token.
pub(crate) async fn issue(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Form(params): Form<FormParams>,
) -> Result<Response, OAuthError> {
    let key = proof::verify_proof(&server, &headers)?;
    let mut grant = match text(&params, "grant_type") {
        "authorization_code" => redeem_code(&server, &params)?,
        "refresh_token" => redeem_refresh_token(&server, &params)?,
        _ => {
            return Err(OAuthError::new(
                "unsupported_grant_type",
                "expected `authorization_code` or `refresh_token`",
            ));
        }
    };
    if params
        .get("resource")
        .is_some_and(|resource| *resource != grant.resource)
    {
        return Err(OAuthError::new(
            "invalid_target",
            "the grant is for another resource",
        ));
    }
    if grant.key.is_some() && grant.key != key {
        return Err(OAuthError::new("invalid_grant", "bound to another key"));
    }
    let token_type = if key.is_some() { "DPoP" } else { "Bearer" };
    grant.key = key;
    let now = server.now();
    let lifetime = server.token_lifetime.as_secs();
    let (id, refresh) = (random(), random());
    let token = server
        .keys()
        .sign(&claims(&server, &grant, &id, now + lifetime));
    let mut issued = server.issued();
    let next = RefreshToken {
        grant: grant.clone(),
        is_used: false,
    };
    let scope = scope_string(&grant.scopes);
    let has_room = issued.access.add(id, grant, now, now + lifetime)
        && issued
            .refresh
            .add(refresh.clone(), next, now, now + REFRESH_TOKEN_LIFETIME);
    if !has_room {
        return Err(OAuthError::overloaded());
    }
    Ok(no_store_json(
        json!({"access_token": token, "token_type": token_type, "expires_in": lifetime,
        "refresh_token": refresh, "scope": scope}),
    ))
}

/// Revokes a token, and all others from the same code.
pub(crate) async fn revoke(
    State(server): State<Arc<ServerState>>,
    Form(params): Form<FormParams>,
) -> StatusCode {
    let (token, now) = (text(&params, "token"), server.now());
    let mut issued = server.issued();
    let id = id_of(token).unwrap_or_default();
    let access = issued.access.find(&id, now).map(|grant| grant.clone());
    let refresh = issued.refresh.find(token, now);
    let grant = access.or(refresh.map(|refresh| refresh.grant.clone()));
    if let Some(grant) = grant.filter(|grant| grant.client_id == text(&params, "client_id")) {
        issued.revoke_family(&grant.family);
    }
    // Unknown tokens get 200 too: RFC 7009, section 2.2.
    StatusCode::OK
}

/// Returns the state and claims of a token (RFC 7662).
pub(crate) async fn introspect(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Form(params): Form<FormParams>,
) -> Result<Response, OAuthError> {
    let authorization = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let expected = server
        .introspection_credentials
        .as_ref()
        .map(|(id, secret)| format!("Basic {}", BASE64_STANDARD.encode(format!("{id}:{secret}"))));
    if expected.is_none() || expected.as_deref() != authorization {
        return Err(OAuthError::unauthorized(
            "introspection requires client authentication",
        ));
    }
    let now = server.now();
    let id = id_of(text(&params, "token")).unwrap_or_default();
    let mut issued = server.issued();
    let end = issued.access.expiry_of(&id).unwrap_or_default();
    let Some(grant) = issued.access.find(&id, now) else {
        return Ok(no_store_json(json!({"active": false})));
    };
    let mut claims = claims(&server, grant, &id, end);
    claims["active"] = true.into();
    Ok(no_store_json(claims).into_response())
}

/// Consumes an authorization code and returns its grant.
fn redeem_code(server: &ServerState, params: &FormParams) -> Result<AccessGrant, OAuthError> {
    let invalid = |why| OAuthError::new("invalid_grant", why);
    let mut issued = server.issued();
    let code = issued.codes.find(text(params, "code"), server.now());
    let code = code.ok_or_else(|| invalid("the code is unknown or has expired"))?;
    if code.is_used {
        // One of the two uses is by an attacker, and it is unknown which.
        let family = code.grant.family.clone();
        issued.revoke_family(&family);
        return Err(invalid("the code was already used"));
    }
    code.is_used = true;
    if code.grant.client_id != text(params, "client_id") {
        return Err(invalid("the code is for another client"));
    }
    if code.redirect_uri != text(params, "redirect_uri") {
        return Err(invalid("the code is for another redirect URI"));
    }
    let verifier = Sha256::digest(text(params, "code_verifier"));
    if code.challenge != BASE64_URL_SAFE_NO_PAD.encode(verifier) {
        return Err(invalid("the code verifier does not match the challenge"));
    }
    Ok(code.grant.clone())
}

/// Consumes a refresh token and returns its grant.
fn redeem_refresh_token(
    server: &ServerState,
    params: &FormParams,
) -> Result<AccessGrant, OAuthError> {
    let invalid = |why| OAuthError::new("invalid_grant", why);
    let mut issued = server.issued();
    let refresh = issued
        .refresh
        .find(text(params, "refresh_token"), server.now());
    let refresh = refresh.ok_or_else(|| invalid("the refresh token is unknown or revoked"))?;
    if refresh.grant.client_id != text(params, "client_id") {
        return Err(invalid("the refresh token is for another client"));
    }
    if refresh.is_used {
        let family = refresh.grant.family.clone();
        issued.revoke_family(&family);
        return Err(invalid("the refresh token was already used"));
    }
    refresh.is_used = true;
    let mut grant = refresh.grant.clone();
    if let Some(scope) = params.get("scope") {
        let fewer: BTreeSet<_> = scope.split_ascii_whitespace().map(str::to_owned).collect();
        if !fewer.is_subset(&grant.scopes) {
            return Err(OAuthError::new(
                "invalid_scope",
                "a refresh cannot add scopes",
            ));
        }
        grant.scopes = fewer;
    }
    Ok(grant)
}

fn claims(server: &ServerState, grant: &AccessGrant, id: &str, end: u64) -> Value {
    let mut claims = json!({"iss": server.issuer, "sub": grant.user, "aud": grant.resource, "jti": id,
        "exp": end, "client_id": grant.client_id, "scope": scope_string(&grant.scopes)});
    if let Some(key) = &grant.key {
        claims["cnf"] = json!({"jkt": key});
    }
    claims
}

/// Returns the unverified `jti` of a token. It is only used for a lookup, so a forged one matches no entry.
fn id_of(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims["jti"].as_str().map(str::to_owned)
}

fn scope_string(scopes: &BTreeSet<String>) -> String {
    let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
    scopes.join(" ")
}

fn text<'a>(params: &'a FormParams, name: &str) -> &'a str {
    params.get(name).map_or("", String::as_str)
}

const REFRESH_TOKEN_LIFETIME: u64 = 30 * 24 * 60 * 60;
