//! What a token allows, and how its bearer learns what else to ask for.

use http::StatusCode;

use crate::support::*;

#[tokio::test]
async fn a_token_that_allows_too_little_is_refused_with_what_is_needed() {
    let world = World::new();

    for claims in [claims_with("scope", "other"), claims_with("scope", "")] {
        let response = world.call_with(&claims).await;

        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            challenge(&response),
            r#"Bearer error="insufficient_scope", error_description="the token allows too little", scope="use", resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp""#
        );
    }
    assert_eq!(world.handled(), 0);
}

#[tokio::test]
async fn a_tool_that_needs_more_asks_for_all_of_it_at_once() {
    let world = World::new();
    let token = world.signer.sign(&claims());
    let more = world.signer.sign(&claims_with("scope", "use files:write"));

    let refused = ask(&world.service(), bearing(call("write"), &token)).await;
    let served = ask(&world.service(), bearing(call("write"), &more)).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let told = challenge(&refused);
    assert!(told.contains(r#"error="insufficient_scope""#), "{told}");
    assert!(told.contains(r#"scope="files:write use""#), "{told}");
    assert!(told.contains("resource_metadata="), "{told}");
    assert_eq!(
        json(served).await["result"]["content"][0]["text"],
        "written"
    );
}

#[tokio::test]
async fn a_scope_may_imply_others_and_they_others_still() {
    let world = World::new();
    let guard = world.guard.clone();
    let guard = guard
        .implies("admin", ["files:write"])
        .implies("files:write", ["use"])
        .implies("use", ["admin-of-nothing", "files:write"]);
    let service = tower_layer::Layer::layer(&guard, world.server.http());
    let token = world.signer.sign(&claims_with("scope", "admin"));

    let served = ask(&service, bearing(call("write"), &token)).await;

    assert_eq!(served.status(), StatusCode::OK);
}
