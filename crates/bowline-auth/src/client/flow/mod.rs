//! How a client comes by a token, without I/O: a [`Flow`] is handed responses, and answers with what to do next.
//!
//! ```text
//! who issues tokens? ──▶ how does that one work? ──▶ who are we to it? ─┬─▶ a person agrees ─┬─▶ a token, please
//!  (resource document)     (server document)          (registration)   └──── or nobody is ──┘
//!                                                                                  asked
//! ```
//!
//! Time and randomness are arguments ([`Moment`]). Each step believes of a response only what the rules let it
//! believe, and an address is used only if the guard lets it through.

mod discovery;

mod redirect;
use redirect::Opened;

mod registration;

mod token;
pub(crate) use token::DPOP_NONCE;
use token::TokenRequest;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bowline::http::client::Challenge;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::application::{Application, Grant};
use super::credentials::{Credentials, Registration, TokenKind};
use super::dpop::ProofKey;
use super::guard::Guard;
use super::metadata::{ResourceMetadata, ServerMetadata};
use super::moment::Moment;
use super::scopes::Scopes;
use super::{Error, Result, Secret};

/// What to do next. It is full of secrets, and has no `Debug`.
pub(crate) enum Step {
    /// Send this, and hand in the response.
    Send(Request<Bytes>),
    /// Take a person there, and hand in the address that they are sent back to.
    Open(Url),
    /// Get an assertion for the issuer with this name, and hand it in.
    Assert(String),
    /// The token is in the credentials.
    Done,
}

/// What a flow starts from.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) server: Url,
    pub(crate) application: Arc<Application>,
    pub(crate) guard: Guard,
    pub(crate) intent: Intent,
    /// What the server asked for, if it was asked.
    pub(crate) challenge: Option<Challenge>,
    pub(crate) credentials: Credentials,
    pub(crate) proof_key: Arc<ProofKey>,
    /// Where a person is sent back to, if one is to be asked.
    pub(crate) redirect_uri: Option<String>,
}

/// What a flow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// A token, whatever it takes.
    Obtain,
    /// A new token for an old one, without a prompt.
    Renew,
    /// Revokes the token at the issuer that it came from.
    Revoke,
}

/// A client on its way to a token.
#[derive(Debug)]
pub(crate) struct Flow {
    setup: Setup,
    state: State,
    resource: Option<ResourceMetadata>,
    server: Option<ServerMetadata>,
    client: Option<Registration>,
    /// The scopes that were asked for.
    requested: Scopes,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Waiting for the document of the resource.
    Resource {
        left: VecDeque<Url>,
        place: Place,
    },
    /// Waiting for the document of the authorization server.
    Server {
        issuer: String,
        left: VecDeque<Url>,
        place: Place,
    },
    Registering,
    /// A person is deciding.
    Opened(Opened),
    /// Waiting for an assertion of the application's.
    Asserting,
    /// Waiting for an assertion of the identity provider.
    Vouching,
    /// Waiting for a token.
    Redeeming(TokenRequest),
    /// Waiting for the end of one.
    Revoking,
}

/// A flow in which a person is deciding. `Debug` shows no secrets; `Serialize` writes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedFlow {
    challenge: Option<String>,
    opened: Opened,
    resource: Option<ResourceMetadata>,
    server: ServerMetadata,
    client: Registration,
    requested: Scopes,
}

impl SavedFlow {
    /// What comes back with the person.
    pub(crate) fn state(&self) -> &str {
        self.opened.state()
    }
}

/// Whether an address was guessed by the rules or named by a server. What is not where it was guessed is
/// looked for elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Guessed,
    Named,
    /// At the server itself, which is how 2025-03-26 had it.
    Assumed,
}

impl Flow {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            setup,
            state: State::Idle,
            resource: None,
            server: None,
            client: None,
            requested: Scopes::default(),
        }
    }

    /// What is known by now, whether or not the flow came to its end.
    pub(crate) fn credentials(&self) -> &Credentials {
        &self.setup.credentials
    }

    /// What has to be kept while a person decides, to go on in another process.
    pub(crate) fn save(&self) -> Result<SavedFlow> {
        let State::Opened(opened) = &self.state else {
            return Err(Error::misuse(
                "the flow is not waiting for a person's decision",
            ));
        };
        Ok(SavedFlow {
            challenge: self.setup.challenge.as_ref().map(Challenge::to_string),
            opened: opened.clone(),
            resource: self.resource.clone(),
            server: self.server()?.clone(),
            client: self.client()?.clone(),
            requested: self.requested.clone(),
        })
    }

    /// Goes on with a flow that was saved while a person decided.
    pub(crate) fn resume(setup: Setup, saved: SavedFlow) -> Self {
        let challenge = saved.challenge.as_deref();
        let challenge = challenge.and_then(|text| Challenge::parse_all([text]).pop());
        Self {
            setup: Setup {
                challenge,
                redirect_uri: Some(saved.opened.redirect_uri.clone()),
                ..setup
            },
            state: State::Opened(saved.opened),
            resource: saved.resource,
            server: Some(saved.server),
            client: Some(saved.client),
            requested: saved.requested,
        }
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> Result<Step> {
        let challenge = self.setup.challenge.as_ref();
        let named = challenge.and_then(Challenge::resource_metadata);
        let (left, place) = match named {
            Some(address) => {
                let url = self.setup.guard.admit("the resource metadata", address)?;
                (VecDeque::from([url]), Place::Named)
            }
            None => (
                discovery::resource_documents(&self.setup.server),
                Place::Guessed,
            ),
        };
        self.look_for_resource(left, place)
    }

    /// The step after the response to what was sent.
    pub(crate) fn response(&mut self, response: &Response<Bytes>, moment: &Moment) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Resource { left, place } => self.take_resource(response, left, place),
            State::Server {
                issuer,
                left,
                place,
            } => self.take_server(response, issuer, left, place, moment),
            State::Registering => {
                let client = self.registered(response)?;
                self.client = Some(client);
                self.ask(moment)
            }
            State::Vouching => {
                let assertion = token::vouched(response)?;
                self.redeem_assertion(&assertion, moment)
            }
            State::Redeeming(request) => self.take_token(request, response, moment),
            State::Revoking if response.status().is_success() => Ok(Step::Done),
            State::Revoking => Err(token::denied(response)),
            State::Idle | State::Opened(_) | State::Asserting => {
                Err(Error::misuse("the flow waits for no response"))
            }
        }
    }

    /// The step after a person came back to this address.
    pub(crate) fn redirected(&mut self, address: &str, moment: &Moment) -> Result<Step> {
        let State::Opened(opened) = std::mem::replace(&mut self.state, State::Idle) else {
            return Err(Error::misuse("the flow waits for nobody"));
        };
        let code = opened.code(address)?;
        let request = TokenRequest::new("authorization_code")
            .with("code", code)
            .with("redirect_uri", opened.redirect_uri)
            .with("code_verifier", opened.verifier.expose());
        self.redeem(request, moment)
    }

    /// The step after the application handed in an assertion.
    pub(crate) fn asserted(&mut self, assertion: &Secret, moment: &Moment) -> Result<Step> {
        let State::Asserting = std::mem::replace(&mut self.state, State::Idle) else {
            return Err(Error::misuse("the flow waits for no assertion"));
        };
        match &self.setup.application.grant {
            Grant::Enterprise(_) => self.have_vouched(assertion, moment),
            Grant::Assertion | Grant::Code | Grant::ClientCredentials => {
                self.redeem_assertion(assertion, moment)
            }
        }
    }

    fn look_for_resource(&mut self, mut left: VecDeque<Url>, place: Place) -> Result<Step> {
        let Some(next) = left.pop_front() else {
            if !self.setup.application.falls_back {
                return Err(Error::not_offered(format!(
                    "`{}` publishes no protected resource metadata; if it is an old one that needs none, see \
                     `OAuth::fall_back_without_metadata`",
                    self.setup.server
                )));
            }
            // Until 2025-03-26 there was no such document: a server was its own authorization server.
            let origin = discovery::origin(&self.setup.server);
            self.check_home(std::slice::from_ref(&origin))?;
            let url = self.setup.guard.admit("the server", &origin)?;
            let mut left = discovery::server_documents(&url);
            left.truncate(1);
            return self.look_for_server(origin, left, Place::Assumed);
        };
        self.state = State::Resource { left, place };
        Ok(Step::Send(get(&next)?))
    }

    fn take_resource(
        &mut self,
        response: &Response<Bytes>,
        left: VecDeque<Url>,
        place: Place,
    ) -> Result<Step> {
        let metadata: ResourceMetadata = match document(response)? {
            Some(metadata) => metadata,
            None if place == Place::Named => {
                let status = response.status();
                return Err(Error::broken(format!(
                    "the resource metadata is not where the server says it is: {status}"
                )));
            }
            None => return self.look_for_resource(left, place),
        };
        match place {
            Place::Named => discovery::check_same_resource(&self.setup.server, &metadata)?,
            Place::Guessed | Place::Assumed => {
                discovery::check_resource(&self.setup.server, &metadata)?;
            }
        }
        let issuer = self.choose_issuer(&metadata)?;
        self.resource = Some(metadata);
        let url = self.setup.guard.admit("the issuer", &issuer)?;
        self.look_for_server(issuer, discovery::server_documents(&url), Place::Guessed)
    }

    /// The one that the application chooses or that knows us, if there are several; otherwise the first.
    fn choose_issuer(&self, metadata: &ResourceMetadata) -> Result<String> {
        let named = &metadata.authorization_servers;
        self.check_home(named)?;
        if let (Some(choose), None) = (&self.setup.application.choose_issuer, self.home()) {
            let chosen = (choose.0)(named).filter(|chosen| named.contains(chosen));
            return chosen.ok_or_else(|| {
                let named = named.join("`, `");
                Error::untrusted(format!("none of the issuers `{named}` was chosen"))
            });
        }
        let tokens = self.setup.credentials.tokens.as_ref();
        let ours = self.home().or(tokens.map(|tokens| &tokens.issuer));
        let mut issuers = metadata.authorization_servers.iter();
        let known = issuers.clone().find(|issuer| Some(*issuer) == ours);
        let chosen = known.or_else(|| issuers.next()).cloned();
        chosen.ok_or_else(|| Error::broken("the server names nobody who issues its tokens"))
    }

    /// The only issuer that the application's own credentials may be shown to.
    fn home(&self) -> Option<&String> {
        let client = self.setup.application.client.as_ref()?;
        let issuer = client.issuer.as_ref();
        issuer.or(self.setup.credentials.bound_to.as_ref())
    }

    /// Refuses a server that names other issuers only, before any of them is visited.
    fn check_home(&self, named: &[String]) -> Result<()> {
        let Some(home) = self.home().filter(|home| !named.contains(home)) else {
            return Ok(());
        };
        let named = named.join("`, `");
        Err(Error::untrusted(format!(
            "the client is registered at `{home}`, and the server names `{named}`"
        )))
    }

    fn look_for_server(
        &mut self,
        issuer: String,
        mut left: VecDeque<Url>,
        place: Place,
    ) -> Result<Step> {
        let Some(next) = left.pop_front() else {
            return Err(Error::not_offered(format!(
                "`{issuer}` publishes no metadata"
            )));
        };
        self.state = State::Server {
            issuer,
            left,
            place,
        };
        Ok(Step::Send(get(&next)?))
    }

    fn take_server(
        &mut self,
        response: &Response<Bytes>,
        issuer: String,
        left: VecDeque<Url>,
        place: Place,
        moment: &Moment,
    ) -> Result<Step> {
        let metadata: ServerMetadata = match document(response)? {
            Some(metadata) => metadata,
            None if place == Place::Assumed => ServerMetadata::assumed(&issuer),
            None => return self.look_for_server(issuer, left, place),
        };
        discovery::check_issuer(&issuer, &metadata)?;
        self.server = Some(metadata);
        match self.setup.intent {
            Intent::Renew => self.renew(moment),
            Intent::Obtain => {
                self.check_grant()?;
                self.register(moment)
            }
            Intent::Revoke => self.revoke(moment),
        }
    }

    /// Refuses an authorization server that lacks what the grant needs, before it is sent anything: it would
    /// otherwise be left with a registration of ours, or an identity provider be asked for nothing.
    fn check_grant(&self) -> Result<()> {
        let server = self.server()?;
        match &self.setup.application.grant {
            Grant::Code if !server.supports_s256() => Err(Error::not_offered(format!(
                "`{}` does not protect authorization codes (PKCE with S256)",
                server.issuer
            ))),
            Grant::Assertion | Grant::Enterprise(_) if !server.may_support(token::JWT_BEARER) => {
                Err(Error::not_offered(format!(
                    "`{}` does not support the grant `{}`",
                    server.issuer,
                    token::JWT_BEARER
                )))
            }
            Grant::Code | Grant::ClientCredentials | Grant::Assertion | Grant::Enterprise(_) => {
                Ok(())
            }
        }
    }

    /// Whoever knows us is known: asks for what the grant needs.
    fn ask(&mut self, moment: &Moment) -> Result<Step> {
        match &self.setup.application.grant {
            Grant::Code => self.open(moment),
            Grant::ClientCredentials => {
                let mut request = TokenRequest::new("client_credentials");
                let scopes = self.scopes();
                if !scopes.is_empty() {
                    request = request.with("scope", scopes.to_string());
                }
                self.redeem(request, moment)
            }
            Grant::Assertion => {
                let issuer = self.server()?.issuer.clone();
                self.state = State::Asserting;
                Ok(Step::Assert(issuer))
            }
            Grant::Enterprise(provider) => {
                let issuer = provider.issuer().to_owned();
                self.state = State::Asserting;
                Ok(Step::Assert(issuer))
            }
        }
    }

    /// What is to be asked for: what the server asked for, else what the application wants or all that there is, and
    /// what we asked for before; of that, what the application allows.
    fn scopes(&self) -> Scopes {
        let policy = &self.setup.application.scopes;
        let challenged = self.setup.challenge.as_ref().and_then(Challenge::scope);
        let published = self
            .resource
            .as_ref()
            .and_then(|it| it.scopes_supported.clone());
        let wanted = match (challenged.map(Scopes::parse), &policy.wanted) {
            (Some(challenged), Some(wanted)) => challenged.and(wanted),
            (Some(challenged), None) => challenged,
            (None, Some(wanted)) => wanted.clone(),
            (None, None) => published.into_iter().flatten().collect(),
        };
        let wanted = match &self.setup.credentials.tokens {
            Some(tokens) => wanted.and(&tokens.requested),
            None => wanted,
        };
        match &policy.at_most {
            Some(at_most) => wanted.of(at_most),
            None => wanted,
        }
    }

    /// The name of the server, exactly as it gives it.
    fn resource_name(&self) -> String {
        match &self.resource {
            Some(metadata) => metadata.resource.clone(),
            None => {
                let mut server = self.setup.server.clone();
                server.set_fragment(None);
                server.to_string()
            }
        }
    }

    /// Whether the token is to be bound to our key.
    fn binds_token(&self) -> bool {
        let challenge = self.setup.challenge.as_ref();
        let is_asked = challenge.is_some_and(|challenge| challenge.is("DPoP"));
        let resource = self.resource.as_ref();
        let is_required = resource.is_some_and(|it| it.dpop_bound_access_tokens_required);
        let tokens = self.setup.credentials.tokens.as_ref();
        let was = self.setup.intent == Intent::Renew
            && tokens.is_some_and(|tokens| tokens.kind == TokenKind::Dpop);
        is_asked || is_required || was
    }

    fn server(&self) -> Result<&ServerMetadata> {
        let server = self.server.as_ref();
        server.ok_or_else(|| Error::misuse("the authorization server is not known yet"))
    }

    fn client(&self) -> Result<&Registration> {
        let client = self.client.as_ref();
        client.ok_or_else(|| Error::misuse("the client is not registered yet"))
    }

    /// An endpoint of the authorization server, if we go there.
    fn endpoint(&self, what: &str, address: Option<&String>) -> Result<Url> {
        match address {
            Some(address) => self.setup.guard.admit(what, address),
            None => Err(Error::not_offered(format!(
                "the authorization server has no {what}"
            ))),
        }
    }
}

/// The code in a redirect URI, for a flow with fixed secrets: what fuzz targets and their tests call.
#[cfg(any(test, fuzzing))]
pub(crate) fn code_of(address: &str, names_itself: bool) -> Result<String> {
    Opened::for_fuzzing(names_itself).code(address)
}

/// Reads a document; `None` if there is none at that place.
fn document<T: DeserializeOwned>(response: &Response<Bytes>) -> Result<Option<T>> {
    match response.status() {
        // Some servers answer every path with a page of theirs; that is no document.
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

fn request(url: &Url, builder: http::request::Builder, body: Bytes) -> Result<Request<Bytes>> {
    builder
        .header(header::ACCEPT, "application/json")
        .body(body)
        .map_err(|_| Error::broken(format!("{url} cannot be sent to")))
}
