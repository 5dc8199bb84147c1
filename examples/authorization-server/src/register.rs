//! Clients, who introduce themselves: RFC 7591.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use serde_json::{Map, Value};

use crate::answer::{Refusal, unstored};
use crate::shared::{Shared, random};

/// A client, as it introduced itself.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    redirect_uris: Vec<String>,
}

impl Client {
    /// Whether users may be sent there. A client on the user's machine listens on whatever port is free.
    pub(crate) fn may_redirect_to(&self, uri: &str) -> bool {
        let is_the_same = |registered: &String| {
            registered == uri
                || without_port_of_loopback(registered)
                    .is_some_and(|own| Some(own) == without_port_of_loopback(uri))
        };
        self.redirect_uris.iter().any(is_the_same)
    }
}

pub(crate) async fn register(
    State(shared): State<Arc<Shared>>,
    body: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Ok(Json(mut metadata)) = body else {
        return Err(Refusal::new(
            "invalid_client_metadata",
            "the body is no JSON object",
        ));
    };
    let client = read(&metadata)?;
    let (id, now) = (random(), shared.now());
    let end = now + FOR_A_DAY;
    if !shared.memory().clients.add(id.clone(), client, now, end) {
        return Err(Refusal::overloaded());
    }
    // Everything comes back as it was said, but for what is decided here.
    metadata.insert("client_id".to_owned(), id.into());
    metadata.insert("client_id_issued_at".to_owned(), now.into());
    metadata.insert("token_endpoint_auth_method".to_owned(), "none".into());
    Ok((StatusCode::CREATED, unstored(Value::Object(metadata))).into_response())
}

fn read(metadata: &Map<String, Value>) -> Result<Client, Refusal> {
    let uris = metadata.get("redirect_uris").and_then(Value::as_array);
    let uris: Vec<String> = uris
        .into_iter()
        .flatten()
        .filter_map(|uri| uri.as_str().map(str::to_owned))
        .collect();
    if uris.is_empty() || uris.len() > 10 {
        return Err(Refusal::new(
            "invalid_redirect_uri",
            "one to ten redirects are needed",
        ));
    }
    if let Some(bad) = uris.iter().find(|uri| !is_safe(uri)) {
        let why = format!("`{bad}` is neither https:// nor on this machine");
        return Err(Refusal::new("invalid_redirect_uri", why));
    }
    let name = metadata.get("client_name").and_then(Value::as_str);
    Ok(Client {
        name: name.unwrap_or("a client without a name").to_owned(),
        redirect_uris: uris,
    })
}

fn is_safe(uri: &str) -> bool {
    let Ok(parsed) = uri.parse::<Uri>() else {
        return false;
    };
    let is_https = parsed.scheme_str() == Some("https") && parsed.host().is_some();
    !uri.contains('#') && (is_https || without_port_of_loopback(uri).is_some())
}

/// Host and path of an `http` URL on this machine.
fn without_port_of_loopback(uri: &str) -> Option<(String, String)> {
    let uri: Uri = uri.parse().ok()?;
    let host = uri.host()?;
    let is_loopback = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
    let path = uri.path_and_query()?.to_string();
    (uri.scheme_str() == Some("http") && is_loopback).then(|| (host.to_owned(), path))
}

const FOR_A_DAY: u64 = 24 * 60 * 60;
