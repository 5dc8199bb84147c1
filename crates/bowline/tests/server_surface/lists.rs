//! Lists, capabilities, the server implementation and mounted servers.

use std::time::Duration;

use bowline::server::{Completer, ListKind};
use bowline::types::{
    CacheScope, CompleteArgument, CompleteRequestParams, Icon, ListPromptsRequest,
    PaginatedRequestParams, PromptReference,
};
use bowline::{CallToolResult, Client, ErrorCode, Prompt, Resource, Server, Tool};
use serde_json::json;

use crate::support::{
    CLIENT_TRANSPORTS, ClientTransport, complete, echo, peer_error, prompt, read, read_text,
    reviewer, serve,
};

#[tokio::test(start_paused = true)]
async fn methods_of_absent_capabilities_are_neither_advertised_nor_answered() {
    let methods = [
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    ];
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&Server::new("empty", "1.0.0")).await;

        for method in methods {
            let error = peer_error(client.request_raw(method, json!({})).await.unwrap_err());

            assert_eq!(
                error.code,
                ErrorCode::METHOD_NOT_FOUND,
                "{transport:?} {method}"
            );
        }
        let capabilities = client
            .server_capabilities()
            .map(|capabilities| serde_json::to_value(capabilities).unwrap());
        assert!(
            capabilities.is_none_or(|capabilities| capabilities == json!({})),
            "{transport:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn capabilities_follow_from_the_registered_items() {
    let server = reviewer()
        .tool(echo("echo"))
        .resource_subscriptions()
        .logging();
    let expected = json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "completions": {},
        "logging": {},
    });

    for version in ["2025-11-25", "2025-03-26"] {
        let client = ClientTransport::Wire(version).connect(&server).await;

        let capabilities = serde_json::to_value(client.server_capabilities().unwrap()).unwrap();
        assert_eq!(capabilities, expected, "{version}");
    }
    let client = ClientTransport::Wire("2024-11-05").connect(&server).await;
    let capabilities = client.server_capabilities().unwrap();
    assert_eq!(
        capabilities.completions, None,
        "the first version declares none"
    );
    assert!(capabilities.prompts.is_some());
    let client = Client::from_wire(serve(&server)).await.unwrap();
    let capabilities = serde_json::to_value(client.server_capabilities().unwrap()).unwrap();
    assert_eq!(capabilities, expected, "as discovered");
}

#[tokio::test(start_paused = true)]
async fn the_server_implementation_is_sent_with_all_members() {
    let server = Server::new("s", "1")
        .title("The Server")
        .description("Serves.")
        .website_url("https://example.com")
        .icons([Icon::new("https://example.com/icon.png")]);

    let client = ClientTransport::Wire("2025-11-25").connect(&server).await;

    let implementation = serde_json::to_value(client.server_info().unwrap()).unwrap();
    let expected = json!({
        "name": "s", "version": "1", "title": "The Server", "description": "Serves.",
        "websiteUrl": "https://example.com", "icons": [{"src": "https://example.com/icon.png"}],
    });
    assert_eq!(implementation, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_paginated_by_the_page_size() {
    for transport in CLIENT_TRANSPORTS {
        let server = (0..5).fold(Server::new("s", "1"), |server, n| {
            server.tool(echo(&format!("tool{n}")))
        });
        let client = transport.connect(&server.page_size(2)).await;

        let mut names = Vec::new();
        let mut sizes = Vec::new();
        let mut page = client.list_tools().first_page().await.unwrap();
        loop {
            sizes.push(page.tools.len());
            names.extend(page.tools.into_iter().map(|tool| tool.name));
            let Some(next) = page.next_cursor else { break };
            page = client.list_tools().cursor(next).await.unwrap();
        }
        let bad = client.list_tools().cursor("made up").await.unwrap_err();

        assert_eq!(names, ["tool0", "tool1", "tool2", "tool3", "tool4"]);
        assert_eq!(sizes, [2, 2, 1]);
        assert_eq!(peer_error(bad).code, ErrorCode::INVALID_PARAMS);
    }
}

#[tokio::test(start_paused = true)]
async fn caching_hints_are_sent_as_set_and_in_the_modern_era_only() {
    let long = Duration::from_secs(60);
    let readme = Resource::text("docs://readme", "readme", "text").cache(long, CacheScope::PUBLIC);
    let server = Server::new("s", "1")
        .tool(echo("a"))
        .tool(echo("b"))
        .prompt(Prompt::raw("p", async |_, _| Ok("text")))
        .resource(readme)
        .resource(Resource::text("docs://other", "other", "text"))
        .page_size(1)
        .cache(long, CacheScope::PUBLIC)
        .cache_list(
            ListKind::Prompts,
            Duration::from_millis(5),
            CacheScope::PRIVATE,
        );
    let modern = ClientTransport::Wire("2026-07-28").connect(&server).await;
    let legacy = ClientTransport::Wire("2025-11-25").connect(&server).await;

    let first = modern.list_tools().first_page().await.unwrap();
    let second = modern
        .list_tools()
        .cursor(first.next_cursor.unwrap())
        .await
        .unwrap();
    let params = PaginatedRequestParams::default();
    let prompts = modern.request::<ListPromptsRequest>(&params).await.unwrap();
    let readme = read(&modern, "docs://readme").await.unwrap();
    let other = read(&modern, "docs://other").await.unwrap();
    let old = legacy.request_raw("tools/list", json!({})).await.unwrap();

    assert_eq!(
        (first.ttl_ms, first.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (second.ttl_ms, second.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (prompts.ttl_ms, prompts.cache_scope),
        (Some(5), Some(CacheScope::PRIVATE))
    );
    assert_eq!(
        (readme.ttl_ms, readme.cache_scope),
        (Some(60_000), Some(CacheScope::PUBLIC))
    );
    assert_eq!(
        (other.ttl_ms, other.cache_scope),
        (Some(0), Some(CacheScope::PRIVATE))
    );
    assert!(!old.json().as_str().contains("ttlMs"), "{old:?}");
}

#[derive(Debug)]
struct Unit(&'static str);

#[tokio::test(start_paused = true)]
async fn a_mounted_server_keeps_its_state_and_gets_a_prefix() {
    let forecast = Tool::raw("forecast", json!({"type": "object"}), async |_, cx| {
        let unit = cx.state::<Unit>().map_or("none", |unit| unit.0);
        let limit = cx.state::<u8>().copied().unwrap_or_default();
        Ok(CallToolResult::text(format!("{limit} {unit}")))
    });
    let weather = Server::new("weather", "1")
        .state(Unit("celsius"))
        .tool(forecast.clone())
        .prompt(Prompt::raw("ask", async |_, _| Ok("text")).required("city", "where"))
        .completer(Completer::for_prompt("ask", "city", async |_, _| {
            Ok(vec!["Oslo"])
        }))
        .resource(Resource::text("weather://help", "help", "help"));
    let server = Server::new("outer", "1")
        .state(Unit("kelvin"))
        .state(7_u8)
        .tool(forecast)
        .mount("weather", &weather);
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&server).await;

        let inner = client
            .call_tool("weather_forecast", json!({}))
            .await
            .unwrap();
        let outer = client.call_tool("forecast", json!({})).await.unwrap();
        let city = CompleteRequestParams::new(
            PromptReference::new("weather_ask"),
            CompleteArgument::new("city", ""),
        );
        let cities = complete(&client, city).await.unwrap();

        assert_eq!(inner.text(), "7 celsius");
        assert_eq!(outer.text(), "7 kelvin");
        assert_eq!(
            client.list_tools().await.unwrap()[1].name,
            "weather_forecast"
        );
        assert_eq!(cities.values, ["Oslo"]);
        assert_eq!(read_text(&client, "weather://help").await, "help");
        let arguments = json!({"city": "Oslo"});
        assert!(prompt(&client, "weather_ask", arguments).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_mounted_server_keeps_its_empty_lists_advertised() {
    for (list, method) in [
        (ListKind::Tools, "tools/list"),
        (ListKind::Prompts, "prompts/list"),
        (ListKind::ResourceTemplates, "resources/templates/list"),
    ] {
        let inner = Server::new("inner", "1").advertise(list);
        let client = Client::in_process(&Server::new("outer", "1").mount("inner", &inner));

        let listed = client.await.unwrap().request_raw(method, json!({})).await;

        assert!(listed.is_ok(), "{listed:?}");
    }
}
