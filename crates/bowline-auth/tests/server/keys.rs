//! The keys of an issuer come and go, and nobody can make us ask for them all the time.

use std::time::Duration;

use http::StatusCode;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_once_for_many_tokens() {
    let world = World::new();

    for _ in 0..10 {
        assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
    }

    assert_eq!(world.web.asked(KEYS), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_found_when_a_token_names_it() {
    let world = World::new();
    let second = Signer::new("second");
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);

    tokio::time::advance(Duration::from_secs(11)).await;
    world.web.publish(&[&world.signer, &second]);
    let new = world.call(&second.sign(&claims())).await;
    let old = world.call_with(&claims()).await;

    assert_eq!(
        (new.status(), old.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(world.web.asked(KEYS), 2);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_key_is_believed_for_ten_minutes_at_most() {
    let world = World::new();
    let second = Signer::new("second");
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);

    world.web.publish(&[&second]);
    tokio::time::advance(Duration::from_secs(10 * 60)).await;
    let response = world.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_unknown_keys_makes_one_request_in_ten_seconds() {
    let world = World::new();
    let forger = Signer::new("unknown");
    let token = forger.sign(&claims());

    for round in 1..=3 {
        for _ in 0..100 {
            assert_eq!(world.call(&token).await.status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!(world.web.asked(KEYS), round);
        tokio::time::advance(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_at_once_wait_for_one_fetch_which_nobody_can_end_for_the_others() {
    let world = World::new();
    let gate = world.web.hold(KEYS);
    let token = world.signer.sign(&claims());
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let (service, token) = (world.service(), token.clone());
        waiting.push(tokio::spawn(async move {
            ask(&service, bearing(call("whose"), &token)).await.status()
        }));
    }
    while world.web.asked(KEYS) == 0 {
        tokio::task::yield_now().await;
    }

    // Whoever came first goes away.
    waiting.remove(0).abort();
    tokio::task::yield_now().await;
    gate.add_permits(1);

    for caller in waiting {
        assert_eq!(caller.await.unwrap(), StatusCode::OK);
    }
    assert_eq!(world.web.asked(KEYS), 1);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_is_not_asked_all_the_time_and_its_keys_last_an_hour() {
    let world = World::new();
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
    world.web.put_text(KEYS, StatusCode::BAD_GATEWAY, "");

    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    for _ in 0..10 {
        assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
    }
    assert_eq!(world.web.asked(KEYS), 2);
    tokio::time::advance(Duration::from_secs(31 * 60)).await;
    let late = world.call_with(&claims()).await;

    assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(late.headers()["retry-after"], "10");
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_does_not_answer_is_given_up_on() {
    let world = World::new();
    let _gate = world.web.hold(KEYS);

    let response = world.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_hangs_stalls_nobody_whose_key_is_known() {
    let world = World::new();
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
    let _gate = world.web.hold(KEYS);
    let timed = async || {
        let begun = tokio::time::Instant::now();
        let response = world.call_with(&claims()).await;
        assert_eq!(response.status(), StatusCode::OK);
        begun.elapsed()
    };

    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    assert_eq!(timed().await, Duration::ZERO, "fetched in the background");
    while world.web.asked(KEYS) < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    assert!(timed().await <= Duration::from_secs(1), "a key may be gone");
    assert_eq!(timed().await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_fails_is_asked_less_and_less_often() {
    let world = World::new();
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
    world.web.put_text(KEYS, StatusCode::BAD_GATEWAY, "");

    // For half an hour, every second.
    tokio::time::advance(Duration::from_secs(10 * 60)).await;
    for _ in 0..1800 {
        assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let asked = world.web.asked(KEYS);
    world.web.publish(&[&world.signer]);
    tokio::time::advance(Duration::from_secs(5 * 60)).await;
    assert_eq!(world.call_with(&claims()).await.status(), StatusCode::OK);

    assert!((3..=15).contains(&asked), "{asked}");
    assert_eq!(world.web.asked(KEYS), asked + 1);
}

#[tokio::test]
async fn a_token_that_names_no_key_is_taken_if_there_is_no_choice() {
    let world = World::new();
    let header = serde_json::json!({"alg": "ES256"});
    let token = world.signer.sign_raw(&header, &claims());

    let alone = world.call(&token).await.status();
    let crowded = World::new();
    let own = Signer::new("second");
    crowded.web.publish(&[&crowded.signer, &own]);
    let among_others = crowded.call(&own.sign_raw(&header, &claims())).await;

    assert_eq!(alone, StatusCode::OK);
    assert_eq!(among_others.status(), StatusCode::UNAUTHORIZED);
}
