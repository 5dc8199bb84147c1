//! Static tokens: who is admitted, and how others are refused.

use bowline::exchange::Principal;
use bowline::{Context, Server, Tool};
use bowline_auth::server::{StaticTokens, StaticTokensService};
use http::StatusCode;

use crate::support::*;

fn service() -> StaticTokensService<bowline::http::HttpService> {
    let whoami = Tool::new("whoami", async |cx: Context| {
        let principal = cx.principal();
        let has_token = cx
            .extensions()
            .get::<http::request::Parts>()
            .is_some_and(|head| head.headers.contains_key("authorization"));
        format!("{:?} {has_token}", principal.subject())
    });
    let write = Tool::new("write", async || "written").scopes(["files:read", "files:write"]);
    let server = Server::new("static", "1").tool(whoami).tool(write);
    let tokens = StaticTokens::new([
        (
            "ada-token",
            Principal::named("ada").with_scopes(["files:read", "files:write"]),
        ),
        (
            "bot-token",
            Principal::named("bot").with_scopes(["files:read"]),
        ),
    ]);
    tower_layer::Layer::layer(&tokens.unwrap(), server.http())
}

#[tokio::test]
async fn each_token_has_its_principal_and_is_removed() {
    for (token, name) in [("ada-token", "ada"), ("bot-token", "bot")] {
        let response = send_request(&service(), with_bearer(call("whoami"), token)).await;

        assert_eq!(response.status(), StatusCode::OK);
        let answer = json(response).await.to_string();
        assert!(
            answer.contains(&format!(r#"Some(\"{name}\") false"#)),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn requests_without_a_known_token_are_refused_without_metadata() {
    let dpop = with_header(call("whoami"), "authorization", "DPoP ada-token");
    let invalid = r#"Bearer error="invalid_token", error_description="the token is unknown""#;
    for (request, expected) in [
        (call("whoami"), "Bearer"),
        (with_bearer(call("whoami"), "ada-toke"), invalid),
        (with_bearer(call("whoami"), "ada-token2"), invalid),
        (with_bearer(call("whoami"), "ADA-TOKEN"), invalid),
        (dpop, invalid),
    ] {
        let response = send_request(&service(), request).await;

        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(challenge(&response), expected);
    }
}

#[tokio::test]
async fn a_tool_whose_scope_is_missing_is_refused_with_its_name() {
    let allowed = send_request(&service(), with_bearer(call("write"), "ada-token")).await;
    let refused = send_request(&service(), with_bearer(call("write"), "bot-token")).await;

    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(
        challenge(&refused),
        r#"Bearer error="insufficient_scope", error_description="the token lacks the scope `files:write`", scope="files:read files:write""#
    );
    let body = json(refused).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("missing `files:write`"), "{message}");
}

#[tokio::test]
async fn a_preflight_passes_without_a_token() {
    let mut preflight = with_header(call("whoami"), "origin", "http://localhost:6274");
    *preflight.method_mut() = http::Method::OPTIONS;
    let preflight = with_header(preflight, "access-control-request-method", "POST");

    let granted = send_request(&service(), preflight).await;

    assert_eq!(granted.status(), StatusCode::NO_CONTENT);
}
