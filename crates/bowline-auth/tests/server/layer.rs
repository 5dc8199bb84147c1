//! The door: with a good token, without one, and the document that says where to get one.

use bowline_auth::server::JwtVerifier;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_good_token_lets_its_bearer_in_and_goes_no_further() {
    let world = World::new();

    let response = world.call_with(&claims_with("email", "ada@example")).await;

    assert_eq!(response.status(), StatusCode::OK);
    let told = told(response).await;
    assert_eq!(told["name"], "https://id.example ada");
    assert_eq!(told["scopes"], json!(["use"]));
    assert_eq!(told["claims"]["email"], "ada@example");
    assert_eq!(told["saw_token"], false);
}

#[tokio::test]
async fn without_a_token_it_is_said_where_to_get_one_and_nothing_of_an_error() {
    let world = World::new();
    let service = world.service();
    let mut in_the_url = call("whose");
    let token = world.signer.sign(&claims());
    *in_the_url.uri_mut() = format!("/mcp?access_token={token}").parse().unwrap();

    for request in [
        call("whose"),
        with(call("whose"), "authorization", "Basic YTpi"),
        in_the_url,
        Request::get("/mcp").body(Full::default()).unwrap(),
        Request::delete("/mcp").body(Full::default()).unwrap(),
    ] {
        let response = ask(&service, request).await;

        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(
            challenge(&response),
            r#"Bearer scope="use", resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp""#
        );
    }
    assert_eq!(world.handled(), 0);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_request() {
    let world = World::new();
    let mut twice = bearing(call("whose"), "a");
    let other = "Bearer b".parse().unwrap();
    twice.headers_mut().append("authorization", other);

    for request in [twice, bearing(call("whose"), "a b")] {
        let response = ask(&world.service(), request).await;

        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(challenge(&response).contains(r#"error="invalid_request""#));
    }
}

#[tokio::test]
async fn the_document_is_for_everybody_at_both_of_its_places() {
    let world = World::new();
    let guard = world
        .guard
        .clone()
        .name("Files")
        .offered_scopes(["files:write"]);
    let service = tower_layer::Layer::layer(&guard, world.server.http());

    for path in [
        &*guard.metadata_path(),
        "/.well-known/oauth-protected-resource",
    ] {
        let request = Request::get(path).body(Full::default()).unwrap();
        let response = ask(&service, request).await;

        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let document = json(response).await;
        assert_eq!(document["resource"], US);
        assert_eq!(document["authorization_servers"], json!([ISSUER]));
        assert_eq!(document["scopes_supported"], json!(["files:write", "use"]));
        assert_eq!(document["resource_name"], "Files");
    }
    let posted = Request::post(guard.metadata_path());
    let posted = ask(&service, posted.body(Full::default()).unwrap()).await;
    assert_eq!(posted.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_expired_token_is_refused_from_that_second_on() {
    let world = World::new();

    world.clock.advance(599);
    let before = world.call_with(&claims()).await;
    world.clock.advance(1);
    let after = world.call_with(&claims()).await;

    assert_eq!(before.status(), StatusCode::OK);
    assert_eq!(after.status(), StatusCode::UNAUTHORIZED);
    assert!(challenge(&after).starts_with(r#"Bearer error="invalid_token""#));
    assert_eq!(why(&after), "the token has expired");
}

#[tokio::test]
async fn a_token_may_name_us_as_its_issuer_is_used_to() {
    let world = World::new();
    let guard = world.guard.clone().also_named("api://files");
    let service = tower_layer::Layer::layer(&guard, world.server.http());
    let token = world.signer.sign(&claims_with("aud", "api://files"));

    let response = ask(&service, bearing(call("whose"), &token)).await;

    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_keys_are_found_where_the_metadata_of_the_issuer_say() {
    let world = World::new();
    let metadata = json!({"issuer": ISSUER, "jwks_uri": KEYS});
    let place = "https://id.example/.well-known/openid-configuration";
    world.web.put(place, &metadata);
    let verifier = JwtVerifier::discover(ISSUER).unwrap();
    let guard = guard(verifier.send_by(world.web.clone()), &world.clock);
    let service = tower_layer::Layer::layer(&guard, world.server.http());
    let token = world.signer.sign(&claims());

    let response = ask(&service, bearing(call("whose"), &token)).await;

    assert_eq!(response.status(), StatusCode::OK);
    let first = "https://id.example/.well-known/oauth-authorization-server";
    assert_eq!((world.web.asked(first), world.web.asked(place)), (1, 1));
}

#[tokio::test]
async fn it_is_served_without_a_web_framework() {
    let world = World::new();
    let service = world.server.http();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let guarded = world.service();
    let serving = tokio::spawn(async move {
        service.serve_connection_through(far, guarded).await;
    });

    let (mut near, mut answer) = (near, Vec::new());
    let request = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut near, request)
        .await
        .unwrap();
    tokio::io::AsyncReadExt::read_to_end(&mut near, &mut answer)
        .await
        .unwrap();

    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    serving.await.unwrap();
}
