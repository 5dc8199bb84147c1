//! What changes while a server runs, and how much it takes on.

use bowline::client::Change;
use bowline::exchange::Dialect;
use bowline::server::{Completer, List, LocalBus};
use bowline::testing::scripted_client;
use bowline::types::{LoggingLevel, SubscriptionFilter};
use bowline::{CallToolResult, Client, ErrorCode, Limit, Limits, Prompt, Resource, Server, Tool};
use serde_json::json;

use crate::ways::{
    Raw, WAYS, Way, all_lists, echo, in_time, introduction, library, prompt, read_text, refused,
    serving,
};

#[tokio::test(start_paused = true)]
async fn what_is_added_and_removed_at_run_time_is_served_and_announced() {
    for way in WAYS {
        let server = Server::new("s", "1")
            .tool(echo("first"))
            .advertise(List::Prompts)
            .advertise(List::Resources);
        let client = way.connect(&server).await;
        let mut changes = client.subscribe(all_lists()).await.unwrap();
        if let Way::Wire(_) = way {
            // A legacy client is told from the moment the server has heard that it is ready.
            client.list_tools().await.unwrap();
        }

        let (told, ()) = tokio::join!(
            async {
                let mut told = Vec::new();
                while told.len() < 4 {
                    told.extend(in_time(changes.next()).await.unwrap());
                }
                told
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
        assert_eq!(told, expected, "{way:?}");
        assert_eq!(
            names.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
            ["second"]
        );
        assert_eq!(called.text(), "{}");
        assert_eq!(refused(gone).code, ErrorCode::INVALID_PARAMS);
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
async fn a_list_whose_last_entry_was_removed_is_empty_and_still_there() {
    let server = Server::new("s", "1").tool(echo("only"));
    let client = Way::Wire("2026-07-28").connect(&server).await;

    server.tools().remove("only");

    assert!(client.list_tools().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn servers_on_one_bus_announce_for_each_other() {
    let bus = LocalBus::default();
    let one = Server::new("one", "1").tool(echo("echo")).bus(bus.clone());
    let two = Server::new("two", "1").tool(echo("echo")).bus(bus);
    let client = Way::Wire("2026-07-28").connect(&one).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();

    two.tools().add(echo("new")).unwrap();

    let told = in_time(changes.next()).await.unwrap();
    assert_eq!(told, Some(Change::Tools));
    assert_eq!(changes.honoured().prompts_list_changed, None);
}

#[tokio::test(start_paused = true)]
async fn subscriptions_beyond_the_limit_are_refused_until_one_ends() {
    let server = Server::new("s", "1").tool(echo("echo")).limits(Limits {
        subscriptions: 1,
        ..Limits::default()
    });
    let client = Way::Wire("2026-07-28").connect(&server).await;
    let first = client.subscribe(all_lists()).await.unwrap();

    let second = client.subscribe(all_lists()).await.unwrap_err();
    drop(first);
    client.list_tools().await.unwrap();
    let third = client.subscribe(all_lists()).await;

    let refused = refused(second);
    assert_eq!(refused.code, ErrorCode::INTERNAL_ERROR);
    assert!(refused.message.contains("`subscriptions`"), "{refused}");
    assert_eq!(server.usage().refused(Limit::Subscriptions), 1);
    assert!(third.is_ok(), "{third:?}");
}

#[tokio::test(start_paused = true)]
async fn one_wire_cannot_take_every_subscription() {
    let server = library().resource_updates();
    let modern = Way::Wire("2026-07-28").connect(&server).await;
    let legacy = Way::Wire("2025-11-25").connect(&server).await;
    let mut kept = Vec::new();
    for n in 0..1024 {
        kept.push(modern.subscribe(all_lists()).await.unwrap());
        let uri = json!({"uri": format!("docs://{n}")});
        legacy.raw("resources/subscribe", uri).await.unwrap();
    }

    let one_more = modern.subscribe(all_lists()).await.unwrap_err();
    let another = legacy
        .raw("resources/subscribe", json!({"uri": "docs://x"}))
        .await;
    let again = legacy
        .raw("resources/subscribe", json!({"uri": "docs://7"}))
        .await;

    for error in [one_more, another.unwrap_err()] {
        let refused = refused(error);
        assert!(
            refused.message.contains("`peer_subscriptions`"),
            "{refused}"
        );
    }
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_shed_until_one_ends() {
    for way in WAYS {
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
        let client = way.connect(&server).await;
        let mut first = client.call_tool("stuck", json!({})).start();
        // In process a handler runs only while its caller waits for it.
        tokio::select! {
            biased;
            reply = &mut first => panic!("{reply:?}"),
            tools = client.list_tools() => drop(tools.unwrap()),
        }

        let second = client.call_tool("echo", json!({})).await.unwrap_err();
        drop(first);
        client.list_tools().await.unwrap();
        let third = client.call_tool("echo", json!({})).await;

        let refused = refused(second);
        assert_eq!(refused.code, ErrorCode::INTERNAL_ERROR);
        assert!(refused.message.contains("`handlers`"), "{refused}");
        assert_eq!(server.usage().refused(Limit::Handlers), 1);
        assert!(third.is_ok(), "{way:?} {third:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_hears_of_its_resources_and_no_others() {
    for way in WAYS {
        let server = library().resource_updates();
        let client = way.connect(&server).await;
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(vec!["docs://readme".into()]);
        let mut changes = client.subscribe(filter).await.unwrap();

        let (told, ()) = tokio::join!(in_time(changes.next()), async {
            tokio::task::yield_now().await;
            server.changed().resources();
            server.changed().resource_updated("docs://logo");
            server.changed().resource_updated("docs://readme");
        });

        let readme = Change::Resource("docs://readme".into());
        assert_eq!(told.unwrap(), Some(readme), "{way:?}");
    }
}

// With one worker, whoever is woken runs before what was spawned: the client hears the answer before the
// server's own tasks have had a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_right_after_a_legacy_subscription_was_answered_is_told() {
    let server = library().resource_updates();
    let mut client = Raw(serving(&server));

    let heard = tokio::spawn(async move {
        client.ask(1, "initialize", introduction()).await;
        let readme = json!({"uri": "docs://readme"});
        client.ask(2, "resources/subscribe", readme).await;
        server.changed().resource_updated("docs://readme");
        let heard = client.ask(3, "ping", json!({})).await;
        heard + &client.ask(4, "ping", json!({})).await
    });

    let heard = heard.await.unwrap();
    assert!(heard.contains("notifications/resources/updated"), "{heard}");
}

#[tokio::test(start_paused = true)]
async fn handlers_log_only_where_the_server_says_that_it_logs() {
    for (server, expected) in [
        (Server::new("s", "1"), "none"),
        (Server::new("s", "1").logging(), "declared"),
    ] {
        let noisy = Tool::raw("noisy", json!({"type": "object"}), async |_, cx| {
            cx.log(LoggingLevel::Error, json!("boom"));
            Ok(CallToolResult::text(""))
        });
        let mut far = Raw(serving(&server.tool(noisy)));

        let answer = far.ask(1, "initialize", introduction()).await;
        let said = far.ask(2, "tools/call", json!({"name": "noisy"})).await;
        let level = far
            .ask(3, "logging/setLevel", json!({"level": "error"}))
            .await;

        let declared = expected == "declared";
        assert_eq!(answer.contains("logging"), declared, "{answer}");
        assert_eq!(said.contains("notifications/message"), declared, "{said}");
        assert_eq!(level.contains("-32601"), !declared, "{level}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_has_shaken_hands_can_forward_the_handshake_of_its_client() {
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
    far.open(Dialect::of(first).unwrap(), json!({})).await;

    let sampling = json!({"sampling": {}});
    far.open(Dialect::of(second).unwrap(), sampling).await;
    far.ask("alive", "ping", json!({})).await;
    server.tools().add(echo("another")).unwrap();
    let changed = far.hear().await;
    far.expect_nothing().await;
    let called = far
        .ask("call", "tools/call", json!({"name": "whose"}))
        .await;
    let late = far.ask("late", "initialize", introduction()).await;

    assert_eq!(changed["method"], "notifications/tools/list_changed");
    let text = &called["result"]["content"][0]["text"];
    assert_eq!(text, "2025-11-25 true", "the second handshake counts");
    assert_eq!(late["error"]["code"], -32600, "it has made requests");
}

#[tokio::test]
async fn two_of_one_name_are_refused_when_the_server_is_put_to_use() {
    let inner = Server::new("inner", "1").tool(echo("b"));
    let complete =
        || Completer::for_prompt("p", "a", async |typing, _| Ok(typing.among(["one", "two"])));
    let server = Server::new("s", "1")
        .tool(echo("a_b"))
        .tool(echo("a_b"))
        .mount("a", &inner)
        .prompt(Prompt::raw("p", async |_, _| Ok("first")))
        .prompt(Prompt::raw("p", async |_, _| Ok("second")))
        .resource(Resource::text("docs://r", "r", "first"))
        .resource(Resource::text("docs://r", "r", "second"))
        .completion(complete())
        .completion(complete());

    let refused = Client::to(&server).await.unwrap_err();

    assert_eq!(
        refused.to_string().split("; ").collect::<Vec<_>>(),
        [
            "two tools are called `a_b`",
            "two tools are called `a_b`",
            "two prompts are called `p`",
            "two resources are at `docs://r`",
            "two completers are for `a` of the prompt `p`",
        ]
    );
    assert_eq!(server.tools().names(), ["a_b"], "the first is kept");
}

#[tokio::test]
async fn what_is_added_at_run_time_takes_the_place_of_another() {
    let server = Server::new("s", "1").tool(echo("tool"));
    let client = Client::to(&server).await.unwrap();

    let other = Tool::raw("tool", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("me instead"))
    });
    server.tools().add(other).unwrap();

    assert!(server.check().is_ok());
    let reply = client.call_tool("tool", ()).await.unwrap();
    assert_eq!(reply.text(), "me instead");
}
