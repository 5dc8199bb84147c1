//! The OAuth configuration of the client for the suite's authorization servers, and a user who consents to everything.

use bowline::http::client::{HttpClient as _, HyperClient, RequestBody};
use bowline_auth::client::{
    AppError, EmbeddedBrowser, IdentityProvider, OAuth, RegisteredClient, Secret, SigningKey,
};
use bytes::Bytes;
use http::Request;
use http::header::LOCATION;
use serde::Deserialize;
use serde_json::{Value, json};

const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// The credentials that the suite provides for a registered client.
#[derive(Default, Deserialize)]
pub(crate) struct ClientCredentials {
    client_id: Option<String>,
    client_secret: Option<String>,
    private_key_pem: Option<String>,
    issuer: Option<String>,
    valid_jwt: Option<String>,
    idp_client_id: Option<String>,
    idp_id_token: Option<String>,
    idp_token_endpoint: Option<String>,
}

/// Configures authorization as an application would, with these credentials.
pub(crate) fn oauth(
    url: &str,
    scenario: &str,
    credentials: ClientCredentials,
) -> bowline_auth::client::Result<OAuth> {
    let mut oauth = OAuth::new(url)
        .name("everything-client")
        .client_metadata(CLIENT_METADATA)
        .user_agent(EmbeddedBrowser::new(
            "http://localhost:3000/callback",
            follow_redirect,
        ));
    if let Some(id) = credentials.client_id {
        // The suite does not always name the issuer of the client.
        let mut client = match credentials.issuer {
            Some(issuer) => RegisteredClient::new(issuer, id),
            None => RegisteredClient::at_first_issuer(id),
        };
        if let Some(secret) = credentials.client_secret {
            client = client.secret(secret);
        }
        if let Some(pem) = credentials.private_key_pem {
            client = client.key(SigningKey::from_pem(&pem)?);
        }
        oauth = oauth.client(client);
    }
    if scenario.starts_with("auth/2025-03-26") {
        // Only servers of this version have no metadata.
        oauth = oauth.fall_back_without_metadata();
    }
    if scenario.starts_with("auth/client-credentials") {
        oauth = oauth.client_credentials();
    }
    if let Some(jwt) = credentials.valid_jwt {
        let jwt = Secret::new(jwt);
        oauth = oauth.workload(move |_| std::future::ready(Ok(jwt.clone())));
    }
    if let (Some(id), Some(endpoint), Some(id_token)) = (
        credentials.idp_client_id,
        credentials.idp_token_endpoint,
        credentials.idp_id_token,
    ) {
        let provider = IdentityProvider::new(endpoint, RegisteredClient::at_first_issuer(id));
        let id_token = Secret::new(id_token);
        oauth = oauth.enterprise(provider, move |_| std::future::ready(Ok(id_token.clone())));
    }
    Ok(oauth)
}

/// Returns the same as `oauth` of a bridge's configuration file, as far as it has such settings.
pub(crate) fn bridge_settings(scenario: &str, credentials: &ClientCredentials) -> Value {
    let mut settings = json!({"clientMetadataUrl": CLIENT_METADATA});
    let members = [
        ("clientId", &credentials.client_id),
        ("clientSecret", &credentials.client_secret),
        ("clientKey", &credentials.private_key_pem),
        ("issuer", &credentials.issuer),
    ];
    for (member, value) in members {
        if let Some(value) = value {
            settings[member] = json!(value);
        }
    }
    if scenario.starts_with("auth/client-credentials") {
        settings["clientCredentials"] = json!(true);
    }
    if scenario.starts_with("auth/2025-03-26") {
        settings["withoutMetadata"] = json!(true);
    }
    settings
}

/// Opens the authorization page and follows its redirect, as a browser does.
pub(crate) async fn browse(url: &str) -> Result<(), AppError> {
    let redirect = follow_redirect(url.to_owned()).await?;
    let request = Request::get(redirect).body(RequestBody::from(Bytes::new()))?;
    HyperClient::plain().send(request).await?;
    Ok(())
}

/// Loads the authorization page without a browser, and returns its redirect.
async fn follow_redirect(url: String) -> Result<String, AppError> {
    let request = Request::get(url).body(RequestBody::from(Bytes::new()))?;
    let response = HyperClient::plain().send(request).await?;
    let location = response.headers().get(LOCATION);
    let location = location.ok_or("the authorization server did not redirect")?;
    Ok(location.to_str()?.to_owned())
}
