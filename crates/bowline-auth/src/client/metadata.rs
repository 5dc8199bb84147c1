//! The metadata documents of protected resources and authorization servers, as the client parses them.

use serde::{Deserialize, Serialize};

/// Protected resource metadata (RFC 9728).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ResourceMetadata {
    /// The resource identifier, byte for byte.
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) authorization_servers: Vec<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) dpop_bound_access_tokens_required: bool,
}

/// Authorization server metadata (RFC 8414, OpenID Connect Discovery).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ServerMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    #[serde(default)]
    pub(crate) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(crate) code_challenge_methods_supported: Vec<String>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(crate) grant_types_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub(crate) client_id_metadata_document_supported: bool,
}

impl ServerMetadata {
    /// Returns the default endpoints that 2025-03-26 specifies for servers without metadata.
    pub(crate) fn default_endpoints(origin: &str) -> Self {
        let at = |path: &str| Some(format!("{origin}/{path}"));
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: at("authorize"),
            token_endpoint: at("token"),
            registration_endpoint: at("register"),
            revocation_endpoint: None,
            scopes_supported: Vec::new(),
            code_challenge_methods_supported: vec!["S256".into()],
            token_endpoint_auth_methods_supported: None,
            grant_types_supported: None,
            authorization_response_iss_parameter_supported: false,
            client_id_metadata_document_supported: false,
        }
    }

    pub(crate) fn supports_s256(&self) -> bool {
        let mut methods = self.code_challenge_methods_supported.iter();
        methods.any(|method| method == "S256")
    }

    /// Returns whether a grant can be tried: it is listed, or the list is missing. The default of RFC 8414 for a
    /// missing list is ignored, because servers without a list often support other grants too.
    pub(crate) fn may_support(&self, grant_type: &str) -> bool {
        let listed = self.grant_types_supported.as_ref();
        listed.is_none_or(|listed| listed.iter().any(|listed| listed == grant_type))
    }
}
