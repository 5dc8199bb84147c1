//! Token requests and responses: authorization code, refresh token, client credentials, assertions and revocation.

use bytes::Bytes;
use http::{HeaderName, Method, Response};

use super::{Flow, FlowState, FlowStep};
use crate::client::application::Grant;
use crate::client::credentials::{TokenKind, Tokens};
use crate::client::dpop::ProofTarget;
use crate::client::time_and_randomness::TimeAndRandomness;
use crate::client::token_endpoint::{AuthenticatedClient, TokenResponse, parse_error_response};
use crate::client::{Error, Result, Secret};

/// A token request, kept until its response: a `use_dpop_nonce` error repeats it.
pub(super) struct TokenRequest {
    form: Vec<(&'static str, String)>,
    /// The `DPoP-Nonce` of the first response.
    nonce: Option<String>,
}

impl TokenRequest {
    pub(super) fn new(grant_type: &str) -> Self {
        Self {
            form: vec![("grant_type", grant_type.to_owned())],
            nonce: None,
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.form.push((name, value.into()));
        self
    }

    fn is_refresh(&self) -> bool {
        self.form[0].1 == "refresh_token"
    }
}

impl std::fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRequest")
            .field("grant_type", &self.form[0].1)
            .finish_non_exhaustive()
    }
}

impl Flow {
    /// Refreshes the token, if this is its issuer.
    pub(super) fn refresh(&mut self, fresh: &TimeAndRandomness) -> Result<FlowStep> {
        let server = self.server()?;
        let tokens = self.setup.credentials.tokens.as_ref();
        let tokens = tokens.filter(|tokens| tokens.issuer == server.issuer);
        let Some((tokens, refresh)) =
            tokens.and_then(|tokens| Some((tokens, tokens.refresh.as_ref()?)))
        else {
            return Err(Error::unsupported("no refresh token from this issuer"));
        };
        let request = TokenRequest::new("refresh_token").with("refresh_token", refresh.expose());
        self.client = Some(tokens.client.clone());
        self.requested = tokens.requested.clone();
        self.request_token(request, fresh)
    }

    /// Revokes the refresh token, which also invalidates its access tokens, or else the access token (RFC 7009).
    pub(super) fn revoke(&mut self, fresh: &TimeAndRandomness) -> Result<FlowStep> {
        let server = self.server()?;
        let tokens = self.setup.credentials.tokens.as_ref();
        let Some(tokens) = tokens.filter(|tokens| tokens.issuer == server.issuer) else {
            return Err(Error::unsupported("no token from this issuer to revoke"));
        };
        let address = server.revocation_endpoint.as_ref();
        let endpoint = self.endpoint("revocation endpoint", address)?;
        let (token, hint) = match &tokens.refresh {
            Some(refresh) => (refresh, "refresh_token"),
            None => (&tokens.access, "access_token"),
        };
        let form = vec![
            ("token", token.expose().to_owned()),
            ("token_type_hint", hint.to_owned()),
        ];
        let client = AuthenticatedClient {
            client: &tokens.client,
            key: self.setup.application.key(&tokens.client.client_id),
            audience: &server.issuer,
        };
        let sent = client.form_request(&endpoint, form, None, fresh)?;
        self.state = FlowState::Revoking;
        Ok(FlowStep::Send(sent))
    }

    /// Exchanges an ID token for an ID-JAG at the identity provider (RFC 8693).
    pub(super) fn exchange_id_token(
        &mut self,
        id_token: &Secret,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        let Grant::Enterprise(provider) = &self.setup.application.grant else {
            return Err(Error::misuse("no identity provider is set"));
        };
        let token_type = "urn:ietf:params:oauth:token-type";
        let form = TokenRequest::new("urn:ietf:params:oauth:grant-type:token-exchange")
            .with("requested_token_type", format!("{token_type}:id-jag"))
            .with("subject_token", id_token.expose())
            .with("subject_token_type", format!("{token_type}:id_token"))
            .with("audience", &self.server()?.issuer)
            .with("resource", self.resource_indicator());
        // Not checked by the address policy: the application configured the URL, not a server.
        let endpoint = url::Url::parse(&provider.token_endpoint)
            .map_err(|_| Error::misuse("the identity provider's token endpoint is not a URL"))?;
        let client = provider.client.registration();
        let key = provider.client.signing_key();
        let audience = endpoint.as_str();
        let client = AuthenticatedClient {
            client: &client,
            key,
            audience,
        };
        let sent = client.form_request(&endpoint, form.form, None, fresh)?;
        self.state = FlowState::ExchangingIdToken;
        Ok(FlowStep::Send(sent))
    }

    /// Requests a token with the JWT bearer grant.
    pub(super) fn request_token_with_assertion(
        &mut self,
        assertion: &Secret,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        let mut request = TokenRequest::new(JWT_BEARER).with("assertion", assertion.expose());
        let scopes = self.scopes();
        if !scopes.is_empty() {
            request = request.with("scope", scopes.to_string());
        }
        self.request_token(request, fresh)
    }

    /// Sends a token request.
    pub(super) fn request_token(
        &mut self,
        request: TokenRequest,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        if let Some((_, scopes)) = request.form.iter().find(|(name, _)| *name == "scope") {
            self.requested = super::Scopes::parse(scopes);
        }
        let server = self.server()?;
        let endpoint = self.endpoint("token endpoint", server.token_endpoint.as_ref())?;
        let mut form = request.form.clone();
        form.push(("resource", self.resource_indicator()));
        let proof = match self.requires_dpop() {
            true => {
                let target = ProofTarget {
                    method: &Method::POST,
                    url: &endpoint,
                    token: None,
                    nonce: request.nonce.as_deref(),
                };
                Some(self.setup.proof_key.prove(&target, fresh)?)
            }
            false => None,
        };
        let client = AuthenticatedClient {
            client: self.client()?,
            key: self.setup.application.key(&self.client()?.client_id),
            audience: &server.issuer,
        };
        let sent = client.form_request(&endpoint, form, proof, fresh)?;
        self.state = FlowState::RequestingToken(request);
        Ok(FlowStep::Send(sent))
    }

    /// Processes a token response.
    pub(super) fn handle_token_response(
        &mut self,
        mut request: TokenRequest,
        response: &Response<Bytes>,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        if !response.status().is_success() {
            let denied = parse_error_response("token request", response);
            let Error::Denied { error, .. } = &denied else {
                return Err(denied);
            };
            match (&**error, response.headers().get(DPOP_NONCE)) {
                ("use_dpop_nonce", Some(nonce)) if request.nonce.is_none() => {
                    request.nonce = nonce.to_str().ok().map(str::to_owned);
                    return self.request_token(request, fresh);
                }
                ("invalid_grant", _) if request.is_refresh() => self.forget_refresh_token(),
                ("invalid_client", _) => {
                    self.forget_registration();
                    // The refresh token belongs to the unknown client. In other flows the stored token was not part of
                    // the request, and another process may have saved a newer one.
                    if request.is_refresh() {
                        self.forget_refresh_token();
                    }
                }
                _ => {}
            }
            return Err(denied);
        }
        let tokens = self.parse_tokens(&request, response, fresh)?;
        self.setup.credentials.tokens = Some(tokens);
        Ok(FlowStep::Done)
    }

    fn parse_tokens(
        &self,
        request: &TokenRequest,
        response: &Response<Bytes>,
        fresh: &TimeAndRandomness,
    ) -> Result<Tokens> {
        let parsed = TokenResponse::read(response)?;
        let kind = match parsed.token_type.to_ascii_lowercase().as_str() {
            "bearer" => TokenKind::Bearer,
            "dpop" if self.requires_dpop() => TokenKind::Dpop,
            other => {
                return Err(Error::unsupported(format!(
                    "unsupported token type `{other}`"
                )));
            }
        };
        let old = self.setup.credentials.tokens.as_ref();
        // Without rotation the response has no refresh token, and the old one stays valid.
        let reused = old
            .filter(|_| request.is_refresh())
            .and_then(|old| old.refresh.clone());
        let lifetime = parsed.lifetime();
        Ok(Tokens {
            issuer: self.server()?.issuer.clone(),
            client: self.client()?.clone(),
            access: parsed.access_token,
            kind,
            refresh: parsed.refresh_token.or(reused),
            renew_at: lifetime.map(|lifetime| {
                let head_start = (lifetime / 10).min(MAX_REFRESH_HEAD_START);
                fresh.seconds().saturating_add(lifetime - head_start)
            }),
            expires_at: lifetime.map(|lifetime| fresh.seconds().saturating_add(lifetime)),
            requested: self.requested.clone(),
        })
    }

    fn forget_refresh_token(&mut self) {
        if let Some(tokens) = &mut self.setup.credentials.tokens {
            tokens.refresh = None;
        }
    }

    /// Removes the registration that the server no longer knows, so that the next flow registers again.
    fn forget_registration(&mut self) {
        if let Some(server) = &self.server {
            self.setup.credentials.registrations.remove(&server.issuer);
        }
    }
}

/// Parses the ID-JAG in an identity provider's response.
pub(super) fn parse_id_jag(response: &Response<Bytes>) -> Result<Secret> {
    if !response.status().is_success() {
        return Err(parse_error_response("token request", response));
    }
    Ok(TokenResponse::read(response)?.access_token)
}

/// The response header with the nonce for the next DPoP proof.
pub(crate) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// The grant type of a JWT assertion (RFC 7523).
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The maximum time between the refresh and the expiry of a token, in seconds.
const MAX_REFRESH_HEAD_START: u64 = 30;
