//! Resources keep their URIs, and the bridge finds their servers.

use std::time::Duration;

use bowline::ErrorCode;
use bowline::exchange::Principal;
use bowline::prelude::*;
use bowline::types::{CallToolResult, ContentBlock};
use bowline_bridge::{Bridge, Target};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{ERAS, MODERN, TWO, World, connect, connect_as, named, parse, rpc_error};

fn notes() -> Server {
    let link = Tool::raw("link", json!({"type": "object"}), async |_, _| {
        let block = json!({"type": "resource_link", "uri": "made:1", "name": "made"});
        let block: ContentBlock = serde_json::from_value(block).unwrap();
        let mut result = CallToolResult::text("made");
        result.content.push(block);
        Ok(result)
    });
    Server::new("notes", "1.0.0")
        .tool(link)
        .resource(Resource::text("note:1", "one", "first note"))
        .resource(Resource::text("made:1", "made", "made note"))
}

async fn text_of(client: &Client, uri: &str) -> String {
    let result = client
        .request_raw("resources/read", json!({"uri": uri}))
        .await;
    let result: serde_json::Value = result.unwrap().json().decode().unwrap();
    result["contents"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_resource_is_read_from_the_server_that_lists_it_in_every_pair_of_eras() {
    for front in ERAS {
        for back in ERAS {
            let world = World::default();
            world.serve("a", &named("first"), back);
            world.serve("b", &notes(), back);
            let client = connect(&world.bridge(TWO), front).await;

            let listed = client.list_resources().await.unwrap();

            assert_eq!(listed.len(), 2);
            assert_eq!(
                text_of(&client, "note:1").await,
                "first note",
                "{front} → {back}"
            );
        }
    }
}

#[tokio::test]
async fn a_resource_is_found_although_the_client_never_listed_it() {
    let other = Server::new("other", "1.0.0").resource(Resource::text("x:1", "x", "x"));
    for back in ERAS {
        let world = World::default();
        world.serve("a", &other, back);
        world.serve("b", &notes(), back);
        let client = connect(&world.bridge(TWO), MODERN).await;

        assert_eq!(text_of(&client, "note:1").await, "first note", "{back}");
        let missing = client.request_raw("resources/read", json!({"uri": "none:1"}));
        assert_eq!(rpc_error(missing.await).code, ErrorCode::RESOURCE_NOT_FOUND);
    }
}

#[tokio::test]
async fn a_resource_is_found_by_the_link_in_a_result() {
    let unlisted = Server::new("other", "1.0.0").resource(Resource::text("x:1", "x", "x"));
    let world = World::default();
    world.serve("a", &unlisted, MODERN);
    let hidden = crate::world::responder(|request: bowline::exchange::Request, _| async move {
        let result = match &*request.method {
            "server/discover" => {
                r#"{"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}}}"#
            }
            "tools/call" => {
                r#"{"content": [{"type": "resource_link", "uri": "made:7", "name": "made"}]}"#
            }
            "resources/read" => r#"{"contents": [{"uri": "made:7", "text": "hidden"}]}"#,
            "resources/list" => r#"{"resources": []}"#,
            _ => r#"{"resourceTemplates": []}"#,
        };
        Ok(bowline::Json::from_static(result))
    });
    world.serve_raw("b", &hidden);
    let client = connect(&world.bridge(TWO), MODERN).await;
    let read = || client.request_raw("resources/read", json!({"uri": "made:7"}));
    assert_eq!(rpc_error(read().await).code, ErrorCode::RESOURCE_NOT_FOUND);

    client
        .request_raw("tools/call", json!({"name": "b__make"}))
        .await
        .unwrap();

    assert_eq!(text_of(&client, "made:7").await, "hidden");
}

#[tokio::test]
async fn patterns_and_access_rules_apply_to_uris() {
    let world = World::default();
    world.serve("a", &notes(), MODERN);
    world.serve("b", &notes(), MODERN);
    let config = r#"{"mcpServers": {
        "a": {"command": "a", "bridge": {"resources": {"deny": ["made:*"]}, "uris": ["made:*"]}},
        "b": {"command": "b"}
    }}"#;
    let client = connect(&world.bridge(config), MODERN).await;

    let listed = client.list_resources().await.unwrap();

    // `note:1` is that of `a`, and `made:1` is asked for at `a`, where it is denied.
    let uris: Vec<_> = listed.iter().map(|it| it.uri.as_str()).collect();
    assert_eq!(uris, ["note:1"]);
    let error = rpc_error(
        client
            .request_raw("resources/read", json!({"uri": "made:1"}))
            .await,
    );
    assert_eq!(error.code, ErrorCode::RESOURCE_NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_resource_of_one_principal_is_found_after_another_has_asked_for_an_unknown_one() {
    let bridge = Bridge::from_config_with(&parse(TWO), |server| {
        let name = server.name().to_owned();
        let target = Target::new(server.name(), move |principal| {
            let uri = format!("{name}:{}", principal.name().unwrap_or_default());
            let own = Resource::text(&uri, "own", "its owner's");
            Ok(Client::in_process(
                &Server::new("own", "1.0.0").resource(own),
            ))
        });
        Ok(target.per_principal())
    });
    let bridge = bridge.unwrap();
    let ada = connect_as(&bridge, Principal::named("ada")).await;
    let bob = connect_as(&bridge, Principal::named("bob")).await;

    ada.read_resource("missing:1").await.unwrap_err();
    let read = bob.read_resource("b:bob").await;

    assert!(read.is_ok(), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_resource_does_not_wait_for_a_hanging_server_again_and_again() {
    let world = World::default();
    world.hang("a");
    world.serve("b", &named("second"), MODERN);
    let client = connect(&world.bridge(TWO), MODERN).await;
    client.read_resource("missing:1").await.unwrap_err();
    let start = Instant::now();

    client.read_resource("missing:2").await.unwrap_err();

    assert_eq!(start.elapsed(), Duration::ZERO);
}
