//! Changes while a server runs, and its limits.

use bowline::client::Change;
use bowline::exchange::Dialect;
use bowline::server::{Completer, ListKind, LocalChangeBus};
use bowline::testing::scripted_client;
use bowline::types::{LoggingLevel, SubscriptionFilter};
use bowline::{CallToolResult, Client, ErrorCode, Limit, Limits, Prompt, Resource, Server, Tool};
use serde_json::json;

use crate::support::{
    CLIENT_TRANSPORTS, ClientTransport, RawClient, all_lists, echo, in_time, initialize_params,
    library, peer_error, prompt, read_text, serve,
};

#[tokio::test(start_paused = true)]
async fn items_added_and_removed_at_run_time_are_served_and_announced() {
    for transport in CLIENT_TRANSPORTS {
        let server = Server::new("s", "1")
            .tool(echo("first"))
            .advertise(ListKind::Prompts)
            .advertise(ListKind::Resources);
        let client = transport.connect(&server).await;
        let mut changes = client.subscribe(all_lists()).await.unwrap();
        if let ClientTransport::Wire(_) = transport {
            // A legacy server notifies a client once it has received `notifications/initialized`.
            client.list_tools().await.unwrap();
        }

        let (changed, ()) = tokio::join!(
            async {
                let mut changed = Vec::new();
                while changed.len() < 4 {
                    changed.extend(in_time(changes.next()).await.unwrap());
                }
                changed
            },
            async {
                tokio::task::yield_now().await;
                server.tools().add(echo("second")).unwrap();
                assert!(server.tools().remove("first"));
                assert!(!server.tools().remove("first"));
                server
                    .prompts()
                    .add(Prompt::raw("p", async |_, _| Ok("text")));
                server
                    .resources()
                    .add(Resource::text("docs://r", "r", "text"));
            },
        );
        let names: Vec<_> = client.list_tools().await.unwrap();
        let called = client.call_tool("second", json!({})).await.unwrap();
        let gone = client.call_tool("first", json!({})).await.unwrap_err();

        let expected = [
            Change::Tools,
            Change::Tools,
            Change::Prompts,
            Change::Resources,
        ];
        assert_eq!(changed, expected, "{transport:?}");
        assert_eq!(
            names.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
            ["second"]
        );
        assert_eq!(called.text(), "{}");
        assert_eq!(peer_error(gone).code, ErrorCode::INVALID_PARAMS);
        assert_eq!(read_text(&client, "docs://r").await, "text");
        assert_eq!(
            prompt(&client, "p", json!({}))
                .await
                .unwrap()
                .messages
                .len(),
            1
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_last_item_was_removed_is_served_empty() {
    let server = Server::new("s", "1").tool(echo("only"));
    let client = ClientTransport::Wire("2026-07-28").connect(&server).await;

    server.tools().remove("only");

    assert!(client.list_tools().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn servers_on_one_bus_announce_each_others_changes() {
    let bus = LocalChangeBus::default();
    let one = Server::new("one", "1")
        .tool(echo("echo"))
        .change_bus(bus.clone());
    let two = Server::new("two", "1").tool(echo("echo")).change_bus(bus);
    let client = ClientTransport::Wire("2026-07-28").connect(&one).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();

    two.tools().add(echo("new")).unwrap();

    let changed = in_time(changes.next()).await.unwrap();
    assert_eq!(changed, Some(Change::Tools));
    assert_eq!(changes.acknowledged_filter().prompts_list_changed, None);
}

#[tokio::test(start_paused = true)]
async fn subscriptions_beyond_the_limit_are_refused_until_one_ends() {
    let server = Server::new("s", "1").tool(echo("echo")).limits(Limits {
        subscriptions: 1,
        ..Limits::default()
    });
    let client = ClientTransport::Wire("2026-07-28").connect(&server).await;
    let first = client.subscribe(all_lists()).await.unwrap();

    let second = client.subscribe(all_lists()).await.unwrap_err();
    drop(first);
    client.list_tools().await.unwrap();
    let third = client.subscribe(all_lists()).await;

    let refused = peer_error(second);
    assert_eq!(refused.code, ErrorCode::INTERNAL_ERROR);
    assert!(refused.message.contains("`subscriptions`"), "{refused}");
    assert_eq!(server.usage().refused(Limit::Subscriptions), 1);
    assert!(third.is_ok(), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_one_peer_are_limited() {
    let server = library().resource_subscriptions();
    let modern = ClientTransport::Wire("2026-07-28").connect(&server).await;
    let legacy = ClientTransport::Wire("2025-11-25").connect(&server).await;
    let mut kept = Vec::new();
    for n in 0..1024 {
        kept.push(modern.subscribe(all_lists()).await.unwrap());
        let uri = json!({"uri": format!("docs://{n}")});
        legacy
            .request_raw("resources/subscribe", uri)
            .await
            .unwrap();
    }

    let one_more = modern.subscribe(all_lists()).await.unwrap_err();
    let another = legacy
        .request_raw("resources/subscribe", json!({"uri": "docs://x"}))
        .await;
    let again = legacy
        .request_raw("resources/subscribe", json!({"uri": "docs://7"}))
        .await;

    for error in [one_more, another.unwrap_err()] {
        let refused = peer_error(error);
        assert!(
            refused.message.contains("`peer_subscriptions`"),
            "{refused}"
        );
    }
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_refused_until_one_ends() {
    for transport in CLIENT_TRANSPORTS {
        let stuck = Tool::raw("stuck", json!({"type": "object"}), async |_, _| {
            std::future::pending().await
        });
        let server = Server::new("s", "1")
            .tool(stuck)
            .tool(echo("echo"))
            .limits(Limits {
                handlers: 1,
                ..Limits::default()
            });
        let client = transport.connect(&server).await;
        let mut first = client.call_tool("stuck", json!({})).start();
        // In process a handler runs only while its call is polled.
        tokio::select! {
            biased;
            reply = &mut first => panic!("{reply:?}"),
            tools = client.list_tools() => drop(tools.unwrap()),
        }

        let second = client.call_tool("echo", json!({})).await.unwrap_err();
        drop(first);
        client.list_tools().await.unwrap();
        let third = client.call_tool("echo", json!({})).await;

        let refused = peer_error(second);
        assert_eq!(refused.code, ErrorCode::INTERNAL_ERROR);
        assert!(refused.message.contains("`handlers`"), "{refused}");
        assert_eq!(server.usage().refused(Limit::Handlers), 1);
        assert!(third.is_ok(), "{transport:?} {third:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_receives_changes_of_its_own_resources_only() {
    for transport in CLIENT_TRANSPORTS {
        let server = library().resource_subscriptions();
        let client = transport.connect(&server).await;
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(vec!["docs://readme".into()]);
        let mut changes = client.subscribe(filter).await.unwrap();

        let (changed, ()) = tokio::join!(in_time(changes.next()), async {
            tokio::task::yield_now().await;
            server.changed().resources();
            server.changed().resource_updated("docs://logo");
            server.changed().resource_updated("docs://readme");
        });

        let readme = Change::Resource("docs://readme".into());
        assert_eq!(changed.unwrap(), Some(readme), "{transport:?}");
    }
}

// With one worker a woken task runs before a spawned one: the client receives the response before the server's
// tasks run.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_right_after_the_response_to_a_legacy_subscription_is_notified() {
    let server = library().resource_subscriptions();
    let mut client = RawClient(serve(&server));

    let received = tokio::spawn(async move {
        client.request(1, "initialize", initialize_params()).await;
        let readme = json!({"uri": "docs://readme"});
        client.request(2, "resources/subscribe", readme).await;
        server.changed().resource_updated("docs://readme");
        let received = client.request(3, "ping", json!({})).await;
        received + &client.request(4, "ping", json!({})).await
    });

    let received = received.await.unwrap();
    assert!(
        received.contains("notifications/resources/updated"),
        "{received}"
    );
}

#[tokio::test(start_paused = true)]
async fn log_messages_are_sent_only_with_the_logging_capability() {
    for (server, is_declared) in [
        (Server::new("s", "1"), false),
        (Server::new("s", "1").logging(), true),
    ] {
        let noisy = Tool::raw("noisy", json!({"type": "object"}), async |_, cx| {
            cx.log(LoggingLevel::Error, json!("message"));
            Ok(CallToolResult::text(""))
        });
        let mut far = RawClient(serve(&server.tool(noisy)));

        let initialized = far.request(1, "initialize", initialize_params()).await;
        let called = far.request(2, "tools/call", json!({"name": "noisy"})).await;
        let level = far
            .request(3, "logging/setLevel", json!({"level": "error"}))
            .await;

        assert_eq!(
            initialized.contains("logging"),
            is_declared,
            "{initialized}"
        );
        let is_sent = called.contains("notifications/message");
        assert_eq!(is_sent, is_declared, "{called}");
        assert_eq!(level.contains("-32601"), !is_declared, "{level}");
    }
}

// A gateway performs its own handshake and then forwards the one of its client.
#[tokio::test(start_paused = true)]
async fn another_handshake_replaces_the_caller_of_later_requests() {
    let object = json!({"type": "object"});
    let whose = Tool::raw("whose", object, async |_, cx: bowline::Context| {
        let caller = cx.caller();
        let can_sample = caller.capabilities.sampling.is_some();
        let text = format!("{} {can_sample}", caller.dialect.version);
        Ok(CallToolResult::text(text))
    });
    let server = Server::new("s", "1").tool(whose);
    let mut far = scripted_client(&server);
    let (first, second) = ("2024-11-05", "2025-11-25");
    far.perform_handshake(Dialect::of(first).unwrap(), json!({}))
        .await;

    let sampling = json!({"sampling": {}});
    far.perform_handshake(Dialect::of(second).unwrap(), sampling)
        .await;
    far.call("alive", "ping", json!({})).await;
    server.tools().add(echo("another")).unwrap();
    let changed = far.next_message().await;
    far.expect_nothing().await;
    let called = far
        .call("call", "tools/call", json!({"name": "whose"}))
        .await;
    far.perform_handshake(Dialect::of(first).unwrap(), json!({}))
        .await;
    let last = far
        .call("last", "tools/call", json!({"name": "whose"}))
        .await;
    server.tools().remove("another");
    let removed = far.next_message().await;
    far.expect_nothing().await;

    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let text = &called["result"]["content"][0]["text"];
    assert_eq!(text, "2025-11-25 true", "the second handshake applies");
    let text = &last["result"]["content"][0]["text"];
    assert_eq!(text, "2024-11-05 false", "a third one, after requests");
    let changed = "notifications/tools/list_changed";
    assert_eq!(removed["method"], changed, "once, not for each handshake");
}

#[tokio::test]
async fn duplicate_names_are_refused_when_the_server_starts() {
    let inner = Server::new("inner", "1").tool(echo("b"));
    let complete = || {
        Completer::for_prompt(
            "p",
            "a",
            async |input, _| Ok(input.matching(["one", "two"])),
        )
    };
    let server = Server::new("s", "1")
        .tool(echo("a_b"))
        .tool(echo("a_b"))
        .mount("a", &inner)
        .prompt(Prompt::raw("p", async |_, _| Ok("first")).optional("a", ""))
        .prompt(Prompt::raw("p", async |_, _| Ok("second")))
        .resource(Resource::text("docs://r", "r", "first"))
        .resource(Resource::text("docs://r", "r", "second"))
        .completer(complete())
        .completer(complete());

    let refused = Client::in_process(&server).await.unwrap_err();

    assert_eq!(
        refused.to_string().split("; ").collect::<Vec<_>>(),
        [
            "duplicate tool name `a_b`",
            "duplicate tool name `a_b`",
            "duplicate prompt name `p`",
            "duplicate resource URI `docs://r`",
            "duplicate completer for argument `a` of prompt `p`",
        ]
    );
    assert_eq!(server.tools().names(), ["a_b"], "the first is kept");
}

#[tokio::test]
async fn a_duplicate_that_is_added_at_run_time_does_not_refuse_later_clients() {
    async fn repeat(cx: bowline::Context) {
        let faulty = Server::new("faulty", "1").tool(echo("b")).tool(echo("b"));
        let server = cx.server().tool(echo("a")).mount("", &faulty);
        drop(server);
    }

    let server = Server::new("s", "1")
        .tool(echo("a"))
        .tool(Tool::new("repeat", repeat));
    let client = Client::in_process(&server).await.unwrap();
    for _ in 0..2 {
        client.call_tool("repeat", ()).await.unwrap();
    }

    server.check().unwrap();
    let later = Client::in_process(&server).await.unwrap();
    assert_eq!(later.list_tools().await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_item_added_at_run_time_replaces_one_of_the_same_name() {
    let server = Server::new("s", "1").tool(echo("tool"));
    let client = Client::in_process(&server).await.unwrap();

    let other = Tool::raw("tool", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("replacement"))
    });
    server.tools().add(other).unwrap();

    assert!(server.check().is_ok());
    let reply = client.call_tool("tool", ()).await.unwrap();
    assert_eq!(reply.text(), "replacement");
}
