//! What is remembered of one server: who we are to its authorization servers, and the tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Secret;
use super::scopes::Scopes;

/// Everything that is remembered of one server. `Debug` shows no secrets; `Serialize` writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Another one each time that they are saved.
    #[serde(default)]
    pub(crate) version: String,
    /// By the issuer that gave them. None is ever shown to another.
    #[serde(default)]
    pub(crate) registrations: BTreeMap<String, Registration>,
    /// The issuer that the application's own credentials belong to, once they were used.
    #[serde(default)]
    pub(crate) bound_to: Option<String>,
    #[serde(default)]
    pub(crate) tokens: Option<Tokens>,
    /// The key that tokens are bound to.
    #[serde(default)]
    pub(crate) proof_key: Option<Secret>,
    /// Who is renewing the token, so that no two processes use up the same refresh token.
    #[serde(default)]
    pub(crate) renewal: Option<Renewal>,
}

/// A renewal under way, in some process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renewal {
    /// A name that no two clients have.
    pub(crate) by: String,
    /// When the others stop waiting for it, in seconds since 1970: the process may have ended.
    pub(crate) until: u64,
}

impl Credentials {
    /// Returns the version of these credentials: text that is another one each time they change.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// Who we are to an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) client_id: String,
    pub(crate) secret: Option<Secret>,
    pub(crate) method: AuthMethod,
    /// Where people are sent back to.
    pub(crate) redirect_uri: Option<String>,
    /// When the secret expires, in seconds since 1970.
    #[serde(default)]
    pub(crate) expires_at: Option<u64>,
}

/// How a client shows at the token endpoint that it is itself.
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

    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Basic, Self::Post, Self::PrivateKeyJwt];
        all.into_iter().find(|method| method.name() == name)
    }
}

/// A token, and what came with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    pub(crate) issuer: String,
    /// Whom the token was given to, and who alone may renew it.
    pub(crate) client: Registration,
    pub(crate) access: Secret,
    pub(crate) kind: TokenKind,
    pub(crate) refresh: Option<Secret>,
    /// When it is to be renewed, in seconds since 1970: a little before it expires.
    pub(crate) renew_at: Option<u64>,
    /// When it expires, in seconds since 1970.
    #[serde(default)]
    pub(crate) expires_at: Option<u64>,
    /// All scopes that were asked for.
    pub(crate) requested: Scopes,
}

/// How a token is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenKind {
    Bearer,
    /// With a proof of having the key that it is bound to.
    Dpop,
}

impl Tokens {
    /// The value of the `Authorization` header.
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
    fn what_is_remembered_does_not_show_its_secrets() {
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
