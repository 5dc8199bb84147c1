//! Who the client is to the suite's authorization servers: what an application would configure, and a person
//! who agrees to everything.

use bowline::http::client::{HttpSend as _, HyperSend, RequestBody};
use bowline_auth::client::{
    AppError, IdentityProvider, OAuth, OwnBrowser, RegisteredClient, Secret, SigningKey,
};
use bytes::Bytes;
use http::Request;
use http::header::LOCATION;
use serde::Deserialize;

/// What the suite tells about a client that is known already.
#[derive(Default, Deserialize)]
pub(crate) struct Known {
    client_id: Option<String>,
    client_secret: Option<String>,
    private_key_pem: Option<String>,
    issuer: Option<String>,
    valid_jwt: Option<String>,
    idp_client_id: Option<String>,
    idp_id_token: Option<String>,
    idp_token_endpoint: Option<String>,
}

/// Authorization as an application would set it up, given what it knows.
pub(crate) fn oauth(
    url: &str,
    scenario: &str,
    known: Known,
) -> bowline_auth::client::Result<OAuth> {
    let mut oauth = OAuth::new(url)
        .name("everything-client")
        .client_metadata("https://conformance-test.local/client-metadata.json")
        .user_agent(OwnBrowser::new("http://localhost:3000/callback", agree));
    if let Some(id) = known.client_id {
        // The suite does not always say who knows the client.
        let mut client = match known.issuer {
            Some(issuer) => RegisteredClient::new(issuer, id),
            None => RegisteredClient::at_first_issuer(id),
        };
        if let Some(secret) = known.client_secret {
            client = client.secret(secret);
        }
        if let Some(pem) = known.private_key_pem {
            client = client.key(SigningKey::from_pem(&pem)?);
        }
        oauth = oauth.client(client);
    }
    if scenario.starts_with("auth/2025-03-26") {
        // That revision alone has servers without metadata.
        oauth = oauth.fall_back_without_metadata();
    }
    if scenario.starts_with("auth/client-credentials") {
        oauth = oauth.client_credentials();
    }
    if let Some(jwt) = known.valid_jwt {
        let jwt = Secret::new(jwt);
        oauth = oauth.workload(move |_| std::future::ready(Ok(jwt.clone())));
    }
    if let (Some(id), Some(endpoint), Some(id_token)) = (
        known.idp_client_id,
        known.idp_token_endpoint,
        known.idp_id_token,
    ) {
        let provider = IdentityProvider::new(endpoint, RegisteredClient::at_first_issuer(id));
        let id_token = Secret::new(id_token);
        oauth = oauth.enterprise(provider, move |_| std::future::ready(Ok(id_token.clone())));
    }
    Ok(oauth)
}

/// A person without a browser, who goes where they are sent.
async fn agree(url: String) -> Result<String, AppError> {
    let request = Request::get(url).body(RequestBody::from(Bytes::new()))?;
    let response = HyperSend::plain().send(request).await?;
    let sent_to = response.headers().get(LOCATION);
    let sent_to = sent_to.ok_or("the authorization server sends nobody anywhere")?;
    Ok(sent_to.to_str()?.to_owned())
}
