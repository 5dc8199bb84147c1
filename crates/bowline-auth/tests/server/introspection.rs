//! Tokens that only their issuer can read.

use bowline::http::HttpService;
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
