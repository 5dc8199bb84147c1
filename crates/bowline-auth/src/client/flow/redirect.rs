//! The authorization request and its redirect: builds the URL, and validates `state` and `iss` of the response.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::http::RedactedUrl;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Flow, FlowState, FlowStep};
use crate::client::address_policy::AddressPolicy;
use crate::client::time_and_randomness::TimeAndRandomness;
use crate::client::{Error, Result, Secret};

/// An authorization request, with the values that its redirect is checked against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AuthorizationRequest {
    pub(super) redirect_uri: String,
    pub(super) verifier: Secret,
    state: Secret,
    issuer: String,
    /// Whether the issuer announced the `iss` parameter (RFC 9207); it is then required.
    #[serde(rename = "names_itself")]
    requires_iss: bool,
}

impl Flow {
    /// Builds the authorization URL.
    pub(super) fn request_authorization(&mut self, fresh: &TimeAndRandomness) -> Result<FlowStep> {
        let server = self.server()?;
        let address = server.authorization_endpoint.as_ref();
        let mut url = self.endpoint("authorization endpoint", address)?;
        let Some(redirect_uri) = self.setup.redirect_uri.clone() else {
            return Err(Error::misuse("no redirect URI is set"));
        };
        if redirect_uri.starts_with("http:") {
            let checked = AddressPolicy::ThisMachine.admit("the redirect URI", &redirect_uri);
            checked.map_err(|_| {
                Error::misuse(format!(
                    "the http:// redirect URI `{}` is not a loopback address",
                    RedactedUrl::new(&redirect_uri)
                ))
            })?;
        }
        let mut scopes = self.scopes();
        let offline = "offline_access";
        if !scopes.is_empty() && server.scopes_supported.iter().any(|it| it == offline) {
            scopes.add(offline);
        }
        check_params(&url, &self.setup.application.authorization_params)?;
        let request = AuthorizationRequest {
            redirect_uri,
            verifier: Secret::new(fresh.random_token()),
            state: Secret::new(fresh.second_random_token()),
            issuer: server.issuer.clone(),
            requires_iss: server.authorization_response_iss_parameter_supported,
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(request.verifier.expose()));
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client()?.client_id)
            .append_pair("redirect_uri", &request.redirect_uri)
            .append_pair("state", request.state.expose())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.resource_indicator());
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes.to_string());
        }
        if self.requires_dpop() {
            query.append_pair("dpop_jkt", &self.setup.proof_key.thumbprint());
        }
        let params = &self.setup.application.authorization_params;
        let has_prompt = params.iter().any(|(name, _)| name == "prompt");
        if scopes.contains(offline) && !has_prompt {
            // OpenID Connect Core, section 11, requires it for `offline_access`.
            query.append_pair("prompt", "consent");
        }
        query.extend_pairs(params);
        drop(query);
        self.requested = scopes;
        self.state = FlowState::AwaitingRedirect(request);
        Ok(FlowStep::Open(url))
    }
}

impl AuthorizationRequest {
    pub(super) fn state(&self) -> &str {
        self.state.expose()
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn for_fuzzing(requires_iss: bool) -> Self {
        Self {
            redirect_uri: "http://127.0.0.1:7/callback".into(),
            verifier: Secret::new(""),
            state: Secret::new("s"),
            issuer: "https://as.example".into(),
            requires_iss,
        }
    }

    /// Returns the code of a redirect URL, after validating everything that comes with it.
    pub(super) fn code(&self, address: &str) -> Result<String> {
        let redirect =
            Url::parse(address).map_err(|_| Error::untrusted("the redirect URL is malformed"))?;
        if !is_redirect_uri(&redirect, &self.redirect_uri) {
            return Err(Error::untrusted(
                "the redirect does not match the redirect URI of the request",
            ));
        }
        if single_param(&redirect, "state")?.as_deref() != Some(self.state.expose()) {
            return Err(Error::untrusted(
                "the `state` of the redirect does not match the request",
            ));
        }
        // Before `error` is read: a mixed-up response must not be shown to the user either.
        match single_param(&redirect, "iss")? {
            Some(issuer) if issuer == self.issuer => {}
            Some(_) => {
                return Err(Error::untrusted(format!(
                    "the `iss` of the redirect is not `{}`",
                    RedactedUrl::new(&self.issuer)
                )));
            }
            None if self.requires_iss => {
                return Err(Error::untrusted(format!(
                    "the redirect lacks the `iss` parameter that `{}` always sends",
                    RedactedUrl::new(&self.issuer)
                )));
            }
            None => {}
        }
        if let Some(error) = single_param(&redirect, "error")? {
            let description = single_param(&redirect, "error_description")?;
            return Err(Error::denied(
                "authorization request",
                &error,
                description.as_deref(),
            ));
        }
        let code = single_param(&redirect, "code")?;
        code.ok_or_else(|| Error::protocol("the redirect contains neither a code nor an error"))
    }
}

/// Refuses duplicate parameters, because servers differ in which of two values they use.
fn check_params(endpoint: &Url, added: &[(String, String)]) -> Result<()> {
    let is_reserved = |name: &str| RESERVED_PARAMS.contains(&name);
    if let Some((name, _)) = endpoint.query_pairs().find(|(name, _)| is_reserved(name)) {
        return Err(Error::untrusted(format!(
            "the authorization endpoint already contains `{name}`"
        )));
    }
    let collides = |(name, _): &&(String, String)| {
        let is_in_endpoint = endpoint.query_pairs().any(|(own, _)| own == **name);
        is_reserved(name) || is_in_endpoint
    };
    match added.iter().find(collides) {
        Some((name, _)) => Err(Error::misuse(format!(
            "the authorization parameter `{name}` is already set"
        ))),
        None => Ok(()),
    }
}

/// Returns a parameter that must not be repeated: it would be ambiguous which value counts.
fn single_param(url: &Url, name: &str) -> Result<Option<String>> {
    let mut values = url.query_pairs().filter(|(own, _)| own == name);
    let first = values.next().map(|(_, value)| value.into_owned());
    if values.next().is_some() {
        return Err(Error::untrusted(format!(
            "the redirect repeats the parameter `{name}`"
        )));
    }
    Ok(first)
}

/// Returns whether a URL is the redirect URI, ignoring its query.
fn is_redirect_uri(redirect: &Url, redirect_uri: &str) -> bool {
    let Ok(expected) = Url::parse(redirect_uri) else {
        return false;
    };
    redirect.scheme() == expected.scheme()
        && redirect.host() == expected.host()
        && redirect.port_or_known_default() == expected.port_or_known_default()
        && redirect.path() == expected.path()
}

/// The authorization parameters that this crate sets, and those that would override them.
const RESERVED_PARAMS: [&str; 12] = [
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "state",
    "code_challenge",
    "code_challenge_method",
    "resource",
    "scope",
    "dpop_jkt",
    "request_uri",
    "request",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the code of a redirect, or the kind of the error.
    fn result_of(requires_iss: bool, redirect: &str) -> String {
        let request = AuthorizationRequest::for_fuzzing(requires_iss);
        match request.code(redirect) {
            Ok(code) => code,
            Err(Error::Untrusted { .. }) => "untrusted".into(),
            Err(Error::Denied { error, .. }) => error,
            Err(_) => "protocol".into(),
        }
    }

    #[test]
    fn a_code_is_accepted_only_with_matching_state_and_iss() {
        let here = "http://127.0.0.1:7/callback";
        let cases = [
            (true, "code=c&state=s&iss=https://as.example", "c"),
            (false, "code=c&state=s&iss=https://as.example", "c"),
            (false, "code=c&state=s", "c"),
            // Announced, and missing.
            (true, "code=c&state=s", "untrusted"),
            // Forged, or merely spelled differently: the comparison is byte for byte.
            (
                false,
                "code=c&state=s&iss=https://evil.example",
                "untrusted",
            ),
            (true, "code=c&state=s&iss=https://as.example/", "untrusted"),
            (true, "code=c&state=s&iss=https://AS.example", "untrusted"),
            (
                true,
                "code=c&state=s&iss=https://as.example:443",
                "untrusted",
            ),
            (true, "code=c&state=s&iss=", "untrusted"),
            // A wrong or missing `state`.
            (false, "code=c", "untrusted"),
            (false, "code=c&state=t", "untrusted"),
            // Repeated parameters.
            (false, "code=c&state=s&code=d", "untrusted"),
            (false, "code=c&state=s&state=s", "untrusted"),
            (
                false,
                "code=c&state=s&iss=https://as.example&iss=x",
                "untrusted",
            ),
            // An error is checked like a code.
            (false, "error=access_denied&state=s", "access_denied"),
            (false, "error=access_denied&state=t", "untrusted"),
            (
                false,
                "error=x&state=s&iss=https://evil.example",
                "untrusted",
            ),
            (false, "state=s", "protocol"),
        ];

        for (requires_iss, query, end) in cases {
            let redirect = format!("{here}?{query}");
            assert_eq!(
                result_of(requires_iss, &redirect),
                end,
                "{requires_iss} {query}"
            );
        }
    }

    #[test]
    fn a_redirect_to_another_url_is_refused() {
        for redirect in [
            "http://127.0.0.1:8/callback",
            "https://127.0.0.1:7/callback",
            "http://evil.example:7/callback",
            "http://127.0.0.1:7/callback/more",
            "javascript:alert(1)",
            "not a URL",
        ] {
            assert_eq!(
                result_of(false, &format!("{redirect}?code=c&state=s")),
                "untrusted"
            );
        }
    }
}
