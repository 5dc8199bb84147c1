//! The authorization endpoint: asks the user for consent, and redirects to the client with a code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use crate::register::ClientRecord;
use crate::response::{OAuthError, redirect};
use crate::state::{AccessGrant, AuthorizationCode, PendingConsent, ServerState, random};

/// Returns the consent page for an authorization request.
pub(crate) async fn consent_page(
    State(server): State<Arc<ServerState>>,
    Query(params): Query<BTreeMap<String, String>>,
) -> Response {
    let text = |name: &str| params.get(name).map_or("", String::as_str);
    let (client_id, redirect_uri) = (text("client_id"), text("redirect_uri"));
    let now = server.now();
    let client = server.issued().clients.find(client_id, now).cloned();
    // Checked first: redirecting to an unregistered URI would be an open redirect.
    let Some(client) = client.filter(|client| client.may_redirect_to(redirect_uri)) else {
        return page(
            StatusCode::BAD_REQUEST,
            "<p>Unknown client, or unregistered redirect URI.</p>",
        );
    };
    let state = params.get("state").cloned();
    let pending = match validate_request(&server, &params) {
        Ok((resource, scopes)) => PendingConsent {
            client_id: client_id.to_owned(),
            redirect_uri: redirect_uri.to_owned(),
            state,
            challenge: text("code_challenge").to_owned(),
            resource,
            scopes,
            key: params.get("dpop_jkt").cloned(),
        },
        Err(error) => return redirect_with_error(&server, redirect_uri, state.as_deref(), &error),
    };
    let name = random();
    let form = consent_form(&client, &pending, &name);
    let end = now + CONSENT_TIMEOUT;
    if !server.issued().consents.add(name, pending, now, end) {
        return OAuthError::overloaded().into_response();
    }
    page(StatusCode::OK, &form)
}

/// Processes the user's decision, and redirects to the client.
pub(crate) async fn consent(
    State(server): State<Arc<ServerState>>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let text = |name: &str| form.get(name).map_or("", String::as_str);
    let now = server.now();
    let pending = server.issued().consents.take(text("ticket"), now);
    let Some(pending) = pending else {
        return page(
            StatusCode::BAD_REQUEST,
            "<p>This request was already answered, or has expired.</p>",
        );
    };
    let state = pending.state.clone();
    if text("decision") != "allow" || text("user").is_empty() {
        let error = OAuthError::new("access_denied", "the user denied the request");
        return redirect_with_error(&server, &pending.redirect_uri, state.as_deref(), &error);
    }
    let (name, redirect_uri) = (random(), pending.redirect_uri.clone());
    let code = AuthorizationCode {
        grant: AccessGrant {
            client_id: pending.client_id,
            user: text("user").to_owned(),
            resource: pending.resource,
            scopes: pending.scopes,
            key: pending.key,
            family: random(),
        },
        redirect_uri: pending.redirect_uri,
        challenge: pending.challenge,
        is_used: false,
    };
    if !server
        .issued()
        .codes
        .add(name.clone(), code, now, now + CODE_LIFETIME)
    {
        return OAuthError::overloaded().into_response();
    }
    let mut query = vec![("code", &*name), ("iss", &*server.issuer)];
    query.extend(state.as_deref().map(|state| ("state", state)));
    redirect(&redirect_uri, &query)
}

/// Returns the resource and scopes of an authorization request, after validating it.
fn validate_request(
    server: &ServerState,
    params: &BTreeMap<String, String>,
) -> Result<(String, BTreeSet<String>), OAuthError> {
    let text = |name: &str| params.get(name).map_or("", String::as_str);
    if text("response_type") != "code" {
        return Err(OAuthError::new(
            "unsupported_response_type",
            "only `code` is supported",
        ));
    }
    if text("code_challenge_method") != "S256" || text("code_challenge").len() != 43 {
        return Err(OAuthError::new(
            "invalid_request",
            "PKCE with S256 is required",
        ));
    }
    let resource = text("resource");
    let Some(known) = server.resources.get(resource) else {
        return Err(OAuthError::new("invalid_target", "unknown resource"));
    };
    let scopes = text("scope").split_ascii_whitespace();
    let scopes: BTreeSet<_> = scopes.map(str::to_owned).collect();
    if !scopes.is_subset(known) {
        return Err(OAuthError::new(
            "invalid_scope",
            "unknown scope of this resource",
        ));
    }
    Ok((resource.to_owned(), scopes))
}

fn redirect_with_error(
    server: &ServerState,
    to: &str,
    state: Option<&str>,
    error: &OAuthError,
) -> Response {
    let mut query = vec![
        ("error", error.error()),
        ("error_description", error.why()),
        ("iss", &*server.issuer),
    ];
    query.extend(state.map(|state| ("state", state)));
    redirect(to, &query)
}

fn consent_form(client: &ClientRecord, pending: &PendingConsent, name: &str) -> String {
    let scopes: Vec<_> = pending.scopes.iter().map(|scope| escaped(scope)).collect();
    format!(
        "<p><b>{}</b>, at {}, wants to use <b>{}</b> ({}) on your behalf.</p>\
         <form method=\"post\" action=\"/consent\">\
         <input type=\"hidden\" name=\"ticket\" value=\"{name}\">\
         <label>You are <input name=\"user\"></label>\
         <button name=\"decision\" value=\"allow\">Allow</button>\
         <button name=\"decision\" value=\"deny\">Deny</button></form>",
        escaped(&client.name),
        escaped(&pending.redirect_uri),
        escaped(&pending.resource),
        scopes.join(", "),
    )
}

fn page(status: StatusCode, body: &str) -> Response {
    let page = format!("<!doctype html><title>Authorization</title>{body}");
    // Prevents clickjacking and scripts.
    let headers = [
        (
            "content-security-policy",
            "default-src 'none'; frame-ancestors 'none'",
        ),
        ("cache-control", "no-store"),
    ];
    (status, headers, Html(page)).into_response()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const CONSENT_TIMEOUT: u64 = 10 * 60;
const CODE_LIFETIME: u64 = 60;
