//! Grants without a user: refresh token, client credentials, assertions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::client::SigningKey;
use crate::client::application::IdentityProvider;

fn refreshing(scopes: &str) -> FlowSetup {
    FlowSetup {
        intent: Intent::Refresh,
        credentials: stored_credentials(scopes),
        redirect_uri: None,
        ..setup()
    }
}

#[test]
fn a_token_is_refreshed_only_at_its_issuer() {
    let elsewhere = FakeDocuments::new().with_member(
        "/mcp",
        "authorization_servers",
        json!(["https://as.example", "https://b.example"]),
    );
    let moved = FakeDocuments::new()
        .with_member(
            "/mcp",
            "authorization_servers",
            json!(["https://b.example"]),
        )
        .with(
            "https://b.example/.well-known/oauth-authorization-server",
            json!({"issuer": "https://b.example", "token_endpoint": "https://b.example/token"}),
        );

    let renewed = run_flow(&elsewhere, refreshing("read"));
    let refused = run_flow(&moved, refreshing("read"));

    assert_eq!(renewed.end, "done");
    let sent = renewed.sent("POST");
    assert_eq!(sent["grant_type"], "refresh_token");
    assert_eq!(sent["refresh_token"], "r0");
    assert_eq!(sent["client_id"], "holder");
    assert_eq!(sent["resource"], SERVER);
    assert!(refused.end.contains("no refresh token from this issuer"));
    assert!(!refused.steps.iter().any(|step| step.contains("r0")));
}

#[test]
fn a_refresh_token_is_replaced_if_there_is_a_new_one_and_kept_otherwise() {
    let silent = FakeDocuments::new().with_member("/token", "refresh_token", Value::Null);

    let rotated = run_flow(&FakeDocuments::new(), refreshing("read"));
    let kept = run_flow(&silent, refreshing("read"));

    let refresh = |run: FlowRun| run.credentials.tokens.unwrap();
    let (rotated, kept) = (refresh(rotated), refresh(kept));
    assert_eq!(rotated.refresh, Some(Secret::new("r1")));
    assert_eq!(kept.refresh, Some(Secret::new("r0")));
    assert_eq!(kept.access, Secret::new("t1"));
    assert_eq!(kept.requested.to_string(), "read");
}

#[test]
fn a_refused_refresh_token_is_removed() {
    let refusing = FakeDocuments::new().with(
        "https://as.example/token",
        json!({"status": 400, "error": "invalid_grant"}),
    );
    let busy = FakeDocuments::new().with("https://as.example/token", json!({"status": 503}));

    let refused = run_flow(&refusing, refreshing(""));
    let failed = run_flow(&busy, refreshing(""));

    assert!(refused.end.contains("invalid_grant"), "{}", refused.end);
    assert_eq!(refused.credentials.tokens.unwrap().refresh, None);
    assert!(failed.credentials.tokens.unwrap().refresh.is_some());
}

#[test]
fn an_id_token_is_exchanged_for_an_id_jag() {
    let provider = IdentityProvider::new(
        "https://idp.example/token",
        RegisteredClient::new("https://idp.example", "idp-us"),
    );
    let application = Application {
        grant: Grant::Enterprise(provider),
        ..Application::clone(&application_with(
            RegisteredClient::new(ISSUER, "us").secret("hush"),
        ))
    };
    let asked = FlowSetup {
        application: Arc::new(application),
        redirect_uri: None,
        ..setup()
    };
    let documents = FakeDocuments::new().with(
        "https://idp.example/token",
        json!({"access_token": "vouched", "token_type": "N_A"}),
    );

    let run = run_flow(&documents, asked);

    assert_eq!(run.end, "done");
    let exchanged = run.sent("POST https://idp.example/token");
    assert_eq!(
        exchanged["subject_token"], "assertion for https://idp.example",
        "the application receives the issuer that gets the ID token"
    );
    assert_eq!(exchanged["audience"], "https://as.example");
    assert_eq!(exchanged["resource"], SERVER);
    assert_eq!(exchanged["client_id"], "idp-us");
    let redeemed = run.sent("POST https://as.example/token");
    assert_eq!(redeemed["assertion"], "vouched");
    assert!(redeemed["grant_type"].ends_with("jwt-bearer"));
}

#[test]
fn an_assertion_is_requested_only_if_the_server_supports_the_grant() {
    let lists = |grants: Value| {
        let server = "/oauth-authorization-server";
        FakeDocuments::new()
            .with_member(server, "grant_types_supported", grants)
            .with(
                "https://idp.example/token",
                json!({"access_token": "vouched", "token_type": "N_A"}),
            )
    };
    let jwt_bearer = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    let idp = RegisteredClient::new("https://idp.example", "idp-us");
    let provider = IdentityProvider::new("https://idp.example/token", idp);

    for grant in [Grant::Assertion, Grant::Enterprise(provider)] {
        let asked = || unattended(grant.clone(), RegisteredClient::new(ISSUER, "us"));

        let taken = run_flow(&lists(json!([jwt_bearer])), asked());
        let unlisted = run_flow(&lists(Value::Null), asked());
        let refused = run_flow(&lists(json!(["authorization_code"])), asked());

        assert_eq!((&*taken.end, &*unlisted.end), ("done", "done"));
        assert!(
            refused.end.contains("does not support the grant"),
            "{}",
            refused.end
        );
        assert_eq!(refused.steps.len(), 2, "{:?}", refused.steps);
    }
}

/// Returns a setup for a grant without a user.
fn unattended(grant: Grant, client: RegisteredClient) -> FlowSetup {
    FlowSetup {
        application: Arc::new(Application {
            grant,
            assumes_default_endpoints: true,
            ..Application::clone(&application_with(client))
        }),
        redirect_uri: None,
        ..setup()
    }
}

/// Returns the unverified claims of a JWT.
fn claims(jwt: &str) -> Value {
    let claims = jwt.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[test]
fn client_credentials_need_no_user() {
    let client = RegisteredClient::new(ISSUER, "us").secret("hush");
    let asked = FlowSetup {
        challenge: challenge("Bearer scope=\"read\""),
        ..unattended(Grant::ClientCredentials, client)
    };

    let run = run_flow(&FakeDocuments::new(), asked);

    assert_eq!(run.end, "done");
    let sent = run.sent("POST https://as.example/token");
    assert_eq!(sent["grant_type"], "client_credentials");
    assert_eq!(sent["scope"], "read");
    assert_eq!(sent["resource"], SERVER);
    assert!(!run.steps.iter().any(|step| step.starts_with("OPEN")));
}

#[test]
fn client_assertions_name_one_issuer_and_expire_soon() {
    let key = SigningKey::generate().unwrap();
    let key = SigningKey::from_pkcs8(&key).unwrap().id("k1");
    let client = RegisteredClient::new(ISSUER, "us").key(key);

    let run = run_flow(
        &FakeDocuments::new(),
        unattended(Grant::ClientCredentials, client),
    );

    let sent = run.sent("POST https://as.example/token");
    let claims = claims(&sent["client_assertion"]);
    assert_eq!(run.end, "done");
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("us"), &json!("us"))
    );
    assert_eq!(claims["aud"], "https://as.example");
    assert_eq!(claims["exp"], NOW + 120);
}

#[test]
fn a_workload_assertion_is_requested_once_per_token() {
    let asked = || FlowSetup {
        ..unattended(Grant::Assertion, RegisteredClient::new(ISSUER, "us"))
    };
    let refusing = FakeDocuments::new().with(
        "https://as.example/token",
        json!({"status": 400, "error": "invalid_grant"}),
    );

    let run = run_flow(&FakeDocuments::new(), asked());
    let refused = run_flow(&refusing, asked());

    assert_eq!(run.end, "done");
    assert_eq!(
        run.sent("POST https://as.example/token")["assertion"],
        "assertion for https://as.example"
    );
    assert!(refused.end.contains("invalid_grant"), "{}", refused.end);
    assert_eq!(refused.steps.len(), 4, "{:?}", refused.steps);
}

#[test]
fn credentials_of_unattended_clients_are_sent_to_their_issuer_only() {
    let evil = "https://evil.example";
    let client = || RegisteredClient::new(ISSUER, "us").secret("hush");
    let moved = FakeDocuments::new()
        .with_member("/mcp", "authorization_servers", json!([evil]))
        .with(
            "https://evil.example/.well-known/oauth-authorization-server",
            json!({"issuer": evil, "token_endpoint": "https://evil.example/token"}),
        );
    let undocumented = FakeDocuments(BTreeMap::new());
    let company = IdentityProvider::new("https://idp.example/token", client());

    for grant in [
        Grant::ClientCredentials,
        Grant::Assertion,
        Grant::Enterprise(company),
    ] {
        for documents in [&moved, &undocumented] {
            let run = run_flow(documents, unattended(grant.clone(), client()));

            assert!(
                run.end
                    .contains("the client is registered at `https://as.example`"),
                "{grant:?}: {}",
                run.end
            );
            let own = |step: &String| step.starts_with("GET https://mcp.example/");
            assert!(run.steps.iter().all(own), "{:?}", run.steps);
        }
    }
}

/// Returns a flow that waits for its token response, and the token request.
fn at_the_token_endpoint(asked: FlowSetup) -> (Flow, Request<Bytes>) {
    let documents = FakeDocuments::new();
    let mut flow = Flow::new(asked);
    let mut step = flow.begin().unwrap();
    while let FlowStep::Send(request) = step {
        if request.uri().path() == "/token" {
            return (flow, request);
        }
        let response = documents.response(&request.uri().to_string());
        step = flow
            .handle_response(&response, &time_and_randomness())
            .unwrap();
    }
    panic!("the flow sent no token request");
}

fn wants_nonce(nonce: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"{\"error\":\"use_dpop_nonce\"}"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let nonce = http::HeaderValue::from_static(nonce);
    response.headers_mut().insert(DPOP_NONCE, nonce);
    response
}

#[test]
fn dpop_tokens_are_requested_if_the_server_requires_them() {
    let client = || RegisteredClient::new(ISSUER, "us").secret("hush");
    let bound = FlowSetup {
        challenge: challenge("DPoP algs=\"ES256\""),
        ..unattended(Grant::ClientCredentials, client())
    };
    let (mut flow, first) = at_the_token_endpoint(bound);
    let (_, unbound) = at_the_token_endpoint(unattended(Grant::ClientCredentials, client()));

    let Ok(FlowStep::Send(second)) =
        flow.handle_response(&wants_nonce("n1"), &time_and_randomness())
    else {
        panic!("the request was not sent again");
    };
    let again = flow.handle_response(&wants_nonce("n2"), &time_and_randomness());

    let proof = |request: &Request<Bytes>| {
        let proof = request.headers().get("dpop").unwrap();
        claims(proof.to_str().unwrap())
    };
    assert_eq!(unbound.headers().get("dpop"), None);
    assert_eq!(proof(&first)["htu"], "https://as.example/token");
    assert_eq!(
        proof(&first)["nonce"],
        Value::Null,
        "before the server sent one"
    );
    assert_eq!(proof(&second)["nonce"], "n1");
    assert!(again.is_err(), "only one retry with a nonce");
}
