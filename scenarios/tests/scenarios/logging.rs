//! Log messages to the client: at the level it set, or at the level of the request.

use std::sync::{Arc, Mutex};

use bowline::types::LoggingLevel;
use bowline::{CallToolResult, Context, Json, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::any_object;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(logging_is_advertised, "logging:capability:declared"),
        scenario!(
            log_messages_arrive_before_the_result,
            "tools:call:logging-mid-execution",
            "mcpserver:context:logging",
            "logging:message:all-levels",
            "logging:message:fields",
        )
        .in_memory(),
        scenario!(
            log_messages_reach_the_application,
            "mcpserver:context:logging",
            "logging:set-level",
            "logging:message:fields",
        ),
        scenario!(
            messages_below_the_set_level_are_not_sent,
            "logging:set-level",
            "logging:message:filtered",
        )
        .legacy()
        .in_memory(),
        scenario!(
            an_unknown_level_is_rejected,
            "logging:set-level:invalid-level",
        )
        .legacy()
        .in_memory(),
        scenario!(
            a_request_receives_log_messages_only_from_its_own_level_on,
            "logging:per-request:opt-in",
            "logging:per-request:threshold",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_request_with_an_unknown_log_level_is_rejected,
            "logging:per-request:invalid-level",
        )
        .modern()
        .in_memory(),
    ]
}

/// A server whose tool `chat` logs at every level.
fn logging_server() -> Server {
    let chat = Tool::raw(
        "chat",
        any_object(),
        async |arguments: Json, cx: Context| {
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
        },
    );
    Server::new("chatty", "1").tool(chat).logging()
}

/// Calls `chat`, and returns the levels of the messages received before the response.
async fn chat(
    client: &mut bowline::testing::ScriptedPeer,
    env: &ScenarioEnv,
    meta: Value,
) -> Vec<String> {
    let params = json!({"name": "chat", "_meta": meta});
    client.request(env.dialect(), "chat", "tools/call", params);
    let mut levels = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == "chat" {
            assert_eq!(message["result"]["content"][0]["text"], "chatted");
            return levels;
        }
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(message["params"]["logger"], "chatty");
        assert_eq!(
            message["params"]["data"]["level is"],
            message["params"]["level"]
        );
        levels.push(message["params"]["level"].as_str().unwrap().to_owned());
    }
}

async fn set_level(client: &mut bowline::testing::ScriptedPeer, level: &str) -> Value {
    client
        .call("level", "logging/setLevel", json!({"level": level}))
        .await
}

async fn logging_is_advertised(env: ScenarioEnv) {
    let discovered = env
        .discover_result(&env.connect(&logging_server()).await)
        .await;

    assert!(discovered.capabilities.logging.is_some());
}

async fn log_messages_arrive_before_the_result(env: ScenarioEnv) {
    let mut client = env.scripted_client(&logging_server(), json!({})).await;
    let mut meta = json!({});
    if env.is_modern() {
        meta["io.modelcontextprotocol/logLevel"] = json!("debug");
    } else {
        set_level(&mut client, "debug").await;
    }

    let levels = chat(&mut client, &env, meta).await;

    assert_eq!(levels, LEVELS);
}

async fn log_messages_reach_the_application(env: ScenarioEnv) {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let recorder = entries.clone();
    let client = env
        .connect_with(&logging_server(), |connect| {
            connect.on_log(move |log| {
                let entry = (log.level, log.logger, log.data);
                recorder.lock().unwrap().push(entry);
            })
        })
        .await;

    client.set_log_level(LoggingLevel::Alert).await.unwrap();
    let rings = json!({"rings": true});
    client.call_tool("chat", rings.clone()).await.unwrap();
    // All replicas have the level when each of them has in turn.
    let mut in_a_row = 0;
    while env.is_replicated() && in_a_row < 3 {
        entries.lock().unwrap().clear();
        client.call_tool("chat", rings.clone()).await.unwrap();
        let has_level = entries.lock().unwrap().len() == 3;
        in_a_row = if has_level { in_a_row + 1 } else { 0 };
    }

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
    assert_eq!(*entries.lock().unwrap(), expected);
}

async fn messages_below_the_set_level_are_not_sent(env: ScenarioEnv) {
    let mut client = env.scripted_client(&logging_server(), json!({})).await;

    let set = set_level(&mut client, "error").await;
    let levels = chat(&mut client, &env, json!({})).await;
    set_level(&mut client, "emergency").await;
    let fewer_levels = chat(&mut client, &env, json!({})).await;

    assert_eq!(set["result"], json!({}));
    assert_eq!(levels, ["error", "critical", "alert", "emergency"]);
    assert_eq!(fewer_levels, ["emergency"]);
}

async fn an_unknown_level_is_rejected(env: ScenarioEnv) {
    let mut client = env.scripted_client(&logging_server(), json!({})).await;

    let refused = set_level(&mut client, "loud").await;

    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

async fn a_request_receives_log_messages_only_from_its_own_level_on(env: ScenarioEnv) {
    let mut client = env.scripted_client(&logging_server(), json!({})).await;

    let without_level = chat(&mut client, &env, json!({})).await;
    let warned = json!({"io.modelcontextprotocol/logLevel": "warning"});
    let with_level = chat(&mut client, &env, warned).await;

    assert!(without_level.is_empty(), "{without_level:?}");
    assert_eq!(
        with_level,
        ["warning", "error", "critical", "alert", "emergency"]
    );
}

async fn a_request_with_an_unknown_log_level_is_rejected(env: ScenarioEnv) {
    let mut client = env.scripted_client(&logging_server(), json!({})).await;

    let meta = json!({"io.modelcontextprotocol/logLevel": "loud"});
    let params = json!({"name": "chat", "_meta": meta});
    client.request(env.dialect(), "chat", "tools/call", params);

    let refused = client.next_message().await;
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
