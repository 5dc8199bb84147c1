//! Tokens of several issuers, and of tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_auth::server::{Introspection, Issuers, JwtVerifier};
use http::StatusCode;
use serde_json::json;

use crate::support::*;

const OTHER: &str = "https://other.example";
const OTHER_KEYS: &str = "https://other.example/keys";
const ENDPOINT: &str = "https://opaque.example/introspect";

#[tokio::test(start_paused = true)]
async fn each_issuer_vouches_for_its_own_tokens_and_delays_no_other() {
    let mut world = World::new();
    let other = Signer::new("first");
    world.web.put(OTHER_KEYS, &json!({"keys": [other.jwk()]}));
    let jwt = |issuer, keys| {
        let verifier = JwtVerifier::new(issuer, keys).unwrap();
        verifier.send_by(world.web.clone())
    };
    let verifier = Issuers::new()
        .issuer(ISSUER, jwt(ISSUER, KEYS))
        .issuer(OTHER, jwt(OTHER, OTHER_KEYS));
    world.guard = guard(verifier, &world.clock).also_issued_by(OTHER);
    let from = |issuer: &str| claims_with("iss", issuer);

    for (signer, issuer, status) in [
        (&world.signer, ISSUER, StatusCode::OK),
        (&other, OTHER, StatusCode::OK),
        (&other, ISSUER, StatusCode::UNAUTHORIZED),
        (&world.signer, OTHER, StatusCode::UNAUTHORIZED),
        (&other, "https://evil.example", StatusCode::UNAUTHORIZED),
    ] {
        let response = world.call(&signer.sign(&from(issuer))).await;
        assert_eq!(response.status(), status, "{issuer}");
    }
    let opaque = world.call("opaque").await;
    assert_eq!(opaque.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn tokens_that_are_no_jwts_go_where_such_tokens_go() {
    let mut world = World::new();
    let mut answer = claims_with("iss", OTHER);
    answer["active"] = json!(true);
    world.web.put(ENDPOINT, &answer);
    let opaque = Introspection::new(OTHER, ENDPOINT).unwrap();
    let verifier = Issuers::new().opaque(opaque.send_by(world.web.clone()));
    world.guard = guard(verifier, &world.clock).also_issued_by(OTHER);

    let opaque = world.call("opaque").await;
    let jwt = world.call_with(&claims()).await;

    assert_eq!(opaque.status(), StatusCode::OK);
    assert_eq!(jwt.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        world.web.asked(ENDPOINT),
        1,
        "a JWT is shown to nobody else"
    );
}

#[tokio::test]
async fn a_tenant_is_resolved_once_and_a_stranger_is_none() {
    let mut world = World::new();
    let resolved = Arc::new(AtomicUsize::new(0));
    let (web, counter) = (world.web.clone(), resolved.clone());
    let verifier = Issuers::new().tenants(move |issuer| {
        counter.fetch_add(1, Ordering::SeqCst);
        let tenant = issuer.strip_prefix("https://id.example/")?;
        let is_known = tenant == "contoso";
        let verifier = is_known.then(|| JwtVerifier::new(issuer, KEYS).unwrap())?;
        Some(verifier.send_by(web.clone()))
    });
    let guard = guard(verifier, &world.clock);
    let token = |tenant: &str| {
        let issuer = format!("https://id.example/{tenant}");
        world.signer.sign(&claims_with("iss", issuer))
    };
    let (contoso, fabrikam) = (token("contoso"), token("fabrikam"));

    world.guard = guard.clone();
    let unlisted = world.call(&contoso).await;
    world.guard = guard.any_issuer_of_verifier();
    let mut statuses = Vec::new();
    for token in [&contoso, &contoso, &fabrikam] {
        statuses.push(world.call(token).await.status());
    }

    assert_eq!(unlisted.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        statuses,
        [StatusCode::OK, StatusCode::OK, StatusCode::UNAUTHORIZED]
    );
    assert_eq!(resolved.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_listens_ends_with_its_token() {
    let world = World::new();
    let request = listen();
    let token = world.signer.sign(&claims());

    let begun = tokio::time::Instant::now();
    let response = ask(&world.service(), bearing(request, &token)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let collecting = http_body_util::BodyExt::collect(response.into_body());
    let hour = std::time::Duration::from_secs(3600);
    let body = tokio::time::timeout(hour, collecting).await;

    assert!(body.expect("the stream ends").is_ok());
    // The token is good for another ten minutes.
    assert_eq!(begun.elapsed().as_secs(), 600);
}
