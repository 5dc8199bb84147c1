//! Tokens in exchange for those of clients (RFC 8693).

use std::sync::{Arc, Mutex};

use bowline::Client;
use serde_json::{Value, json};

use crate::world::*;

/// Starts a token endpoint that answers `exchanged-SUBJECT_TOKEN`, and refuses the tokens of Eve; returns its URL and
/// the forms it gets.
async fn start_endpoint() -> (String, Arc<Mutex<Vec<String>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let seen = forms.clone();
    let url = start_raw(move |_, body| {
        seen.lock().unwrap().push(body.to_owned());
        let subject = body
            .split('&')
            .find_map(|it| it.strip_prefix("subject_token="));
        let subject = subject.unwrap_or_default();
        if subject.starts_with("eve") {
            let description = format!("{subject} is not welcome");
            let error = json!({"error": "invalid_target", "error_description": description});
            return (400, error);
        }
        let token = format!("exchanged-{subject}");
        let answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": 300,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"});
        (200, answer)
    });
    (format!("{}/token", url.await), forms)
}

fn settings(endpoint: &str) -> Value {
    json!({"tokenExchange": {"tokenEndpoint": endpoint, "clientId": "bridge", "clientSecret": "hunter2",
        "audience": "files", "scopes": ["read"]}})
}

#[tokio::test]
async fn each_principal_gets_a_token_in_exchange_for_its_own_which_is_reused() {
    for front in VERSIONS {
        for back in VERSIONS {
            let (url, heads) = start_upstream(back).await;
            let (endpoint, forms) = start_endpoint().await;
            let front_url = serve_guarded(&bridge_to(&url, settings(&endpoint))).await;
            let token = Presented::new("ada.editor.use.1");
            let ada = connect(&front_url, front, &token).await;
            let bob = connect(&front_url, front, &Presented::new("bob.editor.use.1")).await;

            for _ in 0..3 {
                let (of_ada, of_bob) = tokio::join!(whoami(&ada), whoami(&bob));
                assert_eq!(of_ada, "Bearer exchanged-ada.editor.use.1");
                assert_eq!(of_bob, "Bearer exchanged-bob.editor.use.1");
            }
            assert_eq!(forms.lock().unwrap().len(), 2, "{front} → {back}");
            token.set("ada.editor.use.2");
            assert_eq!(whoami(&ada).await, "Bearer exchanged-ada.editor.use.2");

            let is_exchanged = |head: &Head| {
                let token = head.authorization.as_deref().unwrap();
                token.starts_with("Bearer exchanged-")
            };
            assert!(heads.all().iter().all(is_exchanged));
            let form = forms.lock().unwrap()[0].clone();
            for part in [
                "audience=files",
                "scope=read",
                "resource=http%3A%2F%2F127.0.0.1",
            ] {
                assert!(form.contains(part), "{form}");
            }
        }
    }
}

#[tokio::test]
async fn a_refused_exchange_is_a_clear_error_without_secrets_and_nothing_is_sent() {
    for front in VERSIONS {
        let (logs, _guard) = Logs::capture();
        let (url, heads) = start_upstream("2026-07-28").await;
        let (endpoint, _forms) = start_endpoint().await;
        let front_url = serve_guarded(&bridge_to(&url, settings(&endpoint))).await;
        let eve = Presented::new("eve.editor.use.1");

        let client = Client::connect(&front_url).protocol_version(front);
        let error = match client.authorizer(eve).await {
            Ok(client) => client.call_tool("whoami", ()).await.unwrap_err(),
            Err(error) => error,
        };

        let text = error.to_string();
        assert!(text.contains("upstream `up`"), "{text}");
        assert!(
            text.contains("`invalid_target`: … is not welcome"),
            "{text}"
        );
        let all = format!("{text} {error:?} {}", logs.text());
        assert!(
            !all.contains("eve.editor") && !all.contains("hunter2"),
            "{all}"
        );
        assert_eq!(heads.all(), []);
    }
}
