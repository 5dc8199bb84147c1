//! Settings of the application: scopes, parameters, issuers, keys.

use super::*;
use crate::client::SigningKey;
use crate::client::application::{ChooseIssuer, ScopePolicy};

fn with(change: impl FnOnce(&mut Application)) -> FlowSetup {
    let mut application = Application::new("test");
    change(&mut application);
    FlowSetup {
        application: Arc::new(application),
        ..setup()
    }
}

#[test]
fn scopes_are_set_and_limited_by_the_application() {
    let published = FakeDocuments::new().with_member("/mcp", "scopes_supported", json!(["a", "b"]));
    let scopes = |text: &str| Some(Scopes::parse(text));
    let cases = [
        (scopes("a"), None, None, "a"),
        (scopes("a"), None, Some("Bearer scope=\"c\""), "a c"),
        (None, scopes("b c"), None, "b"),
        (None, scopes("b"), Some("Bearer scope=\"b admin\""), "b"),
        (scopes("a x"), scopes("a"), Some("Bearer scope=\"c\""), "a"),
    ];

    for (wanted, allowed, said, expected) in cases {
        let asked = FlowSetup {
            challenge: said.and_then(challenge),
            ..with(|it| it.scopes = ScopePolicy { wanted, allowed })
        };

        let run = run_flow(&published, asked);

        assert_eq!(run.sent("OPEN")["scope"], expected, "{said:?}");
    }
}

#[test]
fn parameters_are_added_unless_they_are_set_already() {
    let param = |name: &str, value: &str| {
        let pair = (name.to_owned(), value.to_owned());
        run_flow(
            &FakeDocuments::new(),
            with(|it| it.authorization_params = vec![pair]),
        )
    };

    let added = param("login_hint", "ada@example.com");
    assert_eq!(added.end, "done");
    assert_eq!(added.sent("OPEN")["login_hint"], "ada@example.com");
    for name in [
        "client_id",
        "state",
        "redirect_uri",
        "resource",
        "scope",
        "request",
    ] {
        let refused = param(name, "x");
        assert!(refused.end.contains("is already set"), "{}", refused.end);
        assert!(!refused.steps.iter().any(|step| step.starts_with("OPEN")));
    }
}

#[test]
fn an_authorization_endpoint_with_reserved_parameters_is_refused() {
    for query in [
        "client_id=evil",
        "a=b&redirect_uri=https://evil.example",
        "request=x",
    ] {
        let endpoint = json!(format!("https://as.example/authorize?{query}"));
        let documents = FakeDocuments::new().with_member(
            "/oauth-authorization-server",
            "authorization_endpoint",
            endpoint,
        );

        let run = run_flow(&documents, setup());

        assert!(run.end.contains("already contains `"), "{}", run.end);
        assert!(!run.steps.iter().any(|step| step.starts_with("OPEN")));
    }
    let own = FakeDocuments::new().with_member(
        "/oauth-authorization-server",
        "authorization_endpoint",
        json!("https://as.example/authorize?tenant=1"),
    );
    assert_eq!(run_flow(&own, setup()).sent("OPEN")["tenant"], "1");
}

#[test]
fn the_application_chooses_among_the_named_issuers() {
    let two = FakeDocuments::new().with_member(
        "/mcp",
        "authorization_servers",
        json!(["https://other.example", ISSUER]),
    );
    let choosing = |issuer: Option<&'static str>| {
        let choose = move |_: &[String]| issuer.map(str::to_owned);
        with(|it| it.choose_issuer = Some(ChooseIssuer(Arc::new(choose))))
    };

    let chosen = run_flow(&two, choosing(Some(ISSUER)));
    assert_eq!(chosen.end, "done");
    for foreign in [None, Some("https://evil.example")] {
        let refused = run_flow(&two, choosing(foreign));
        assert!(
            refused.end.contains("rejected the issuers"),
            "{}",
            refused.end
        );
        assert_eq!(refused.steps.len(), 1);
    }
}

#[test]
fn an_initial_access_token_is_sent_to_its_issuer_only() {
    let with_token = |issuer: &str| {
        let token = Some((issuer.to_owned(), Secret::new("hush")));
        run_flow(
            &FakeDocuments::new(),
            with(|it| it.initial_access_token = token),
        )
    };

    let own_issuer = with_token(ISSUER);
    let other_issuer = with_token("https://other.example");

    assert!(own_issuer.steps.contains(&"Bearer hush".to_owned()));
    assert!(!other_issuer.steps.iter().any(|step| step.contains("hush")));
    assert_eq!((&*own_issuer.end, &*other_issuer.end), ("done", "done"));
}

#[test]
fn a_client_metadata_key_signs_client_assertions() {
    let understands = FakeDocuments::new().with_member(
        "/oauth-authorization-server",
        "client_id_metadata_document_supported",
        json!(true),
    );
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    let asked = with(|it| {
        it.metadata_url = Some("https://app.example/client.json".into());
        it.metadata_key = Some(Arc::new(key));
    });

    let run = run_flow(&understands, asked);

    assert_eq!(run.end, "done");
    let sent = run.sent("POST https://as.example/token");
    assert_eq!(sent["client_id"], "https://app.example/client.json");
    assert!(sent["client_assertion_type"].ends_with("jwt-bearer"));
    assert_eq!(sent["client_assertion"].split('.').count(), 3);
}
