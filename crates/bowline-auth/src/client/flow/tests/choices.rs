//! What an application chooses: scopes, parameters, issuers, keys.

use super::*;
use crate::client::SigningKey;
use crate::client::application::{ChooseIssuer, ScopePolicy};

fn with(change: impl FnOnce(&mut Application)) -> Setup {
    let mut application = Application::new("test");
    change(&mut application);
    Setup {
        application: Arc::new(application),
        ..setup()
    }
}

#[test]
fn scopes_are_chosen_and_capped_by_the_application() {
    let published = World::new().says("/mcp", "scopes_supported", json!(["a", "b"]));
    let scopes = |text: &str| Some(Scopes::parse(text));
    let cases = [
        (scopes("a"), None, None, "a"),
        (scopes("a"), None, Some("Bearer scope=\"c\""), "a c"),
        (None, scopes("b c"), None, "b"),
        (None, scopes("b"), Some("Bearer scope=\"b admin\""), "b"),
        (scopes("a x"), scopes("a"), Some("Bearer scope=\"c\""), "a"),
    ];

    for (wanted, at_most, said, expected) in cases {
        let asked = Setup {
            challenge: said.and_then(challenge),
            ..with(|it| it.scopes = ScopePolicy { wanted, at_most })
        };

        let walked = walk(&published, asked);

        assert_eq!(walked.sent("OPEN")["scope"], expected, "{said:?}");
    }
}

#[test]
fn parameters_are_added_unless_they_are_set_already() {
    let param = |name: &str, value: &str| {
        let pair = (name.to_owned(), value.to_owned());
        walk(
            &World::new(),
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
        assert!(refused.end.contains("is set already"), "{}", refused.end);
        assert!(!refused.steps.iter().any(|step| step.starts_with("OPEN")));
    }
}

#[test]
fn an_endpoint_that_sets_our_parameters_itself_is_not_trusted() {
    for query in [
        "client_id=evil",
        "a=b&redirect_uri=https://evil.example",
        "request=x",
    ] {
        let endpoint = json!(format!("https://as.example/authorize?{query}"));
        let world = World::new().says(
            "/oauth-authorization-server",
            "authorization_endpoint",
            endpoint,
        );

        let walked = walk(&world, setup());

        assert!(walked.end.contains("sets `"), "{}", walked.end);
        assert!(!walked.steps.iter().any(|step| step.starts_with("OPEN")));
    }
    let own = World::new().says(
        "/oauth-authorization-server",
        "authorization_endpoint",
        json!("https://as.example/authorize?tenant=1"),
    );
    assert_eq!(walk(&own, setup()).sent("OPEN")["tenant"], "1");
}

#[test]
fn an_application_chooses_among_the_issuers_that_are_named() {
    let two = World::new().says(
        "/mcp",
        "authorization_servers",
        json!(["https://other.example", ISSUER]),
    );
    let choosing = |issuer: Option<&'static str>| {
        let choose = move |_: &[String]| issuer.map(str::to_owned);
        with(|it| it.choose_issuer = Some(ChooseIssuer(Arc::new(choose))))
    };

    let chosen = walk(&two, choosing(Some(ISSUER)));
    assert_eq!(chosen.end, "done");
    for foreign in [None, Some("https://evil.example")] {
        let refused = walk(&two, choosing(foreign));
        assert!(refused.end.contains("was chosen"), "{}", refused.end);
        assert_eq!(refused.steps.len(), 1);
    }
}

#[test]
fn an_initial_access_token_is_shown_to_its_issuer_only() {
    let with_token = |issuer: &str| {
        let token = Some((issuer.to_owned(), Secret::new("hush")));
        walk(&World::new(), with(|it| it.initial_access_token = token))
    };

    let home = with_token(ISSUER);
    let abroad = with_token("https://other.example");

    assert!(home.steps.contains(&"Bearer hush".to_owned()));
    assert!(!abroad.steps.iter().any(|step| step.contains("hush")));
    assert_eq!((&*home.end, &*abroad.end), ("done", "done"));
}

#[test]
fn a_client_that_publishes_its_metadata_may_sign() {
    let understands = World::new().says(
        "/oauth-authorization-server",
        "client_id_metadata_document_supported",
        json!(true),
    );
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    let asked = with(|it| {
        it.metadata_url = Some("https://app.example/client.json".into());
        it.metadata_key = Some(Arc::new(key));
    });

    let walked = walk(&understands, asked);

    assert_eq!(walked.end, "done");
    let sent = walked.sent("POST https://as.example/token");
    assert_eq!(sent["client_id"], "https://app.example/client.json");
    assert!(sent["client_assertion_type"].ends_with("jwt-bearer"));
    assert_eq!(sent["client_assertion"].split('.').count(), 3);
}
