//! The OAuth flow without I/O: a [`Flow`] takes responses and returns the next [`FlowStep`]. Driven by the runtime.
//!
//! ```text
//! FetchingResource ▶ FetchingServer ┬▶ [Registering] ┬▶ AwaitingRedirect ────────────────────────┬▶ RequestingToken
//!                                   │                ├▶ AwaitingAssertion ▶ [ExchangingIdToken] ─┤
//!                                   │                └▶ client credentials ──────────────────────┤
//!                                   ├▶ refresh token ────────────────────────────────────────────┘
//!                                   └▶ Revoking
//! ```
//!
//! The first two states fetch the protected resource metadata and those of the authorization server. States in
//! brackets are skipped where they are not needed. A flow is done after `RequestingToken` or `Revoking`.
//!
//! Time and randomness are arguments ([`TimeAndRandomness`]). A URL from a server is used only if the
//! [`AddressPolicy`] admits it.

mod discovery;

mod redirect;
use redirect::AuthorizationRequest;

mod registration;

mod token;
pub(crate) use token::DPOP_NONCE;
use token::TokenRequest;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bowline::http::RedactedUrl;
use bowline::http::client::Challenge;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::address_policy::AddressPolicy;
use super::application::{Application, Grant};
use super::credentials::{Credentials, Registration, TokenKind};
use super::dpop::ProofKey;
use super::metadata::{ResourceMetadata, ServerMetadata};
use super::scopes::Scopes;
use super::time_and_randomness::TimeAndRandomness;
use super::token_endpoint::parse_error_response;
use super::{Error, Result, Secret};

/// The next action of a flow. It contains secrets, so it does not implement `Debug`.
pub(crate) enum FlowStep {
    /// Send this request, and pass the response to [`Flow::handle_response`].
    Send(Request<Bytes>),
    /// Open this URL in a browser, and pass the redirect to [`Flow::handle_redirect`].
    Open(Url),
    /// Get an assertion for this issuer, and pass it to [`Flow::handle_assertion`].
    Assert(String),
    /// The credentials are updated.
    Done,
}

/// The input of a flow.
#[derive(Debug)]
pub(crate) struct FlowSetup {
    pub(crate) server: Url,
    pub(crate) application: Arc<Application>,
    pub(crate) address_policy: AddressPolicy,
    pub(crate) intent: Intent,
    /// The challenge of the refused request, if there was one.
    pub(crate) challenge: Option<Challenge>,
    pub(crate) credentials: Credentials,
    pub(crate) proof_key: Arc<ProofKey>,
    /// Where the authorization server redirects the user; `None` for grants without a user.
    pub(crate) redirect_uri: Option<String>,
}

/// The purpose of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Obtains a new token by the configured grant.
    Obtain,
    /// Refreshes the token, without a prompt.
    Refresh,
    /// Revokes the token at its issuer.
    Revoke,
}

/// One run of the OAuth protocol.
#[derive(Debug)]
pub(crate) struct Flow {
    setup: FlowSetup,
    state: FlowState,
    resource: Option<ResourceMetadata>,
    server: Option<ServerMetadata>,
    client: Option<Registration>,
    /// The scopes that are requested.
    requested: Scopes,
}

#[derive(Debug)]
enum FlowState {
    Idle,
    /// Waiting for the protected resource metadata.
    FetchingResource {
        remaining: VecDeque<Url>,
        source: MetadataSource,
    },
    /// Waiting for the authorization server metadata.
    FetchingServer {
        issuer: String,
        remaining: VecDeque<Url>,
        source: MetadataSource,
    },
    Registering,
    /// Waiting for the redirect.
    AwaitingRedirect(AuthorizationRequest),
    /// Waiting for an assertion from the application.
    AwaitingAssertion,
    /// Waiting for the ID-JAG from the identity provider.
    ExchangingIdToken,
    /// Waiting for the token response.
    RequestingToken(TokenRequest),
    /// Waiting for the revocation response.
    Revoking,
}

/// A flow that waits for its redirect. `Debug` hides secrets; `Serialize` includes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedFlow {
    challenge: Option<String>,
    #[serde(rename = "opened")]
    request: AuthorizationRequest,
    resource: Option<ResourceMetadata>,
    server: ServerMetadata,
    client: Registration,
    requested: Scopes,
}

impl SavedFlow {
    /// Returns the `state` parameter of the redirect.
    pub(crate) fn state(&self) -> &str {
        self.request.state()
    }
}

/// Where the URL of a metadata document comes from; this decides what happens if the document is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetadataSource {
    WellKnown,
    FromChallenge,
    /// The issuer is the server's own origin, as in 2025-03-26; missing metadata have defaults.
    Assumed,
}

impl Flow {
    pub(crate) fn new(setup: FlowSetup) -> Self {
        Self {
            setup,
            state: FlowState::Idle,
            resource: None,
            server: None,
            client: None,
            requested: Scopes::default(),
        }
    }

    /// Returns the credentials as updated so far, whether or not the flow has finished.
    pub(crate) fn credentials(&self) -> &Credentials {
        &self.setup.credentials
    }

    /// Returns the state to save while the user decides, for [`resume`](Self::resume) in another process.
    pub(crate) fn save(&self) -> Result<SavedFlow> {
        let FlowState::AwaitingRedirect(request) = &self.state else {
            return Err(Error::misuse("the flow is not waiting for a redirect"));
        };
        Ok(SavedFlow {
            challenge: self.setup.challenge.as_ref().map(Challenge::to_string),
            request: request.clone(),
            resource: self.resource.clone(),
            server: self.server()?.clone(),
            client: self.client()?.clone(),
            requested: self.requested.clone(),
        })
    }

    /// Restores a flow that was saved while it waited for its redirect.
    pub(crate) fn resume(setup: FlowSetup, saved: SavedFlow) -> Self {
        let challenge = saved.challenge.as_deref();
        let challenge = challenge.and_then(|text| Challenge::parse_all([text]).pop());
        Self {
            setup: FlowSetup {
                challenge,
                redirect_uri: Some(saved.request.redirect_uri.clone()),
                ..setup
            },
            state: FlowState::AwaitingRedirect(saved.request),
            resource: saved.resource,
            server: Some(saved.server),
            client: Some(saved.client),
            requested: saved.requested,
        }
    }

    /// Returns the first step.
    pub(crate) fn begin(&mut self) -> Result<FlowStep> {
        let challenge = self.setup.challenge.as_ref();
        let named = challenge.and_then(Challenge::resource_metadata);
        let (remaining, source) = match named {
            Some(address) => {
                let url = self
                    .setup
                    .address_policy
                    .admit("the resource metadata", address)?;
                (VecDeque::from([url]), MetadataSource::FromChallenge)
            }
            None => (
                discovery::resource_metadata_urls(&self.setup.server),
                MetadataSource::WellKnown,
            ),
        };
        self.fetch_resource_metadata(remaining, source)
    }

    /// Processes the response to the last request.
    pub(crate) fn handle_response(
        &mut self,
        response: &Response<Bytes>,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        match std::mem::replace(&mut self.state, FlowState::Idle) {
            FlowState::FetchingResource { remaining, source } => {
                self.handle_resource_metadata(response, remaining, source)
            }
            FlowState::FetchingServer {
                issuer,
                remaining,
                source,
            } => self.handle_server_metadata(response, issuer, remaining, source, fresh),
            FlowState::Registering => {
                let client = self.handle_registration_response(response)?;
                self.client = Some(client);
                self.start_grant(fresh)
            }
            FlowState::ExchangingIdToken => {
                let assertion = token::parse_id_jag(response)?;
                self.request_token_with_assertion(&assertion, fresh)
            }
            FlowState::RequestingToken(request) => {
                self.handle_token_response(request, response, fresh)
            }
            FlowState::Revoking if response.status().is_success() => Ok(FlowStep::Done),
            FlowState::Revoking => Err(parse_error_response("revocation", response)),
            FlowState::Idle | FlowState::AwaitingRedirect(_) | FlowState::AwaitingAssertion => {
                Err(Error::misuse("the flow is not waiting for a response"))
            }
        }
    }

    /// Processes the redirect, given its full URL.
    pub(crate) fn handle_redirect(
        &mut self,
        address: &str,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        let FlowState::AwaitingRedirect(sent) = std::mem::replace(&mut self.state, FlowState::Idle)
        else {
            return Err(Error::misuse("the flow is not waiting for a redirect"));
        };
        let code = sent.code(address)?;
        let request = TokenRequest::new("authorization_code")
            .with("code", code)
            .with("redirect_uri", sent.redirect_uri)
            .with("code_verifier", sent.verifier.expose());
        self.request_token(request, fresh)
    }

    /// Processes an assertion from the application.
    pub(crate) fn handle_assertion(
        &mut self,
        assertion: &Secret,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        let FlowState::AwaitingAssertion = std::mem::replace(&mut self.state, FlowState::Idle)
        else {
            return Err(Error::misuse("the flow is not waiting for an assertion"));
        };
        match &self.setup.application.grant {
            Grant::Enterprise(_) => self.exchange_id_token(assertion, fresh),
            Grant::Assertion | Grant::Code | Grant::ClientCredentials => {
                self.request_token_with_assertion(assertion, fresh)
            }
        }
    }

    fn fetch_resource_metadata(
        &mut self,
        mut remaining: VecDeque<Url>,
        source: MetadataSource,
    ) -> Result<FlowStep> {
        let Some(next) = remaining.pop_front() else {
            if !self.setup.application.assumes_default_endpoints {
                return Err(Error::unsupported(format!(
                    "`{}` publishes no protected resource metadata, which would say where to sign in; a bridge can do without it \
                     for a server of an older revision, with `oauth.withoutMetadata` in its file",
                    RedactedUrl::new(&self.setup.server)
                )));
            }
            // 2025-03-26 had no protected resource metadata: a server was its own authorization server.
            let origin = discovery::origin(&self.setup.server);
            self.check_client_issuer(std::slice::from_ref(&origin))?;
            let url = self.setup.address_policy.admit("the server", &origin)?;
            let mut remaining = discovery::server_metadata_urls(&url);
            remaining.truncate(1);
            return self.fetch_server_metadata(origin, remaining, MetadataSource::Assumed);
        };
        self.state = FlowState::FetchingResource { remaining, source };
        Ok(FlowStep::Send(get(&next)?))
    }

    fn handle_resource_metadata(
        &mut self,
        response: &Response<Bytes>,
        remaining: VecDeque<Url>,
        source: MetadataSource,
    ) -> Result<FlowStep> {
        let metadata: ResourceMetadata = match parse_document(response)? {
            Some(metadata) => metadata,
            None if source == MetadataSource::FromChallenge => {
                let status = response.status();
                return Err(Error::protocol(format!(
                    "no resource metadata at the URL in the challenge: status {status}"
                )));
            }
            None => return self.fetch_resource_metadata(remaining, source),
        };
        match source {
            MetadataSource::FromChallenge => {
                discovery::check_same_resource(&self.setup.server, &metadata)?
            }
            MetadataSource::WellKnown | MetadataSource::Assumed => {
                discovery::check_resource(&self.setup.server, &metadata)?;
            }
        }
        let issuer = self.choose_issuer(&metadata)?;
        self.resource = Some(metadata);
        let url = self.setup.address_policy.admit("the issuer", &issuer)?;
        self.fetch_server_metadata(
            issuer,
            discovery::server_metadata_urls(&url),
            MetadataSource::WellKnown,
        )
    }

    /// Returns the issuer that the application chooses, else that of the client or token, else the first.
    fn choose_issuer(&self, metadata: &ResourceMetadata) -> Result<String> {
        let named = &metadata.authorization_servers;
        self.check_client_issuer(named)?;
        if let (Some(choose), None) = (&self.setup.application.choose_issuer, self.client_issuer())
        {
            let chosen = (choose.0)(named).filter(|chosen| named.contains(chosen));
            return chosen.ok_or_else(|| {
                let named = shown_urls(named);
                Error::untrusted(format!("the application rejected the issuers `{named}`"))
            });
        }
        let tokens = self.setup.credentials.tokens.as_ref();
        let ours = self.client_issuer().or(tokens.map(|tokens| &tokens.issuer));
        let mut issuers = metadata.authorization_servers.iter();
        let known = issuers.clone().find(|issuer| Some(*issuer) == ours);
        let chosen = known.or_else(|| issuers.next()).cloned();
        chosen
            .ok_or_else(|| Error::protocol("the resource metadata have no `authorization_servers`"))
    }

    /// Returns the only issuer that the application's own credentials may be sent to.
    fn client_issuer(&self) -> Option<&String> {
        let client = self.setup.application.client.as_ref()?;
        let issuer = client.issuer.as_ref();
        issuer.or(self.setup.credentials.bound_to.as_ref())
    }

    /// Fails before any request to an authorization server if the issuer of the client is not among those named.
    fn check_client_issuer(&self, named: &[String]) -> Result<()> {
        let Some(client_issuer) = self
            .client_issuer()
            .filter(|client_issuer| !named.contains(client_issuer))
        else {
            return Ok(());
        };
        let named = shown_urls(named);
        Err(Error::untrusted(format!(
            "the client is registered at `{}`, and the server names `{named}`",
            RedactedUrl::new(client_issuer)
        )))
    }

    fn fetch_server_metadata(
        &mut self,
        issuer: String,
        mut remaining: VecDeque<Url>,
        source: MetadataSource,
    ) -> Result<FlowStep> {
        let Some(next) = remaining.pop_front() else {
            return Err(Error::unsupported(format!(
                "`{}` publishes no metadata",
                RedactedUrl::new(issuer)
            )));
        };
        self.state = FlowState::FetchingServer {
            issuer,
            remaining,
            source,
        };
        Ok(FlowStep::Send(get(&next)?))
    }

    fn handle_server_metadata(
        &mut self,
        response: &Response<Bytes>,
        issuer: String,
        remaining: VecDeque<Url>,
        source: MetadataSource,
        fresh: &TimeAndRandomness,
    ) -> Result<FlowStep> {
        let metadata: ServerMetadata = match parse_document(response)? {
            Some(metadata) => metadata,
            None if source == MetadataSource::Assumed => ServerMetadata::default_endpoints(&issuer),
            None => return self.fetch_server_metadata(issuer, remaining, source),
        };
        discovery::check_issuer(&issuer, &metadata)?;
        self.server = Some(metadata);
        match self.setup.intent {
            Intent::Refresh => self.refresh(fresh),
            Intent::Obtain => {
                self.check_grant()?;
                self.register(fresh)
            }
            Intent::Revoke => self.revoke(fresh),
        }
    }

    /// Checks that the authorization server supports the grant, before registering there or contacting the identity
    /// provider needlessly.
    fn check_grant(&self) -> Result<()> {
        let server = self.server()?;
        match &self.setup.application.grant {
            Grant::Code if !server.supports_s256() => Err(Error::unsupported(format!(
                "`{}` does not support PKCE with S256",
                RedactedUrl::new(&server.issuer)
            ))),
            Grant::Assertion | Grant::Enterprise(_) if !server.may_support(token::JWT_BEARER) => {
                Err(Error::unsupported(format!(
                    "`{}` does not support the grant `{}`",
                    RedactedUrl::new(&server.issuer),
                    token::JWT_BEARER
                )))
            }
            Grant::Code | Grant::ClientCredentials | Grant::Assertion | Grant::Enterprise(_) => {
                Ok(())
            }
        }
    }

    /// Starts the configured grant; the client is registered by now.
    fn start_grant(&mut self, fresh: &TimeAndRandomness) -> Result<FlowStep> {
        match &self.setup.application.grant {
            Grant::Code => self.request_authorization(fresh),
            Grant::ClientCredentials => {
                let mut request = TokenRequest::new("client_credentials");
                let scopes = self.scopes();
                if !scopes.is_empty() {
                    request = request.with("scope", scopes.to_string());
                }
                self.request_token(request, fresh)
            }
            Grant::Assertion => {
                let issuer = self.server()?.issuer.clone();
                self.state = FlowState::AwaitingAssertion;
                Ok(FlowStep::Assert(issuer))
            }
            Grant::Enterprise(provider) => {
                let issuer = provider.issuer().to_owned();
                self.state = FlowState::AwaitingAssertion;
                Ok(FlowStep::Assert(issuer))
            }
        }
    }

    /// Returns the scopes to request: those of the challenge and of the application, or else all that the server
    /// publishes; plus those requested before; limited to those the application allows.
    fn scopes(&self) -> Scopes {
        let policy = &self.setup.application.scopes;
        let challenged = self.setup.challenge.as_ref().and_then(Challenge::scope);
        let published = self
            .resource
            .as_ref()
            .and_then(|it| it.scopes_supported.clone());
        let wanted = match (challenged.map(Scopes::parse), &policy.wanted) {
            (Some(challenged), Some(wanted)) => challenged.union(wanted),
            (Some(challenged), None) => challenged,
            (None, Some(wanted)) => wanted.clone(),
            (None, None) => published.into_iter().flatten().collect(),
        };
        let wanted = match &self.setup.credentials.tokens {
            Some(tokens) => wanted.union(&tokens.requested),
            None => wanted,
        };
        match &policy.allowed {
            Some(allowed) => wanted.intersection(allowed),
            None => wanted,
        }
    }

    /// Returns the resource indicator (RFC 8707), byte for byte as the metadata spell it.
    fn resource_indicator(&self) -> String {
        match &self.resource {
            Some(metadata) => metadata.resource.clone(),
            None => {
                let mut server = self.setup.server.clone();
                // A key in the URL is meant for the MCP server only. These fail for URLs without a host, which have no
                // user info.
                let _ = server.set_username("");
                let _ = server.set_password(None);
                server.set_query(None);
                server.set_fragment(None);
                server.into()
            }
        }
    }

    /// Returns whether to request a DPoP-bound token.
    fn requires_dpop(&self) -> bool {
        let challenge = self.setup.challenge.as_ref();
        let is_challenged = challenge.is_some_and(|challenge| challenge.has_scheme("DPoP"));
        let resource = self.resource.as_ref();
        let is_required = resource.is_some_and(|it| it.dpop_bound_access_tokens_required);
        let tokens = self.setup.credentials.tokens.as_ref();
        let is_bound_already = self.setup.intent == Intent::Refresh
            && tokens.is_some_and(|tokens| tokens.kind == TokenKind::Dpop);
        is_challenged || is_required || is_bound_already
    }

    fn server(&self) -> Result<&ServerMetadata> {
        let server = self.server.as_ref();
        server.ok_or_else(|| Error::misuse("the authorization server metadata are not loaded yet"))
    }

    fn client(&self) -> Result<&Registration> {
        let client = self.client.as_ref();
        client.ok_or_else(|| Error::misuse("the client is not registered yet"))
    }

    /// Parses an endpoint of the authorization server metadata, if it exists and the address policy admits it.
    fn endpoint(&self, what: &str, address: Option<&String>) -> Result<Url> {
        match address {
            Some(address) => self.setup.address_policy.admit(what, address),
            None => Err(Error::unsupported(format!(
                "the authorization server has no {what}"
            ))),
        }
    }
}

/// Returns the code in a redirect URL for a flow with fixed secrets; for fuzz targets and their tests.
#[cfg(any(test, fuzzing))]
pub(crate) fn code_of(address: &str, requires_iss: bool) -> Result<String> {
    AuthorizationRequest::for_fuzzing(requires_iss).code(address)
}

/// Parses a metadata document; `None` if there is none at this URL.
fn parse_document<T: DeserializeOwned>(response: &Response<Bytes>) -> Result<Option<T>> {
    match response.status() {
        // Some servers respond to every path with an HTML page and status 200.
        StatusCode::OK => Ok(serde_json::from_slice(response.body()).ok()),
        status if status.is_server_error() => Err(Error::Unavailable {
            what: "the metadata document",
            status: status.as_u16(),
        }),
        _ => Ok(None),
    }
}

fn get(url: &Url) -> Result<Request<Bytes>> {
    request(url, Request::get(url.as_str()), Bytes::new())
}

pub(crate) fn request(
    url: &Url,
    builder: http::request::Builder,
    body: Bytes,
) -> Result<Request<Bytes>> {
    builder
        .header(header::ACCEPT, "application/json")
        .body(body)
        .map_err(|_| {
            let url = RedactedUrl::new(url);
            Error::protocol(format!("{url} is not a valid request URL"))
        })
}

fn shown_urls(urls: &[String]) -> String {
    let shown: Vec<_> = urls
        .iter()
        .map(|url| RedactedUrl::new(url).to_string())
        .collect();
    shown.join("`, `")
}
