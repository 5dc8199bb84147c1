//! Tools that need scopes: whoever lacks them is refused with a status, before anything runs.

use bowline::exchange::{InsufficientScope, Principal};
use bowline::http::HttpService;
use bowline::http::server::HttpBody;
use bowline::{CallToolResult, RpcError, Server, Tool};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

fn shelf() -> HttpService {
    let write = plain("write").scopes(["read", "write"]);
    let hidden = plain("hidden")
        .scopes(["write"])
        .visible_to(|cx| cx.principal().has_scope("admin"));
    // What it needs depends on what it finds.
    let finds = Tool::raw("finds", json!({"type": "object"}), async |_, cx| {
        InsufficientScope::check(["write"], cx.principal())?;
        Ok(CallToolResult::text("found"))
    });
    // Another server's error, which is passed on as it came.
    let relays = Tool::raw("relays", json!({"type": "object"}), async |_, _| {
        let said = json!({"code": -32600, "message": "no", "data": {"requiredScopes": ["admin"]}});
        Err(serde_json::from_value::<RpcError>(said).unwrap())
    });
    Server::new("shelf", "1.0.0")
        .tool(relays)
        .tool(write)
        .tool(hidden)
        .tool(finds)
        .http()
}

fn plain(name: &str) -> Tool {
    Tool::raw(name, json!({"type": "object"}), async |_, cx| {
        let scopes: Vec<_> = cx.principal().scopes().map(str::to_owned).collect();
        Ok(CallToolResult::text(scopes.join(" ")))
    })
}

/// A request on behalf of ada, who may do this.
fn allowed(mut request: Request<Full<Bytes>>, scopes: &[&str]) -> Request<Full<Bytes>> {
    let ada = Principal::named("ada").with_scopes(scopes.iter().copied());
    request.extensions_mut().insert(ada);
    request
}

fn required(response: &Response<HttpBody>) -> Option<&[String]> {
    let missing = response.extensions().get::<InsufficientScope>();
    missing.map(InsufficientScope::required)
}

#[tokio::test]
async fn whoever_lacks_a_scope_is_refused_with_all_that_is_needed() {
    let service = shelf();

    for call in [
        call(1, "write", "a"),
        call_with_progress(1, "write", "a"),
        with(call(1, "write", "a"), "accept", "text/event-stream"),
    ] {
        let refused = ask(&service, allowed(call, &["read"])).await;

        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(required(&refused).unwrap(), ["read", "write"]);
        let answer = whole(refused).await;
        assert_eq!(
            answer["error"]["data"]["requiredScopes"],
            json!(["read", "write"])
        );
        assert_eq!(answer["id"], 1);
    }
    let served = ask(&service, allowed(call(2, "write", "a"), &["read", "write"]));
    assert_eq!(
        whole(served.await).await["result"]["content"][0]["text"],
        "read write"
    );
}

#[tokio::test]
async fn what_another_server_needs_is_not_taken_for_what_this_one_needs() {
    let relayed = ask(&shelf(), allowed(call(1, "relays", "a"), &["read"])).await;

    assert_ne!(relayed.status(), StatusCode::FORBIDDEN);
    assert_eq!(required(&relayed), None);
    let answer = whole(relayed).await;
    assert_eq!(answer["error"]["data"]["requiredScopes"], json!(["admin"]));
}

#[tokio::test]
async fn nobody_in_particular_is_refused_too() {
    let refused = ask(&shelf(), call(1, "write", "a")).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_is_listed_can_be_had_and_what_is_not_does_not_exist() {
    let service = shelf();
    let list = || modern(1, "tools/list", json!({}));

    for (scopes, listed, hidden) in [
        (
            &["read"][..],
            vec!["finds", "relays", "write"],
            StatusCode::OK,
        ),
        (
            &["admin"][..],
            vec!["finds", "hidden", "relays", "write"],
            StatusCode::FORBIDDEN,
        ),
    ] {
        let tools = whole(ask(&service, allowed(list(), scopes)).await).await;
        let called = ask(&service, allowed(call(2, "hidden", "a"), scopes)).await;

        assert_eq!(names(&tools), listed);
        assert_eq!(called.status(), hidden, "{scopes:?}");
        let is_unknown = whole(called).await["error"]["code"] == -32602;
        assert_eq!(is_unknown, hidden == StatusCode::OK, "{scopes:?}");
    }
}

#[tokio::test]
async fn a_handler_says_what_it_needs_when_it_knows() {
    let service = shelf();

    let refused = ask(&service, allowed(call(1, "finds", "a"), &["read"])).await;
    let served = ask(&service, allowed(call(1, "finds", "a"), &["write"])).await;

    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(required(&refused).unwrap(), ["write"]);
    assert_eq!(served.status(), StatusCode::OK);
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"].as_array().expect("a list");
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[cfg(not(bowline_no_legacy))]
mod legacy {
    use super::*;
    use crate::legacy::{initialize, tool_call};

    async fn open(service: &HttpService, scopes: &[&str]) -> String {
        let opened = ask(service, allowed(post(&initialize("2025-11-25")), scopes)).await;
        let id = &opened.headers()["mcp-session-id"];
        id.to_str().unwrap().to_owned()
    }

    fn call_in(session: &str, id: i64, tool: &str) -> Request<Full<Bytes>> {
        let meta = json!({"progressToken": id});
        let call = tool_call(&json!(id), tool, &json!({}), &meta);
        with(post(&call), "mcp-session-id", session)
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_of_a_session_may_do_what_its_own_credential_allows() {
        let service = shelf();
        let session = open(&service, &["read"]).await;

        let before = ask(&service, allowed(call_in(&session, 1, "write"), &["read"])).await;
        let more = &["read", "write"];
        let after = ask(&service, allowed(call_in(&session, 2, "write"), more)).await;
        let again = ask(&service, allowed(call_in(&session, 3, "write"), &["write"])).await;

        assert_eq!(before.status(), StatusCode::FORBIDDEN);
        assert_eq!(required(&before).unwrap(), ["read", "write"]);
        assert_eq!(after.status(), StatusCode::OK);
        assert_eq!(again.status(), StatusCode::FORBIDDEN);
        let answered = messages_of(after).await;
        assert_eq!(answered[0]["result"]["content"][0]["text"], "read write");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_in_a_session_sees_the_credential_of_its_own_request() {
        let service = shelf();
        let session = open(&service, &["read", "write"]).await;

        let less = ask(&service, allowed(call_in(&session, 1, "finds"), &["read"])).await;
        let answer = messages_of(less).await;

        assert_eq!(
            answer[0]["error"]["data"]["requiredScopes"],
            json!(["write"])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_sessions_the_same_status_is_told() {
        use bowline::http::legacy::Legacy;
        let service = shelf().legacy(Legacy::stateless());
        let call = post(&tool_call(&json!(1), "write", &json!({}), &json!({})));

        let refused = ask(&service, allowed(call, &["read"])).await;

        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(required(&refused).unwrap(), ["read", "write"]);
    }

    async fn messages_of(response: Response<HttpBody>) -> Vec<Value> {
        use http_body_util::BodyExt;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        messages(std::str::from_utf8(&body).unwrap())
    }
}
