//! The layer: with a valid token, without one, and the protected resource metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline::types::CallToolResult;
use bowline::{Server, Tool};
use bowline_auth::server::JwtVerifier;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::*;

#[tokio::test]
async fn a_valid_token_is_admitted_and_removed_from_the_request() {
    let env = TestEnv::new();

    let response = env.call_with(&claims_with("email", "ada@example")).await;

    assert_eq!(response.status(), StatusCode::OK);
    let result = whoami_result(response).await;
    assert_eq!(result["name"], "https://id.example ada");
    assert_eq!(result["scopes"], json!(["use"]));
    assert_eq!(result["claims"]["email"], "ada@example");
    assert_eq!(result["saw_token"], false);
}

#[tokio::test]
async fn a_handler_sees_what_the_layer_keeps_of_a_verified_token() {
    #[derive(Clone)]
    struct Kept(String);
    let mut env = TestEnv::new();
    let object = json!({"type": "object"});
    let kept = Tool::raw("kept", object, async |_, cx| {
        let head = cx.extensions().get::<http::request::Parts>();
        let kept = head.and_then(|head| head.extensions.get::<Kept>());
        let has_header = head.is_some_and(|head| head.headers.contains_key("authorization"));
        let kept = kept.map(|kept| kept.0.clone());
        Ok(CallToolResult::text(format!("{kept:?} {has_header}")))
    });
    env.server = Server::new("guarded", "1.0.0").tool(kept);
    let token = env.signer.sign(&claims());
    let call = || with_bearer(call("kept"), &token);

    let unkept = json(send_request(&env.service(), call()).await).await;
    env.guard = env
        .guard
        .keep_token(|token| Kept(format!("kept {}", token.as_str())));
    let kept = json(send_request(&env.service(), call()).await).await;

    let text = |response: &Value| response["result"]["content"][0]["text"].clone();
    assert_eq!(text(&unkept), "None false");
    assert_eq!(text(&kept), format!("Some(\"kept {token}\") false"));
}

#[tokio::test]
async fn a_request_without_a_token_gets_a_challenge_without_an_error() {
    let env = TestEnv::new();
    let service = env.service();
    let mut in_the_url = call("whoami");
    let token = env.signer.sign(&claims());
    *in_the_url.uri_mut() = format!("/mcp?access_token={token}").parse().unwrap();

    for request in [
        call("whoami"),
        with_header(call("whoami"), "authorization", "Basic YTpi"),
        in_the_url,
        Request::get("/mcp").body(Full::default()).unwrap(),
        Request::delete("/mcp").body(Full::default()).unwrap(),
    ] {
        let response = send_request(&service, request).await;

        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(
            challenge(&response),
            r#"Bearer scope="use", resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp""#
        );
    }
    assert_eq!(env.handled_calls(), 0);
}

#[tokio::test]
async fn a_web_page_may_ask_for_permission_and_read_the_challenge() {
    let env = TestEnv::new();
    let service = env.service();
    let page = "http://localhost:6274";
    let mut preflight = with_header(call("whoami"), "origin", page);
    *preflight.method_mut() = http::Method::OPTIONS;
    let mut preflight = with_header(preflight, "access-control-request-method", "POST");

    let granted = send_request(&service, preflight.clone()).await;
    let refused = send_request(&service, with_header(call("whoami"), "origin", page)).await;
    *preflight.uri_mut() = env.guard.metadata_path().parse().unwrap();
    let metadata = send_request(&service, preflight).await;

    assert_eq!(granted.status(), StatusCode::NO_CONTENT);
    assert_eq!(granted.headers()["access-control-allow-origin"], page);
    assert_eq!(metadata.status(), StatusCode::NO_CONTENT);
    assert_eq!(metadata.headers()["access-control-allow-origin"], "*");
    assert_eq!(metadata.headers()["access-control-allow-headers"], "*");
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()["access-control-allow-origin"], "*");
    let exposed = &refused.headers()["access-control-expose-headers"];
    assert!(exposed.to_str().unwrap().contains("www-authenticate"));
    assert_eq!(env.handled_calls(), 0);
}

#[tokio::test]
async fn a_malformed_authorization_header_is_a_bad_request() {
    let env = TestEnv::new();
    let mut twice = with_bearer(call("whoami"), "a");
    let other = "Bearer b".parse().unwrap();
    twice.headers_mut().append("authorization", other);

    for request in [twice, with_bearer(call("whoami"), "a b")] {
        let response = send_request(&env.service(), request).await;

        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(challenge(&response).contains(r#"error="invalid_request""#));
    }
}

#[tokio::test]
async fn the_metadata_are_served_without_a_token_at_both_paths() {
    let env = TestEnv::new();
    let guard = env
        .guard
        .clone()
        .name("Files")
        .optional_scopes(["files:write"]);
    let service = tower_layer::Layer::layer(&guard, env.server.http());

    for path in [
        &*guard.metadata_path(),
        "/.well-known/oauth-protected-resource",
    ] {
        let request = Request::get(path).body(Full::default()).unwrap();
        let response = send_request(&service, request).await;

        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let document = json(response).await;
        assert_eq!(document["resource"], RESOURCE);
        assert_eq!(document["authorization_servers"], json!([ISSUER]));
        assert_eq!(document["scopes_supported"], json!(["files:write", "use"]));
        assert_eq!(document["resource_name"], "Files");
    }
    let posted = Request::post(guard.metadata_path());
    let posted = send_request(&service, posted.body(Full::default()).unwrap()).await;
    assert_eq!(posted.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_is_refused_from_the_second_of_its_expiry() {
    let env = TestEnv::new();

    env.clock.advance(599);
    let before = env.call_with(&claims()).await;
    env.clock.advance(1);
    let after = env.call_with(&claims()).await;

    assert_eq!(before.status(), StatusCode::OK);
    assert_eq!(after.status(), StatusCode::UNAUTHORIZED);
    assert!(challenge(&after).starts_with(r#"Bearer error="invalid_token""#));
    assert_eq!(error_description(&after), "the token has expired");
}

#[tokio::test]
async fn an_additional_audience_is_accepted() {
    let env = TestEnv::new();
    let guard = env.guard.clone().additional_audience("api://files");
    let service = tower_layer::Layer::layer(&guard, env.server.http());
    let token = env.signer.sign(&claims_with("aud", "api://files"));

    let response = send_request(&service, with_bearer(call("whoami"), &token)).await;

    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_jwks_uri_of_the_issuer_metadata_is_used() {
    let mut env = TestEnv::new();
    let metadata = json!({"issuer": ISSUER, "jwks_uri": JWKS_URL});
    let metadata_url = "https://id.example/.well-known/openid-configuration";
    env.web.put(metadata_url, &metadata);
    let verifier = JwtVerifier::discover(ISSUER).unwrap();
    env.guard = guard(verifier.http_client(env.web.clone()), &env.clock);

    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::OK);
    let first = "https://id.example/.well-known/oauth-authorization-server";
    assert_eq!(
        (
            env.web.request_count(first),
            env.web.request_count(metadata_url)
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn the_layer_works_without_a_web_framework() {
    let env = TestEnv::new();
    let service = env.server.http();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let guarded = env.service();
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

/// Sets its flag when it is dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_protected_call_drops_its_handler() {
    let env = TestEnv::new();
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (starting, dropping) = (started.clone(), dropped.clone());
    let waits = Tool::raw("waits", json!({"type": "object"}), move |_, _| {
        let flag = DropFlag(dropping.clone());
        starting.notify_one();
        async move {
            let _flag = flag;
            std::future::pending().await
        }
    });
    let server = Server::new("patient", "1.0.0").tool(waits);
    let service = tower_layer::Layer::layer(&env.guard, server.http());
    let request = with_bearer(call("waits"), &env.signer.sign(&claims()));

    let mut calling = Box::pin(send_request(&service, request));
    tokio::select! {
        response = &mut calling => panic!("unexpected response: {response:?}"),
        () = started.notified() => {}
    }
    drop(calling);

    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_verification_reaches_no_handler() {
    let env = TestEnv::new();
    let gate = env.web.hold(JWKS_URL);
    let service = env.service();
    let request = with_bearer(call("whoami"), &env.signer.sign(&claims()));

    let mut calling = Box::pin(send_request(&service, request));
    while env.web.request_count(JWKS_URL) == 0 {
        tokio::select! {
            biased;
            response = &mut calling => panic!("unexpected response: {response:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(calling);
    gate.add_permits(1);
    let next = env.call_with(&claims()).await;

    assert_eq!(next.status(), StatusCode::OK);
    assert_eq!(
        (env.handled_calls(), env.web.request_count(JWKS_URL)),
        (1, 1)
    );
}
