//! The JWK set of an issuer: fetches, caching and limits.

use std::time::Duration;

use http::StatusCode;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_once_for_many_tokens() {
    let env = TestEnv::new();

    for _ in 0..10 {
        assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
    }

    assert_eq!(env.web.request_count(JWKS_URL), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let env = TestEnv::new();
    let second = Signer::new("second");
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);

    tokio::time::advance(Duration::from_secs(11)).await;
    env.web.publish(&[&env.signer, &second]);
    let new = env.call(&second.sign(&claims())).await;
    let old = env.call_with(&claims()).await;

    assert_eq!(
        (new.status(), old.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(env.web.request_count(JWKS_URL), 2);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_key_is_trusted_for_ten_minutes_at_most() {
    let env = TestEnv::new();
    let second = Signer::new("second");
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);

    env.web.publish(&[&second]);
    tokio::time::advance(Duration::from_secs(10 * 60)).await;
    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_cause_one_fetch_in_ten_seconds() {
    let env = TestEnv::new();
    let forger = Signer::new("unknown");
    let token = forger.sign(&claims());

    for round in 1..=3 {
        for _ in 0..100 {
            assert_eq!(env.call(&token).await.status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!(env.web.request_count(JWKS_URL), round);
        tokio::time::advance(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_fetch_that_survives_a_dropped_request() {
    let env = TestEnv::new();
    let gate = env.web.hold(JWKS_URL);
    let token = env.signer.sign(&claims());
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let (service, token) = (env.service(), token.clone());
        waiting.push(tokio::spawn(async move {
            send_request(&service, with_bearer(call("whoami"), &token))
                .await
                .status()
        }));
    }
    while env.web.request_count(JWKS_URL) == 0 {
        tokio::task::yield_now().await;
    }

    // The request that started the fetch is dropped.
    waiting.remove(0).abort();
    tokio::task::yield_now().await;
    gate.add_permits(1);

    for caller in waiting {
        assert_eq!(caller.await.unwrap(), StatusCode::OK);
    }
    assert_eq!(env.web.request_count(JWKS_URL), 1);
}

#[tokio::test(start_paused = true)]
async fn cached_keys_are_used_for_an_hour_while_the_issuer_fails() {
    let env = TestEnv::new();
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
    env.web.put_text(JWKS_URL, StatusCode::BAD_GATEWAY, "");

    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    for _ in 0..10 {
        assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
    }
    assert_eq!(env.web.request_count(JWKS_URL), 2);
    tokio::time::advance(Duration::from_secs(31 * 60)).await;
    let late = env.call_with(&claims()).await;

    assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(late.headers()["retry-after"], "10");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_from_an_unresponsive_issuer_times_out() {
    let env = TestEnv::new();
    let _gate = env.web.hold(JWKS_URL);

    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_issuer_does_not_delay_tokens_with_cached_keys() {
    let env = TestEnv::new();
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
    let _gate = env.web.hold(JWKS_URL);
    let timed = async || {
        let begun = tokio::time::Instant::now();
        let response = env.call_with(&claims()).await;
        assert_eq!(response.status(), StatusCode::OK);
        begun.elapsed()
    };

    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    assert_eq!(timed().await, Duration::ZERO, "fetched in the background");
    while env.web.request_count(JWKS_URL) < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    assert!(
        timed().await <= Duration::from_secs(1),
        "the wait is limited"
    );
    assert_eq!(timed().await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn fetches_from_a_failing_issuer_back_off() {
    let env = TestEnv::new();
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
    env.web.put_text(JWKS_URL, StatusCode::BAD_GATEWAY, "");

    // One request per second for half an hour.
    tokio::time::advance(Duration::from_secs(10 * 60)).await;
    for _ in 0..1800 {
        assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let requests = env.web.request_count(JWKS_URL);
    env.web.publish(&[&env.signer]);
    tokio::time::advance(Duration::from_secs(5 * 60)).await;
    assert_eq!(env.call_with(&claims()).await.status(), StatusCode::OK);

    assert!((3..=15).contains(&requests), "{requests}");
    assert_eq!(env.web.request_count(JWKS_URL), requests + 1);
}

#[tokio::test]
async fn a_token_without_a_kid_is_accepted_if_one_key_matches() {
    let env = TestEnv::new();
    let header = serde_json::json!({"alg": "ES256"});
    let token = env.signer.sign_with_header(&header, &claims());

    let alone = env.call(&token).await.status();
    let crowded = TestEnv::new();
    let own = Signer::new("second");
    crowded.web.publish(&[&crowded.signer, &own]);
    let among_others = crowded
        .call(&own.sign_with_header(&header, &claims()))
        .await;

    assert_eq!(alone, StatusCode::OK);
    assert_eq!(among_others.status(), StatusCode::UNAUTHORIZED);
}
