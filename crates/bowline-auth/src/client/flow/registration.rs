//! Client identification at an authorization server, in the order of the specification: a registered client, a client
//! ID metadata document, a stored dynamic registration, a new one (RFC 7591).

use bowline::http::RedactedUrl;
use bytes::Bytes;
use http::{Request, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Flow, FlowState, FlowStep, request};
use crate::client::application::ClientCredential;
use crate::client::credentials::{AuthMethod, Registration};
use crate::client::metadata::ServerMetadata;
use crate::client::time_and_randomness::TimeAndRandomness;
use crate::client::token_endpoint::parse_error_response;
use crate::client::{Error, Result, Secret};

impl Flow {
    pub(super) fn register(&mut self, fresh: &TimeAndRandomness) -> Result<FlowStep> {
        if let Some(client) = self.known_client(fresh)? {
            self.client = Some(client);
            return self.start_grant(fresh);
        }
        let server = self.server()?;
        let endpoint = server.registration_endpoint.as_ref();
        if endpoint.is_none() {
            return Err(Error::unsupported(format!(
                "`{}` does not support dynamic client registration: register a client there, and set its id",
                RedactedUrl::new(&server.issuer)
            )));
        }
        let endpoint = self.endpoint("registration endpoint", endpoint)?;
        let body = self.registration_request()?.to_string().into();
        self.state = FlowState::Registering;
        let mut builder =
            Request::post(endpoint.as_str()).header(header::CONTENT_TYPE, "application/json");
        let token = self.setup.application.initial_access_token.as_ref();
        if let Some((issuer, token)) = token
            && *issuer == self.server()?.issuer
        {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        Ok(FlowStep::Send(request(&endpoint, builder, body)?))
    }

    /// Returns the client, if it needs no registration.
    fn known_client(&mut self, fresh: &TimeAndRandomness) -> Result<Option<Registration>> {
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
                .is_none_or(|at| at > fresh.seconds());
            // Not every server ignores the port of a loopback redirect URI (RFC 8252), so it must match.
            is_current && registration.redirect_uri == self.setup.redirect_uri
        });
        Ok(usable.cloned())
    }

    /// Returns the application's own client, and binds it to the issuer.
    fn own_client(&mut self) -> Result<Option<Registration>> {
        let Some(client) = self.setup.application.client.clone() else {
            return Ok(None);
        };
        let server = self.server()?;
        let issuer = server.issuer.clone();
        self.check_client_issuer(std::slice::from_ref(&issuer))?;
        let method = match &client.credential {
            ClientCredential::None => AuthMethod::None,
            ClientCredential::Secret(_) => secret_method(server),
            ClientCredential::Key(_) => AuthMethod::PrivateKeyJwt,
        };
        self.setup.credentials.bound_to = Some(issuer);
        Ok(Some(Registration {
            client_id: client.id,
            secret: match client.credential {
                ClientCredential::Secret(secret) => Some(secret),
                ClientCredential::None | ClientCredential::Key(_) => None,
            },
            method,
            redirect_uri: self.setup.redirect_uri.clone(),
            expires_at: None,
        }))
    }

    /// Returns the client metadata of a registration request.
    fn registration_request(&self) -> Result<Value> {
        let Some(redirect_uri) = &self.setup.redirect_uri else {
            return Err(Error::misuse(
                "only a client with a redirect URI can register itself, and no registered client is set",
            ));
        };
        let is_web = redirect_uri.starts_with("https:");
        let mut metadata = json!({
            "client_name": self.setup.application.name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": if is_web { "web" } else { "native" },
        });
        if let Some(method) = preferred_method(self.server()?) {
            metadata["token_endpoint_auth_method"] = json!(method.name());
        }
        let scopes = self.scopes();
        if !scopes.is_empty() {
            metadata["scope"] = json!(scopes.to_string());
        }
        Ok(metadata)
    }

    /// Processes a registration response.
    pub(super) fn handle_registration_response(
        &mut self,
        response: &Response<Bytes>,
    ) -> Result<Registration> {
        #[derive(Deserialize)]
        struct RegistrationResponse {
            client_id: String,
            client_secret: Option<Secret>,
            token_endpoint_auth_method: Option<String>,
            client_secret_expires_at: Option<u64>,
        }

        if !response.status().is_success() {
            return Err(parse_error_response("client registration", response));
        }
        let parsed: RegistrationResponse = serde_json::from_slice(response.body())
            .map_err(|_| Error::protocol("failed to parse the registration response"))?;
        let server = self.server()?;
        let method = match &parsed.token_endpoint_auth_method {
            Some(name) => AuthMethod::from_name(name).ok_or_else(|| {
                Error::unsupported(format!("unsupported client authentication method `{name}`"))
            })?,
            None => preferred_method(server).unwrap_or(match parsed.client_secret {
                Some(_) => AuthMethod::Basic,
                None => AuthMethod::None,
            }),
        };
        // Checked before the user is prompted for a code that could not be redeemed.
        match (method, &parsed.client_secret) {
            (AuthMethod::None, _) | (AuthMethod::Basic | AuthMethod::Post, Some(_)) => {}
            (AuthMethod::Basic | AuthMethod::Post | AuthMethod::PrivateKeyJwt, _) => {
                return Err(Error::protocol(format!(
                    "the registration requires the authentication method `{}` without credentials for it",
                    method.name()
                )));
            }
        }
        let issuer = server.issuer.clone();
        let registration = Registration {
            client_id: parsed.client_id,
            secret: parsed.client_secret,
            method,
            redirect_uri: self.setup.redirect_uri.clone(),
            expires_at: parsed.client_secret_expires_at.filter(|at| *at > 0),
        };
        let registrations = &mut self.setup.credentials.registrations;
        registrations.insert(issuer, registration.clone());
        Ok(registration)
    }
}

/// Returns the authentication method to register: `none` if possible, because installed applications cannot keep a
/// secret. `None` if the server does not list its methods.
fn preferred_method(server: &ServerMetadata) -> Option<AuthMethod> {
    let supported = server.token_endpoint_auth_methods_supported.as_ref()?;
    let preferred = [AuthMethod::None, AuthMethod::Basic, AuthMethod::Post];
    preferred
        .into_iter()
        .find(|method| supported.iter().any(|name| name == method.name()))
}

/// Returns the authentication method of a client with a secret.
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
