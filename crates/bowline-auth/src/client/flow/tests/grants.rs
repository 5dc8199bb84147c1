//! Ways to a token without a person.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::client::SigningKey;
use crate::client::application::IdentityProvider;

fn renewing(scopes: &str) -> Setup {
    Setup {
        intent: Intent::Renew,
        credentials: held(scopes),
        redirect_uri: None,
        ..setup()
    }
}

#[test]
fn a_token_is_renewed_where_it_came_from_and_nowhere_else() {
    let elsewhere = World::new().says(
        "/mcp",
        "authorization_servers",
        json!(["https://as.example", "https://b.example"]),
    );
    let moved = World::new()
        .says(
            "/mcp",
            "authorization_servers",
            json!(["https://b.example"]),
        )
        .with(
            "https://b.example/.well-known/oauth-authorization-server",
            json!({"issuer": "https://b.example", "token_endpoint": "https://b.example/token"}),
        );

    let renewed = walk(&elsewhere, renewing("read"));
    let refused = walk(&moved, renewing("read"));

    assert_eq!(renewed.end, "done");
    let sent = renewed.sent("POST");
    assert_eq!(sent["grant_type"], "refresh_token");
    assert_eq!(sent["refresh_token"], "r0");
    assert_eq!(sent["client_id"], "holder");
    assert_eq!(sent["resource"], SERVER);
    assert!(refused.end.contains("no token that could be renewed"));
    assert!(!refused.steps.iter().any(|step| step.contains("r0")));
}

#[test]
fn a_refresh_token_is_replaced_if_there_is_a_new_one_and_kept_otherwise() {
    let silent = World::new().says("/token", "refresh_token", Value::Null);

    let rotated = walk(&World::new(), renewing("read"));
    let kept = walk(&silent, renewing("read"));

    let refresh = |walked: Walked| walked.credentials.tokens.unwrap();
    let (rotated, kept) = (refresh(rotated), refresh(kept));
    assert_eq!(rotated.refresh, Some(Secret::new("r1")));
    assert_eq!(kept.refresh, Some(Secret::new("r0")));
    assert_eq!(kept.access, Secret::new("t1"));
    assert_eq!(kept.requested.to_string(), "read");
}

#[test]
fn a_refresh_token_that_is_refused_is_forgotten() {
    let refusing = World::new().with(
        "https://as.example/token",
        json!({"status": 400, "error": "invalid_grant"}),
    );
    let busy = World::new().with("https://as.example/token", json!({"status": 503}));

    let refused = walk(&refusing, renewing(""));
    let failed = walk(&busy, renewing(""));

    assert!(refused.end.contains("invalid_grant"), "{}", refused.end);
    assert_eq!(refused.credentials.tokens.unwrap().refresh, None);
    assert!(failed.credentials.tokens.unwrap().refresh.is_some());
}

#[test]
fn a_company_vouches_for_a_person() {
    let provider = IdentityProvider::new(
        "https://idp.example/token",
        RegisteredClient::new("https://idp.example", "idp-us"),
    );
    let application = Application {
        grant: Grant::Enterprise(provider),
        ..Application::clone(&known(RegisteredClient::new(ISSUER, "us").secret("hush")))
    };
    let asked = Setup {
        application: Arc::new(application),
        redirect_uri: None,
        ..setup()
    };
    let world = World::new().with(
        "https://idp.example/token",
        json!({"access_token": "vouched", "token_type": "N_A"}),
    );

    let walked = walk(&world, asked);

    assert_eq!(walked.end, "done");
    let exchanged = walked.sent("POST https://idp.example/token");
    assert_eq!(
        exchanged["subject_token"], "assertion for https://idp.example",
        "the application is told who sees the ID token"
    );
    assert_eq!(exchanged["audience"], "https://as.example");
    assert_eq!(exchanged["resource"], SERVER);
    assert_eq!(exchanged["client_id"], "idp-us");
    let redeemed = walked.sent("POST https://as.example/token");
    assert_eq!(redeemed["assertion"], "vouched");
    assert!(redeemed["grant_type"].ends_with("jwt-bearer"));
}

#[test]
fn an_assertion_is_made_only_for_a_server_that_may_take_it() {
    let lists = |grants: Value| {
        let server = "/oauth-authorization-server";
        World::new()
            .says(server, "grant_types_supported", grants)
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

        let taken = walk(&lists(json!([jwt_bearer])), asked());
        let unlisted = walk(&lists(Value::Null), asked());
        let refused = walk(&lists(json!(["authorization_code"])), asked());

        assert_eq!((&*taken.end, &*unlisted.end), ("done", "done"));
        assert!(
            refused.end.contains("does not support the grant"),
            "{}",
            refused.end
        );
        assert_eq!(refused.steps.len(), 2, "{:?}", refused.steps);
    }
}

/// A client that nobody has to agree to.
fn unattended(grant: Grant, client: RegisteredClient) -> Setup {
    Setup {
        application: Arc::new(Application {
            grant,
            falls_back: true,
            ..Application::clone(&known(client))
        }),
        redirect_uri: None,
        ..setup()
    }
}

/// The claims of a JWT, unchecked.
fn claims(jwt: &str) -> Value {
    let claims = jwt.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[test]
fn a_client_with_a_right_of_its_own_asks_nobody() {
    let client = RegisteredClient::new(ISSUER, "us").secret("hush");
    let asked = Setup {
        challenge: challenge("Bearer scope=\"read\""),
        ..unattended(Grant::ClientCredentials, client)
    };

    let walked = walk(&World::new(), asked);

    assert_eq!(walked.end, "done");
    let sent = walked.sent("POST https://as.example/token");
    assert_eq!(sent["grant_type"], "client_credentials");
    assert_eq!(sent["scope"], "read");
    assert_eq!(sent["resource"], SERVER);
    assert!(!walked.steps.iter().any(|step| step.starts_with("OPEN")));
}

#[test]
fn a_client_with_a_key_signs_for_one_issuer_and_for_a_short_time() {
    let key = SigningKey::generate().unwrap();
    let key = SigningKey::from_pkcs8(&key).unwrap().id("k1");
    let client = RegisteredClient::new(ISSUER, "us").key(key);

    let walked = walk(&World::new(), unattended(Grant::ClientCredentials, client));

    let sent = walked.sent("POST https://as.example/token");
    let claims = claims(&sent["client_assertion"]);
    assert_eq!(walked.end, "done");
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("us"), &json!("us"))
    );
    assert_eq!(claims["aud"], "https://as.example");
    assert_eq!(claims["exp"], NOW + 120);
}

#[test]
fn whoever_runs_a_program_vouches_for_it_once_and_nothing_else_is_tried() {
    let asked = || Setup {
        ..unattended(Grant::Assertion, RegisteredClient::new(ISSUER, "us"))
    };
    let refusing = World::new().with(
        "https://as.example/token",
        json!({"status": 400, "error": "invalid_grant"}),
    );

    let walked = walk(&World::new(), asked());
    let refused = walk(&refusing, asked());

    assert_eq!(walked.end, "done");
    assert_eq!(
        walked.sent("POST https://as.example/token")["assertion"],
        "assertion for https://as.example"
    );
    assert!(refused.end.contains("invalid_grant"), "{}", refused.end);
    assert_eq!(refused.steps.len(), 4, "{:?}", refused.steps);
}

#[test]
fn what_an_unattended_client_brings_goes_to_its_own_issuer_and_nowhere_else() {
    let evil = "https://evil.example";
    let client = || RegisteredClient::new(ISSUER, "us").secret("hush");
    let moved = World::new()
        .says("/mcp", "authorization_servers", json!([evil]))
        .with(
            "https://evil.example/.well-known/oauth-authorization-server",
            json!({"issuer": evil, "token_endpoint": "https://evil.example/token"}),
        );
    let undocumented = World(BTreeMap::new());
    let company = IdentityProvider::new("https://idp.example/token", client());

    for grant in [
        Grant::ClientCredentials,
        Grant::Assertion,
        Grant::Enterprise(company),
    ] {
        for world in [&moved, &undocumented] {
            let walked = walk(world, unattended(grant.clone(), client()));

            assert!(
                walked
                    .end
                    .contains("the client is registered at `https://as.example`"),
                "{grant:?}: {}",
                walked.end
            );
            let own = |step: &String| step.starts_with("GET https://mcp.example/");
            assert!(walked.steps.iter().all(own), "{:?}", walked.steps);
        }
    }
}

/// A flow whose token request was just sent, and that request.
fn at_the_token_endpoint(asked: Setup) -> (Flow, Request<Bytes>) {
    let world = World::new();
    let mut flow = Flow::new(asked);
    let mut step = flow.begin().unwrap();
    while let Step::Send(request) = step {
        if request.uri().path() == "/token" {
            return (flow, request);
        }
        let response = world.answer(&request.uri().to_string());
        step = flow.response(&response, &moment()).unwrap();
    }
    panic!("no token was asked for");
}

fn wants_nonce(nonce: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"{\"error\":\"use_dpop_nonce\"}"));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let nonce = http::HeaderValue::from_static(nonce);
    response.headers_mut().insert(DPOP_NONCE, nonce);
    response
}

#[test]
fn a_token_is_bound_to_a_key_where_the_server_asks_for_proofs() {
    let client = || RegisteredClient::new(ISSUER, "us").secret("hush");
    let bound = Setup {
        challenge: challenge("DPoP algs=\"ES256\""),
        ..unattended(Grant::ClientCredentials, client())
    };
    let (mut flow, first) = at_the_token_endpoint(bound);
    let (_, unbound) = at_the_token_endpoint(unattended(Grant::ClientCredentials, client()));

    let Ok(Step::Send(second)) = flow.response(&wants_nonce("n1"), &moment()) else {
        panic!("the request was not sent again");
    };
    let again = flow.response(&wants_nonce("n2"), &moment());

    let proof = |request: &Request<Bytes>| {
        let proof = request.headers().get("dpop").unwrap();
        claims(proof.to_str().unwrap())
    };
    assert_eq!(unbound.headers().get("dpop"), None);
    assert_eq!(proof(&first)["htu"], "https://as.example/token");
    assert_eq!(
        proof(&first)["nonce"],
        Value::Null,
        "not before it is wanted"
    );
    assert_eq!(proof(&second)["nonce"], "n1");
    assert!(again.is_err(), "a server that is never content");
}
