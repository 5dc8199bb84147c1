//! Properties that hold for every input from servers and browsers; each function panics on a violation.
//!
//! Here and not in `fuzz/`, because they use private types: the public ones need a server and a browser.

use std::sync::Arc;

use bowline::http::client::Challenge;
use url::Url;

use super::address_policy::AddressPolicy;
use super::application::Application;
use super::credentials::Credentials;
use super::dpop::ProofKey;
use super::flow::{self, Flow, FlowSetup, FlowStep, Intent};
use super::loopback;

/// Parses the input as `WWW-Authenticate` challenges and starts a flow with each: the first request goes to a public
/// address.
pub fn challenge(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for challenge in Challenge::parse_all([&*text]) {
        let stored = ProofKey::generate().expect("the operating system has randomness");
        let key = ProofKey::read(&stored).expect("a generated key is readable");
        let mut flow = Flow::new(FlowSetup {
            server: Url::parse("https://mcp.example/mcp").expect("the literal is a URL"),
            application: Arc::new(Application::new("fuzz")),
            address_policy: AddressPolicy::Public,
            intent: Intent::Obtain,
            challenge: Some(challenge),
            credentials: Credentials::default(),
            proof_key: Arc::new(key),
            redirect_uri: Some("http://127.0.0.1:7/callback".into()),
        });
        match flow.begin() {
            Ok(FlowStep::Send(request)) => {
                let address = request.uri().to_string();
                assert!(
                    AddressPolicy::Public.admit("it", &address).is_ok(),
                    "{address}"
                );
            }
            Ok(FlowStep::Open(_) | FlowStep::Assert(_) | FlowStep::Done) => {
                unreachable!("the first step of a flow sends a request")
            }
            Err(error) => {
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
            }
        }
    }
}

/// Parses the input as a request to the loopback listener and as a redirect URL: an authorization code is only accepted
/// with the expected `state` and `iss`.
pub fn callback(input: &[u8]) {
    if let Some(target) = loopback::target(input) {
        assert!(
            target.starts_with('/') && !target.contains(' '),
            "{target:?}"
        );
    }
    let text = String::from_utf8_lossy(input);
    for requires_iss in [true, false] {
        let Ok(code) = flow::code_of(&text, requires_iss) else {
            continue;
        };
        let redirect = Url::parse(&text).expect("a URL with a code was parsed before");
        let all = |name: &str| -> Vec<String> {
            let pairs = redirect.query_pairs().filter(|(own, _)| own == name);
            pairs.map(|(_, value)| value.into_owned()).collect()
        };
        assert_eq!(all("code"), [code]);
        assert_eq!(all("state"), ["s"]);
        assert!(all("error").is_empty());
        let issuers = all("iss");
        assert!(issuers == ["https://as.example"] || (issuers.is_empty() && !requires_iss));
    }
}

#[cfg(test)]
mod tests {
    use bowline_fuzz::check_seeds;

    #[test]
    fn every_challenge_leads_to_an_admitted_url() {
        check_seeds("challenge", super::challenge);
    }

    #[test]
    fn every_accepted_code_has_the_expected_state_and_iss() {
        check_seeds("callback", super::callback);
    }
}
