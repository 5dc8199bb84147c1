//! State that the server keeps for a principal is not available to others.

use std::time::Duration;

use bowline::exchange::Dialect;
use bowline::schemars::{self, JsonSchema};
use bowline::types::CacheScope;
use bowline::{Context, Server, Tool, ToolError};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_layer::Layer;

use crate::support::*;

fn token_of(env: &TestEnv, who: &str) -> String {
    env.signer.sign(&claims_with("sub", who))
}

#[derive(Deserialize, JsonSchema)]
struct NameForm {
    name: String,
}

async fn elicit_name(cx: Context) -> Result<String, ToolError> {
    let form: NameForm = cx.elicit("name", "Who are you?").await?;
    Ok(form.name)
}

/// Returns the call again, with the answer to the elicitation.
fn retry_with_answer(state: &Value) -> Request<Full<Bytes>> {
    let responses = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    call_with(
        "elicit_name",
        &[("requestState", state), ("inputResponses", &responses)],
    )
}

#[tokio::test]
async fn request_state_is_accepted_from_its_principal_only() {
    let env = TestEnv::new();
    let server = Server::new("asking", "1.0.0").tool(Tool::new("elicit_name", elicit_name));
    let service = env.guard.layer(server.http());
    let (ada, eve) = (token_of(&env, "ada"), token_of(&env, "eve"));

    let input_required =
        json(send_request(&service, with_bearer(call("elicit_name"), &ada)).await).await;
    let state = &input_required["result"]["requestState"];
    let stolen = send_request(&service, with_bearer(retry_with_answer(state), &eve)).await;
    let later_expiry = claims_with("exp", NOW + 1200);
    let own = with_bearer(retry_with_answer(state), &env.signer.sign(&later_expiry));
    let own = send_request(&service, own).await;

    assert_eq!(json(stolen).await["error"]["code"], -32602);
    assert_eq!(json(own).await["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_session_accepts_new_tokens_of_its_principal_only() {
    let env = TestEnv::new();
    let service = env.service();
    let (ada, eve) = (token_of(&env, "ada"), token_of(&env, "eve"));
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": Dialect::LATEST_LEGACY.version, "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"}}});
    let opened = send_request(&service, with_bearer(post(&initialize), &ada)).await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap();
    let in_it = |tool: &str| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": {}}});
        with_header(post(&call), "mcp-session-id", id)
    };
    let mut ending = Request::delete("/mcp").body(Full::default()).unwrap();
    ending = with_header(
        with_header(ending, "host", "localhost"),
        "mcp-session-id",
        id,
    );

    let without = send_request(&service, in_it("whoami")).await;
    let stolen = send_request(&service, with_bearer(in_it("whoami"), &eve)).await;
    let ended = send_request(&service, with_bearer(ending, &eve)).await;
    let refused = send_request(&service, with_bearer(in_it("write"), &ada)).await;
    let more = claims_with("scope", "use files:write");
    let more = send_request(
        &service,
        with_bearer(in_it("write"), &env.signer.sign(&more)),
    )
    .await;

    assert_eq!(without.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(stolen.status(), StatusCode::NOT_FOUND);
    assert_eq!(ended.status(), StatusCode::NOT_FOUND);
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(challenge(&refused).contains(r#"scope="files:write use""#));
    assert_eq!(json(more).await["result"]["content"][0]["text"], "written");
}

#[tokio::test]
async fn a_list_that_depends_on_the_principal_is_cached_privately() {
    let env = TestEnv::new();
    let own = Tool::new("own", async || "own")
        .visible_to(|cx| cx.principal().name() == Some("https://id.example ada"));
    let server = Server::new("lists", "1.0.0")
        .cache(Duration::from_secs(60), CacheScope::PUBLIC)
        .tool(Tool::new("public", async || "public"))
        .tool(own);
    let service = env.guard.layer(server.http());

    for (who, count) in [("ada", 2), ("eve", 1), ("ada", 2)] {
        let request = with_bearer(list(), &token_of(&env, who));
        let listed = json(send_request(&service, request).await).await;

        let tools = listed["result"]["tools"].as_array().map(Vec::len);
        assert_eq!(tools, Some(count), "{who}: {listed}");
        assert_eq!(listed["result"]["cacheScope"], "private");
    }
}
