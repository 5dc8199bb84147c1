//! Access rules by name and by principal.

use bowline::ErrorCode;
use bowline::exchange::Principal;
use bowline::prelude::*;
use bowline_bridge::{Bridge, Target};

use crate::world::{MODERN, World, connect, connect_as, named, parse, rpc_error, tool_names};

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

#[tokio::test(start_paused = true)]
async fn what_a_server_says_to_one_principal_is_not_shown_to_another() {
    let config = parse(r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    let bridge = Bridge::from_config_with(&config, |server| {
        let target = Target::new(server.name(), |principal| {
            if principal.name() == Some("ada") {
                let secret = named("a").instructions("Ada's project is called Heron.");
                return Ok(Client::in_process(&secret));
            }
            let (near, far) = bowline::wire::memory();
            drop(far);
            Ok(Client::from_wire(near))
        });
        Ok(target.per_principal())
    });
    let bridge = bridge.unwrap();
    let [ada, bob] = ["ada", "bob"].map(Principal::named);
    let introduction = async |principal: &Principal| {
        let client = connect_as(&bridge, principal.clone()).await;
        let discovered = client.request_raw("server/discover", ()).await.unwrap();
        discovered.json().as_str().to_owned()
    };

    let of_ada = introduction(&ada).await;
    let of_bob = introduction(&bob).await;

    assert!(of_ada.contains("Heron"), "{of_ada}");
    assert!(!of_bob.contains("Heron"), "{of_bob}");
    assert!(introduction(&ada).await.contains("Heron"));
}
