//! Servers that are dead, slow or hanging.

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::Request;
use bowline::layer::Next;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::world::{
    ERAS, LEGACY, MODERN, TWO, World, connect, named, rpc_error, settle, tool_names,
};

#[tokio::test(start_paused = true)]
async fn a_dead_server_breaks_neither_the_handshake_nor_the_lists() {
    for front in ERAS {
        let world = World::default();
        world.kill("a");
        world.serve("b", &named("second"), MODERN);
        let client = connect(&world.bridge(TWO), front).await;

        assert_eq!(tool_names(&client).await, ["b__name"], "{front}");
        let error = rpc_error(client.call_tool("a__name", ()).await);
        assert!(error.message.contains("upstream `a`"), "{}", error.message);
        assert_eq!(
            client.call_tool("b__name", ()).await.unwrap().text(),
            "second"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_died_is_listed_as_it_was_or_left_out_by_choice() {
    for (policy, expected) in [
        ("show", vec!["a__name", "b__name"]),
        ("omit", vec!["b__name"]),
    ] {
        let world = World::default();
        world.serve("a", &named("first"), MODERN);
        world.serve("b", &named("second"), LEGACY);
        let config = format!(
            r#"{{"mcpServers": {{"a": {{"command": "a", "bridge": {{"stale": "{policy}"}}}}, "b": {{"command": "b"}}}}}}"#
        );
        let client = connect(&world.bridge(&config), MODERN).await;
        assert_eq!(tool_names(&client).await, ["a__name", "b__name"]);

        world.kill("a");

        // The bridge notices the end of the connection by itself.
        settle().await;
        let page = client.request_raw("tools/list", ()).await.unwrap();
        let page: serde_json::Value = page.json().decode().unwrap();
        let tools = page["tools"].as_array().unwrap().iter();
        let names: Vec<_> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{policy}");
        assert_eq!(page["ttlMs"].as_u64().unwrap_or(0), 0, "{policy}");
        if policy == "show" {
            assert_eq!(page["_meta"]["bowline/stale"], serde_json::json!(["a"]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_handshake_wait_for_a_hanging_server_no_longer_than_told() {
    let world = World::default();
    world.hang("a");
    world.serve("b", &named("second"), MODERN);
    let config = r#"{"mcpServers": {"a": {"command": "a", "bridge": {"listTimeout": "2s"}}, "b": {"command": "b"}}}"#;
    let client = connect(&world.bridge(config), MODERN).await;
    let start = Instant::now();
    client.request_raw("server/discover", ()).await.unwrap();
    let handshake = start.elapsed();

    let names = tool_names(&client).await;

    assert_eq!(names, ["b__name"]);
    let (limit, both) = (Duration::from_secs(2), Duration::from_secs(4));
    assert!(
        handshake >= limit && handshake < limit + Duration::from_millis(100),
        "{handshake:?}"
    );
    assert!(
        start.elapsed() < both + Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn only_one_list_waits_for_a_hanging_server() {
    for front in ERAS {
        let world = World::default();
        world.hang("a");
        world.serve("b", &named("second"), MODERN);
        let bridge = world.bridge(TWO);
        let start = Instant::now();
        let client = connect(&bridge, front).await;
        client.request_raw("server/discover", ()).await.ok(); // a legacy client has sent `initialize`
        let handshake = start.elapsed();
        tool_names(&client).await;
        let first = start.elapsed() - handshake;

        for _ in 0..4 {
            assert_eq!(tool_names(&client).await, ["b__name"], "{front}");
        }

        let others = start.elapsed() - handshake - first;
        let whole = Duration::from_secs(4)..Duration::from_secs(6);
        if front == MODERN {
            // The probe of a client fails after five seconds.
            assert!(handshake < Duration::from_secs(3), "{handshake:?}");
            assert!(whole.contains(&first), "{first:?}");
        } else {
            assert!(whole.contains(&handshake), "{handshake:?}");
            assert!(first < Duration::from_secs(1), "{first:?}");
        }
        assert!(others <= Duration::from_secs(2), "{others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_one_list_waits_for_a_server_that_is_connected_and_silent() {
    for back in ERAS {
        let world = World::default();
        let silent = named("first").layer(|request: Request, next: Next| async move {
            match &*request.method {
                "tools/list" => std::future::pending().await,
                _ => next.run(request).await,
            }
        });
        world.serve("a", &silent, back);
        world.serve("b", &named("second"), MODERN);
        let client = connect(&world.bridge(TWO), MODERN).await;
        tool_names(&client).await;
        let start = Instant::now();

        for _ in 0..4 {
            // It answers these, which says nothing about its tools.
            client.request_raw("server/discover", ()).await.unwrap();
            client.list_prompts().await.unwrap();
            assert_eq!(tool_names(&client).await, ["b__name"], "{back}");
        }

        let took = start.elapsed();
        assert!(took <= Duration::from_secs(2), "{back}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_late_shortens_no_other_list() {
    let world = World::default();
    let slow = named("first").resource(bowline::Resource::text("r:1", "r", "text"));
    let slow = slow.layer(|request: Request, next: Next| async move {
        match &*request.method {
            "resources/list" => std::future::pending().await,
            "tools/list" => tokio::time::advance(Duration::from_millis(400)).await,
            _ => {}
        }
        next.run(request).await
    });
    world.serve("a", &slow, MODERN);
    world.serve("b", &named("second"), MODERN);
    let client = connect(&world.bridge(TWO), MODERN).await;

    let start = Instant::now();
    client.list_resources().await.unwrap();
    let resources = start.elapsed();

    assert!(resources >= Duration::from_secs(5), "{resources:?}");
    assert_eq!(tool_names(&client).await, ["a__name", "b__name"]);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_told_about_a_server_that_starts_in_three_seconds() {
    let world = World::default();
    world.serve_pipe("a", |pipe| async move {
        let start = Duration::from_secs(3);
        tokio::time::timeout(start, std::future::pending::<()>())
            .await
            .unwrap_err();
        let (read, write) = tokio::io::split(pipe);
        let server = named("first").instructions("Read me first.");
        let serving = server.serve(bowline::wire::Lines::new(read, write));
        serving.await.unwrap();
    });
    world.serve("b", &named("second"), MODERN);

    let client = connect(&world.bridge(TWO), LEGACY).await;

    let instructions = client.server().unwrap().instructions.clone();
    let instructions = instructions.unwrap_or_default();
    assert!(instructions.contains("Read me first."), "{instructions}");
}

#[tokio::test(start_paused = true)]
async fn calls_to_other_servers_do_not_wait_for_a_hanging_one() {
    for front in ERAS {
        let world = World::default();
        world.hang("a");
        world.serve("b", &named("second"), LEGACY);
        let client = connect(&world.bridge(TWO), front).await;
        let hanging: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call_tool("a__name", ()).await.map(drop) })
            })
            .collect();
        let start = Instant::now();

        for _ in 0..100 {
            let reply = client.call_tool("b__name", ()).await.unwrap();
            assert_eq!(reply.text(), "second");
        }

        assert!(
            start.elapsed() < Duration::from_millis(100),
            "{:?}",
            start.elapsed()
        );
        assert!(hanging.iter().all(|call| !call.is_finished()), "{front}");
        hanging.iter().for_each(|call| call.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_longer_to_start_than_a_list_waits_is_there_later() {
    let world = World::default();
    let start = Arc::new(Notify::new());
    let started = start.clone();
    world.serve_pipe("a", move |pipe| {
        let started = started.clone();
        async move {
            started.notified().await;
            let (read, write) = tokio::io::split(pipe);
            let serving = named("first").serve(bowline::wire::Lines::new(read, write));
            serving.await.unwrap();
        }
    });
    world.serve("b", &named("second"), MODERN);
    let config = r#"{"mcpServers": {"a": {"command": "a", "bridge": {"listTimeout": "2s"}}, "b": {"command": "b"}}}"#;

    let client = connect(&world.bridge(config), MODERN).await;
    tool_names(&client).await;
    start.notify_one();
    settle().await;
    tool_names(&client).await;

    assert_eq!(
        world.connections("a"),
        1,
        "it was not started again and again"
    );
}

#[tokio::test(start_paused = true)]
async fn connecting_is_given_up_after_the_connect_timeout() {
    let world = World::default();
    world.hang("a");
    let config = r#"{"mcpServers": {"a": {"command": "a", "bridge": {"connectTimeout": "3s", "listTimeout": "1s"}}}}"#;
    let client = connect(&world.bridge(config), MODERN).await;
    let start = Instant::now();

    let error = rpc_error(client.call_tool("name", ()).await);

    assert!(error.message.contains("within 3s"), "{}", error.message);
    assert!(
        start.elapsed() <= Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}
