//! Opaque tokens, verified by introspection.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::http::HttpService;
use bowline_auth::client::SigningKey;
use bowline_auth::server::{Introspection, ResourceServerService};
use http::StatusCode;
use serde_json::{Value, json};
use tower_layer::Layer;

use crate::support::*;

const ENDPOINT: &str = "https://id.example/introspect";

fn service(env: &TestEnv, answer: &Value) -> ResourceServerService<HttpService> {
    env.web.put(ENDPOINT, answer);
    let verifier = Introspection::new(ISSUER, ENDPOINT)
        .unwrap()
        .credentials("files", "pass&word");
    guard(verifier.http_client(env.web.clone()), &env.clock).layer(env.server.http())
}

fn active() -> Value {
    let mut answer = claims();
    answer["active"] = json!(true);
    answer
}

#[tokio::test]
async fn each_token_is_introspected_with_client_authentication() {
    let env = TestEnv::new();
    let service = service(&env, &active());

    let response = send_request(&service, with_bearer(call("whoami"), "opaque")).await;

    assert_eq!(
        whoami_result(response).await["name"],
        "https://id.example ada"
    );
    let (body, headers) = env.web.last_post(ENDPOINT);
    assert_eq!(body, "token=opaque&token_type_hint=access_token");
    assert_eq!(headers["authorization"], "Basic ZmlsZXM6cGFzcyUyNndvcmQ=");
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn a_revoked_token_is_refused_immediately() {
    let env = TestEnv::new();
    let service = service(&env, &active());

    let before = send_request(&service, with_bearer(call("whoami"), "opaque")).await;
    env.web.put(ENDPOINT, &json!({"active": false}));
    let after = send_request(&service, with_bearer(call("whoami"), "opaque")).await;

    assert_eq!(before.status(), StatusCode::OK);
    assert_eq!(after.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_active_token_must_pass_the_claim_checks() {
    let env = TestEnv::new();
    for (name, value) in [
        ("aud", json!("https://other.example")),
        ("aud", Value::Null),
        ("iss", json!("https://evil.example")),
        ("exp", json!(NOW)),
        ("active", json!("true")),
        ("active", Value::Null),
        ("cnf", json!({"jkt": "abc"})),
    ] {
        let mut answer = active();
        answer[name] = value.clone();

        let response = send_request(
            &service(&env, &answer),
            with_bearer(call("whoami"), "opaque"),
        )
        .await;

        assert_eq!(
            response.status(),
            StatusCode::UNAUTHORIZED,
            "{name} = {value}"
        );
    }
    let mut silent = active();
    silent["iss"] = Value::Null;
    let response = send_request(
        &service(&env, &silent),
        with_bearer(call("whoami"), "opaque"),
    )
    .await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_failed_introspection_is_a_503() {
    let env = TestEnv::new();
    let service = service(&env, &active());
    env.web.put_text(ENDPOINT, StatusCode::UNAUTHORIZED, "");

    let response = send_request(&service, with_bearer(call("whoami"), "opaque")).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(challenge(&response), "");
}

#[tokio::test(start_paused = true)]
async fn responses_are_cached_for_the_configured_time() {
    let env = TestEnv::new();
    env.web.put(ENDPOINT, &active());
    let verifier = Introspection::new(ISSUER, ENDPOINT)
        .unwrap()
        .cache_for(Duration::from_secs(60))
        .http_client(env.web.clone());
    let service = guard(verifier, &env.clock).layer(env.server.http());
    let send = async || {
        send_request(&service, with_bearer(call("whoami"), "opaque"))
            .await
            .status()
    };

    for _ in 0..3 {
        assert_eq!(send().await, StatusCode::OK);
    }
    let requests = env.web.request_count(ENDPOINT);
    env.web.put(ENDPOINT, &json!({"active": false}));
    let cached = send().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let after_expiry = send().await;

    assert_eq!(requests, 1);
    assert_eq!(cached, StatusCode::OK);
    assert_eq!(after_expiry, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_one_introspection() {
    let env = TestEnv::new();
    let service = service(&env, &active());
    let gate = env.web.hold(ENDPOINT);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                send_request(&service, with_bearer(call("whoami"), "opaque"))
                    .await
                    .status()
            })
        })
        .collect();
    while env.web.request_count(ENDPOINT) == 0 {
        tokio::task::yield_now().await;
    }

    // The request that started the introspection is dropped; the others get its response.
    calls[0].abort();
    gate.add_permits(1);
    let mut served = 0;
    for call in calls.into_iter().skip(1) {
        served += usize::from(call.await.unwrap() == StatusCode::OK);
    }

    assert_eq!(served, 19);
    assert_eq!(env.web.request_count(ENDPOINT), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_introspections_delay_only_tokens_of_their_issuer() {
    let env = TestEnv::new();
    let slow = service(&env, &active());
    let gate = env.web.hold(ENDPOINT);
    let hanging: Vec<_> = (0..256)
        .map(|number| {
            let slow = slow.clone();
            let token = format!("garbage{number}");
            tokio::spawn(async move {
                send_request(&slow, with_bearer(call("whoami"), &token))
                    .await
                    .status()
            })
        })
        .collect();
    while env.web.request_count(ENDPOINT) < 256 {
        tokio::task::yield_now().await;
    }

    let service = slow.clone();
    let good = tokio::spawn(async move {
        send_request(&service, with_bearer(call("whoami"), "opaque"))
            .await
            .status()
    });
    // Another issuer has its own limit.
    let elsewhere = env.call_with(&claims()).await.status();
    for hanging in hanging {
        assert_eq!(hanging.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    gate.add_permits(1);

    assert_eq!(good.await.unwrap(), StatusCode::OK);
    assert_eq!(elsewhere, StatusCode::OK);
}

#[tokio::test]
async fn introspection_supports_all_authentication_methods() {
    let env = TestEnv::new();
    env.web.put(ENDPOINT, &active());
    let verifier = || Introspection::new(ISSUER, ENDPOINT).unwrap();
    let sent = async |verifier: Introspection| {
        let guard = guard(verifier.http_client(env.web.clone()), &env.clock);
        let service = guard.layer(env.server.http());
        let response = send_request(&service, with_bearer(call("whoami"), "opaque")).await;
        assert_eq!(response.status(), StatusCode::OK);
        env.web.last_post(ENDPOINT)
    };

    let (body, headers) = sent(verifier().credentials_in_body("files", "pass&word")).await;
    assert_eq!(
        body,
        "token=opaque&token_type_hint=access_token&client_id=files&client_secret=pass%26word"
    );
    assert!(!headers.contains_key("authorization"));
    let (_, headers) = sent(verifier().bearer_token("own").unwrap()).await;
    assert_eq!(headers["authorization"], "Bearer own");
    let key = SigningKey::from_pkcs8(&Signer::new("").pkcs8()).unwrap();
    let (body, _) = sent(verifier().signing_key("files", key)).await;
    let assertion = body.split("client_assertion=").nth(1).unwrap();
    let claims = assertion.split('.').nth(1).unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("files"), &json!(ISSUER))
    );
}
