//! Asking for a token, and taking it in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{Flow, State, Step, request};
use crate::client::application::{ClientProof, Grant};
use crate::client::credentials::{AuthMethod, Registration, TokenKind, Tokens};
use crate::client::dpop::Proving;
use crate::client::jwt::SigningKey;
use crate::client::moment::Moment;
use crate::client::{Error, Result, Secret};

/// A request for a token, which may have to be sent a second time.
pub(super) struct TokenRequest {
    form: Vec<(&'static str, String)>,
    /// What the server wanted to see in the proof, once it said so.
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

    fn is_renewal(&self) -> bool {
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
    /// Renews a token at the issuer that it came from.
    pub(super) fn renew(&mut self, moment: &Moment) -> Result<Step> {
        let server = self.server()?;
        let tokens = self.setup.credentials.tokens.as_ref();
        let tokens = tokens.filter(|tokens| tokens.issuer == server.issuer);
        let Some((tokens, refresh)) =
            tokens.and_then(|tokens| Some((tokens, tokens.refresh.as_ref()?)))
        else {
            return Err(Error::not_offered(
                "there is no token that could be renewed",
            ));
        };
        let request = TokenRequest::new("refresh_token").with("refresh_token", refresh.expose());
        self.client = Some(tokens.client.clone());
        self.requested = tokens.requested.clone();
        self.redeem(request, moment)
    }

    /// Ends a token, and with it all that was given out for it (RFC 7009).
    pub(super) fn revoke(&mut self, moment: &Moment) -> Result<Step> {
        let server = self.server()?;
        let tokens = self.setup.credentials.tokens.as_ref();
        let Some(tokens) = tokens.filter(|tokens| tokens.issuer == server.issuer) else {
            return Err(Error::not_offered("a token that could be revoked"));
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
        let sender = Sender {
            client: &tokens.client,
            key: self.setup.application.key(&tokens.client.client_id),
            audience: &server.issuer,
        };
        let sent = sender.form(&endpoint, form, None, moment)?;
        self.state = State::Revoking;
        Ok(Step::Send(sent))
    }

    /// Has the identity provider vouch for a person.
    pub(super) fn have_vouched(&mut self, id_token: &Secret, moment: &Moment) -> Result<Step> {
        let Grant::Enterprise(provider) = &self.setup.application.grant else {
            return Err(Error::misuse("there is no identity provider"));
        };
        let token_type = "urn:ietf:params:oauth:token-type";
        let form = TokenRequest::new("urn:ietf:params:oauth:grant-type:token-exchange")
            .with("requested_token_type", format!("{token_type}:id-jag"))
            .with("subject_token", id_token.expose())
            .with("subject_token_type", format!("{token_type}:id_token"))
            .with("audience", &self.server()?.issuer)
            .with("resource", self.resource_name());
        // The application named it, so that no server can have misled us.
        let endpoint = url::Url::parse(&provider.token_endpoint)
            .map_err(|_| Error::misuse("the identity provider's token endpoint is no URL"))?;
        let client = Registration {
            client_id: provider.client.id.clone(),
            secret: match &provider.client.proof {
                ClientProof::Secret(secret) => Some(secret.clone()),
                ClientProof::None | ClientProof::Key(_) => None,
            },
            method: match &provider.client.proof {
                ClientProof::None => AuthMethod::None,
                ClientProof::Secret(_) => AuthMethod::Basic,
                ClientProof::Key(_) => AuthMethod::PrivateKeyJwt,
            },
            redirect_uri: None,
            expires_at: None,
        };
        let key = match &provider.client.proof {
            ClientProof::Key(key) => Some(&**key),
            ClientProof::None | ClientProof::Secret(_) => None,
        };
        let audience = endpoint.as_str();
        let sender = Sender {
            client: &client,
            key,
            audience,
        };
        let sent = sender.form(&endpoint, form.form, None, moment)?;
        self.state = State::Vouching;
        Ok(Step::Send(sent))
    }

    /// Asks for a token by what somebody says who vouches for us.
    pub(super) fn redeem_assertion(&mut self, assertion: &Secret, moment: &Moment) -> Result<Step> {
        let mut request = TokenRequest::new(JWT_BEARER).with("assertion", assertion.expose());
        let scopes = self.scopes();
        if !scopes.is_empty() {
            request = request.with("scope", scopes.to_string());
        }
        self.redeem(request, moment)
    }

    /// Asks for a token.
    pub(super) fn redeem(&mut self, request: TokenRequest, moment: &Moment) -> Result<Step> {
        if let Some((_, scopes)) = request.form.iter().find(|(name, _)| *name == "scope") {
            self.requested = super::Scopes::parse(scopes);
        }
        let server = self.server()?;
        let endpoint = self.endpoint("token endpoint", server.token_endpoint.as_ref())?;
        let mut form = request.form.clone();
        form.push(("resource", self.resource_name()));
        let proof = match self.binds_token() {
            true => {
                let proving = Proving {
                    method: &Method::POST,
                    url: &endpoint,
                    token: None,
                    nonce: request.nonce.as_deref(),
                };
                Some(self.setup.proof_key.prove(&proving, moment)?)
            }
            false => None,
        };
        let sender = Sender {
            client: self.client()?,
            key: self.setup.application.key(&self.client()?.client_id),
            audience: &server.issuer,
        };
        let sent = sender.form(&endpoint, form, proof, moment)?;
        self.state = State::Redeeming(request);
        Ok(Step::Send(sent))
    }

    /// Takes in the answer to a request for a token.
    pub(super) fn take_token(
        &mut self,
        mut request: TokenRequest,
        response: &Response<Bytes>,
        moment: &Moment,
    ) -> Result<Step> {
        if !response.status().is_success() {
            let refusal = denied(response);
            let Error::Denied { error, .. } = &refusal else {
                return Err(refusal);
            };
            match (&**error, response.headers().get(DPOP_NONCE)) {
                ("use_dpop_nonce", Some(nonce)) if request.nonce.is_none() => {
                    request.nonce = nonce.to_str().ok().map(str::to_owned);
                    return self.redeem(request, moment);
                }
                ("invalid_grant", _) if request.is_renewal() => self.forget_refresh_token(),
                ("invalid_client", _) => {
                    self.forget_registration();
                    // It was given to the client that is not known any more. In any other flow the token is not what
                    // was refused, and another process may have a newer one.
                    if request.is_renewal() {
                        self.forget_refresh_token();
                    }
                }
                _ => {}
            }
            return Err(refusal);
        }
        let tokens = self.tokens(&request, response, moment)?;
        self.setup.credentials.tokens = Some(tokens);
        Ok(Step::Done)
    }

    fn tokens(
        &self,
        request: &TokenRequest,
        response: &Response<Bytes>,
        moment: &Moment,
    ) -> Result<Tokens> {
        let answer = TokenAnswer::read(response)?;
        let kind = match answer.token_type.to_ascii_lowercase().as_str() {
            "bearer" => TokenKind::Bearer,
            "dpop" if self.binds_token() => TokenKind::Dpop,
            other => {
                return Err(Error::not_offered(format!(
                    "a token that this client can show; it is of the type `{other}`"
                )));
            }
        };
        let old = self.setup.credentials.tokens.as_ref();
        // A server that rotates refresh tokens sends a new one; otherwise the old one stays good.
        let kept = old
            .filter(|_| request.is_renewal())
            .and_then(|old| old.refresh.clone());
        let lifetime = answer.expires_in.as_ref().and_then(seconds);
        Ok(Tokens {
            issuer: self.server()?.issuer.clone(),
            client: self.client()?.clone(),
            access: answer.access_token,
            kind,
            refresh: answer.refresh_token.or(kept),
            renew_at: lifetime.map(|lifetime| {
                let head_start = (lifetime / 10).min(LONGEST_HEAD_START);
                moment.seconds().saturating_add(lifetime - head_start)
            }),
            expires_at: lifetime.map(|lifetime| moment.seconds().saturating_add(lifetime)),
            requested: self.requested.clone(),
        })
    }

    fn forget_refresh_token(&mut self) {
        if let Some(tokens) = &mut self.setup.credentials.tokens {
            tokens.refresh = None;
        }
    }

    /// The server does not know us any more, so that the next flow registers anew.
    fn forget_registration(&mut self) {
        if let Some(server) = &self.server {
            self.setup.credentials.registrations.remove(&server.issuer);
        }
    }
}

/// Whoever sends a form to a token endpoint.
struct Sender<'a> {
    client: &'a Registration,
    key: Option<&'a SigningKey>,
    /// Whom a signature is meant for.
    audience: &'a str,
}

impl Sender<'_> {
    fn form(
        &self,
        endpoint: &url::Url,
        mut form: Vec<(&'static str, String)>,
        proof: Option<String>,
        moment: &Moment,
    ) -> Result<Request<Bytes>> {
        let mut builder = Request::post(endpoint.as_str())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let Registration {
            client_id, secret, ..
        } = self.client;
        match (self.client.method, secret) {
            (AuthMethod::Basic, Some(secret)) => {
                let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose()));
                let basic = format!("Basic {}", STANDARD.encode(pair));
                builder = builder.header(header::AUTHORIZATION, basic);
            }
            (AuthMethod::Post, Some(secret)) => {
                form.push(("client_id", client_id.clone()));
                form.push(("client_secret", secret.expose().to_owned()));
            }
            (AuthMethod::PrivateKeyJwt, _) => {
                form.push(("client_id", client_id.clone()));
                form.push(("client_assertion_type", ASSERTION_TYPE.to_owned()));
                form.push(("client_assertion", self.assert(moment)?));
            }
            (AuthMethod::None, _) => form.push(("client_id", client_id.clone())),
            (AuthMethod::Basic | AuthMethod::Post, None) => {
                return Err(Error::broken(
                    "the client has to authenticate by a secret, and was given none",
                ));
            }
        }
        if let Some(proof) = proof {
            builder = builder.header("dpop", proof);
        }
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        request(endpoint, builder, body.finish().into())
    }

    /// Says who we are, and signs it.
    fn assert(&self, moment: &Moment) -> Result<String> {
        let Some(key) = self.key else {
            return Err(Error::misuse(
                "the client has to authenticate by a signature, and has no key",
            ));
        };
        let client_id = &self.client.client_id;
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": self.audience,
            "jti": moment.other_word(),
            "iat": moment.seconds(),
            "exp": moment.seconds() + ASSERTION_LIFETIME,
        });
        key.sign(json!({"typ": "JWT"}), &claims)
    }
}

/// Reads the assertion that an identity provider gave out.
pub(super) fn vouched(response: &Response<Bytes>) -> Result<Secret> {
    if !response.status().is_success() {
        return Err(denied(response));
    }
    Ok(TokenAnswer::read(response)?.access_token)
}

/// Reads why a server said no.
pub(super) fn denied(response: &Response<Bytes>) -> Error {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
        error_description: Option<String>,
    }

    match serde_json::from_slice(response.body()) {
        Ok(Refusal {
            error,
            error_description,
        }) => Error::denied(&error, error_description.as_deref()),
        Err(_) if response.status().is_server_error() => Error::Unavailable {
            what: "the authorization server",
            status: response.status().as_u16(),
        },
        Err(_) => Error::broken(format!(
            "the authorization server answers with {}",
            response.status()
        )),
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Secret,
    token_type: String,
    /// A number, which some servers write as text.
    expires_in: Option<Value>,
    refresh_token: Option<Secret>,
}

impl TokenAnswer {
    fn read(response: &Response<Bytes>) -> Result<Self> {
        serde_json::from_slice(response.body())
            .map_err(|_| Error::broken("the answer of a token endpoint is no token"))
    }
}

fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Where a server says what it wants to see in the next proof.
pub(crate) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// The grant for a JWT assertion by a third party (RFC 7523).
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// How long before it expires a token is renewed at most, in seconds.
const LONGEST_HEAD_START: u64 = 30;
/// How long a signature about ourselves is good, in seconds.
const ASSERTION_LIFETIME: u64 = 120;
