//! A person's way to the authorization server and back, and what of the way back is believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Flow, State, Step};
use crate::client::guard::Guard;
use crate::client::moment::Moment;
use crate::client::{Error, Result, Secret};

/// A person is at the authorization server. What must come back is written down before they go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) redirect_uri: String,
    pub(super) verifier: Secret,
    state: Secret,
    issuer: String,
    /// Whether the issuer promised to name itself.
    names_itself: bool,
}

impl Flow {
    /// Sends a person to the authorization server.
    pub(super) fn open(&mut self, moment: &Moment) -> Result<Step> {
        let server = self.server()?;
        let address = server.authorization_endpoint.as_ref();
        let mut url = self.endpoint("authorization endpoint", address)?;
        let Some(redirect_uri) = self.setup.redirect_uri.clone() else {
            return Err(Error::misuse("nobody says where people are sent back to"));
        };
        if redirect_uri.starts_with("http:") {
            let here = Guard::ThisMachine.admit("the redirect URI", &redirect_uri);
            here.map_err(|_| {
                Error::misuse(format!("a code must not be sent to `{redirect_uri}`"))
            })?;
        }
        let mut scopes = self.scopes();
        let offline = "offline_access";
        if !scopes.is_empty() && server.scopes_supported.iter().any(|it| it == offline) {
            scopes.add(offline);
        }
        check_params(&url, &self.setup.application.authorization_params)?;
        let opened = Opened {
            redirect_uri,
            verifier: Secret::new(moment.word()),
            state: Secret::new(moment.other_word()),
            issuer: server.issuer.clone(),
            names_itself: server.authorization_response_iss_parameter_supported,
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(opened.verifier.expose()));
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client()?.client_id)
            .append_pair("redirect_uri", &opened.redirect_uri)
            .append_pair("state", opened.state.expose())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.resource_name());
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes.to_string());
        }
        if self.binds_token() {
            query.append_pair("dpop_jkt", &self.setup.proof_key.thumbprint());
        }
        let params = &self.setup.application.authorization_params;
        let has_prompt = params.iter().any(|(name, _)| name == "prompt");
        if scopes.contains(offline) && !has_prompt {
            // What OpenID Connect wants of whoever asks for that.
            query.append_pair("prompt", "consent");
        }
        query.extend_pairs(params);
        drop(query);
        self.requested = scopes;
        self.state = State::Opened(opened);
        Ok(Step::Open(url))
    }
}

impl Opened {
    pub(super) fn state(&self) -> &str {
        self.state.expose()
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn for_fuzzing(names_itself: bool) -> Self {
        Self {
            redirect_uri: "http://127.0.0.1:7/callback".into(),
            verifier: Secret::new(""),
            state: Secret::new("s"),
            issuer: "https://as.example".into(),
            names_itself,
        }
    }

    /// The code that a person brought back, if all that came with it is what it must be.
    pub(super) fn code(&self, address: &str) -> Result<String> {
        let came = Url::parse(address)
            .map_err(|_| Error::untrusted("somebody came back to something that is no URL"))?;
        if !is_same_place(&came, &self.redirect_uri) {
            return Err(Error::untrusted(
                "somebody came back to another address than they were sent to",
            ));
        }
        if once(&came, "state")?.as_deref() != Some(self.state.expose()) {
            return Err(Error::untrusted(
                "somebody came back who was not sent: the state is not ours",
            ));
        }
        // Before anything else is read: an answer of another server is not even shown.
        match once(&came, "iss")? {
            Some(issuer) if issuer == self.issuer => {}
            Some(_) => {
                return Err(Error::untrusted(format!(
                    "the answer does not come from `{}`",
                    self.issuer
                )));
            }
            None if self.names_itself => {
                return Err(Error::untrusted(format!(
                    "the answer does not say that it comes from `{}`, which it always does",
                    self.issuer
                )));
            }
            None => {}
        }
        if let Some(error) = once(&came, "error")? {
            let description = once(&came, "error_description")?;
            return Err(Error::denied(&error, description.as_deref()));
        }
        let code = once(&came, "code")?;
        code.ok_or_else(|| Error::broken("somebody came back without a code"))
    }
}

/// Refuses parameters that are there already when ours are added: of two, each server chooses another one.
fn check_params(endpoint: &Url, added: &[(String, String)]) -> Result<()> {
    let ours = |name: &str| OURS.contains(&name);
    if let Some((name, _)) = endpoint.query_pairs().find(|(name, _)| ours(name)) {
        return Err(Error::untrusted(format!(
            "the authorization endpoint sets `{name}` itself"
        )));
    }
    let collides = |(name, _): &&(String, String)| {
        let is_there = endpoint.query_pairs().any(|(own, _)| own == **name);
        ours(name) || is_there
    };
    match added.iter().find(collides) {
        Some((name, _)) => Err(Error::misuse(format!(
            "the authorization parameter `{name}` is set already"
        ))),
        None => Ok(()),
    }
}

/// A parameter that comes once, or not at all: of two, nobody could say which counts.
fn once(url: &Url, name: &str) -> Result<Option<String>> {
    let mut values = url.query_pairs().filter(|(own, _)| own == name);
    let first = values.next().map(|(_, value)| value.into_owned());
    if values.next().is_some() {
        return Err(Error::untrusted(format!(
            "somebody came back with two values of `{name}`"
        )));
    }
    Ok(first)
}

/// Whether an address is the redirect URI, whatever its query.
fn is_same_place(came: &Url, redirect_uri: &str) -> bool {
    let Ok(sent) = Url::parse(redirect_uri) else {
        return false;
    };
    came.scheme() == sent.scheme()
        && came.host() == sent.host()
        && came.port_or_known_default() == sent.port_or_known_default()
        && came.path() == sent.path()
}

/// The parameters that are added to an authorization endpoint here, and those that would replace them.
const OURS: [&str; 12] = [
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

    /// How a way back ends: the code, or the kind of the error.
    fn ends(names_itself: bool, came: &str) -> String {
        let opened = Opened::for_fuzzing(names_itself);
        match opened.code(came) {
            Ok(code) => code,
            Err(Error::Untrusted { .. }) => "untrusted".into(),
            Err(Error::Denied { error, .. }) => error,
            Err(_) => "broken".into(),
        }
    }

    #[test]
    fn a_code_counts_if_it_comes_from_where_somebody_was_sent() {
        let here = "http://127.0.0.1:7/callback";
        let cases = [
            (true, "code=c&state=s&iss=https://as.example", "c"),
            (false, "code=c&state=s&iss=https://as.example", "c"),
            (false, "code=c&state=s", "c"),
            // Promised, and missing.
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
            // Not sent by us.
            (false, "code=c", "untrusted"),
            (false, "code=c&state=t", "untrusted"),
            // Two of a kind.
            (false, "code=c&state=s&code=d", "untrusted"),
            (false, "code=c&state=s&state=s", "untrusted"),
            (
                false,
                "code=c&state=s&iss=https://as.example&iss=x",
                "untrusted",
            ),
            // A no counts as little as a yes if it comes from elsewhere.
            (false, "error=access_denied&state=s", "access_denied"),
            (false, "error=access_denied&state=t", "untrusted"),
            (
                false,
                "error=x&state=s&iss=https://evil.example",
                "untrusted",
            ),
            (false, "state=s", "broken"),
        ];

        for (names_itself, query, end) in cases {
            let came = format!("{here}?{query}");
            assert_eq!(ends(names_itself, &came), end, "{names_itself} {query}");
        }
    }

    #[test]
    fn somebody_who_comes_back_elsewhere_was_not_sent() {
        for came in [
            "http://127.0.0.1:8/callback",
            "https://127.0.0.1:7/callback",
            "http://evil.example:7/callback",
            "http://127.0.0.1:7/callback/more",
            "javascript:alert(1)",
            "not a URL",
        ] {
            assert_eq!(ends(false, &format!("{came}?code=c&state=s")), "untrusted");
        }
    }
}
