//! A client's part of what must hold for every input.

use std::sync::Arc;

use bowline::http::client::Challenge;
use url::Url;

use super::application::Application;
use super::credentials::Credentials;
use super::dpop::ProofKey;
use super::flow::{self, Flow, Intent, Setup, Step};
use super::guard::Guard;
use super::loopback;

/// Begins a flow with these challenges. Whatever they say, the first request goes to a public address.
pub(crate) fn follow(challenges: &[Challenge]) {
    for challenge in challenges {
        let kept = ProofKey::generate().expect("there is randomness");
        let key = ProofKey::read(&kept).expect("what was written can be read");
        let mut flow = Flow::new(Setup {
            server: Url::parse("https://mcp.example/mcp").expect("it is a URL"),
            application: Arc::new(Application::new("fuzz")),
            guard: Guard::Public,
            intent: Intent::Obtain,
            challenge: Some(challenge.clone()),
            credentials: Credentials::default(),
            proof_key: Arc::new(key),
            redirect_uri: Some("http://127.0.0.1:7/callback".into()),
        });
        match flow.begin() {
            Ok(Step::Send(request)) => {
                let address = request.uri().to_string();
                assert!(Guard::Public.admit("it", &address).is_ok(), "{address}");
            }
            Ok(Step::Open(_) | Step::Assert(_) | Step::Done) => {
                unreachable!("nothing is known yet")
            }
            Err(error) => {
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
            }
        }
    }
}

/// Reads the input as a request to the loopback listener, and what it asks for as the address of somebody who came
/// back.
pub(crate) fn come_back(input: &[u8]) {
    if let Some(target) = loopback::target(input) {
        assert!(
            target.starts_with('/') && !target.contains(' '),
            "{target:?}"
        );
    }
    let text = String::from_utf8_lossy(input);
    for names_itself in [true, false] {
        let Ok(code) = flow::code_of(&text, names_itself) else {
            continue;
        };
        let came = Url::parse(&text).expect("it was read as one");
        let all = |name: &str| -> Vec<String> {
            let pairs = came.query_pairs().filter(|(own, _)| own == name);
            pairs.map(|(_, value)| value.into_owned()).collect()
        };
        assert_eq!(all("code"), [code]);
        assert_eq!(all("state"), ["s"]);
        assert!(all("error").is_empty());
        let issuers = all("iss");
        assert!(issuers == ["https://as.example"] || (issuers.is_empty() && !names_itself));
    }
}
