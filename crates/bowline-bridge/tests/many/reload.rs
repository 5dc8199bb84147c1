//! A configuration that is replaced while the bridge runs.

use std::sync::Arc;

use bowline::ErrorCode;
use bowline::client::{Change, ChangeFilter};
use bowline::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::subscriptions::next;
use crate::world::{
    ERAS, MODERN, TWO, World, connect, named, parse, rpc_error, settle, tool_names,
};

const ONLY_B: &str = r#"{"mcpServers": {"b": {"command": "b", "bridge": {"prefix": "b"}}}}"#;
const THREE: &str =
    r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}"#;

#[tokio::test]
async fn a_call_on_a_removed_server_ends_and_the_next_one_is_refused() {
    for back in ERAS {
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let wait = {
            let (started, go_on) = (started.clone(), go_on.clone());
            move || {
                let (started, go_on) = (started.clone(), go_on.clone());
                async move {
                    started.notify_one();
                    go_on.notified().await;
                    "waited"
                }
            }
        };
        let waiting = Server::new("waiting", "1.0.0").tool(Tool::new("wait", wait));
        let world = World::default();
        world.serve("a", &waiting, back);
        world.serve("b", &named("second"), back);
        let bridge = world.bridge(TWO);
        let client = connect(&bridge, MODERN).await;
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call_tool("a__wait", ()).await }
        });
        started.notified().await;

        let changes = bridge.reload(&parse(ONLY_B)).unwrap();

        assert_eq!(changes.removed, ["a"]);
        let error = rpc_error(client.call_tool("a__wait", ()).await);
        assert_eq!(error.message, "unknown tool `a__wait`", "{back}");
        go_on.notify_one();
        assert_eq!(call.await.unwrap().unwrap().text(), "waited", "{back}");
    }
}

#[tokio::test]
async fn servers_that_are_reached_as_before_keep_their_connections() {
    let world = World::default();
    for name in ["a", "b", "c"] {
        world.serve(name, &named("any"), MODERN);
    }
    let bridge = world.bridge(TWO);
    let client = connect(&bridge, MODERN).await;
    tool_names(&client).await;
    let before = (world.connections("a"), world.connections("b"));

    // `a` has other settings, and `b` is reached by another command.
    let changed = r#"{"mcpServers": {
        "a": {"command": "a", "bridge": {"tools": {"deny": ["*"]}}}, "b": {"command": "other"}, "c": {"command": "c"}
    }}"#;
    let changes = bridge.reload(&parse(changed)).unwrap();

    assert_eq!(
        (&*changes.added, &*changes.adjusted),
        (&["c".to_owned()][..], &["a".to_owned()][..])
    );
    assert_eq!(tool_names(&client).await, ["b__name", "c__name"]);
    assert_eq!(world.connections("a"), before.0);
    assert_eq!(world.connections("b"), before.1 + 1);
}

#[tokio::test(start_paused = true)]
async fn connections_to_a_removed_server_are_closed() {
    for front in ERAS {
        let world = World::default();
        world.serve("a", &named("first"), MODERN);
        world.serve("b", &named("second"), MODERN);
        let bridge = world.bridge(TWO);
        let client = connect(&bridge, front).await;
        tool_names(&client).await;
        assert_eq!((world.open("a"), world.open("b")), (1, 1), "{front}");

        bridge.reload(&parse(ONLY_B)).unwrap();

        settle().await;
        assert_eq!((world.open("a"), world.open("b")), (0, 1), "{front}");
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_hear_of_a_reload_and_then_of_the_new_servers() {
    for front in ERAS {
        let third = named("third");
        let world = World::default();
        world.serve("a", &named("first"), MODERN);
        world.serve("b", &named("second"), MODERN);
        world.serve("c", &third, MODERN);
        let bridge = world.bridge(TWO);
        let client = connect(&bridge, front).await;
        let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        bridge.reload(&parse(THREE)).unwrap();

        assert_eq!(next(&mut changes).await, Change::Tools, "{front}");
        let names = tool_names(&client).await;
        assert_eq!(names, ["a__name", "b__name", "c__name"]);
        // The notice that follows when all servers are subscribed to.
        assert_eq!(next(&mut changes).await, Change::Tools, "{front}");
        third.tools().add(Tool::new("more", async || "x")).unwrap();
        assert_eq!(next(&mut changes).await, Change::Tools, "{front}");
    }
}

#[tokio::test]
async fn a_cursor_of_the_old_servers_is_refused_clearly() {
    let tool = |name: &'static str| Tool::new(name, async || "x");
    let paged = Server::new("paged", "1.0.0")
        .tool(tool("one"))
        .tool(tool("two"))
        .page_size(1);
    let world = World::default();
    for name in ["a", "b", "c"] {
        world.serve(name, &paged, MODERN);
    }
    let bridge = world.bridge(TWO);
    let client = connect(&bridge, MODERN).await;
    let page = client.request_raw("tools/list", ()).await.unwrap();
    let page: Value = page.json().decode().unwrap();
    let cursor = json!({"cursor": page["nextCursor"]});
    assert!(
        client
            .request_raw("tools/list", cursor.clone())
            .await
            .is_ok()
    );

    bridge.reload(&parse(THREE)).unwrap();

    let error = rpc_error(client.request_raw("tools/list", cursor).await);
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert!(
        error.message.contains("another configuration"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn an_invalid_configuration_leaves_everything_as_it_was() {
    let world = World::default();
    world.serve("a", &named("first"), MODERN);
    world.serve("b", &named("second"), MODERN);
    let bridge = world.bridge(TWO);
    let client = connect(&bridge, MODERN).await;

    let invalid = r#"{"mcpServers": {"b": {"command": "${BOWLINE_TEST_NOT_SET}"}}}"#;
    assert!(bridge.reload(&parse(invalid)).is_err());

    assert_eq!(tool_names(&client).await, ["a__name", "b__name"]);
}

#[tokio::test]
async fn a_bridge_to_one_target_has_nothing_to_reload() {
    let bridge = bowline_bridge::Bridge::new(bowline_bridge::Target::http("https://a.example"));

    let error = bridge.reload(&parse(TWO)).unwrap_err();

    assert!(error.to_string().contains("from_config"), "{error}");
}
