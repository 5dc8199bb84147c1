//! Merged lists, and calls by the merged names.

use bowline::ErrorCode;
use bowline::prelude::*;
use bowline_bridge::BridgeConfig;
use serde_json::json;

use crate::world::{ERAS, LEGACY, MODERN, TWO, World, connect, named, rpc_error, tool_names};

#[tokio::test]
async fn tools_of_all_servers_are_listed_and_called_in_every_pair_of_eras() {
    for front in ERAS {
        let world = World::default();
        world.serve("a", &named("first"), MODERN);
        world.serve("b", &named("second"), LEGACY);
        let client = connect(&world.bridge(TWO), front).await;

        assert_eq!(tool_names(&client).await, ["a__name", "b__name"], "{front}");
        for (tool, expected) in [("a__name", "first"), ("b__name", "second")] {
            let reply = client.call_tool(tool, ()).await.unwrap();
            assert_eq!(reply.text(), expected, "{front}");
        }
        let error = rpc_error(client.call_tool("name", ()).await);
        assert_eq!(error.message, "unknown tool `name`", "{front}");
    }
}

#[tokio::test]
async fn a_single_configured_server_keeps_its_names() {
    let world = World::default();
    world.serve("a", &named("first"), MODERN);
    let bridge = world.bridge(r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    let client = connect(&bridge, MODERN).await;

    assert_eq!(tool_names(&client).await, ["name"]);
    assert_eq!(client.call_tool("name", ()).await.unwrap().text(), "first");
}

#[tokio::test]
async fn pages_of_all_servers_are_visited_once() {
    let tool = |name: &'static str| Tool::new(name, async || "x");
    let many = Server::new("many", "1.0.0")
        .tool(tool("one"))
        .tool(tool("two"))
        .tool(tool("three"))
        .page_size(2);
    for era in ERAS {
        let world = World::default();
        world.serve("a", &many, era);
        world.serve("b", &many, era);
        let client = connect(&world.bridge(TWO), MODERN).await;

        let mut names = tool_names(&client).await;

        names.sort();
        let expected = [
            "a__one", "a__three", "a__two", "b__one", "b__three", "b__two",
        ];
        assert_eq!(names, expected, "{era}");
    }
}

#[tokio::test]
async fn prompts_are_routed_and_a_server_without_prompts_is_left_out() {
    let prompts = Server::new("p", "1.0.0").prompt(Prompt::new("hello", async || "Say hello."));
    for era in ERAS {
        let world = World::default();
        world.serve("a", &named("first"), era);
        world.serve("b", &prompts, era);
        let client = connect(&world.bridge(TWO), MODERN).await;

        let listed = client.list_prompts().await.unwrap();
        let prompt = client.get_prompt("b__hello", ()).await.unwrap();

        assert_eq!(listed[0].name, "b__hello");
        assert_eq!(listed.len(), 1);
        assert_eq!(prompt.messages.len(), 1);
    }
}

#[tokio::test]
async fn the_handshake_unites_capabilities_and_joins_instructions() {
    let prompts = Server::new("p", "1.0.0")
        .instructions("Be brief.")
        .prompt(Prompt::new("hello", async || "Say hello."));
    for front in ERAS {
        let world = World::default();
        world.serve("a", &named("first"), MODERN);
        world.serve("b", &prompts, LEGACY);
        let config = r#"{"bridge": {"instructions": "A bridge."}, "mcpServers":
            {"a": {"command": "a"}, "b": {"command": "b"}}}"#;
        let client = connect(&world.bridge(config), front).await;

        let introduction = client.request_raw("server/discover", ()).await.unwrap();

        let introduction: serde_json::Value = introduction.json().decode().unwrap();
        let capabilities = &introduction["capabilities"];
        assert_eq!(capabilities.get("resources"), None, "{front}");
        let server = &introduction["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(server["name"], "bowline-bridge", "{front}");
        assert_eq!(capabilities["tools"]["listChanged"], true, "{front}");
        assert_eq!(capabilities["prompts"]["listChanged"], true, "{front}");
        let instructions = introduction["instructions"].as_str().unwrap();
        assert!(
            instructions.starts_with("A bridge.\n\n# b"),
            "{instructions}"
        );
    }
}

#[tokio::test]
async fn a_method_that_names_no_server_is_refused_if_there_are_several() {
    let world = World::default();
    world.serve("a", &named("first"), MODERN);
    world.serve("b", &named("second"), MODERN);
    let client = connect(&world.bridge(TWO), MODERN).await;

    let error = rpc_error(client.request_raw("com.example/any", json!({})).await);

    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
    assert!(error.message.contains("which server"), "{}", error.message);
}

#[test]
fn a_variable_that_is_not_set_is_a_clear_error() {
    let config = r#"{"mcpServers": {"a": {"command": "${BOWLINE_TEST_NOT_SET}"}}}"#;
    let config = BridgeConfig::from_json(config).unwrap();

    let error = bowline_bridge::Bridge::from_config(&config).unwrap_err();

    assert!(
        error.to_string().contains("BOWLINE_TEST_NOT_SET"),
        "{error}"
    );
}
