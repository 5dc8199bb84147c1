//! Access rules by name and by principal.

use bowline::ErrorCode;
use bowline::exchange::Principal;
use bowline::prelude::*;

use crate::world::{MODERN, World, connect, connect_as, rpc_error, tool_names};

fn files() -> Server {
    let tool = |name: &'static str| Tool::new(name, move || async move { name });
    Server::new("files", "1.0.0")
        .tool(tool("read"))
        .tool(tool("write"))
        .tool(tool("delete"))
}

const CONFIG: &str = r#"{"mcpServers": {
    "a": {"command": "a", "bridge": {"tools": {"deny": ["delete"]}}},
    "b": {"command": "b", "bridge": {"rules": [
        {"principals": ["ada"]},
        {"principals": ["*"], "tools": ["read"]}
    ]}}
}}"#;

fn world() -> World {
    let world = World::default();
    world.serve("a", &files(), MODERN);
    world.serve("b", &files(), MODERN);
    world
}

#[tokio::test]
async fn a_forbidden_tool_is_like_an_unknown_one() {
    let client = connect(&world().bridge(CONFIG), MODERN).await;

    assert_eq!(tool_names(&client).await, ["a__read", "a__write"]);
    for tool in ["a__delete", "a__unknown", "b__read", "b__unknown"] {
        let error = rpc_error(client.call_tool(tool, ()).await);
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{tool}");
        if tool != "a__unknown" {
            assert_eq!(error.message, format!("unknown tool `{tool}`"));
        }
    }
}

#[tokio::test]
async fn rules_decide_by_principal() {
    let bridge = world().bridge(CONFIG);
    let ada = connect_as(&bridge, Principal::named("ada")).await;
    let bob = connect_as(&bridge, Principal::named("bob")).await;

    let expected = ["a__read", "a__write", "b__delete", "b__read", "b__write"];
    let mut names = tool_names(&ada).await;
    names.sort();
    assert_eq!(names, expected);
    assert_eq!(tool_names(&bob).await, ["a__read", "a__write", "b__read"]);
    assert!(ada.call_tool("b__write", ()).await.is_ok());
    let error = rpc_error(bob.call_tool("b__write", ()).await);
    assert_eq!(error.message, "unknown tool `b__write`");
    let page = bob.request_raw("tools/list", ()).await.unwrap();
    assert!(page.json().as_str().contains(r#""cacheScope":"private""#));
}
