//! Logging to the client: at a level that it sets, or that each request brings.

use std::sync::{Arc, Mutex};

use bowline::types::LoggingLevel;
use bowline::{CallToolResult, Context, Json, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::anything;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(a_server_that_logs_says_so, "logging:capability:declared"),
        scenario!(
            what_a_handler_logs_arrives_before_its_result,
            "tools:call:logging-mid-execution",
            "mcpserver:context:logging",
            "logging:message:all-levels",
            "logging:message:fields",
        )
        .in_memory(),
        scenario!(
            what_a_server_logs_reaches_the_application,
            "mcpserver:context:logging",
            "logging:set-level",
            "logging:message:fields",
        ),
        scenario!(
            a_client_sets_the_level_below_which_it_hears_nothing,
            "logging:set-level",
            "logging:message:filtered",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_level_that_does_not_exist_is_refused,
            "logging:set-level:invalid-level",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_request_hears_what_it_asks_for_and_nothing_without_asking,
            "logging:per-request:opt-in",
            "logging:per-request:threshold",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_request_with_a_level_that_does_not_exist_is_refused,
            "logging:per-request:invalid-level",
        )
        .modern()
        .in_memory(),
    ]
}

/// A server whose tool `chat` logs at every level.
fn chatty() -> Server {
    let chat = Tool::raw("chat", anything(), async |arguments: Json, cx: Context| {
        for level in LEVELS {
            let level: LoggingLevel = serde_json::from_value(json!(level)).unwrap();
            cx.log(level, json!({"level is": level}));
        }
        if arguments.decode::<Value>().unwrap()["rings"] == true {
            cx.log_as(
                "bell",
                LoggingLevel::Emergency,
                json!({"level is": "a logger of its own"}),
            );
        }
        Ok(CallToolResult::text("chatted"))
    });
    Server::new("chatty", "1").tool(chat).logging()
}

/// Calls `chat`, and returns the levels of what is heard before the answer.
async fn chat(client: &mut bowline::testing::Scripted, world: &World, meta: Value) -> Vec<String> {
    let params = json!({"name": "chat", "_meta": meta});
    client.request(world.dialect(), "chat", "tools/call", params);
    let mut levels = Vec::new();
    loop {
        let heard = client.hear().await;
        if heard["id"] == "chat" {
            assert_eq!(heard["result"]["content"][0]["text"], "chatted");
            return levels;
        }
        assert_eq!(heard["method"], "notifications/message");
        assert_eq!(heard["params"]["logger"], "chatty");
        assert_eq!(
            heard["params"]["data"]["level is"],
            heard["params"]["level"]
        );
        levels.push(heard["params"]["level"].as_str().unwrap().to_owned());
    }
}

async fn set_level(client: &mut bowline::testing::Scripted, level: &str) -> Value {
    client
        .ask("level", "logging/setLevel", json!({"level": level}))
        .await
}

async fn a_server_that_logs_says_so(world: World) {
    let told = world.introduction(&world.connect(&chatty()).await).await;

    assert!(told.capabilities.logging.is_some());
}

async fn what_a_handler_logs_arrives_before_its_result(world: World) {
    let mut client = world.scripted_client(&chatty(), json!({})).await;
    let mut meta = json!({});
    if world.is_modern() {
        meta["io.modelcontextprotocol/logLevel"] = json!("debug");
    } else {
        set_level(&mut client, "debug").await;
    }

    let heard = chat(&mut client, &world, meta).await;

    assert_eq!(heard, LEVELS);
}

async fn what_a_server_logs_reaches_the_application(world: World) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = heard.clone();
    let client = world
        .connect_with(&chatty(), |connect| {
            connect.on_log(move |log| {
                let heard = (log.level, log.logger, log.data);
                ears.lock().unwrap().push(heard);
            })
        })
        .await;

    client.set_log_level(LoggingLevel::Alert).await.unwrap();
    let rings = json!({"rings": true});
    client.call_tool("chat", rings).await.unwrap();

    let data = |level: &str| Json::from(json!({"level is": level}));
    let by = |logger: &str| Some(logger.to_owned());
    let expected = [
        (LoggingLevel::Alert, by("chatty"), data("alert")),
        (LoggingLevel::Emergency, by("chatty"), data("emergency")),
        (
            LoggingLevel::Emergency,
            by("bell"),
            data("a logger of its own"),
        ),
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
}

async fn a_client_sets_the_level_below_which_it_hears_nothing(world: World) {
    let mut client = world.scripted_client(&chatty(), json!({})).await;

    let set = set_level(&mut client, "error").await;
    let heard = chat(&mut client, &world, json!({})).await;
    set_level(&mut client, "emergency").await;
    let heard_less = chat(&mut client, &world, json!({})).await;

    assert_eq!(set["result"], json!({}));
    assert_eq!(heard, ["error", "critical", "alert", "emergency"]);
    assert_eq!(heard_less, ["emergency"]);
}

async fn a_level_that_does_not_exist_is_refused(world: World) {
    let mut client = world.scripted_client(&chatty(), json!({})).await;

    let refused = set_level(&mut client, "loud").await;

    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

async fn a_request_hears_what_it_asks_for_and_nothing_without_asking(world: World) {
    let mut client = world.scripted_client(&chatty(), json!({})).await;

    let unasked = chat(&mut client, &world, json!({})).await;
    let warned = json!({"io.modelcontextprotocol/logLevel": "warning"});
    let asked = chat(&mut client, &world, warned).await;

    assert!(unasked.is_empty(), "{unasked:?}");
    assert_eq!(
        asked,
        ["warning", "error", "critical", "alert", "emergency"]
    );
}

async fn a_request_with_a_level_that_does_not_exist_is_refused(world: World) {
    let mut client = world.scripted_client(&chatty(), json!({})).await;

    let meta = json!({"io.modelcontextprotocol/logLevel": "loud"});
    let params = json!({"name": "chat", "_meta": meta});
    client.request(world.dialect(), "chat", "tools/call", params);

    let refused = client.hear().await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
