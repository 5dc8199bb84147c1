//! Required, implied and missing scopes.

use http::StatusCode;

use crate::support::*;

#[tokio::test]
async fn a_token_without_the_required_scopes_gets_a_scope_challenge() {
    let env = TestEnv::new();

    for claims in [claims_with("scope", "other"), claims_with("scope", "")] {
        let response = env.call_with(&claims).await;

        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            challenge(&response),
            r#"Bearer error="insufficient_scope", error_description="the token lacks the scope `use`", scope="use", resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp""#
        );
    }
    assert_eq!(env.handled_calls(), 0);
}

#[tokio::test]
async fn a_scope_challenge_lists_all_required_scopes() {
    let env = TestEnv::new();
    let token = env.signer.sign(&claims());
    let more = env.signer.sign(&claims_with("scope", "use files:write"));

    let refused = send_request(&env.service(), with_bearer(call("write"), &token)).await;
    let served = send_request(&env.service(), with_bearer(call("write"), &more)).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let header = challenge(&refused);
    assert!(header.contains(r#"error="insufficient_scope""#), "{header}");
    assert!(header.contains(r#"scope="files:write use""#), "{header}");
    assert!(header.contains("resource_metadata="), "{header}");
    assert_eq!(
        json(served).await["result"]["content"][0]["text"],
        "written"
    );
}

#[tokio::test]
async fn implied_scopes_are_transitive() {
    let env = TestEnv::new();
    let guard = env.guard.clone();
    let guard = guard
        .implies("admin", ["files:write"])
        .implies("files:write", ["use"])
        .implies("use", ["admin-of-nothing", "files:write"]);
    let service = tower_layer::Layer::layer(&guard, env.server.http());
    let token = env.signer.sign(&claims_with("scope", "admin"));

    let served = send_request(&service, with_bearer(call("write"), &token)).await;

    assert_eq!(served.status(), StatusCode::OK);
}
