//! Who we are to an authorization server: what the application brings, its published metadata, what was
//! registered before, or a new registration, in this order.

use bytes::Bytes;
use http::{Request, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Flow, State, Step, request, token};
use crate::client::application::ClientProof;
use crate::client::credentials::{AuthMethod, Registration};
use crate::client::metadata::ServerMetadata;
use crate::client::moment::Moment;
use crate::client::{Error, Result, Secret};

impl Flow {
    pub(super) fn register(&mut self, moment: &Moment) -> Result<Step> {
        if let Some(client) = self.known_client(moment)? {
            self.client = Some(client);
            return self.ask(moment);
        }
        let server = self.server()?;
        let endpoint = server.registration_endpoint.as_ref();
        if endpoint.is_none() {
            return Err(Error::not_offered(format!(
                "`{}` registers nobody; register this application there, and tell OAuth its id",
                server.issuer
            )));
        }
        let endpoint = self.endpoint("registration endpoint", endpoint)?;
        let body = self.introduction()?.to_string().into();
        self.state = State::Registering;
        let mut builder =
            Request::post(endpoint.as_str()).header(header::CONTENT_TYPE, "application/json");
        let token = self.setup.application.initial_access_token.as_ref();
        if let Some((issuer, token)) = token
            && *issuer == self.server()?.issuer
        {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        Ok(Step::Send(request(&endpoint, builder, body)?))
    }

    /// Who we are, if that needs no registration.
    fn known_client(&mut self, moment: &Moment) -> Result<Option<Registration>> {
        if let Some(client) = self.own_client()? {
            return Ok(Some(client));
        }
        let server = self.server()?;
        let application = &self.setup.application;
        if let Some(url) = &application.metadata_url
            && server.client_id_metadata_document_supported
        {
            return Ok(Some(Registration {
                client_id: url.clone(),
                secret: None,
                method: match application.key(url) {
                    Some(_) => AuthMethod::PrivateKeyJwt,
                    None => AuthMethod::None,
                },
                redirect_uri: self.setup.redirect_uri.clone(),
                expires_at: None,
            }));
        }
        let registered = self.setup.credentials.registrations.get(&server.issuer);
        let usable = registered.filter(|registration| {
            let is_current = registration
                .expires_at
                .is_none_or(|at| at > moment.seconds());
            // Not every server lets the port of a redirect differ from what was registered.
            is_current && registration.redirect_uri == self.setup.redirect_uri
        });
        Ok(usable.cloned())
    }

    /// What the application brought along, which belongs to one issuer.
    fn own_client(&mut self) -> Result<Option<Registration>> {
        let Some(client) = self.setup.application.client.clone() else {
            return Ok(None);
        };
        let server = self.server()?;
        let issuer = server.issuer.clone();
        self.check_home(std::slice::from_ref(&issuer))?;
        let method = match &client.proof {
            ClientProof::None => AuthMethod::None,
            ClientProof::Secret(_) => secret_method(server),
            ClientProof::Key(_) => AuthMethod::PrivateKeyJwt,
        };
        self.setup.credentials.bound_to = Some(issuer);
        Ok(Some(Registration {
            client_id: client.id,
            secret: match client.proof {
                ClientProof::Secret(secret) => Some(secret),
                ClientProof::None | ClientProof::Key(_) => None,
            },
            method,
            redirect_uri: self.setup.redirect_uri.clone(),
            expires_at: None,
        }))
    }

    /// What we say about ourselves when we register.
    fn introduction(&self) -> Result<Value> {
        let Some(redirect_uri) = &self.setup.redirect_uri else {
            return Err(Error::misuse(
                "only a client that asks people can be registered on the way; tell OAuth its id",
            ));
        };
        let is_web = redirect_uri.starts_with("https:");
        let mut introduction = json!({
            "client_name": self.setup.application.name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": if is_web { "web" } else { "native" },
        });
        if let Some(method) = preferred_method(self.server()?) {
            introduction["token_endpoint_auth_method"] = json!(method.name());
        }
        let scopes = self.scopes();
        if !scopes.is_empty() {
            introduction["scope"] = json!(scopes.to_string());
        }
        Ok(introduction)
    }

    /// Takes in the answer to a registration.
    pub(super) fn registered(&mut self, response: &Response<Bytes>) -> Result<Registration> {
        #[derive(Deserialize)]
        struct Registered {
            client_id: String,
            client_secret: Option<Secret>,
            token_endpoint_auth_method: Option<String>,
            client_secret_expires_at: Option<u64>,
        }

        if !response.status().is_success() {
            return Err(token::denied(response));
        }
        let registered: Registered = serde_json::from_slice(response.body())
            .map_err(|_| Error::broken("the answer to the registration cannot be read"))?;
        let server = self.server()?;
        let method = match &registered.token_endpoint_auth_method {
            Some(name) => AuthMethod::named(name).ok_or_else(|| {
                Error::not_offered(format!("clients have to authenticate by `{name}`"))
            })?,
            None => preferred_method(server).unwrap_or(match registered.client_secret {
                Some(_) => AuthMethod::Basic,
                None => AuthMethod::None,
            }),
        };
        // Before a person is asked for what could not be redeemed.
        match (method, &registered.client_secret) {
            (AuthMethod::None, _) | (AuthMethod::Basic | AuthMethod::Post, Some(_)) => {}
            (AuthMethod::Basic | AuthMethod::Post | AuthMethod::PrivateKeyJwt, _) => {
                return Err(Error::broken(format!(
                    "the client is to authenticate by `{}`, and the registration gives it nothing for that",
                    method.name()
                )));
            }
        }
        let issuer = server.issuer.clone();
        let registration = Registration {
            client_id: registered.client_id,
            secret: registered.client_secret,
            method,
            redirect_uri: self.setup.redirect_uri.clone(),
            expires_at: registered.client_secret_expires_at.filter(|at| *at > 0),
        };
        let registrations = &mut self.setup.credentials.registrations;
        registrations.insert(issuer, registration.clone());
        Ok(registration)
    }
}

/// How a new client is to authenticate: not at all if that is possible, for what is installed on people's
/// machines has no secrets. `None` if the server does not say what it supports.
fn preferred_method(server: &ServerMetadata) -> Option<AuthMethod> {
    let supported = server.token_endpoint_auth_methods_supported.as_ref()?;
    let preferred = [AuthMethod::None, AuthMethod::Basic, AuthMethod::Post];
    preferred
        .into_iter()
        .find(|method| supported.iter().any(|name| name == method.name()))
}

/// How a client with a secret authenticates.
fn secret_method(server: &ServerMetadata) -> AuthMethod {
    let supported = server.token_endpoint_auth_methods_supported.as_deref();
    let supports = |method: AuthMethod| {
        supported.is_some_and(|all| all.iter().any(|name| name == method.name()))
    };
    if supports(AuthMethod::Post) && !supports(AuthMethod::Basic) {
        AuthMethod::Post
    } else {
        AuthMethod::Basic
    }
}
