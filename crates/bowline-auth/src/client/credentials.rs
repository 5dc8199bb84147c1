//! [`Credentials`]: the registrations and tokens for one server, as they are stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Secret;
use super::scopes::Scopes;

/// The registrations and tokens for one server. `Debug` hides secrets; `Serialize` includes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Changes with every save.
    #[serde(default)]
    pub(crate) version: String,
    /// The results of dynamic client registration by issuer; each is used with its own issuer only.
    #[serde(default)]
    pub(crate) registrations: BTreeMap<String, Registration>,
    /// The issuer where the application's preregistered client was first used; it is used nowhere else.
    #[serde(default)]
    pub(crate) bound_to: Option<String>,
    #[serde(default)]
    pub(crate) tokens: Option<Tokens>,
    /// The private key that DPoP tokens are bound to.
    #[serde(default)]
    pub(crate) proof_key: Option<Secret>,
    /// The refresh in progress, so that no two processes use the same refresh token.
    #[serde(default)]
    pub(crate) renewal: Option<RefreshClaim>,
}

/// A refresh in progress, in any process that shares the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefreshClaim {
    /// The client instance that refreshes: a random name, unique to each.
    pub(crate) claimant: String,
    /// When other processes stop waiting, in seconds since 1970: the refreshing process may have crashed.
    pub(crate) until: u64,
}

impl Credentials {
    /// Returns the version of these credentials: a string that changes with every save.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The client id and credentials at one authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) client_id: String,
    pub(crate) secret: Option<Secret>,
    pub(crate) method: AuthMethod,
    /// The redirect URI that was registered.
    pub(crate) redirect_uri: Option<String>,
    /// When the secret expires, in seconds since 1970.
    #[serde(default)]
    pub(crate) expires_at: Option<u64>,
}

/// The `token_endpoint_auth_method` of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AuthMethod {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
    #[serde(rename = "private_key_jwt")]
    PrivateKeyJwt,
}

impl AuthMethod {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Basic, Self::Post, Self::PrivateKeyJwt];
        all.into_iter().find(|method| method.name() == name)
    }
}

/// An access token, and what a refresh needs: issuer, client, refresh token, times and scopes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    pub(crate) issuer: String,
    /// The client that the token was issued to; only this client can refresh it.
    pub(crate) client: Registration,
    pub(crate) access: Secret,
    pub(crate) kind: TokenKind,
    pub(crate) refresh: Option<Secret>,
    /// When to refresh, in seconds since 1970: shortly before the token expires.
    pub(crate) renew_at: Option<u64>,
    /// When the token expires, in seconds since 1970.
    #[serde(default)]
    pub(crate) expires_at: Option<u64>,
    /// All scopes that were requested.
    pub(crate) requested: Scopes,
}

/// The `token_type` of an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenKind {
    Bearer,
    /// Bound to a key: each request needs a DPoP proof.
    Dpop,
}

impl Tokens {
    /// Returns the value of the `Authorization` header.
    pub(crate) fn header(&self) -> Zeroizing<String> {
        let scheme = match self.kind {
            TokenKind::Bearer => "Bearer",
            TokenKind::Dpop => "DPoP",
        };
        Zeroizing::new(format!("{scheme} {}", self.access.expose()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_credentials_hides_secrets() {
        let client = Registration {
            client_id: "id".into(),
            secret: Some(Secret::new("hush-1")),
            method: AuthMethod::Basic,
            redirect_uri: None,
            expires_at: None,
        };
        let credentials = Credentials {
            registrations: BTreeMap::from([("issuer".into(), client.clone())]),
            bound_to: None,
            tokens: Some(Tokens {
                issuer: "issuer".into(),
                client,
                access: Secret::new("hush-2"),
                kind: TokenKind::Bearer,
                refresh: Some(Secret::new("hush-3")),
                renew_at: None,
                expires_at: None,
                requested: Scopes::default(),
            }),
            proof_key: Some(Secret::new("hush-4")),
            ..Credentials::default()
        };

        let shown = format!("{credentials:?}");
        let written = serde_json::to_string(&credentials).unwrap();

        assert!(!shown.contains("hush"), "{shown}");
        assert_eq!(written.matches("hush").count(), 5);
        let read: Credentials = serde_json::from_str(&written).unwrap();
        assert_eq!(read, credentials);
    }
}
