//! OAuth for the bridge itself, and tokens in exchange for those of clients, with `bowline-auth`.

use std::sync::Arc;

use bowline::client::ServerConfig;
use bowline::{Error, Result};
use bowline_auth::client::{
    OAuth, RegisteredClient, Secret, SigningKey, SubjectToken, TokenExchange,
};

use super::{Credentials, url_of, usable};
use crate::Target;
use crate::config::{OAuthSettings, TokenExchangeSettings};

/// Completes the OAuth client of a server: the user agent, the store.
#[derive(Clone, Default)]
pub(super) struct OAuthSetup(Option<Arc<SetupFn>>);

type SetupFn = dyn Fn(OAuth, &ServerConfig) -> OAuth + Send + Sync;

impl Credentials {
    /// Completes the OAuth client of each server with `oauth`, which has the settings of the configuration already: for
    /// the [user agent](OAuth::user_agent) that servers with a user need, and the [store](OAuth::store).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline_auth::client::{FileStore, Loopback};
    /// use bowline_bridge::credentials::Credentials;
    ///
    /// let store = Arc::new(FileStore::new("my-bridge/tokens"));
    /// let credentials = Credentials::new().oauth(move |oauth, server| {
    ///     let name = server.name().to_owned();
    ///     let open = move |url: &str| Ok(eprintln!("To sign in to `{name}`, open {url} in your browser."));
    ///     oauth.user_agent(Loopback::new(open)).store(store.clone())
    /// });
    /// ```
    pub fn oauth(
        mut self,
        setup: impl Fn(OAuth, &ServerConfig) -> OAuth + Send + Sync + 'static,
    ) -> Self {
        self.oauth = OAuthSetup(Some(Arc::new(setup)));
        self
    }
}

impl OAuthSetup {
    /// Returns a target whose connections share one OAuth client.
    pub(super) fn target(&self, server: ServerConfig, settings: &OAuthSettings) -> Result<Target> {
        check(settings)?;
        let oauth = oauth(url_of(&server)?, settings)?;
        let oauth = match &self.0 {
            Some(setup) => setup(oauth, &server),
            None => oauth,
        };
        // Clients wait for less time than a person needs to sign in.
        let oauth = Arc::new(oauth.outlive_calls());
        let name = server.name().to_owned();
        Ok(Target::new(name, move |_| {
            Ok(server.client()?.authorizer(oauth.clone()))
        }))
    }
}

/// Refuses settings that would have no effect: the user believes that they are used.
fn check(settings: &OAuthSettings) -> Result<()> {
    let of_client = [
        ("clientCredentials", settings.client_credentials),
        ("clientKey", settings.client_key.is_some()),
        ("clientSecret", settings.client_secret.is_some()),
        ("issuer", settings.issuer.is_some()),
    ];
    let is_given = |(_, is_given): &(_, bool)| *is_given && settings.client_id.is_none();
    if let Some((member, _)) = of_client.into_iter().find(is_given) {
        return Err(misuse(&format!("`oauth.{member}` needs `oauth.clientId`")));
    }
    if settings.client_key.is_some() && settings.client_secret.is_some() {
        return Err(misuse(
            "`oauth.clientKey` replaces `oauth.clientSecret`; give one of them",
        ));
    }
    Ok(())
}

fn oauth(url: &str, settings: &OAuthSettings) -> Result<OAuth> {
    let mut oauth = OAuth::new(url).name("Bowline bridge");
    if let Some(id) = &settings.client_id {
        let client = match &settings.issuer {
            Some(issuer) => RegisteredClient::new(issuer, id),
            None => RegisteredClient::at_first_issuer(id),
        };
        let mut client = with_secret(client, settings.client_secret.as_ref());
        if let Some(pem) = &settings.client_key {
            let key = SigningKey::from_pem(pem);
            let key = key.map_err(|error| misuse(&format!("`oauth.clientKey`: {error}")))?;
            client = client.key(key);
        }
        oauth = oauth.client(client);
    }
    if let Some(url) = &settings.client_metadata_url {
        oauth = oauth.client_metadata(url);
    }
    if !settings.scopes.is_empty() {
        oauth = oauth.scopes(&settings.scopes);
    }
    if settings.without_metadata {
        oauth = oauth.fall_back_without_metadata();
    }
    Ok(match settings.client_credentials {
        true => oauth.client_credentials(),
        false => oauth,
    })
}

/// Returns a target whose connections share one exchange, and have one principal each.
pub(super) fn exchange(server: ServerConfig, settings: &TokenExchangeSettings) -> Result<Target> {
    let url = url_of(&server)?.to_owned();
    let resource = settings.resource.clone();
    let mut exchange = TokenExchange::new(&settings.token_endpoint)
        .resource(resource.unwrap_or_else(|| canonical_url(&url)))
        .scopes(&settings.scopes);
    if let Some(id) = &settings.client_id {
        let client = RegisteredClient::at_first_issuer(id);
        exchange = exchange.client(with_secret(client, settings.client_secret.as_ref()));
    }
    if let Some(audience) = &settings.audience {
        exchange = exchange.audience(audience);
    }
    let exchange = Arc::new(exchange);
    // Reports an invalid URL now, not at the first request.
    drop(exchange.authorizer(&url, || Err("not used".into()))?);
    let name = server.name().to_owned();
    Ok(Target::with_token(name, move |latest| {
        let latest = latest.clone();
        let subject = move || {
            let token = usable(&latest)?;
            let principal = token.principal().name().unwrap_or_default();
            Ok(SubjectToken::new(
                principal,
                Secret::new(token.token().expose()),
            ))
        };
        let authorizer = exchange.authorizer(&url, subject)?;
        Ok(server.client()?.authorizer(authorizer))
    }))
}

fn with_secret(client: RegisteredClient, secret: Option<&String>) -> RegisteredClient {
    match secret {
        Some(secret) => client.secret(secret),
        None => client,
    }
}

fn misuse(what: &str) -> Error {
    Error::Misuse {
        what: what.to_owned(),
    }
}

/// Returns the URL of a server as an identifier for its authorization server: without user info, query and fragment, in
/// which keys for the server itself may be.
fn canonical_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_of_a_server_has_none_of_its_keys() {
        for (url, expected) in [
            ("https://x.example/mcp", "https://x.example/mcp"),
            (
                "https://u:KEY@x.example:8/mcp?key=KEY#KEY",
                "https://x.example:8/mcp",
            ),
            ("http://[::1]:8?key=KEY", "http://[::1]:8"),
        ] {
            assert_eq!(canonical_url(url), expected, "{url}");
        }
    }
}
