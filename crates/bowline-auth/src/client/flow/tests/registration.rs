//! Client identification at an authorization server.

use super::*;

#[test]
fn a_registration_is_used_only_for_its_issuer_redirect_uri_and_lifetime() {
    let elsewhere = FakeDocuments::new()
        .with_member(
            "/mcp",
            "authorization_servers",
            json!(["https://new.example"]),
        )
        .with(
            "https://new.example/.well-known/oauth-authorization-server",
            json!({
                "issuer": "https://new.example",
                "authorization_endpoint": "https://new.example/authorize",
                "token_endpoint": "https://new.example/token",
                "registration_endpoint": "https://new.example/register",
                "code_challenge_methods_supported": ["S256"],
            }),
        )
        .with(
            "https://new.example/register",
            json!({"client_id": "fresh"}),
        )
        .with(
            "https://new.example/token",
            json!({"access_token": "t1", "token_type": "Bearer"}),
        );
    let expired = || {
        let mut credentials = stored_credentials("");
        let registrations = credentials.registrations.values_mut();
        registrations.for_each(|registration| registration.expires_at = Some(NOW));
        credentials
    };
    let moved = || FlowSetup {
        credentials: stored_credentials(""),
        redirect_uri: Some("http://127.0.0.1:8/callback".into()),
        ..setup()
    };

    let migrated = FlowSetup {
        credentials: stored_credentials(""),
        ..setup()
    };
    let migrated = run_flow_with_redirect(&elsewhere, migrated, "code=c");
    let too_old = FlowSetup {
        credentials: expired(),
        ..setup()
    };
    let too_old = run_flow(&FakeDocuments::new(), too_old);
    let other_port = run_flow(&FakeDocuments::new(), moved());

    assert_eq!(migrated.end, "done");
    assert_eq!(migrated.sent("OPEN")["client_id"], "fresh");
    assert!(
        !migrated.steps.iter().any(|step| step.contains("holder")),
        "{:?}",
        migrated.steps
    );
    assert_eq!(migrated.credentials.registrations.len(), 2);
    assert_eq!(too_old.sent("OPEN")["client_id"], "registered");
    assert_eq!(other_port.sent("OPEN")["client_id"], "registered");
}

#[test]
fn clients_are_identified_in_the_specified_order() {
    let server = "/oauth-authorization-server";
    let understands = FakeDocuments::new().with_member(
        server,
        "client_id_metadata_document_supported",
        json!(true),
    );
    let published = || FlowSetup {
        application: Arc::new(Application {
            metadata_url: Some("https://app.example/client.json".into()),
            ..Application::clone(&setup().application)
        }),
        credentials: stored_credentials(""),
        ..setup()
    };
    let own = FlowSetup {
        application: application_with(RegisteredClient::new(ISSUER, "own")),
        ..published()
    };
    let refuses = FakeDocuments::new().with_member(server, "registration_endpoint", Value::Null);

    let own = run_flow(&understands, own);
    let by_document = run_flow(&understands, published());
    let by_stored_registration = run_flow(&FakeDocuments::new(), published());
    let by_registration = run_flow(&FakeDocuments::new(), setup());
    let not_at_all = run_flow(&refuses, setup());

    assert_eq!(own.sent("OPEN")["client_id"], "own");
    assert_eq!(
        by_document.sent("OPEN")["client_id"],
        "https://app.example/client.json"
    );
    assert_eq!(by_stored_registration.sent("OPEN")["client_id"], "holder");
    assert_eq!(by_registration.sent("OPEN")["client_id"], "registered");
    assert!(
        not_at_all
            .end
            .contains("does not support dynamic client registration")
    );
}

#[test]
fn credentials_of_the_client_are_sent_to_one_issuer_only() {
    let first_come = || RegisteredClient::at_first_issuer("own").secret("hush");
    let client = |issuer| RegisteredClient::new(issuer, "own").secret("hush");
    let at = |client| FlowSetup {
        application: application_with(client),
        ..setup()
    };
    let bound = FlowSetup {
        credentials: Credentials {
            bound_to: Some("https://first.example".into()),
            ..Credentials::default()
        },
        ..at(first_come())
    };

    let own_issuer = run_flow(&FakeDocuments::new(), at(client(ISSUER)));
    let other_issuer = run_flow(&FakeDocuments::new(), at(client("https://first.example")));
    let later = run_flow(&FakeDocuments::new(), bound);
    let first = run_flow(&FakeDocuments::new(), at(first_come()));

    assert_eq!(own_issuer.end, "done");
    for refused in [&other_issuer, &later] {
        assert!(
            refused
                .end
                .contains("is registered at `https://first.example`")
        );
        assert_eq!(
            refused.steps.len(),
            1,
            "no issuer is contacted: {:?}",
            refused.steps
        );
    }
    assert_eq!(first.end, "done");
    assert_eq!(
        first.credentials.bound_to.as_deref(),
        Some("https://as.example")
    );
}

#[test]
fn clients_use_an_authentication_method_of_the_server() {
    let supporting = |methods: Value| {
        FakeDocuments::new().with_member(
            "/oauth-authorization-server",
            "token_endpoint_auth_methods_supported",
            methods,
        )
    };
    let own = |client| FlowSetup {
        application: application_with(client),
        ..setup()
    };
    let secret = || RegisteredClient::new(ISSUER, "a:b").secret("c d");
    let cases = [
        (
            json!(["none"]),
            RegisteredClient::new(ISSUER, "a:b"),
            "client_id=a%3Ab",
        ),
        (
            json!(["client_secret_basic"]),
            secret(),
            "Basic YSUzQWI6Yytk",
        ),
        (
            json!(["client_secret_post", "client_secret_basic"]),
            secret(),
            "Basic YSUzQWI6Yytk",
        ),
        (
            json!(["client_secret_post"]),
            secret(),
            "client_id=a%3Ab&client_secret=c+d",
        ),
        (Value::Null, secret(), "Basic YSUzQWI6Yytk"),
    ];

    for (methods, client, shown) in cases {
        let run = run_flow(&supporting(methods.clone()), own(client));

        let token = "POST https://as.example/token";
        let at = run.steps.iter().position(|step| step.starts_with(token));
        let sent = run.steps[at.unwrap()..].join(" ");
        assert!(sent.contains(shown), "{methods}: {sent}");
        assert_eq!(sent.contains("c+d"), shown.contains("c+d"), "{methods}");
        // Some servers look the client up by the form, whatever the method.
        assert_eq!(sent.matches("client_id=a%3Ab").count(), 1, "{methods}");
    }
}

#[test]
fn the_registered_authentication_method_is_used() {
    let documents = FakeDocuments::new()
        .with_member(
            "/register",
            "token_endpoint_auth_method",
            json!("client_secret_post"),
        )
        .with_member("/register", "client_secret", json!("hush"));
    let odd = FakeDocuments::new().with_member(
        "/register",
        "token_endpoint_auth_method",
        json!("tls_client_auth"),
    );

    let run = run_flow(&documents, setup());
    let refused = run_flow(&odd, setup());

    let sent = run.sent("POST https://as.example/token");
    assert_eq!(sent["client_secret"], "hush");
    assert!(refused.end.contains("tls_client_auth"), "{}", refused.end);
}

#[test]
fn an_unusable_registration_fails_before_the_user_is_prompted() {
    for method in [
        "client_secret_basic",
        "client_secret_post",
        "private_key_jwt",
    ] {
        let documents = FakeDocuments::new().with_member(
            "/register",
            "token_endpoint_auth_method",
            json!(method),
        );

        let run = run_flow(&documents, setup());

        assert!(run.end.contains(method), "{}", run.end);
        assert_eq!(
            run.requests().last(),
            Some(&"POST https://as.example/register")
        );
        assert!(run.credentials.registrations.is_empty(), "{method}");
    }
}

#[test]
fn the_application_type_depends_on_the_redirect_uri() {
    let kind = |redirect_uri: &str| {
        let asked = FlowSetup {
            redirect_uri: Some(redirect_uri.into()),
            ..setup()
        };
        let run = run_flow(&FakeDocuments::new(), asked);
        let step = run.steps[2].clone();
        let (_, body) = step.split_once("register ").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body["grant_types"],
            json!(["authorization_code", "refresh_token"])
        );
        body["application_type"].clone()
    };

    assert_eq!(kind("http://127.0.0.1:7/callback"), "native");
    assert_eq!(kind("com.example.app:/callback"), "native");
    assert_eq!(kind("https://app.example/callback"), "web");
}

#[test]
fn an_unknown_client_registers_again_in_the_next_flow() {
    let forgetful = FakeDocuments::new().with(
        "https://as.example/token",
        json!({"status": 401, "error": "invalid_client"}),
    );
    let asked = |intent| FlowSetup {
        intent,
        credentials: stored_credentials(""),
        ..setup()
    };

    let by_user = run_flow(&forgetful, asked(Intent::Obtain));
    let by_refresh = run_flow(&forgetful, asked(Intent::Refresh));

    for run in [&by_user, &by_refresh] {
        assert!(run.end.contains("invalid_client"), "{}", run.end);
        assert!(run.credentials.registrations.is_empty());
    }
    assert_eq!(by_user.credentials.tokens, stored_credentials("").tokens);
    let tokens = by_refresh.credentials.tokens.unwrap();
    assert_eq!(
        tokens.refresh, None,
        "no other client could use the refresh token"
    );
}
