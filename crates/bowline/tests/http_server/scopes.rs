//! Tools that require scopes: a request without them is refused with status 403, before its handler runs.

use bowline::exchange::{InsufficientScope, Principal};
use bowline::http::HttpService;
use bowline::http::server::HttpBody;
use bowline::{CallToolResult, RpcError, Server, Tool};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

fn scoped_service() -> HttpService {
    let write = scopes_tool("write").scopes(["read", "write"]);
    let hidden = scopes_tool("hidden")
        .scopes(["write"])
        .visible_to(|cx| cx.principal().has_scope("admin"));
    // Requires a scope that is known only while it runs.
    let checks = Tool::raw("checks", json!({"type": "object"}), async |_, cx| {
        InsufficientScope::check(["write"], cx.principal())?;
        Ok(CallToolResult::text("allowed"))
    });
    // Relays an error of another server unchanged.
    let relays = Tool::raw("relays", json!({"type": "object"}), async |_, _| {
        let error = json!({"code": -32600, "message": "no", "data": {"requiredScopes": ["admin"]}});
        Err(serde_json::from_value::<RpcError>(error).unwrap().into())
    });
    Server::new("scoped", "1.0.0")
        .tool(relays)
        .tool(write)
        .tool(hidden)
        .tool(checks)
        .http()
}

fn scopes_tool(name: &str) -> Tool {
    Tool::raw(name, json!({"type": "object"}), async |_, cx| {
        let scopes: Vec<_> = cx.principal().scopes().map(str::to_owned).collect();
        Ok(CallToolResult::text(scopes.join(" ")))
    })
}

/// Adds the principal `ada` with these scopes.
fn with_scopes(mut request: Request<Full<Bytes>>, scopes: &[&str]) -> Request<Full<Bytes>> {
    let ada = Principal::named("ada").with_scopes(scopes.iter().copied());
    request.extensions_mut().insert(ada);
    request
}

fn required_scopes(response: &Response<HttpBody>) -> Option<&[String]> {
    let missing = response.extensions().get::<InsufficientScope>();
    missing.map(InsufficientScope::required)
}

#[tokio::test]
async fn a_request_without_a_scope_is_refused_with_all_required_scopes() {
    let service = scoped_service();

    for call in [
        call(1, "write", "a"),
        call_with_progress(1, "write", "a"),
        with_header(call(1, "write", "a"), "accept", "text/event-stream"),
    ] {
        let refused = call_service(&service, with_scopes(call, &["read"])).await;

        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(required_scopes(&refused).unwrap(), ["read", "write"]);
        let answer = response_json(refused).await;
        assert_eq!(
            answer["error"]["data"]["requiredScopes"],
            json!(["read", "write"])
        );
        assert_eq!(answer["id"], 1);
    }
    let served = call_service(
        &service,
        with_scopes(call(2, "write", "a"), &["read", "write"]),
    );
    assert_eq!(
        response_json(served.await).await["result"]["content"][0]["text"],
        "read write"
    );
}

#[tokio::test]
async fn required_scopes_in_a_relayed_error_do_not_set_the_status() {
    let relayed = call_service(
        &scoped_service(),
        with_scopes(call(1, "relays", "a"), &["read"]),
    )
    .await;

    assert_ne!(relayed.status(), StatusCode::FORBIDDEN);
    assert_eq!(required_scopes(&relayed), None);
    let answer = response_json(relayed).await;
    assert_eq!(answer["error"]["data"]["requiredScopes"], json!(["admin"]));
}

#[tokio::test]
async fn an_anonymous_request_is_refused_too() {
    let refused = call_service(&scoped_service(), call(1, "write", "a")).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_hidden_tool_is_unknown_and_a_listed_tool_without_its_scope_is_forbidden() {
    let service = scoped_service();
    let list = || modern_request(1, "tools/list", json!({}));

    for (scopes, listed, hidden) in [
        (
            &["read"][..],
            vec!["checks", "relays", "write"],
            StatusCode::OK,
        ),
        (
            &["admin"][..],
            vec!["checks", "hidden", "relays", "write"],
            StatusCode::FORBIDDEN,
        ),
    ] {
        let tools = response_json(call_service(&service, with_scopes(list(), scopes)).await).await;
        let called = call_service(&service, with_scopes(call(2, "hidden", "a"), scopes)).await;

        assert_eq!(names(&tools), listed);
        assert_eq!(called.status(), hidden, "{scopes:?}");
        let is_unknown = response_json(called).await["error"]["code"] == -32602;
        assert_eq!(is_unknown, hidden == StatusCode::OK, "{scopes:?}");
    }
}

#[tokio::test]
async fn a_handler_can_require_a_scope_while_it_runs() {
    let service = scoped_service();

    let refused = call_service(&service, with_scopes(call(1, "checks", "a"), &["read"])).await;
    let served = call_service(&service, with_scopes(call(1, "checks", "a"), &["write"])).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(required_scopes(&refused).unwrap(), ["write"]);
    assert_eq!(served.status(), StatusCode::OK);
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"].as_array().expect("a list");
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[cfg(feature = "legacy")]
mod legacy {
    use super::*;
    use crate::legacy::{initialize, tool_call};

    async fn open(service: &HttpService, scopes: &[&str]) -> String {
        let opened = call_service(
            service,
            with_scopes(post(&initialize("2025-11-25")), scopes),
        )
        .await;
        let id = &opened.headers()["mcp-session-id"];
        id.to_str().unwrap().to_owned()
    }

    fn call_in(session: &str, id: i64, tool: &str) -> Request<Full<Bytes>> {
        let meta = json!({"progressToken": id});
        let call = tool_call(&json!(id), tool, &json!({}), &meta);
        with_header(post(&call), "mcp-session-id", session)
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_of_a_session_has_the_scopes_of_its_own_credential() {
        let service = scoped_service();
        let session = open(&service, &["read"]).await;

        let before = call_service(
            &service,
            with_scopes(call_in(&session, 1, "write"), &["read"]),
        )
        .await;
        let more = &["read", "write"];
        let after = call_service(&service, with_scopes(call_in(&session, 2, "write"), more)).await;
        let again = call_service(
            &service,
            with_scopes(call_in(&session, 3, "write"), &["write"]),
        )
        .await;

        assert_eq!(before.status(), StatusCode::FORBIDDEN);
        assert_eq!(required_scopes(&before).unwrap(), ["read", "write"]);
        assert_eq!(after.status(), StatusCode::OK);
        assert_eq!(again.status(), StatusCode::FORBIDDEN);
        let answered = messages_of(after).await;
        assert_eq!(answered[0]["result"]["content"][0]["text"], "read write");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_in_a_session_sees_the_credential_of_its_own_request() {
        let service = scoped_service();
        let session = open(&service, &["read", "write"]).await;

        let less = call_service(
            &service,
            with_scopes(call_in(&session, 1, "checks"), &["read"]),
        )
        .await;
        let answer = messages_of(less).await;

        assert_eq!(
            answer[0]["error"]["data"]["requiredScopes"],
            json!(["write"])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_sessions_a_missing_scope_has_the_same_status() {
        use bowline::http::legacy::Legacy;
        let service = scoped_service().legacy(Legacy::stateless());
        let call = post(&tool_call(&json!(1), "write", &json!({}), &json!({})));

        let refused = call_service(&service, with_scopes(call, &["read"])).await;

        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(required_scopes(&refused).unwrap(), ["read", "write"]);
    }

    async fn messages_of(response: Response<HttpBody>) -> Vec<Value> {
        use http_body_util::BodyExt;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        messages(std::str::from_utf8(&body).unwrap())
    }
}
