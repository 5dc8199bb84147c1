//! The user is asked, and sent back to the client with a code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, State};
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use crate::answer::{Refusal, redirect};
use crate::register::Client;
use crate::shared::{Code, Grant, Shared, Ticket, random};

/// Shows a page on which the user may allow what a client asks for.
pub(crate) async fn ask(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<BTreeMap<String, String>>,
) -> Response {
    let text = |name: &str| asked.get(name).map_or("", String::as_str);
    let (client_id, redirect_uri) = (text("client_id"), text("redirect_uri"));
    let now = shared.now();
    let client = shared.memory().clients.find(client_id, now).cloned();
    // Nobody is sent anywhere before it is certain that this is where the client is.
    let Some(client) = client.filter(|client| client.may_redirect_to(redirect_uri)) else {
        return page(
            StatusCode::BAD_REQUEST,
            "<p>The client is unknown, or not where it says.</p>",
        );
    };
    let state = asked.get("state").cloned();
    let ticket = match requested(&shared, &asked) {
        Ok((resource, scopes)) => Ticket {
            client_id: client_id.to_owned(),
            redirect_uri: redirect_uri.to_owned(),
            state,
            challenge: text("code_challenge").to_owned(),
            resource,
            scopes,
        },
        Err(refusal) => return send_back(&shared, redirect_uri, state.as_deref(), &refusal),
    };
    let name = random();
    let question = question(&client, &ticket, &name);
    let end = now + TEN_MINUTES;
    if !shared.memory().tickets.add(name, ticket, now, end) {
        return Refusal::overloaded().into_response();
    }
    page(StatusCode::OK, &question)
}

/// Hears what the user says, and sends them back to the client.
pub(crate) async fn consent(
    State(shared): State<Arc<Shared>>,
    Form(said): Form<BTreeMap<String, String>>,
) -> Response {
    let text = |name: &str| said.get(name).map_or("", String::as_str);
    let now = shared.now();
    let ticket = shared.memory().tickets.take(text("ticket"), now);
    let Some(ticket) = ticket else {
        return page(
            StatusCode::BAD_REQUEST,
            "<p>That was answered already, or too late.</p>",
        );
    };
    let state = ticket.state.clone();
    if text("decision") != "allow" || text("user").is_empty() {
        let refusal = Refusal::new("access_denied", "the user said no");
        return send_back(&shared, &ticket.redirect_uri, state.as_deref(), &refusal);
    }
    let (name, redirect_uri) = (random(), ticket.redirect_uri.clone());
    let code = Code {
        grant: Grant {
            client_id: ticket.client_id,
            user: text("user").to_owned(),
            resource: ticket.resource,
            scopes: ticket.scopes,
            family: random(),
        },
        redirect_uri: ticket.redirect_uri,
        challenge: ticket.challenge,
        is_used: false,
    };
    if !shared
        .memory()
        .codes
        .add(name.clone(), code, now, now + ONE_MINUTE)
    {
        return Refusal::overloaded().into_response();
    }
    let mut query = vec![("code", &*name), ("iss", &*shared.issuer)];
    query.extend(state.as_deref().map(|state| ("state", state)));
    redirect(&redirect_uri, &query)
}

/// The resource and the scopes that are asked for, if they can be had.
fn requested(
    shared: &Shared,
    asked: &BTreeMap<String, String>,
) -> Result<(String, BTreeSet<String>), Refusal> {
    let text = |name: &str| asked.get(name).map_or("", String::as_str);
    if text("response_type") != "code" {
        return Err(Refusal::new(
            "unsupported_response_type",
            "there are only codes",
        ));
    }
    if text("code_challenge_method") != "S256" || text("code_challenge").len() != 43 {
        return Err(Refusal::new(
            "invalid_request",
            "a challenge by S256 is needed",
        ));
    }
    let resource = text("resource");
    let Some(known) = shared.resources.get(resource) else {
        return Err(Refusal::new(
            "invalid_target",
            "the resource is not one of ours",
        ));
    };
    let scopes = text("scope").split_ascii_whitespace();
    let scopes: BTreeSet<_> = scopes.map(str::to_owned).collect();
    if !scopes.is_subset(known) {
        return Err(Refusal::new(
            "invalid_scope",
            "the resource knows no such scope",
        ));
    }
    Ok((resource.to_owned(), scopes))
}

fn send_back(shared: &Shared, to: &str, state: Option<&str>, refusal: &Refusal) -> Response {
    let mut query = vec![
        ("error", refusal.error()),
        ("error_description", refusal.why()),
        ("iss", &*shared.issuer),
    ];
    query.extend(state.map(|state| ("state", state)));
    redirect(to, &query)
}

fn question(client: &Client, ticket: &Ticket, name: &str) -> String {
    let scopes: Vec<_> = ticket.scopes.iter().map(|scope| escaped(scope)).collect();
    format!(
        "<p><b>{}</b>, at {}, wants to use <b>{}</b> ({}) on your behalf.</p>\
         <form method=\"post\" action=\"/consent\">\
         <input type=\"hidden\" name=\"ticket\" value=\"{name}\">\
         <label>You are <input name=\"user\"></label>\
         <button name=\"decision\" value=\"allow\">Allow</button>\
         <button name=\"decision\" value=\"deny\">Deny</button></form>",
        escaped(&client.name),
        escaped(&ticket.redirect_uri),
        escaped(&ticket.resource),
        scopes.join(", "),
    )
}

fn page(status: StatusCode, body: &str) -> Response {
    let page = format!("<!doctype html><title>Authorization</title>{body}");
    // Nobody may lay another page over this one.
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

const TEN_MINUTES: u64 = 10 * 60;
const ONE_MINUTE: u64 = 60;
