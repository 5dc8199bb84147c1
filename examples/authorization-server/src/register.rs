//! Dynamic client registration (RFC 7591).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use serde_json::{Map, Value};

use crate::response::{OAuthError, no_store_json};
use crate::state::{ServerState, random};

/// A registered client.
#[derive(Clone, Debug)]
pub(crate) struct ClientRecord {
    pub(crate) name: String,
    redirect_uris: Vec<String>,
}

impl ClientRecord {
    /// Returns whether a redirect URI is registered. The port of a loopback URI is ignored (RFC 8252, section 7.3).
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
    State(server): State<Arc<ServerState>>,
    body: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Result<Response, OAuthError> {
    let Ok(Json(mut metadata)) = body else {
        return Err(OAuthError::new(
            "invalid_client_metadata",
            "expected a JSON object",
        ));
    };
    let client = read(&metadata)?;
    let (id, now) = (random(), server.now());
    let end = now + CLIENT_LIFETIME;
    if !server.issued().clients.add(id.clone(), client, now, end) {
        return Err(OAuthError::overloaded());
    }
    // The response repeats the client metadata, with the members that the server sets.
    metadata.insert("client_id".to_owned(), id.into());
    metadata.insert("client_id_issued_at".to_owned(), now.into());
    metadata.insert("token_endpoint_auth_method".to_owned(), "none".into());
    Ok((StatusCode::CREATED, no_store_json(Value::Object(metadata))).into_response())
}

fn read(metadata: &Map<String, Value>) -> Result<ClientRecord, OAuthError> {
    let uris = metadata.get("redirect_uris").and_then(Value::as_array);
    let uris: Vec<String> = uris
        .into_iter()
        .flatten()
        .filter_map(|uri| uri.as_str().map(str::to_owned))
        .collect();
    if uris.is_empty() || uris.len() > 10 {
        return Err(OAuthError::new(
            "invalid_redirect_uri",
            "expected one to ten `redirect_uris`",
        ));
    }
    if let Some(bad) = uris.iter().find(|uri| !is_safe(uri)) {
        let why = format!("the redirect URI `{bad}` is neither https:// nor a loopback address");
        return Err(OAuthError::new("invalid_redirect_uri", why));
    }
    let name = metadata.get("client_name").and_then(Value::as_str);
    Ok(ClientRecord {
        name: name.unwrap_or("an unnamed client").to_owned(),
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

/// Returns host and path of an `http` loopback URI.
fn without_port_of_loopback(uri: &str) -> Option<(String, String)> {
    let uri: Uri = uri.parse().ok()?;
    let host = uri.host()?;
    let is_loopback = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
    let path = uri.path_and_query()?.to_string();
    (uri.scheme_str() == Some("http") && is_loopback).then(|| (host.to_owned(), path))
}

const CLIENT_LIFETIME: u64 = 24 * 60 * 60;
