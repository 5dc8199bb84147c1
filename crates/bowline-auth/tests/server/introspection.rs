//! Tokens that only their issuer can read.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::http::HttpService;
use bowline_auth::client::SigningKey;
use bowline_auth::server::{Guarded, Introspection};
use http::StatusCode;
use serde_json::{Value, json};
use tower_layer::Layer;

use crate::support::*;

const ENDPOINT: &str = "https://id.example/introspect";

fn service(world: &World, answer: &Value) -> Guarded<HttpService> {
    world.web.put(ENDPOINT, answer);
    let verifier = Introspection::new(ISSUER, ENDPOINT)
        .unwrap()
        .credentials("files", "pass&word");
    guard(verifier.send_by(world.web.clone()), &world.clock).layer(world.server.http())
}

fn active() -> Value {
    let mut answer = claims();
    answer["active"] = json!(true);
    answer
}

#[tokio::test]
async fn the_issuer_is_asked_about_each_token_by_somebody_whom_it_knows() {
    let world = World::new();
    let service = service(&world, &active());

    let response = ask(&service, bearing(call("whose"), "opaque")).await;

    assert_eq!(told(response).await["name"], "https://id.example ada");
    let (body, headers) = world.web.posted(ENDPOINT);
    assert_eq!(body, "token=opaque&token_type_hint=access_token");
    assert_eq!(headers["authorization"], "Basic ZmlsZXM6cGFzcyUyNndvcmQ=");
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_then_on() {
    let world = World::new();
    let service = service(&world, &active());

    let before = ask(&service, bearing(call("whose"), "opaque")).await;
    world.web.put(ENDPOINT, &json!({"active": false}));
    let after = ask(&service, bearing(call("whose"), "opaque")).await;

    assert_eq!(before.status(), StatusCode::OK);
    assert_eq!(after.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_active_token_must_still_be_meant_for_us() {
    let world = World::new();
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

        let response = ask(&service(&world, &answer), bearing(call("whose"), "opaque")).await;

        assert_eq!(
            response.status(),
            StatusCode::UNAUTHORIZED,
            "{name} = {value}"
        );
    }
    let mut silent = active();
    silent["iss"] = Value::Null;
    let response = ask(&service(&world, &silent), bearing(call("whose"), "opaque")).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_issuer_that_cannot_be_asked_is_not_the_tokens_fault() {
    let world = World::new();
    let service = service(&world, &active());
    world.web.put_text(ENDPOINT, StatusCode::UNAUTHORIZED, "");

    let response = ask(&service, bearing(call("whose"), "opaque")).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(challenge(&response), "");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_if_that_is_asked_for_and_no_longer() {
    let world = World::new();
    world.web.put(ENDPOINT, &active());
    let verifier = Introspection::new(ISSUER, ENDPOINT)
        .unwrap()
        .cache_for(Duration::from_secs(60))
        .send_by(world.web.clone());
    let service = guard(verifier, &world.clock).layer(world.server.http());
    let send = async || {
        ask(&service, bearing(call("whose"), "opaque"))
            .await
            .status()
    };

    for _ in 0..3 {
        assert_eq!(send().await, StatusCode::OK);
    }
    let asked = world.web.asked(ENDPOINT);
    world.web.put(ENDPOINT, &json!({"active": false}));
    let cached = send().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let asked_again = send().await;

    assert_eq!(asked, 1);
    assert_eq!(cached, StatusCode::OK);
    assert_eq!(asked_again, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn requests_with_one_token_at_the_same_time_share_one_question() {
    let world = World::new();
    let service = service(&world, &active());
    let gate = world.web.hold(ENDPOINT);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                ask(&service, bearing(call("whose"), "opaque"))
                    .await
                    .status()
            })
        })
        .collect();
    while world.web.asked(ENDPOINT) == 0 {
        tokio::task::yield_now().await;
    }

    // The first to come goes away, and the others get their answer.
    calls[0].abort();
    gate.add_permits(1);
    let mut served = 0;
    for call in calls.into_iter().skip(1) {
        served += usize::from(call.await.unwrap() == StatusCode::OK);
    }

    assert_eq!(served, 19);
    assert_eq!(world.web.asked(ENDPOINT), 1);
}

#[tokio::test(start_paused = true)]
async fn questions_that_hang_delay_the_tokens_of_that_issuer_and_refuse_none() {
    let world = World::new();
    let slow = service(&world, &active());
    let gate = world.web.hold(ENDPOINT);
    let hanging: Vec<_> = (0..256)
        .map(|number| {
            let slow = slow.clone();
            let token = format!("garbage{number}");
            tokio::spawn(async move { ask(&slow, bearing(call("whose"), &token)).await.status() })
        })
        .collect();
    while world.web.asked(ENDPOINT) < 256 {
        tokio::task::yield_now().await;
    }

    let service = slow.clone();
    let good = tokio::spawn(async move {
        ask(&service, bearing(call("whose"), "opaque"))
            .await
            .status()
    });
    // Another issuer has its own room.
    let elsewhere = world.call_with(&claims()).await.status();
    for hanging in hanging {
        assert_eq!(hanging.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    gate.add_permits(1);

    assert_eq!(good.await.unwrap(), StatusCode::OK);
    assert_eq!(elsewhere, StatusCode::OK);
}

#[tokio::test]
async fn the_issuer_knows_who_asks_in_the_way_that_it_wants() {
    let world = World::new();
    world.web.put(ENDPOINT, &active());
    let verifier = || Introspection::new(ISSUER, ENDPOINT).unwrap();
    let asked = async |verifier: Introspection| {
        let guard = guard(verifier.send_by(world.web.clone()), &world.clock);
        let service = guard.layer(world.server.http());
        let response = ask(&service, bearing(call("whose"), "opaque")).await;
        assert_eq!(response.status(), StatusCode::OK);
        world.web.posted(ENDPOINT)
    };

    let (body, headers) = asked(verifier().credentials_in_body("files", "pass&word")).await;
    assert_eq!(
        body,
        "token=opaque&token_type_hint=access_token&client_id=files&client_secret=pass%26word"
    );
    assert!(!headers.contains_key("authorization"));
    let (_, headers) = asked(verifier().bearer_token("own").unwrap()).await;
    assert_eq!(headers["authorization"], "Bearer own");
    let key = SigningKey::from_pkcs8(&Signer::new("").pkcs8()).unwrap();
    let (body, _) = asked(verifier().signing_key("files", key)).await;
    let assertion = body.split("client_assertion=").nth(1).unwrap();
    let claims = assertion.split('.').nth(1).unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("files"), &json!(ISSUER))
    );
}
