//! `ttlMs` and `cacheScope` of the server reach the client with their values.

use std::time::Duration;

use bowline::prelude::*;
use bowline::server::ListKind;
use bowline::types::CacheScope;
use serde_json::{Value, json};

use crate::{ERAS, MODERN, bridges, http_target, over_http};

fn server() -> Server {
    let note = Resource::text("note:1", "one", "first");
    let note = note.cache(Duration::from_millis(77), CacheScope::PUBLIC);
    Server::new("cached", "1.0.0")
        .tool(Tool::new("now", async || "noon"))
        .resource(note)
        .cache(Duration::from_secs(300), CacheScope::PUBLIC)
        .cache_list(
            ListKind::Tools,
            Duration::from_millis(1234),
            CacheScope::PRIVATE,
        )
}

async fn hints(client: &Client, method: &'static str, params: Value) -> [Value; 2] {
    let result = client.request_raw(method, params).await.unwrap();
    let result: Value = result.json().decode().unwrap();
    ["ttlMs", "cacheScope"].map(|member| result[member].clone())
}

#[tokio::test]
async fn the_hints_of_a_modern_server_arrive_as_they_are() {
    for bridge in bridges(&http_target(&server(), MODERN)) {
        let client = over_http(&bridge.http()).protocol_version(MODERN);
        let client = client.await.unwrap();

        let tools = hints(&client, "tools/list", json!({})).await;
        let resources = hints(&client, "resources/list", json!({})).await;
        let read = hints(&client, "resources/read", json!({"uri": "note:1"})).await;
        let introduction = hints(&client, "server/discover", json!({})).await;

        assert_eq!(tools, [json!(1234), json!("private")]);
        assert_eq!(resources, [json!(300_000), json!("public")]);
        assert_eq!(read, [json!(77), json!("public")]);
        assert_eq!(introduction, [json!(300_000), json!("public")]);
    }
}

#[tokio::test]
async fn a_list_of_a_legacy_server_is_not_cached() {
    for version in ERAS {
        for bridge in bridges(&http_target(&server(), "2025-06-18")) {
            let client = over_http(&bridge.http()).protocol_version(version);
            let client = client.await.unwrap();

            let [ttl, scope] = hints(&client, "tools/list", json!({})).await;

            assert!(ttl.as_u64().unwrap_or(0) == 0, "{version}: {ttl}");
            assert_ne!(scope, json!("public"), "{version}");
        }
    }
}
