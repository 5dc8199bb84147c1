//! How an application identifies itself to authorization servers, and which grant it uses; set through `OAuth`.

use std::sync::Arc;

use bowline::http::RedactedUrl;

use super::credentials::{AuthMethod, Registration};
use super::jwt::SigningKey;
use super::scopes::Scopes;
use super::{Result, Secret};

/// A client that is already registered at an authorization server, and the issuer of that server.
///
/// Its secret, client assertions and grant assertions are sent to that issuer only. If the protected resource metadata
/// of the MCP server do not list this issuer, authorization fails with [`Error::Untrusted`](super::Error::Untrusted)
/// before any authorization server is contacted.
///
/// # Examples
///
/// ```
/// use bowline_auth::client::RegisteredClient;
///
/// let client = RegisteredClient::new("https://login.example.com", "my-client")
///     .secret("from the developer console");
/// # assert!(!format!("{client:?}").contains("console"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass it to `OAuth::client`"]
pub struct RegisteredClient {
    pub(crate) id: String,
    pub(crate) credential: ClientCredential,
    pub(crate) issuer: Option<String>,
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Debug)]
pub(crate) enum ClientCredential {
    None,
    Secret(Secret),
    Key(Arc<SigningKey>),
}

impl RegisteredClient {
    /// Creates a client that is registered at `issuer` with the client id `id`. The issuer must be spelled exactly as
    /// in the metadata: the comparison is byte for byte.
    pub fn new(issuer: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            issuer: Some(issuer.into()),
            ..Self::at_first_issuer(id)
        }
    }

    /// Creates a client without a known issuer: it is bound to the first authorization server that it is used with.
    /// From then on its credentials are sent to no other, as long as the store keeps the binding.
    ///
    /// An untrusted MCP server can have the credentials sent to an authorization server of its own. Prefer
    /// [`new`](Self::new), and use this for clients without a secret, or if the issuer is not known in advance.
    pub fn at_first_issuer(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            credential: ClientCredential::None,
            issuer: None,
        }
    }

    /// Authenticates with a client secret.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.credential = ClientCredential::Secret(Secret::new(secret));
        self
    }

    /// Authenticates with client assertions signed by a private key (`private_key_jwt`).
    pub fn key(mut self, key: SigningKey) -> Self {
        self.credential = ClientCredential::Key(Arc::new(key));
        self
    }

    /// Returns the client as it is registered at a token endpoint without metadata.
    pub(crate) fn registration(&self) -> Registration {
        let (secret, method) = match &self.credential {
            ClientCredential::None => (None, AuthMethod::None),
            ClientCredential::Secret(secret) => (Some(secret.clone()), AuthMethod::Basic),
            ClientCredential::Key(_) => (None, AuthMethod::PrivateKeyJwt),
        };
        Registration {
            client_id: self.id.clone(),
            secret,
            method,
            redirect_uri: None,
            expires_at: None,
        }
    }

    /// Returns the key that signs its client assertions.
    pub(crate) fn signing_key(&self) -> Option<&SigningKey> {
        match &self.credential {
            ClientCredential::Key(key) => Some(key),
            ClientCredential::None | ClientCredential::Secret(_) => None,
        }
    }
}

/// A company's identity provider, which issues an ID-JAG in exchange for a user's ID token.
///
/// The authorization server of the MCP server accepts the ID-JAG as an assertion, without prompting the user.
#[derive(Clone, Debug)]
#[must_use = "pass it to `OAuth::enterprise`"]
pub struct IdentityProvider {
    pub(crate) token_endpoint: String,
    pub(crate) client: RegisteredClient,
}

impl IdentityProvider {
    /// Creates a provider with this token endpoint, where the application is registered as `client`.
    pub fn new(token_endpoint: impl Into<String>, client: RegisteredClient) -> Self {
        Self {
            token_endpoint: token_endpoint.into(),
            client,
        }
    }

    /// Returns the issuer of the ID tokens: that of the client, or the token endpoint if the client has none.
    pub(crate) fn issuer(&self) -> &str {
        let issuer = self.client.issuer.as_ref();
        issuer.unwrap_or(&self.token_endpoint)
    }
}

/// The OAuth grant that obtains a token.
#[derive(Clone, Debug)]
pub(crate) enum Grant {
    /// The authorization-code grant: the user consents.
    Code,
    /// The client credentials grant.
    ClientCredentials,
    /// The JWT bearer grant, with an assertion from the application.
    Assertion,
    /// The JWT bearer grant, with an ID-JAG from an identity provider.
    Enterprise(IdentityProvider),
}

/// The OAuth settings of the application, set through `OAuth`, read by `Flow` and `OAuthRuntime`.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    pub(crate) name: String,
    pub(crate) client: Option<RegisteredClient>,
    /// The URL of the client ID metadata document. It is used as the client id where the server supports that.
    pub(crate) metadata_url: Option<String>,
    /// Signs client assertions for `metadata_url`.
    pub(crate) metadata_key: Option<Arc<SigningKey>>,
    pub(crate) grant: Grant,
    /// Whether a server without metadata is its own authorization server, as in 2025-03-26.
    pub(crate) assumes_default_endpoints: bool,
    pub(crate) scopes: ScopePolicy,
    /// Extra parameters of the authorization URL.
    pub(crate) authorization_params: Vec<(String, String)>,
    pub(crate) choose_issuer: Option<ChooseIssuer>,
    /// The issuer, and the initial access token for its registration endpoint (RFC 7591).
    pub(crate) initial_access_token: Option<(String, Secret)>,
}

/// Which scopes are requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopePolicy {
    /// Added to the scopes of a challenge; without such scopes, requested instead of the server's `scopes_supported`.
    /// `None`: nothing is added or replaced.
    pub(crate) wanted: Option<Scopes>,
    /// Scopes outside this set are never requested; `None`: no restriction.
    pub(crate) allowed: Option<Scopes>,
}

/// The application's choice among the issuers that a server names.
#[derive(Clone)]
pub(crate) struct ChooseIssuer(pub(crate) Arc<ChooseFn>);

type ChooseFn = dyn Fn(&[String]) -> Option<String> + Send + Sync;

impl std::fmt::Debug for ChooseIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChooseIssuer")
    }
}

impl Application {
    /// Creates settings for the authorization-code grant without a registration.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            client: None,
            metadata_url: None,
            metadata_key: None,
            grant: Grant::Code,
            assumes_default_endpoints: false,
            scopes: ScopePolicy::default(),
            authorization_params: Vec::new(),
            choose_issuer: None,
            initial_access_token: None,
        }
    }

    /// Returns whether the grant works without the user.
    pub(crate) fn is_unattended(&self) -> bool {
        !matches!(self.grant, Grant::Code)
    }

    /// Returns the key that signs client assertions for this client id.
    pub(crate) fn key(&self, client_id: &str) -> Option<&SigningKey> {
        if let Some(client) = self.client.as_ref().filter(|client| client.id == client_id) {
            return client.signing_key();
        }
        let is_described = self.metadata_url.as_deref() == Some(client_id);
        self.metadata_key.as_deref().filter(|_| is_described)
    }
}

/// Checks the URL of a client ID metadata document.
pub(crate) fn check_metadata_url(address: &str) -> Result<()> {
    let is_valid = url::Url::parse(address)
        .is_ok_and(|url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none());
    if is_valid {
        Ok(())
    } else {
        Err(super::Error::misuse(format!(
            "`{}` is not a valid client id: expected an https:// URL with a path and no fragment",
            RedactedUrl::new(address)
        )))
    }
}
