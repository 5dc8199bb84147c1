//! Requests to a token endpoint with the authentication of the client, and the responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::credentials::{AuthMethod, Registration};
use super::flow::request;
use super::jwt::SigningKey;
use super::time_and_randomness::TimeAndRandomness;
use super::{Error, Result, Secret};

/// The client authentication of a form request.
pub(crate) struct AuthenticatedClient<'a> {
    pub(crate) client: &'a Registration,
    pub(crate) key: Option<&'a SigningKey>,
    /// The `aud` of client assertions.
    pub(crate) audience: &'a str,
}

impl AuthenticatedClient<'_> {
    pub(crate) fn form_request(
        &self,
        endpoint: &url::Url,
        mut form: Vec<(&'static str, String)>,
        proof: Option<String>,
        fresh: &TimeAndRandomness,
    ) -> Result<Request<Bytes>> {
        let mut builder = Request::post(endpoint.as_str());
        let Registration {
            client_id, secret, ..
        } = self.client;
        // For each method: some authorization servers look the client up by the form, and then check the header.
        form.push(("client_id", client_id.clone()));
        match (self.client.method, secret) {
            (AuthMethod::Basic, Some(secret)) => {
                let pair = format!(
                    "{}:{}",
                    form_encoded(client_id),
                    form_encoded(secret.expose())
                );
                let basic = format!("Basic {}", STANDARD.encode(pair));
                builder = builder.header(header::AUTHORIZATION, basic);
            }
            (AuthMethod::Post, Some(secret)) => {
                form.push(("client_secret", secret.expose().to_owned()));
            }
            (AuthMethod::PrivateKeyJwt, _) => {
                form.push(("client_assertion_type", ASSERTION_TYPE.to_owned()));
                form.push(("client_assertion", self.client_assertion(fresh)?));
            }
            (AuthMethod::None, _) => {}
            (AuthMethod::Basic | AuthMethod::Post, None) => {
                return Err(Error::protocol(
                    "the client must authenticate with a secret, but has none",
                ));
            }
        }
        if let Some(proof) = proof {
            builder = builder.header("dpop", proof);
        }
        post_form(endpoint, builder, form)
    }

    /// Creates a client assertion (RFC 7523).
    fn client_assertion(&self, fresh: &TimeAndRandomness) -> Result<String> {
        let Some(key) = self.key else {
            return Err(Error::misuse(
                "the client must authenticate with `private_key_jwt`, but has no key",
            ));
        };
        let client_id = &self.client.client_id;
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": self.audience,
            "jti": fresh.second_random_token(),
            "iat": fresh.seconds(),
            "exp": fresh.seconds() + ASSERTION_LIFETIME,
        });
        key.sign(json!({"typ": "JWT"}), &claims)
    }
}

/// Creates the POST of a form, without client authentication.
pub(crate) fn post_form(
    endpoint: &url::Url,
    builder: http::request::Builder,
    form: Vec<(&'static str, String)>,
) -> Result<Request<Bytes>> {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(form);
    let builder = builder.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request(endpoint, builder, body.finish().into())
}

/// Parses an OAuth error response to `request`, for example the `token request`.
pub(crate) fn parse_error_response(request: &'static str, response: &Response<Bytes>) -> Error {
    #[derive(Deserialize)]
    struct ErrorResponse {
        error: String,
        error_description: Option<String>,
    }

    match serde_json::from_slice(response.body()) {
        Ok(ErrorResponse {
            error,
            error_description,
        }) => Error::denied(request, &error, error_description.as_deref()),
        Err(_) if response.status().is_server_error() => Error::Unavailable {
            what: "the authorization server",
            status: response.status().as_u16(),
        },
        Err(_) => Error::protocol(format!(
            "the {request} failed: the authorization server responded with status {}",
            response.status()
        )),
    }
}

/// A successful token response.
#[derive(Deserialize)]
pub(crate) struct TokenResponse {
    pub(crate) access_token: Secret,
    pub(crate) token_type: String,
    /// What was issued in a token exchange.
    pub(crate) issued_token_type: Option<String>,
    /// A number, which some servers send as a string.
    expires_in: Option<Value>,
    pub(crate) refresh_token: Option<Secret>,
}

impl TokenResponse {
    /// Returns the lifetime of the access token, in seconds.
    pub(crate) fn lifetime(&self) -> Option<u64> {
        match self.expires_in.as_ref()? {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        }
    }

    pub(crate) fn read(response: &Response<Bytes>) -> Result<Self> {
        serde_json::from_slice(response.body())
            .map_err(|_| Error::protocol("failed to parse the token response"))
    }
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The lifetime of a client assertion, in seconds.
const ASSERTION_LIFETIME: u64 = 120;
