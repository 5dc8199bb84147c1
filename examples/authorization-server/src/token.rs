//! Tokens: given for a code or a refresh token, taken back, and asked about.

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

use crate::answer::{Refusal, unstored};
use crate::shared::{Grant, Refresh, Shared, random};

type Params = BTreeMap<String, String>;

/// Gives an access token and a refresh token.
pub(crate) async fn issue(
    State(shared): State<Arc<Shared>>,
    Form(asked): Form<Params>,
) -> Result<Response, Refusal> {
    let grant = match text(&asked, "grant_type") {
        "authorization_code" => for_code(&shared, &asked)?,
        "refresh_token" => for_refresh_token(&shared, &asked)?,
        _ => {
            return Err(Refusal::new(
                "unsupported_grant_type",
                "it takes a code or a refresh token",
            ));
        }
    };
    if asked
        .get("resource")
        .is_some_and(|resource| *resource != grant.resource)
    {
        return Err(Refusal::new(
            "invalid_target",
            "that is not what was allowed",
        ));
    }
    let now = shared.now();
    let lifetime = shared.token_lifetime.as_secs();
    let (id, refresh) = (random(), random());
    let token = shared
        .keys()
        .sign(&claims(&shared, &grant, &id, now + lifetime));
    let mut memory = shared.memory();
    let next = Refresh {
        grant: grant.clone(),
        is_used: false,
    };
    let scope = spaced(&grant.scopes);
    let is_kept = memory.access.add(id, grant, now, now + lifetime)
        && memory
            .refresh
            .add(refresh.clone(), next, now, now + THIRTY_DAYS);
    if !is_kept {
        return Err(Refusal::overloaded());
    }
    Ok(unstored(
        json!({"access_token": token, "token_type": "Bearer", "expires_in": lifetime,
        "refresh_token": refresh, "scope": scope}),
    ))
}

/// Takes a token back, and with it all that came from the same code.
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Form(asked): Form<Params>,
) -> StatusCode {
    let (token, now) = (text(&asked, "token"), shared.now());
    let mut memory = shared.memory();
    let id = id_of(token).unwrap_or_default();
    let access = memory.access.find(&id, now).map(|grant| grant.clone());
    let refresh = memory.refresh.find(token, now);
    let grant = access.or(refresh.map(|refresh| refresh.grant.clone()));
    if let Some(grant) = grant.filter(|grant| grant.client_id == text(&asked, "client_id")) {
        memory.end_family(&grant.family);
    }
    // What is unknown needs no revoking: RFC 7009, section 2.2.
    StatusCode::OK
}

/// Tells a resource server what a token is worth.
pub(crate) async fn introspect(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Form(asked): Form<Params>,
) -> Result<Response, Refusal> {
    let authorization = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let expected = shared
        .introspector
        .as_ref()
        .map(|(id, secret)| format!("Basic {}", BASE64_STANDARD.encode(format!("{id}:{secret}"))));
    if expected.is_none() || expected.as_deref() != authorization {
        return Err(Refusal::unauthorized("only resource servers may ask"));
    }
    let now = shared.now();
    let id = id_of(text(&asked, "token")).unwrap_or_default();
    let mut memory = shared.memory();
    let end = memory.access.end_of(&id).unwrap_or_default();
    let Some(grant) = memory.access.find(&id, now) else {
        return Ok(unstored(json!({"active": false})));
    };
    let mut claims = claims(&shared, grant, &id, end);
    claims["active"] = true.into();
    Ok(unstored(claims).into_response())
}

/// What was allowed, for a code that is used by whoever got it.
fn for_code(shared: &Shared, asked: &Params) -> Result<Grant, Refusal> {
    let invalid = |why| Refusal::new("invalid_grant", why);
    let mut memory = shared.memory();
    let code = memory.codes.find(text(asked, "code"), shared.now());
    let code = code.ok_or_else(|| invalid("the code is unknown, or too old"))?;
    if code.is_used {
        // One of the two who used it stole it, and nobody knows which.
        let family = code.grant.family.clone();
        memory.end_family(&family);
        return Err(invalid("the code was used before"));
    }
    code.is_used = true;
    if code.grant.client_id != text(asked, "client_id") {
        return Err(invalid("the code is for another client"));
    }
    if code.redirect_uri != text(asked, "redirect_uri") {
        return Err(invalid("the code was sent elsewhere"));
    }
    let verifier = Sha256::digest(text(asked, "code_verifier"));
    if code.challenge != BASE64_URL_SAFE_NO_PAD.encode(verifier) {
        return Err(invalid("the verifier does not fit the challenge"));
    }
    Ok(code.grant.clone())
}

/// What was allowed, for a refresh token that was not used yet.
fn for_refresh_token(shared: &Shared, asked: &Params) -> Result<Grant, Refusal> {
    let invalid = |why| Refusal::new("invalid_grant", why);
    let mut memory = shared.memory();
    let refresh = memory
        .refresh
        .find(text(asked, "refresh_token"), shared.now());
    let refresh = refresh.ok_or_else(|| invalid("the refresh token is unknown, or was revoked"))?;
    if refresh.grant.client_id != text(asked, "client_id") {
        return Err(invalid("the refresh token is for another client"));
    }
    if refresh.is_used {
        let family = refresh.grant.family.clone();
        memory.end_family(&family);
        return Err(invalid("the refresh token was used before"));
    }
    refresh.is_used = true;
    let mut grant = refresh.grant.clone();
    if let Some(scope) = asked.get("scope") {
        let fewer: BTreeSet<_> = scope.split_ascii_whitespace().map(str::to_owned).collect();
        if !fewer.is_subset(&grant.scopes) {
            return Err(Refusal::new("invalid_scope", "a refresh cannot add scopes"));
        }
        grant.scopes = fewer;
    }
    Ok(grant)
}

fn claims(shared: &Shared, grant: &Grant, id: &str, end: u64) -> Value {
    json!({"iss": shared.issuer, "sub": grant.user, "aud": grant.resource, "jti": id, "exp": end,
        "client_id": grant.client_id, "scope": spaced(&grant.scopes)})
}

/// The id of a token of ours. It is only looked up, and so need not be believed.
fn id_of(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims["jti"].as_str().map(str::to_owned)
}

fn spaced(scopes: &BTreeSet<String>) -> String {
    let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
    scopes.join(" ")
}

fn text<'a>(params: &'a Params, name: &str) -> &'a str {
    params.get(name).map_or("", String::as_str)
}

const THIRTY_DAYS: u64 = 30 * 24 * 60 * 60;
