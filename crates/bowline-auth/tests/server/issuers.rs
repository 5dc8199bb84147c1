//! Tokens of several issuers, and of tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_auth::server::{Introspection, Issuers, JwtVerifier};
use http::StatusCode;
use serde_json::json;

use crate::support::*;

const OTHER: &str = "https://other.example";
const OTHER_JWKS_URL: &str = "https://other.example/keys";
const ENDPOINT: &str = "https://opaque.example/introspect";

#[tokio::test(start_paused = true)]
async fn tokens_are_verified_with_the_keys_of_their_issuer() {
    let mut env = TestEnv::new();
    let other = Signer::new("first");
    env.web.put(OTHER_JWKS_URL, &json!({"keys": [other.jwk()]}));
    let jwt = |issuer, keys| {
        let verifier = JwtVerifier::new(issuer, keys).unwrap();
        verifier.http_client(env.web.clone())
    };
    let verifier = Issuers::new()
        .issuer(ISSUER, jwt(ISSUER, JWKS_URL))
        .issuer(OTHER, jwt(OTHER, OTHER_JWKS_URL));
    env.guard = guard(verifier, &env.clock).additional_issuer(OTHER);
    let from = |issuer: &str| claims_with("iss", issuer);

    for (signer, issuer, status) in [
        (&env.signer, ISSUER, StatusCode::OK),
        (&other, OTHER, StatusCode::OK),
        (&other, ISSUER, StatusCode::UNAUTHORIZED),
        (&env.signer, OTHER, StatusCode::UNAUTHORIZED),
        (&other, "https://evil.example", StatusCode::UNAUTHORIZED),
    ] {
        let response = env.call(&signer.sign(&from(issuer))).await;
        assert_eq!(response.status(), status, "{issuer}");
    }
    let opaque = env.call("opaque").await;
    assert_eq!(opaque.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn opaque_tokens_go_to_the_opaque_verifier() {
    let mut env = TestEnv::new();
    let mut answer = claims_with("iss", OTHER);
    answer["active"] = json!(true);
    env.web.put(ENDPOINT, &answer);
    let opaque = Introspection::new(OTHER, ENDPOINT).unwrap();
    let verifier = Issuers::new().opaque(opaque.http_client(env.web.clone()));
    env.guard = guard(verifier, &env.clock).additional_issuer(OTHER);

    let opaque = env.call("opaque").await;
    let jwt = env.call_with(&claims()).await;

    assert_eq!(opaque.status(), StatusCode::OK);
    assert_eq!(jwt.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        env.web.request_count(ENDPOINT),
        1,
        "a JWT is not sent to the introspection endpoint"
    );
}

#[tokio::test]
async fn a_tenant_is_resolved_once_and_an_unknown_issuer_is_refused() {
    let mut env = TestEnv::new();
    let resolved = Arc::new(AtomicUsize::new(0));
    let (web, counter) = (env.web.clone(), resolved.clone());
    let verifier = Issuers::new().tenants(move |issuer| {
        counter.fetch_add(1, Ordering::SeqCst);
        let tenant = issuer.strip_prefix("https://id.example/")?;
        let is_known = tenant == "contoso";
        let verifier = is_known.then(|| JwtVerifier::new(issuer, JWKS_URL).unwrap())?;
        Some(verifier.http_client(web.clone()))
    });
    let guard = guard(verifier, &env.clock);
    let token = |tenant: &str| {
        let issuer = format!("https://id.example/{tenant}");
        env.signer.sign(&claims_with("iss", issuer))
    };
    let (contoso, fabrikam) = (token("contoso"), token("fabrikam"));

    env.guard = guard.clone();
    let unlisted = env.call(&contoso).await;
    env.guard = guard.trust_verifier_issuers();
    let mut statuses = Vec::new();
    for token in [&contoso, &contoso, &fabrikam] {
        statuses.push(env.call(token).await.status());
    }

    assert_eq!(unlisted.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        statuses,
        [StatusCode::OK, StatusCode::OK, StatusCode::UNAUTHORIZED]
    );
    assert_eq!(resolved.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_stream_ends_when_its_token_expires() {
    let env = TestEnv::new();
    let request = listen();
    let token = env.signer.sign(&claims());

    let begun = tokio::time::Instant::now();
    let response = send_request(&env.service(), with_bearer(request, &token)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let collecting = http_body_util::BodyExt::collect(response.into_body());
    let hour = std::time::Duration::from_secs(3600);
    let body = tokio::time::timeout(hour, collecting).await;

    assert!(body.expect("the stream ends").is_ok());
    // The token expires in ten minutes.
    assert_eq!(begun.elapsed().as_secs(), 600);
}
