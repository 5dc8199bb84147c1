//! Requests and responses: ids, notifications, errors and `_meta`.

use bowline::types::Meta;
use bowline::{CallToolResult, Context, Error, ErrorCode, Json, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{any_object, echo, hanging_server, peer_error, start_hang, tools};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(request_ids_are_unique, "protocol:request-id:unique").in_memory(),
        scenario!(
            a_caller_may_choose_the_id_of_a_request,
            "protocol:request-id:caller-supplied",
        ),
        scenario!(
            a_notification_is_never_answered,
            "protocol:notifications:no-response"
        )
        .in_memory(),
        scenario!(
            a_closed_connection_fails_every_call,
            "protocol:error:connection-closed",
        )
        .in_memory(),
        scenario!(
            a_panicking_handler_is_an_internal_error_without_its_message,
            "protocol:error:internal-error",
        ),
        scenario!(invalid_params_are_rejected, "protocol:error:invalid-params"),
        scenario!(
            an_unknown_method_is_rejected,
            "protocol:error:method-not-found"
        ),
        scenario!(result_meta_reaches_the_caller, "meta:result-to-client"),
    ]
}

async fn request_ids_are_unique(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    for _ in 0..3 {
        tools(&client).await;
    }
    let (one, two) = (client.call_tool("echo", ()), client.call_tool("echo", ()));
    let (one, two) = tokio::join!(one, two);

    assert!(one.is_ok() && two.is_ok());
    let sent = env.wire_record().unwrap().sent();
    let requests = sent.iter().filter(|frame| {
        frame["method"]
            .as_str()
            .is_some_and(|it| !it.starts_with("notifications/"))
    });
    let mut ids: Vec<String> = requests.map(|frame| frame["id"].to_string()).collect();
    let count = ids.len();
    assert!(ids.iter().all(|id| id != "null"), "{ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

async fn a_caller_may_choose_the_id_of_a_request(env: ScenarioEnv) {
    let id = Tool::raw("id", any_object(), async |_, cx: Context| {
        Ok(CallToolResult::text(cx.request_id().to_string()))
    });
    let client = env.connect(&Server::new("s", "1").tool(id)).await;

    let call = client.call_tool("id", ()).id("chosen").start();
    let known_before = call.id().cloned();
    let reply = call.await.unwrap();

    assert_eq!(known_before, Some("chosen".into()));
    assert_eq!(reply.text(), r#""chosen""#);
}

async fn a_notification_is_never_answered(env: ScenarioEnv) {
    let mut client = env
        .scripted_client(&Server::new("s", "1").tool(echo("echo")), json!({}))
        .await;

    client.notify("notifications/unknown", json!({"a": 1}));
    client.notify("notifications/cancelled", json!({"requestId": 99}));
    client.notify("notifications/cancelled", json!({"nonsense": true}));
    client.request(env.dialect(), "next", "tools/list", json!({}));

    assert_eq!(client.next_message().await["id"], "next");
    client.expect_nothing().await;
}

async fn a_closed_connection_fails_every_call(env: ScenarioEnv) {
    let client = env.connect(&hanging_server()).await;
    let (one, two) = (start_hang(&client).await, start_hang(&client).await);

    env.wire_record().unwrap().cut();

    for call in [one, two] {
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Transport { .. } | Error::Closed),
            "{error:?}"
        );
    }
    let next = client.call_tool("echo", ()).await.unwrap_err();
    assert!(
        matches!(next, Error::Transport { .. } | Error::Closed),
        "{next:?}"
    );
}

async fn a_panicking_handler_is_an_internal_error_without_its_message(env: ScenarioEnv) {
    let panics = Tool::raw("panics", any_object(), async |_, _| {
        panic!("the password is 1234")
    });
    let client = env
        .connect(&Server::new("s", "1").tool(panics).tool(echo("echo")))
        .await;

    let error = peer_error(client.call_tool("panics", ()).await);
    let next = client.call_tool("echo", ()).await;

    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert!(!format!("{error:?}").contains("1234"), "{error:?}");
    assert!(next.is_ok());
}

async fn invalid_params_are_rejected(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    for params in [
        json!({}),
        json!({"name": 7}),
        json!({"name": "echo", "arguments": [1]}),
    ] {
        let error = peer_error(client.request_raw("tools/call", params.clone()).await);
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{params}");
    }
}

async fn an_unknown_method_is_rejected(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    for method in ["unknown/method", "prompts/list", "resources/read"] {
        let error = peer_error(client.request_raw(method, json!({})).await);
        assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
}

async fn result_meta_reaches_the_caller(env: ScenarioEnv) {
    let noted = Tool::raw("noted", any_object(), async |_, _| {
        let mut result = CallToolResult::text("done");
        let mut meta = Meta::default();
        meta.insert("example.com/cost", Json::from(json!(3)));
        result.meta = Some(meta);
        Ok(result)
    });
    let client = env.connect(&Server::new("s", "1").tool(noted)).await;

    let reply = client.call_tool("noted", ()).await.unwrap();

    let cost: Value = reply
        .meta()
        .unwrap()
        .get("example.com/cost")
        .unwrap()
        .decode()
        .unwrap();
    assert_eq!(cost, json!(3));
}
