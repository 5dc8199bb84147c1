//! Who a client is to an authorization server.

use super::*;

#[test]
fn a_registration_is_used_only_where_and_how_it_was_made() {
    let elsewhere = World::new()
        .says(
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
        let mut credentials = held("");
        let registrations = credentials.registrations.values_mut();
        registrations.for_each(|registration| registration.expires_at = Some(NOW));
        credentials
    };
    let moved = || Setup {
        credentials: held(""),
        redirect_uri: Some("http://127.0.0.1:8/callback".into()),
        ..setup()
    };

    let migrated = Setup {
        credentials: held(""),
        ..setup()
    };
    let migrated = walk_back(&elsewhere, migrated, "code=c");
    let too_old = Setup {
        credentials: expired(),
        ..setup()
    };
    let too_old = walk(&World::new(), too_old);
    let other_port = walk(&World::new(), moved());

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
fn clients_are_known_in_the_specified_order() {
    let server = "/oauth-authorization-server";
    let understands =
        World::new().says(server, "client_id_metadata_document_supported", json!(true));
    let published = || Setup {
        application: Arc::new(Application {
            metadata_url: Some("https://app.example/client.json".into()),
            ..Application::clone(&setup().application)
        }),
        credentials: held(""),
        ..setup()
    };
    let own = Setup {
        application: known(RegisteredClient::new(ISSUER, "own")),
        ..published()
    };
    let refuses = World::new().says(server, "registration_endpoint", Value::Null);

    let own = walk(&understands, own);
    let by_document = walk(&understands, published());
    let by_memory = walk(&World::new(), published());
    let by_registration = walk(&World::new(), setup());
    let not_at_all = walk(&refuses, setup());

    assert_eq!(own.sent("OPEN")["client_id"], "own");
    assert_eq!(
        by_document.sent("OPEN")["client_id"],
        "https://app.example/client.json"
    );
    assert_eq!(by_memory.sent("OPEN")["client_id"], "holder");
    assert_eq!(by_registration.sent("OPEN")["client_id"], "registered");
    assert!(not_at_all.end.contains("registers nobody"));
}

#[test]
fn an_applications_own_credentials_are_shown_to_one_issuer_only() {
    let first_come = || RegisteredClient::at_first_issuer("own").secret("hush");
    let client = |issuer| RegisteredClient::new(issuer, "own").secret("hush");
    let at = |client| Setup {
        application: known(client),
        ..setup()
    };
    let bound = Setup {
        credentials: Credentials {
            bound_to: Some("https://first.example".into()),
            ..Credentials::default()
        },
        ..at(first_come())
    };

    let home = walk(&World::new(), at(client(ISSUER)));
    let abroad = walk(&World::new(), at(client("https://first.example")));
    let later = walk(&World::new(), bound);
    let first = walk(&World::new(), at(first_come()));

    assert_eq!(home.end, "done");
    for refused in [&abroad, &later] {
        assert!(
            refused
                .end
                .contains("is registered at `https://first.example`")
        );
        assert_eq!(
            refused.steps.len(),
            1,
            "no issuer is visited: {:?}",
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
fn clients_authenticate_as_the_server_wants_it() {
    let supporting = |methods: Value| {
        World::new().says(
            "/oauth-authorization-server",
            "token_endpoint_auth_methods_supported",
            methods,
        )
    };
    let own = |client| Setup {
        application: known(client),
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
        let walked = walk(&supporting(methods.clone()), own(client));

        let token = "POST https://as.example/token";
        let at = walked.steps.iter().position(|step| step.starts_with(token));
        let sent = walked.steps[at.unwrap()..].join(" ");
        assert!(sent.contains(shown), "{methods}: {sent}");
        assert_eq!(sent.contains("c+d"), shown.contains("c+d"), "{methods}");
    }
}

#[test]
fn what_a_registration_says_about_authentication_counts() {
    let world = World::new()
        .says(
            "/register",
            "token_endpoint_auth_method",
            json!("client_secret_post"),
        )
        .says("/register", "client_secret", json!("hush"));
    let odd = World::new().says(
        "/register",
        "token_endpoint_auth_method",
        json!("tls_client_auth"),
    );

    let walked = walk(&world, setup());
    let refused = walk(&odd, setup());

    let sent = walked.sent("POST https://as.example/token");
    assert_eq!(sent["client_secret"], "hush");
    assert!(refused.end.contains("tls_client_auth"), "{}", refused.end);
}

#[test]
fn a_registration_that_cannot_be_used_ends_the_flow_before_a_person_is_asked() {
    for method in [
        "client_secret_basic",
        "client_secret_post",
        "private_key_jwt",
    ] {
        let world = World::new().says("/register", "token_endpoint_auth_method", json!(method));

        let walked = walk(&world, setup());

        assert!(walked.end.contains(method), "{}", walked.end);
        assert_eq!(
            walked.way().last(),
            Some(&"POST https://as.example/register")
        );
        assert!(walked.credentials.registrations.is_empty(), "{method}");
    }
}

#[test]
fn a_client_says_what_kind_of_application_it_is() {
    let kind = |redirect_uri: &str| {
        let asked = Setup {
            redirect_uri: Some(redirect_uri.into()),
            ..setup()
        };
        let walked = walk(&World::new(), asked);
        let step = walked.steps[2].clone();
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
fn a_client_that_the_server_forgot_registers_anew_the_next_time() {
    let forgetful = World::new().with(
        "https://as.example/token",
        json!({"status": 401, "error": "invalid_client"}),
    );
    let asked = |intent| Setup {
        intent,
        credentials: held(""),
        ..setup()
    };

    let by_person = walk(&forgetful, asked(Intent::Obtain));
    let by_renewal = walk(&forgetful, asked(Intent::Renew));

    for walked in [&by_person, &by_renewal] {
        assert!(walked.end.contains("invalid_client"), "{}", walked.end);
        assert!(walked.credentials.registrations.is_empty());
    }
    assert_eq!(by_person.credentials.tokens, held("").tokens);
    let tokens = by_renewal.credentials.tokens.unwrap();
    assert_eq!(
        tokens.refresh, None,
        "no other client could use the refresh token"
    );
}
