//! What a server remembers of somebody is nobody else's.

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

fn token_of(world: &World, who: &str) -> String {
    world.signer.sign(&claims_with("sub", who))
}

#[derive(Deserialize, JsonSchema)]
struct Answer {
    name: String,
}

async fn asks(cx: Context) -> Result<String, ToolError> {
    let answer: Answer = cx.elicit("name", "Who are you?").await?;
    Ok(answer.name)
}

/// The same call again, with what it was asked for.
fn answered(state: &Value) -> Request<Full<Bytes>> {
    let responses = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    call_with(
        "asks",
        &[("requestState", state), ("inputResponses", &responses)],
    )
}

#[tokio::test]
async fn the_state_of_a_question_is_opened_for_whoever_was_asked_only() {
    let world = World::new();
    let server = Server::new("asking", "1.0.0").tool(Tool::new("asks", asks));
    let service = world.guard.layer(server.http());
    let (ada, eve) = (token_of(&world, "ada"), token_of(&world, "eve"));

    let asked = json(ask(&service, bearing(call("asks"), &ada)).await).await;
    let state = &asked["result"]["requestState"];
    let stolen = ask(&service, bearing(answered(state), &eve)).await;
    let renewed = claims_with("exp", NOW + 1200);
    let own = bearing(answered(state), &world.signer.sign(&renewed));
    let own = ask(&service, own).await;

    assert_eq!(json(stolen).await["error"]["code"], -32602);
    assert_eq!(json(own).await["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_session_goes_on_with_a_new_token_of_the_same_user_and_with_no_other() {
    let world = World::new();
    let service = world.service();
    let (ada, eve) = (token_of(&world, "ada"), token_of(&world, "eve"));
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": Dialect::LATEST_LEGACY.version, "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"}}});
    let opened = ask(&service, bearing(post(&initialize), &ada)).await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap();
    let in_it = |tool: &str| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": {}}});
        with(post(&call), "mcp-session-id", id)
    };
    let mut ending = Request::delete("/mcp").body(Full::default()).unwrap();
    ending = with(with(ending, "host", "localhost"), "mcp-session-id", id);

    let without = ask(&service, in_it("whose")).await;
    let stolen = ask(&service, bearing(in_it("whose"), &eve)).await;
    let ended = ask(&service, bearing(ending, &eve)).await;
    let refused = ask(&service, bearing(in_it("write"), &ada)).await;
    let more = claims_with("scope", "use files:write");
    let more = ask(&service, bearing(in_it("write"), &world.signer.sign(&more))).await;

    assert_eq!(without.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(stolen.status(), StatusCode::NOT_FOUND);
    assert_eq!(ended.status(), StatusCode::NOT_FOUND);
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(challenge(&refused).contains(r#"scope="files:write use""#));
    assert_eq!(json(more).await["result"]["content"][0]["text"], "written");
}

#[tokio::test]
async fn a_list_that_depends_on_who_is_asking_is_not_to_be_shared() {
    let world = World::new();
    let own = Tool::new("own", async || "own")
        .visible_to(|cx| cx.principal().name() == Some("https://id.example ada"));
    let server = Server::new("lists", "1.0.0")
        .cache(Duration::from_secs(60), CacheScope::PUBLIC)
        .tool(Tool::new("everybodys", async || "everybodys"))
        .tool(own);
    let service = world.guard.layer(server.http());

    for (who, count) in [("ada", 2), ("eve", 1), ("ada", 2)] {
        let request = bearing(list(), &token_of(&world, who));
        let listed = json(ask(&service, request).await).await;

        let tools = listed["result"]["tools"].as_array().map(Vec::len);
        assert_eq!(tools, Some(count), "{who}: {listed}");
        assert_eq!(listed["result"]["cacheScope"], "private");
    }
}
