//! What an application says about itself: how it is known to authorization servers, and what it brings along
//! in place of a person.

use std::sync::Arc;

use super::jwt::SigningKey;
use super::scopes::Scopes;
use super::{Result, Secret};

/// A client that an authorization server knows already, and which server that is.
///
/// Its secret, its signatures and what vouches for it go to that authorization server and to no other, whatever
/// the MCP server says. If the MCP server names others only, getting a token fails with
/// [`Error::Untrusted`](super::Error::Untrusted), before any of them is visited.
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
#[must_use = "it is for `OAuth::client`"]
pub struct RegisteredClient {
    pub(crate) id: String,
    pub(crate) proof: ClientProof,
    pub(crate) issuer: Option<String>,
}

/// How a client shows that it is itself.
#[derive(Clone, Debug)]
pub(crate) enum ClientProof {
    None,
    Secret(Secret),
    Key(Arc<SigningKey>),
}

impl RegisteredClient {
    /// Creates a client that the authorization server `issuer` knows as `id`. The issuer is spelled exactly as
    /// the server's metadata spell it: the comparison is byte for byte.
    pub fn new(issuer: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            issuer: Some(issuer.into()),
            ..Self::at_first_issuer(id)
        }
    }

    /// Creates a client that belongs to the first authorization server that it is used with, which the MCP
    /// server names. From then on no other sees its credentials, as long as the store remembers it.
    ///
    /// An MCP server that is not trusted can have the credentials sent to an authorization server of its own.
    /// Prefer [`new`](Self::new), and use this for clients without a secret, or where the issuer cannot be known.
    pub fn at_first_issuer(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            proof: ClientProof::None,
            issuer: None,
        }
    }

    /// Shows that it is itself by a secret.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.proof = ClientProof::Secret(Secret::new(secret));
        self
    }

    /// Shows that it is itself by signing with a private key.
    pub fn key(mut self, key: SigningKey) -> Self {
        self.proof = ClientProof::Key(Arc::new(key));
        self
    }
}

/// The identity provider of a company, which vouches for the people in it.
///
/// It is given somebody's ID token and gives out an assertion that the server's authorization server accepts,
/// so that nobody has to be asked.
#[derive(Clone, Debug)]
#[must_use = "it is for `OAuth::enterprise`"]
pub struct IdentityProvider {
    pub(crate) token_endpoint: String,
    pub(crate) client: RegisteredClient,
}

impl IdentityProvider {
    /// The provider whose token endpoint this is, which knows us as `client`.
    pub fn new(token_endpoint: impl Into<String>, client: RegisteredClient) -> Self {
        Self {
            token_endpoint: token_endpoint.into(),
            client,
        }
    }

    /// The issuer of the ID tokens that the provider is shown.
    pub(crate) fn issuer(&self) -> &str {
        let issuer = self.client.issuer.as_ref();
        issuer.unwrap_or(&self.token_endpoint)
    }
}

/// How a token is come by.
#[derive(Clone, Debug)]
pub(crate) enum Grant {
    /// A person agrees.
    Code,
    /// The client itself has the right.
    ClientCredentials,
    /// Somebody vouches for the client.
    Assertion,
    /// A company's identity provider vouches for a person.
    Enterprise(IdentityProvider),
}

/// What an application says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    pub(crate) name: String,
    pub(crate) client: Option<RegisteredClient>,
    /// Where it publishes what it is: its id wherever that is understood.
    pub(crate) metadata_url: Option<String>,
    /// Signs for the client that the metadata describe.
    pub(crate) metadata_key: Option<Arc<SigningKey>>,
    pub(crate) grant: Grant,
    /// Whether a server that publishes nothing is its own authorization server, as 2025-03-26 had it.
    pub(crate) falls_back: bool,
    pub(crate) scopes: ScopePolicy,
    /// What is added to the address that a person is sent to.
    pub(crate) authorization_params: Vec<(String, String)>,
    pub(crate) choose_issuer: Option<ChooseIssuer>,
    /// What the registration endpoint of an issuer wants to see, and which issuer that is.
    pub(crate) initial_access_token: Option<(String, Secret)>,
}

/// Which scopes are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopePolicy {
    /// What the application wants, in the place of all that the server publishes.
    pub(crate) wanted: Option<Scopes>,
    /// What may be asked for at most.
    pub(crate) at_most: Option<Scopes>,
}

/// Chooses among the issuers that a server names.
#[derive(Clone)]
pub(crate) struct ChooseIssuer(pub(crate) Arc<Choose>);

type Choose = dyn Fn(&[String]) -> Option<String> + Send + Sync;

impl std::fmt::Debug for ChooseIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChooseIssuer")
    }
}

impl Application {
    /// An application that has a person agree, and says nothing else about itself.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            client: None,
            metadata_url: None,
            metadata_key: None,
            grant: Grant::Code,
            falls_back: false,
            scopes: ScopePolicy::default(),
            authorization_params: Vec::new(),
            choose_issuer: None,
            initial_access_token: None,
        }
    }

    /// Whether a token can be had without asking a person.
    pub(crate) fn needs_nobody(&self) -> bool {
        !matches!(self.grant, Grant::Code)
    }

    /// The key that signs for a client with this id.
    pub(crate) fn key(&self, client_id: &str) -> Option<&SigningKey> {
        if let Some(client) = self.client.as_ref().filter(|client| client.id == client_id) {
            return match &client.proof {
                ClientProof::Key(key) => Some(key),
                ClientProof::None | ClientProof::Secret(_) => None,
            };
        }
        let is_described = self.metadata_url.as_deref() == Some(client_id);
        self.metadata_key.as_deref().filter(|_| is_described)
    }
}

/// Checks the address of a client's metadata: it is an id, and has a path.
pub(crate) fn check_metadata_url(address: &str) -> Result<()> {
    let is_fine = url::Url::parse(address)
        .is_ok_and(|url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none());
    if is_fine {
        Ok(())
    } else {
        Err(super::Error::misuse(format!(
            "`{address}` cannot be a client's id: that is an https:// URL with a path"
        )))
    }
}
